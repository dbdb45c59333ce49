// @ts-check
/** Reverse mode over the operators: from a loss after one step back to the inputs of all steps before it. */

import { scatterPlaces } from "./movement.js";
import { pointTable } from "./operator.js";
import { BINARY, UNARY } from "./pointwise.js";
import { productTable, reduceTable, stretches } from "./product.js";
import { backThroughWeight } from "./simd.js";
import { count } from "./tensor.js";

/** @typedef {import("./tensor.js").Tensor} Tensor */
/** @typedef {import("./node.js").Node} Node */
/** @typedef {import("./graph.js").Graph} Graph */
/** Gradients of a node, input by input; null where there is none. */
/** @typedef {(Float64Array | null)[]} Gradients */
/** @typedef {(node: Node, given: Tensor[], y: Tensor, dy: Float64Array, wanted: boolean[]) => Gradients} Reverse */

/** @param {Tensor} x */
const zeros = (x) => new Float64Array(count(x.dims));

/** Adds each number back to where it came from. @param {Tensor} x @param {Int32Array} map @param {Float64Array} dy */
function returned(x, map, dy) {
  const dx = zeros(x);
  for (let i = 0; i < map.length; i += 1) if (map[i] >= 0) dx[map[i]] += dy[i];
  return dx;
}

/** @type {Reverse} */
function binary(node, given, y, dy, wanted) {
  const slopes = BINARY[node.op][1];
  if (slopes === null) return [null, null];
  const [a, b] = given;
  const { maps } = pointTable(node, given);
  return given.map((one, side) => {
    if (!wanted[side]) return null;
    const dx = zeros(one);
    for (let i = 0; i < dy.length; i += 1) {
      const [left, right] = [maps[0] ? maps[0][i] : i, maps[1] ? maps[1][i] : i];
      dx[side ? right : left] += dy[i] * slopes[side](a.data[left], b.data[right], y.data[i]);
    }
    return dx;
  });
}

/** @type {Reverse} */
function unary(node, [x], y, dy) {
  const slope = UNARY[node.op][1];
  if (slope === null) return [null];
  const dx = zeros(x);
  for (let i = 0; i < dx.length; i += 1) dx[i] = dy[i] === 0 ? 0 : dy[i] * slope(x.data[i], y.data[i]);
  return [dx];
}

/** @type {Reverse} */
const movement = (node, given, _y, dy) => {
  const map = /** @type {import("./node.js").Table} */ (node.table).maps[0];
  return [map === null ? dy : returned(given[0], map, dy), ...given.slice(1).map(() => null)];
};
/** @type {Reverse} */
const view = (_node, given, _y, dy) => [dy, ...given.slice(1).map(() => null)];

/** @type {Reverse} */
function matmul(node, [a, b], _y, dy, wanted) {
  const [first, second, sizes] = /** @type {Int32Array[]} */ (productTable(node, a, b).maps);
  const [m, k, n] = sizes;
  const da = wanted[0] ? zeros(a) : null;
  const db = wanted[1] ? zeros(b) : null;
  if (node.matrix && da && backThroughWeight(da, dy, m * first.length, node.matrix)) return [da, null];
  for (let at = 0; at < first.length; at += 1) {
    const [aAt, bAt, yAt] = [first[at], second[at], at * m * n];
    for (let row = 0; row < m; row += 1)
      for (let i = 0; i < k; i += 1) {
        let sum = 0;
        const scale = a.data[aAt + row * k + i];
        for (let j = 0; j < n; j += 1) {
          const g = dy[yAt + row * n + j];
          sum += g * b.data[bAt + i * n + j];
          if (db) db[bAt + i * n + j] += g * scale;
        }
        if (da) da[aAt + row * k + i] += sum;
      }
  }
  return [da, db];
}

/** @type {Reverse} */
function gemm(node, [a, b, c], _y, dy, wanted) {
  const { alpha = 1, beta = 1, transA = 0, transB = 0 } = node.attributes;
  const [m, k] = transA ? [a.dims[1], a.dims[0]] : a.dims;
  const n = transB ? b.dims[0] : b.dims[1];
  const [da, db] = [zeros(a), zeros(b)];
  const done = node.matrix && !transA && alpha === 1 && backThroughWeight(da, dy, m, node.matrix);
  for (let row = done ? m : 0; row < m; row += 1)
    for (let i = 0; i < k; i += 1)
      for (let j = 0; j < n; j += 1) {
        const g = alpha * dy[row * n + j];
        const [left, right] = [transA ? i * m + row : row * k + i, transB ? j * k + i : i * n + j];
        da[left] += g * b.data[right];
        if (wanted[1]) db[right] += g * a.data[left];
      }
  const dc = c && wanted[2] ? returned(c, /** @type {Int32Array} */ (node.table?.maps[0]), dy.map((g) => beta * g)) : null;
  return [da, wanted[1] ? db : null, dc];
}

/** @type {Reverse} */
function softmax(node, [x], y, dy) {
  const [outer, length, inner] = stretches(x.dims, node.attributes.axis ?? -1);
  const dx = zeros(x);
  for (let o = 0; o < outer; o += 1)
    for (let i = 0; i < inner; i += 1) {
      const begin = o * length * inner + i;
      let sum = 0;
      for (let j = 0; j < length; j += 1) sum += dy[begin + j * inner] * y.data[begin + j * inner];
      for (let j = 0; j < length; j += 1) dx[begin + j * inner] = y.data[begin + j * inner] * (dy[begin + j * inner] - sum);
    }
  return [dx];
}

/** @type {Reverse} */
function layerNorm(node, [x, gain, bias], _y, dy, wanted) {
  const axis = node.attributes.axis ?? -1;
  const length = count(x.dims.slice(axis < 0 ? axis + x.dims.length : axis));
  const dx = zeros(x);
  const dGain = wanted[1] ? zeros(gain) : null;
  const dBias = bias && wanted[2] ? zeros(bias) : null;
  for (let begin = 0; begin < dx.length; begin += length) {
    let mean = 0;
    for (let i = 0; i < length; i += 1) mean += x.data[begin + i] / length;
    let variance = 0;
    for (let i = 0; i < length; i += 1) variance += (x.data[begin + i] - mean) ** 2 / length;
    const scale = 1 / Math.sqrt(variance + (node.attributes.epsilon ?? 1e-5));
    let [sum, along] = [0, 0];
    for (let i = 0; i < length; i += 1) {
      const z = (x.data[begin + i] - mean) * scale;
      const g = dy[begin + i] * gain.data[i];
      sum += g / length;
      along += (g * z) / length;
      if (dGain) dGain[i] += dy[begin + i] * z;
      if (dBias) dBias[i] += dy[begin + i];
    }
    for (let i = 0; i < length; i += 1) dx[begin + i] = scale * (dy[begin + i] * gain.data[i] - sum - (x.data[begin + i] - mean) * scale * along);
  }
  return [dx, dGain, dBias];
}

/** @type {Reverse} */
function reduced(node, [x, over], y, dy) {
  const map = /** @type {Int32Array} */ (reduceTable(node, x, over).maps[0]);
  const dx = zeros(x);
  if (node.op === "ReduceSum" || node.op === "ReduceMean") {
    const share = node.op === "ReduceMean" ? dy.length / dx.length : 1;
    for (let i = 0; i < dx.length; i += 1) dx[i] = dy[map[i]] * share;
    return [dx, null];
  }
  const ties = new Float64Array(dy.length);
  for (let i = 0; i < dx.length; i += 1) if (x.data[i] === y.data[map[i]]) ties[map[i]] += 1;
  for (let i = 0; i < dx.length; i += 1) if (x.data[i] === y.data[map[i]]) dx[i] = dy[map[i]] / ties[map[i]];
  return [dx, null];
}

/** @type {Reverse} */
function joined(node, given, y, dy) {
  const [outer, length, inner] = stretches(y.dims, node.attributes.axis);
  let at = 0;
  return given.map((one) => {
    const size = count(one.dims) / outer;
    const dx = zeros(one);
    for (let o = 0; o < outer; o += 1) for (let i = 0; i < size; i += 1) dx[o * size + i] = dy[o * length * inner + at + i];
    at += size;
    return dx;
  });
}

/** @type {Reverse} */
function scattered(node, [x, at, updates], _y, dy) {
  const map = scatterPlaces(node, x, at, updates);
  const dx = dy.slice();
  const du = zeros(updates);
  for (let i = 0; i < map.length; i += 1) du[i] = dy[map[i]];
  if (node.attributes.reduction !== "add") for (let i = 0; i < map.length; i += 1) dx[map[i]] = 0;
  return [dx, null, du];
}

/** @type {Reverse} */
function chosen(node, given, _y, dy) {
  const [w, first, second] = pointTable(node, given).maps;
  const [which, a, b] = given;
  const [da, db] = [zeros(a), zeros(b)];
  for (let i = 0; i < dy.length; i += 1) {
    if (which.data[w ? w[i] : i]) da[first ? first[i] : i] += dy[i];
    else db[second ? second[i] : i] += dy[i];
  }
  return [null, da, db];
}

/** @type {Record<string, Reverse>} */
export const REVERSES = {
  ...Object.fromEntries(Object.keys(UNARY).map((name) => [name, unary])),
  ...Object.fromEntries(Object.keys(BINARY).map((name) => [name, binary])),
  ...Object.fromEntries(["Expand", "Gather", "GatherElements", "GatherND", "Pad", "Slice", "Transpose"].map((name) => [name, movement])),
  ...Object.fromEntries(["Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"].map((name) => [name, view])),
  ...Object.fromEntries(["ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"].map((name) => [name, reduced])),
  Clip: (_node, [x, low, high], _y, dy) => {
    const [least, most] = [low ? low.data[0] : -Infinity, high ? high.data[0] : Infinity];
    return [dy.map((g, i) => (x.data[i] < least || x.data[i] > most ? 0 : g)), null, null];
  },
  Concat: joined,
  Gemm: gemm,
  LayerNormalization: layerNorm,
  MatMul: matmul,
  ScatterElements: scattered,
  ScatterND: scattered,
  Softmax: softmax,
  Where: chosen,
};

/** Which values a gradient flows through: those that depend on the state or on the token's vector. @param {Graph} graph @returns {{flows: Uint8Array, entries: number[]}} */
export function flow(graph) {
  const flows = new Uint8Array(graph.size);
  const ofToken = new Uint8Array(graph.size);
  /** @type {number[]} */
  const entries = [];
  for (const [name, place] of graph.inputs) {
    if (name === "tokens") ofToken[place] = 1;
    else flows[place] = 1;
  }
  for (const node of graph.nodes) {
    const from = Array.from(node.inputs).filter((place) => place >= 0);
    const isLookup = node.op === "Gather" && graph.constants[node.inputs[0]]?.kind === "f" && ofToken[node.inputs[1]];
    if (isLookup) entries.push(node.outputs[0]);
    const is = isLookup || from.some((place) => flows[place]);
    for (const place of node.outputs) {
      flows[place] = Number(is);
      ofToken[place] = Number(!is && from.some((one) => ofToken[one]));
    }
  }
  return { flows, entries };
}

/** A step that is kept: all its values, and the tables of its nodes. @typedef {{values: (Tensor | undefined)[], tables: Node["table"][]}} Tape */

/** @param {Graph} graph @param {Map<string, Tensor>} feed @returns {Tape} */
export function recorded(graph, feed) {
  const values = graph.run(feed, null, true);
  return { values, tables: graph.nodes.map((node) => node.table) };
}

/**
 * Back through one step. `gradients` holds those of the outputs, by number, and afterwards all others.
 * @param {Graph} graph @param {Tape} tape @param {(Float64Array | null)[]} gradients @param {Uint8Array} flows
 */
export function backward(graph, { values, tables }, gradients, flows) {
  for (let at = graph.nodes.length - 1; at >= 0; at -= 1) {
    const node = graph.nodes[at];
    const known = node.op === "Split" ? parted(values, gradients) : REVERSES[node.op];
    const dy = node.outputs.some((place) => gradients[place]) ? gradients[node.outputs[0]] : null;
    const given = Array.from(node.inputs, (place) => /** @type {Tensor} */ (place < 0 ? undefined : values[place]));
    const wanted = Array.from(node.inputs, (place, i) => place >= 0 && flows[place] === 1 && given[i].kind === "f");
    const y = /** @type {Tensor} */ (values[node.outputs[0]]);
    if (known === undefined || (!dy && node.op !== "Split") || !wanted.some(Boolean) || y.kind !== "f") continue;
    node.table = tables[at];
    const found = known(node, given, y, /** @type {Float64Array} */ (dy), wanted);
    node.inputs.forEach((place, i) => {
      const gradient = found[i];
      if (!wanted[i] || !gradient) return;
      const old = gradients[place];
      gradients[place] = old ? old.map((value, k) => value + gradient[k]) : gradient;
    });
  }
}

/** Of `Split`, which has several results. @param {(Tensor | undefined)[]} values @param {(Float64Array | null)[]} gradients @returns {Reverse} */
function parted(values, gradients) {
  return (node, given) => {
    const [outer, length, inner] = stretches(given[0].dims, node.attributes.axis || 0);
    const dx = zeros(given[0]);
    let at = 0;
    for (const place of node.outputs) {
      const size = count(/** @type {Tensor} */ (values[place]).dims) / outer;
      const dy = gradients[place];
      if (dy) for (let o = 0; o < outer; o += 1) for (let i = 0; i < size; i += 1) dx[o * length * inner + at + i] = dy[o * size + i];
      at += size;
    }
    return [dx, null];
  };
}

/**
 * The gradient of -log p(target) after token t by the vector of each token before it, and their lengths.
 * @param {{graph: Graph, feed: (state: Map<string, Tensor>, token: number) => Map<string, Tensor>}} machine
 * @param {Map<string, Tensor>} start @param {ArrayLike<number>} tokens @param {number} t @param {number} target
 * @returns {{norms: Float64Array, vectors: Float64Array[]}}
 */
export function gradientOf(machine, start, tokens, t, target) {
  const { graph } = machine;
  const { flows, entries } = flow(graph);
  /** @type {Tape[]} */
  const tapes = [];
  let state = start;
  for (let s = 0; s <= t; s += 1) {
    const tape = recorded(graph, machine.feed(state, tokens[s]));
    tapes.push(tape);
    state = new Map(Array.from(state.keys(), (name) => [name, graph.value(tape.values, `after.${name}`)]));
  }
  const norms = new Float64Array(t + 1);
  const vectors = new Array(t + 1);
  /** Gradients of the state after the step, by the path of the leaf. @type {Map<string, Float64Array>} */
  let after = new Map();
  for (let s = t; s >= 0; s -= 1) {
    /** @type {(Float64Array | null)[]} */
    const gradients = new Array(graph.size).fill(null);
    for (const [name, gradient] of after) add(gradients, /** @type {number} */ (graph.place.get(`after.${name}`)), gradient);
    if (s === t) {
      const place = /** @type {number} */ (graph.place.get("logits"));
      add(gradients, place, lossGradient(/** @type {Tensor} */ (tapes[s].values[place]), target));
    }
    backward(graph, tapes[s], gradients, flows);
    vectors[s] = joinedVectors(entries.map((place) => gradients[place] || new Float64Array(count(/** @type {Tensor} */ (tapes[s].values[place]).dims))));
    norms[s] = Math.hypot(...vectors[s]);
    after = new Map();
    for (const name of start.keys()) {
      const gradient = gradients[/** @type {number} */ (graph.place.get(name))];
      if (gradient) after.set(name, gradient);
    }
  }
  return { norms, vectors };
}

/** @param {(Float64Array | null)[]} gradients @param {number} place @param {Float64Array} gradient */
function add(gradients, place, gradient) {
  const old = gradients[place];
  gradients[place] = old ? old.map((value, i) => value + gradient[i]) : gradient.slice();
}

/** @param {Float64Array[]} parts */
function joinedVectors(parts) {
  return Float64Array.from(parts.flatMap((part) => Array.from(part)));
}

/** Of cross-entropy: p - 1 at the target, p elsewhere. @param {Tensor} logits @param {number} target */
function lossGradient(logits, target) {
  let top = -Infinity;
  for (const value of logits.data) top = Math.max(top, value);
  const dy = Float64Array.from(logits.data, (value) => Math.exp(value - top));
  const sum = dy.reduce((a, b) => a + b, 0);
  for (let i = 0; i < dy.length; i += 1) dy[i] = dy[i] / sum - Number(i === target);
  return dy;
}
