// @ts-check
/**
 * The operators of exported graphs, by their definitions in ONNX.
 *
 * Three forms cover most of them, and each has one reverse: a pointwise function of values that are broadcast; a
 * movement, which is a table of where each number comes from; and a sum of products. `backward.js` holds the reverses.
 */

import { from, gatherTable, listed, moved, reshaped, scatterPlaces, sliceTable, strided, viewed } from "./movement.js";
import { result, tabled } from "./node.js";
import { BINARY, UNARY } from "./pointwise.js";
import { gemm, matmul, reduced, stretches } from "./product.js";
import { arithmetic, curved } from "./simd.js";
import { broadcast, count, places, runsOf, sameDims, sharedStrides, spread, stridesOf, tensorFrom } from "./tensor.js";

/** @typedef {import("./tensor.js").Tensor} Tensor */
/** @typedef {import("./tensor.js").Kind} Kind */
/** @typedef {import("./node.js").Node} Node */

const TRUTHS = new Set(["And", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "Or"]);
const whole = (/** @type {number} */ a, /** @type {number} */ b) => Math.trunc(a / b);

const BEGIN = new Int32Array(1);

/** The dims of a pointwise result, and for each input where its numbers come from. @param {Node} node @param {Tensor[]} given */
export function pointTable(node, given) {
  return tabled(node, given, [], () => {
    const all = given.map((one) => one.dims);
    const dims = all.reduce(broadcast), size = count(dims);
    const steps = all.map((own) => (count(own) === size ? 1 : 0)); // nothing, one number or all of them
    const plain = steps.every((step, i) => step || count(all[i]) === 1);
    /** @type {(Int32Array | null)[] | null} */
    let maps = null;
    return {
      dims,
      runs: plain ? { length: size, steps, begins: all.map(() => BEGIN) } : runsOf(dims, all.map((own) => sharedStrides(own, dims))),
      get maps() {
        return (maps ??= all.map((own) => (sameDims(own, dims) ? null : spread(own, dims))));
      },
    };
  });
}

/** @typedef {import("./tensor.js").Numbers} Numbers */
/** One stretch: `out[at + i]` of `a[p + i s]` and `b[q + i t]`. @typedef {(out: Numbers, at: number, a: Numbers, p: number, s: number, b: Numbers, q: number, t: number, size: number) => void} Stretch */

/** What is computed most often, without a call for each number. @type {Record<string, Stretch>} */
const ARITHMETIC = {
  Add: (out, at, a, p, s, b, q, t, size) => { for (let i = 0; i < size; i += 1) out[at + i] = a[p + i * s] + b[q + i * t]; },
  Div: (out, at, a, p, s, b, q, t, size) => { for (let i = 0; i < size; i += 1) out[at + i] = a[p + i * s] / b[q + i * t]; },
  Mul: (out, at, a, p, s, b, q, t, size) => { for (let i = 0; i < size; i += 1) out[at + i] = a[p + i * s] * b[q + i * t]; },
  Pow: (out, at, a, p, s, b, q, t, size) => { for (let i = 0; i < size; i += 1) out[at + i] = b[q + i * t] === 2 ? a[p + i * s] * a[p + i * s] : a[p + i * s] ** b[q + i * t]; },
  Sub: (out, at, a, p, s, b, q, t, size) => { for (let i = 0; i < size; i += 1) out[at + i] = a[p + i * s] - b[q + i * t]; },
};

/** @param {Node} node @param {Tensor[]} given @returns {Tensor} */
function binary(node, [left, right]) {
  const table = pointTable(node, [left, right]);
  const integer = node.op === "Div" && left.kind === "i";
  const f = integer ? whole : BINARY[node.op][0];
  const y = result(node, TRUTHS.has(node.op) ? "b" : left.kind, table.dims);
  const [a, b, out] = [left.data, right.data, y.data];
  const runs = /** @type {import("./tensor.js").Runs} */ (table.runs);
  if (left.kind === "f" && arithmetic(node.op, out, a, b, runs)) return y;
  const { length, steps: [s, t], begins } = runs;
  const quick = integer ? undefined : ARITHMETIC[node.op];
  for (let run = 0, at = 0; at < out.length; run += 1, at += length) {
    const [p, q] = [begins[0][run], begins[1][run]];
    if (quick) quick(out, at, a, p, s, b, q, t, length);
    else for (let i = 0; i < length; i += 1) out[at + i] = f(a[p + i * s], b[q + i * t]);
  }
  return y;
}

/** @param {Node} node @param {Tensor[]} given @returns {Tensor} */
function unary(node, [x]) {
  const [f] = UNARY[node.op];
  const y = result(node, TRUTHS.has(node.op) ? "b" : x.kind, x.dims);
  if (curved(node.op, y.data, x.data)) return y;
  for (let i = 0; i < y.data.length; i += 1) y.data[i] = f(x.data[i]);
  return y;
}

/** @param {Node} node @param {Tensor[]} given @returns {Tensor} */
function softmax(node, [x]) {
  const [outer, length, inner] = stretches(x.dims, node.attributes.axis ?? -1);
  const y = result(node, "f", x.dims);
  for (let o = 0; o < outer; o += 1)
    for (let i = 0; i < inner; i += 1) {
      const begin = o * length * inner + i;
      let top = -Infinity;
      for (let j = 0; j < length; j += 1) top = Math.max(top, x.data[begin + j * inner]);
      let sum = 0;
      for (let j = 0; j < length; j += 1) sum += y.data[begin + j * inner] = Math.exp(x.data[begin + j * inner] - top);
      for (let j = 0; j < length; j += 1) y.data[begin + j * inner] /= sum;
    }
  return y;
}

/** @param {Node} node @param {Tensor[]} given @returns {Tensor} */
function layerNorm(node, [x, gain, bias]) {
  const axis = from(node.attributes.axis ?? -1, x.dims.length);
  const length = count(x.dims.slice(axis));
  const y = result(node, "f", x.dims);
  for (let begin = 0; begin < x.data.length; begin += length) {
    let mean = 0;
    for (let i = 0; i < length; i += 1) mean += x.data[begin + i] / length;
    let variance = 0;
    for (let i = 0; i < length; i += 1) variance += (x.data[begin + i] - mean) ** 2 / length;
    const scale = 1 / Math.sqrt(variance + (node.attributes.epsilon ?? 1e-5));
    for (let i = 0; i < length; i += 1) y.data[begin + i] = (x.data[begin + i] - mean) * scale * gain.data[i] + (bias ? bias.data[i] : 0);
  }
  return y;
}

/** @param {Node} node @param {Tensor[]} given @returns {Tensor} */
function joined(node, given) {
  const axis = from(node.attributes.axis, given[0].dims.length);
  const dims = given[0].dims.slice();
  dims[axis] = given.reduce((sum, one) => sum + one.dims[axis], 0);
  const y = result(node, given[0].kind, dims);
  const [outer, length, inner] = stretches(dims, axis);
  let at = 0;
  for (const one of given) {
    const size = one.dims[axis] * inner;
    for (let o = 0; o < outer; o += 1) y.data.set(outer === 1 ? one.data : one.data.subarray(o * size, (o + 1) * size), o * length * inner + at);
    at += size;
  }
  return y;
}

/** @param {Node} node @param {Tensor[]} given @returns {Tensor[]} */
function parted(node, [x, sizes]) {
  const axis = from(node.attributes.axis || 0, x.dims.length);
  const [outer, length, inner] = stretches(x.dims, axis);
  const parts = node.outputs.length;
  const each = Math.ceil(length / parts);
  let at = 0;
  return Array.from(node.outputs, (_, index) => {
    const size = sizes ? sizes.data[index] : Math.min(each, length - at);
    const y = result(node, x.kind, x.dims.map((dim, i) => (i === axis ? size : dim)), index);
    for (let o = 0; o < outer; o += 1)
      for (let i = 0; i < size * inner; i += 1) y.data[o * size * inner + i] = x.data[(o * length + at) * inner + i];
    at += size;
    return y;
  });
}

/** @param {Node} node @param {Tensor[]} given @returns {Tensor} */
function scattered(node, [x, at, updates]) {
  const map = scatterPlaces(node, x, at, updates);
  node.grew = node.list >= 0 && map[0] === x.data.length - map.length && map[map.length - 1] === x.data.length - 1;
  if (node.grew) return x; // it stands there
  const y = result(node, x.kind, x.dims);
  y.data.set(x.data);
  const adds = node.attributes.reduction === "add";
  for (let i = 0; i < map.length; i += 1) y.data[map[i]] = adds ? y.data[map[i]] + updates.data[i] : updates.data[i];
  return y;
}

/** @param {Node} node @param {Tensor[]} given @returns {Tensor} */
function padded(node, [x, pads, value, axes]) {
  if ((node.attributes.mode || "constant") !== "constant") throw new Error(`Pad: mode ${node.attributes.mode} is not known here`);
  const table = tabled(node, [x], [pads, axes], () => {
    const chosen = axes ? Array.from(axes.data, (axis) => from(axis, x.dims.length)) : x.dims.map((_, axis) => axis);
    const before = x.dims.map(() => 0);
    const dims = x.dims.slice();
    chosen.forEach((axis, i) => {
      before[axis] = pads.data[i];
      dims[axis] += pads.data[i] + pads.data[i + chosen.length];
    });
    const strides = stridesOf(dims);
    const map = new Int32Array(count(dims)).fill(-1);
    const inside = places(x.dims, strides, before.reduce((sum, size, axis) => sum + size * strides[axis], 0));
    for (let i = 0; i < inside.length; i += 1) map[inside[i]] = i;
    return { dims, maps: [map] };
  });
  return moved(node, x, table, value ? value.data[0] : 0);
}

/** @param {Node} node @param {Tensor[]} given @returns {Tensor} */
function chosen(node, given) {
  const table = pointTable(node, given);
  const [which, a, b] = given;
  const only = which.data[0] ? a : b;
  if (which.data.length === 1 && sameDims(only.dims, table.dims)) return only;
  const { length, steps: [r, s, t], begins } = /** @type {import("./tensor.js").Runs} */ (table.runs);
  const y = result(node, a.kind, table.dims);
  for (let run = 0, at = 0; at < y.data.length; run += 1, at += length) {
    const [o, p, q] = [begins[0][run], begins[1][run], begins[2][run]];
    for (let i = 0; i < length; i += 1) y.data[at + i] = which.data[o + i * r] ? a.data[p + i * s] : b.data[q + i * t];
  }
  return y;
}

/** @param {Node} node @param {Tensor[]} given @returns {Tensor} */
function cast(node, [x]) {
  const kind = /** @type {Kind} */ ({ 1: "f", 11: "f", 9: "b" }[/** @type {1 | 11 | 9} */ (node.attributes.to)] || "i");
  if (kind === x.kind) return x;
  const y = result(node, kind, x.dims);
  for (let i = 0; i < y.data.length; i += 1) y.data[i] = kind === "i" ? Math.trunc(x.data[i]) : kind === "b" ? Number(x.data[i] !== 0) : x.data[i];
  return y;
}

/** The same numbers in their order, with other dims. @param {number[]} dims */
const flat = (dims) => ({ dims, maps: [null] });

/** A node's inputs to its outputs. @type {Record<string, (node: Node, given: Tensor[]) => Tensor | Tensor[]>} */
export const OPERATORS = {
  ...Object.fromEntries(Object.keys(UNARY).map((name) => [name, unary])),
  ...Object.fromEntries(Object.keys(BINARY).map((name) => [name, binary])),
  Cast: cast,
  Clip: (node, [x, low, high]) => {
    const y = result(node, x.kind, x.dims);
    const [least, most] = [low ? low.data[0] : -Infinity, high ? high.data[0] : Infinity];
    for (let i = 0; i < y.data.length; i += 1) y.data[i] = Math.min(Math.max(x.data[i], least), most);
    return y;
  },
  Concat: joined,
  ConstantOfShape: (node, [shape]) => {
    const value = node.attributes.value ? tensorFrom({ kind: node.attributes.value[0], dims: [1], data: node.attributes.value[2] }) : null;
    const y = result(node, value ? value.kind : "f", Array.from(shape.data));
    y.data.fill(value ? value.data[0] : 0);
    return y;
  },
  Expand: (node, [x, shape]) => {
    const table = tabled(node, [x], [shape], () => {
      const dims = broadcast(x.dims, Array.from(shape.data));
      return count(dims) === count(x.dims) ? { dims, maps: [null] } : strided(dims, sharedStrides(x.dims, dims));
    });
    return moved(node, x, table);
  },
  Gather: (node, [x, at]) => moved(node, x, tabled(node, [x, at], [at], () => gatherTable(node, x, at))),
  GatherElements: (node, [x, at]) => moved(node, x, tabled(node, [x, at], [at], () => gatherTable(node, x, at))),
  GatherND: (node, [x, at]) => moved(node, x, tabled(node, [x, at], [at], () => gatherTable(node, x, at))),
  Gemm: gemm,
  Identity: (_, [x]) => x,
  LayerNormalization: layerNorm,
  MatMul: matmul,
  Max: (node, given) => (given.length === 1 ? given[0] : binary(node, given)),
  Min: (node, given) => (given.length === 1 ? given[0] : binary(node, given)),
  Pad: padded,
  Range: (node, [begin, end, step]) => {
    const size = Math.max(0, Math.ceil((end.data[0] - begin.data[0]) / step.data[0]));
    const y = result(node, begin.kind, [size]);
    for (let i = 0; i < size; i += 1) y.data[i] = begin.data[0] + i * step.data[0];
    return y;
  },
  ReduceMax: reduced,
  ReduceMean: reduced,
  ReduceMin: reduced,
  ReduceSum: reduced,
  Reshape: (node, [x, shape]) => viewed(x, tabled(node, [x], [shape], () => flat(reshaped(x, Array.from(shape.data), node.attributes.allowzero))).dims),
  ScatterElements: scattered,
  ScatterND: scattered,
  Shape: (node, [x]) => {
    const dims = x.dims.slice(node.attributes.start ?? 0, node.attributes.end ?? x.dims.length);
    const y = result(node, "i", [dims.length]);
    y.data.set(dims);
    return y;
  },
  Slice: (node, [x, starts, ends, axes, steps]) => {
    const table = tabled(node, [x], [starts, ends, axes, steps], () =>
      sliceTable(x.dims, Array.from(starts.data), Array.from(ends.data), listed(axes) || Array.from(starts.data, (_, i) => i), listed(steps) || Array.from(starts.data, () => 1)),
    );
    return moved(node, x, table);
  },
  Softmax: softmax,
  Split: parted,
  Squeeze: (node, [x, axes]) => viewed(x, tabled(node, [x], [axes], () => {
    const away = axes ? Array.from(axes.data, (axis) => from(axis, x.dims.length)) : x.dims.flatMap((size, axis) => (size === 1 ? [axis] : []));
    return flat(x.dims.filter((_size, axis) => !away.includes(axis)));
  }).dims),
  Transpose: (node, [x]) => {
    const order = /** @type {number[]} */ (node.attributes.perm || x.dims.map((_, axis) => x.dims.length - 1 - axis));
    if (node.lazy && !node.fresh) {
      const own = stridesOf(x.dims);
      return { kind: x.kind, dims: order.map((axis) => x.dims[axis]), data: x.data, strides: order.map((axis) => own[axis]) };
    }
    const table = tabled(node, [x], [], () => {
      const strides = stridesOf(x.dims);
      const dims = order.map((axis) => x.dims[axis]);
      const real = order.filter((axis) => x.dims[axis] !== 1); // axes of 1 may stand anywhere
      const inPlace = real.every((axis, i) => i === 0 || axis > real[i - 1]);
      return inPlace ? { dims, maps: [null] } : strided(dims, order.map((axis) => strides[axis]));
    });
    return moved(node, x, table);
  },
  Unsqueeze: (node, [x, axes]) => viewed(x, tabled(node, [x], [axes], () => {
    const rank = x.dims.length + axes.data.length;
    const dims = x.dims.slice();
    for (const axis of Array.from(axes.data, (one) => from(one, rank)).sort((a, b) => a - b)) dims.splice(axis, 0, 1);
    return flat(dims);
  }).dims),
  Where: chosen,
};
