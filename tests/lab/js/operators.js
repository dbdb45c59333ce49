// Single operators: prints the outputs of each case as JSON, and how far its reverse is from differences.
// Usage: node operators.js CASES.json ENGINE, which is 0 for plain JavaScript and 1 for WebAssembly

import { readFileSync } from "node:fs";
import { backward, flow, recorded } from "../../../statewise/lab/static/backward.js";
import { Graph } from "../../../statewise/lab/static/graph.js";
import { OPERATORS } from "../../../statewise/lab/static/operator.js";
import { decoded, tensorFrom } from "../../../statewise/lab/static/tensor.js";
import { engines } from "./engine.js";

engines[Number(process.argv[3])]();
const STEP = 1e-3;
const { cases } = JSON.parse(readFileSync(process.argv[2], "utf-8"));

/** The sum of all outputs, each times a weight of its own, in double precision. */
const total = (graph, feed) => {
  const values = graph.run(feed, null, true);
  let [sum, at] = [0, 0];
  for (const [, place] of graph.outputs) for (const value of values[place].data) sum += value * Math.cos((at += 1));
  return sum;
};

const reversed = (graph, feed, differentiable) => {
  const { flows } = flow(graph);
  const tape = recorded(graph, feed);
  const gradients = new Array(graph.size).fill(null);
  let at = 0;
  for (const [, place] of graph.outputs) gradients[place] = Float64Array.from(tape.values[place].data, () => Math.cos((at += 1)));
  backward(graph, tape, gradients, flows);
  let [most, size] = [0, 1];
  for (const name of differentiable) {
    const x = feed.get(name);
    const found = gradients[graph.place.get(name)] || new Float64Array(x.data.length);
    for (let i = 0; i < x.data.length; i += 1) {
      const old = x.data[i];
      const [high, low] = [STEP, -STEP].map((by) => {
        x.data[i] = old + by;
        return [total(graph, feed), x.data[i]];
      });
      x.data[i] = old;
      const slope = (high[0] - low[0]) / (high[1] - low[1]);
      most = Math.max(most, Math.abs(slope - found[i]));
      size = Math.max(size, Math.abs(slope));
    }
  }
  return most / size;
};

const found = cases.map(({ record, feed, differentiable }) => {
  const graph = new Graph(record.graph, decoded(record.weights));
  const given = new Map(Object.entries(feed).map(([name, one]) => [name, tensorFrom(one)]));
  const values = graph.run(given, null, false);
  const outputs = Object.fromEntries(graph.outputs.map(([name, place]) => [name, { dims: values[place].dims, data: Array.from(values[place].data, (x) => (Number.isFinite(x) ? x : String(x))) }]));
  return { outputs, reverse: differentiable.length ? reversed(graph, given, differentiable) : 0 };
});
console.log(JSON.stringify({ operators: Object.keys(OPERATORS), found }));
