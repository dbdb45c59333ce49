import assert from "node:assert/strict";
import { test } from "node:test";

import { clip, gradient, makeNetwork, makeUpdate, NAMES, normOf, zeros } from "../../../statewise/lab/static/elman.js";
import { EXERCISES } from "../../../statewise/lab/static/exercise.js";
import { normal, uniform } from "../../../statewise/lab/static/random.js";
import { cases, close } from "./cases.js";

for (const one of cases("elman")) {
  test(`gradients of ${one.name} are those of autograd`, () => {
    const weights = Object.fromEntries(NAMES.map((name) => [name, Float64Array.from(one.weights[name])]));
    const network = { inputs: one.inputs, width: one.width, outputs: one.outputs, weights };
    const batch = one.batch.map(({ x, y, counts }) => ({ x: x.map((row) => Float64Array.from(row)), y, counts }));
    const found = gradient(network, batch, one.loss, one.cut);
    close([found.loss], [one.value], 1e-10, "loss");
    for (const name of NAMES) close(found.gradient[name], one.gradient[name], 1e-10, name);
  });
}

test("a gradient above the limit is scaled to it, another is left alone", () => {
  const network = makeNetwork(1, 2, 1, normal(0)), large = zeros(network);
  large.W.fill(3);
  assert.equal(clip(large, 1), 6);
  close([normOf(large)], [1], 1e-12, "norm");
  assert.equal(clip(large, 0), 1);
  close([clip(large, 5), normOf(large)], [1, 1], 1e-12, "norm");
});

test("Adam's first update moves each weight by the rate", () => {
  const network = makeNetwork(1, 2, 1, normal(0)), before = Float64Array.from(network.weights.W), found = zeros(network);
  found.W.set([1e-3, -5, 2, 0]);
  makeUpdate(network, "adam")(found, 0.1);
  close(network.weights.W, before.map((value, at) => value - [0.1, -0.1, 0.1, 0][at]), 1e-5, "W");
});

for (const [name, exercise] of Object.entries(EXERCISES)) {
  test(`${name} is learned`, () => {
    const network = makeNetwork(exercise.inputs, 16, exercise.outputs, normal(11)), next = uniform(101), update = makeUpdate(network, "adam");
    let last = 0;
    for (let count = 0; count < 800; count += 1) {
      const batch = Array.from({ length: 16 }, () => exercise.draw(next));
      const found = gradient(network, batch, exercise.loss, exercise.steps);
      clip(found.gradient, 1);
      update(found.gradient, 0.01);
      last = found.loss;
    }
    assert.ok(last < exercise.floor / 10, `${last} after 800 updates`);
  });
}
