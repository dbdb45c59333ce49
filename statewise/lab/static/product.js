// @ts-check
/** Sums: of products of matrices, and along axes. Here they are kept in double precision; `simd.js` takes the large products. */

import { result, tabled } from "./node.js";
import { broadcast, count, places, sharedStrides, spread, stridesOf } from "./tensor.js";
import { from, listed, strided } from "./movement.js";
import { resident, simd, summed, timesMatrix, timesWeight } from "./simd.js";

/** @typedef {import("./tensor.js").Tensor} Tensor */
/** @typedef {import("./tensor.js").Numbers} Numbers */
/** @typedef {import("./node.js").Node} Node */
/** @typedef {import("./node.js").Attributes} Attributes */

/** @param {Tensor} x @param {Tensor | undefined} axes @param {Attributes} attributes */
export function reducedAxes(x, axes, attributes) {
  const asked = listed(axes) || attributes.axes || [];
  if (!asked.length) return attributes.noop_with_empty_axes ? [] : x.dims.map((_, axis) => axis);
  return asked.map((/** @type {number} */ axis) => from(axis, x.dims.length));
}

/** For each number of the input, the place of the result that it goes into. @param {Node} node @param {Tensor} x @param {Tensor | undefined} over */
export function reduceTable(node, x, over) {
  return tabled(node, [x], [over], () => {
    const axes = reducedAxes(x, over, node.attributes);
    const held = x.dims.map((size, axis) => (axes.includes(axis) ? 1 : size));
    const dims = node.attributes.keepdims === 0 ? held.filter((_, axis) => !axes.includes(axis)) : held;
    return Object.assign(strided(x.dims, sharedStrides(held, x.dims)), { dims });
  });
}

/** @param {Node} node @param {Tensor[]} given @returns {Tensor} */
export function reduced(node, [x, over]) {
  const table = reduceTable(node, x, over);
  const runs = /** @type {import("./tensor.js").Runs} */ (table.runs);
  const { length, steps: [step], begins: [begins] } = runs;
  const [size, all] = [count(table.dims), x.data.length];
  const high = node.op === "ReduceMax";
  const y = result(node, x.kind, table.dims);
  if (node.op === "ReduceSum" && summed(y.data, x.data, runs)) return y;
  const sums = new Float64Array(size);
  if (high || node.op === "ReduceMin") {
    sums.fill(high ? -Infinity : Infinity);
    const further = high ? Math.max : Math.min;
    for (let run = 0, at = 0; at < all; run += 1, at += length)
      for (let i = 0, to = begins[run]; i < length; i += 1, to += step) sums[to] = further(sums[to], x.data[at + i]);
  } else {
    for (let run = 0, at = 0; at < all; run += 1, at += length)
      for (let i = 0, to = begins[run]; i < length; i += 1, to += step) sums[to] += x.data[at + i];
  }
  const share = node.op === "ReduceMean" ? size / all : 1;
  for (let i = 0; i < size; i += 1) y.data[i] = sums[i] * share;
  return y;
}

/** @type {Tensor} */
const LAZY = { kind: "b", dims: [1], data: Uint8Array.of(1) };

/** The places of each pair of matrices, then rows, inner sizes, and how far apart rows and columns of the second lie. @param {Node} node @param {Tensor} a @param {Tensor} b */
export function productTable(node, a, b) {
  return tabled(node, [a, b], b.strides ? [LAZY] : [], () => {
    const left = a.dims.length === 1 ? [1, ...a.dims] : a.dims;
    const right = b.dims.length === 1 ? [...b.dims, 1] : b.dims;
    const outer = broadcast(left.slice(0, -2), right.slice(0, -2));
    const [m, k, n] = [left[left.length - 2], left[left.length - 1], right[right.length - 1]];
    const dims = [...outer, ...(a.dims.length === 1 ? [] : [m]), ...(b.dims.length === 1 ? [] : [n])];
    const strides = b.strides ?? stridesOf(right);
    const [down, across] = strides.slice(-2);
    const lead = outer.length - right.length + 2;
    const second = places(outer, outer.map((_, axis) => (axis < lead || right[axis - lead] === 1 ? 0 : strides[axis - lead])));
    const first = spread(left.slice(0, -2), outer).map((at) => at * m * k);
    return { dims, maps: [first, second, Int32Array.of(m, k, n, down, across)] };
  });
}

let sums = new Float64Array(0);

/** `y = a @ b`, each matrix at its offset; sums are kept in double precision. @param {Numbers} y @param {number} yAt @param {Numbers} a @param {number} aAt @param {Numbers} b @param {number} bAt @param {number} m @param {number} k @param {number} n @param {number} down between rows of b @param {number} across between its columns */
function product(y, yAt, a, aAt, b, bAt, m, k, n, down, across) {
  if (sums.length < n) sums = new Float64Array(n);
  const total = sums;
  for (let row = 0; row < m; row += 1) {
    for (let j = 0; j < n; j += 1) total[j] = 0;
    const from = aAt + row * k;
    let i = 0;
    for (; across === 1 && i + 3 < k; i += 4) {
      // Four rows at once: the sums are read and written a fourth as often.
      const [s0, s1, s2, s3] = [a[from + i], a[from + i + 1], a[from + i + 2], a[from + i + 3]];
      if (s0 === 0 && s1 === 0 && s2 === 0 && s3 === 0) continue;
      const b0 = bAt + i * down, b1 = b0 + down, b2 = b1 + down, b3 = b2 + down;
      for (let j = 0; j < n; j += 1) total[j] += s0 * b[b0 + j] + s1 * b[b1 + j] + (s2 * b[b2 + j] + s3 * b[b3 + j]);
    }
    for (; i < k; i += 1) {
      const scale = a[from + i], begin = bAt + i * down;
      if (scale !== 0) for (let j = 0; j < n; j += 1) total[j] += scale * b[begin + j * across];
    }
    for (let j = 0; j < n; j += 1) y[yAt + row * n + j] = total[j];
  }
}

/** The second factor, where it is a weight that WebAssembly may keep. @param {Node} node @param {Tensor} b @param {number} k @param {number} n @param {boolean} transposed */
function weightOf(node, b, k, n, transposed) {
  if (node.fixed && b.kind === "f" && k * n >= simd.product) node.matrix ??= resident(b.data, k, n, transposed);
  return node.matrix;
}

/** @param {Node} node @param {Tensor[]} given @returns {Tensor} */
export function matmul(node, [a, b]) {
  const table = productTable(node, a, b);
  const [first, second, sizes] = /** @type {Int32Array[]} */ (table.maps);
  const [m, k, n, down, across] = sizes;
  const y = result(node, a.kind, table.dims);
  const weight = weightOf(node, b, k, n, false);
  if (weight && timesWeight(y.data, a.data, m * first.length, weight)) return y;
  const quick = a.kind === "f" && k * n >= simd.product;
  for (let i = 0; i < first.length; i += 1) {
    const [yAt, aAt, bAt] = [i * m * n, first[i], second[i]];
    if (quick && timesMatrix(y.data, yAt, a.data, aAt, b.data, bAt, m, k, n, down, across)) continue;
    product(y.data, yAt, a.data, aAt, b.data, bAt, m, k, n, down, across);
  }
  return y;
}

/** @param {Node} node @param {Tensor[]} given @returns {Tensor} */
export function gemm(node, [a, b, c]) {
  const { alpha = 1, beta = 1, transA = 0, transB = 0 } = node.attributes;
  const [m, k] = transA ? [a.dims[1], a.dims[0]] : a.dims;
  const n = transB ? b.dims[0] : b.dims[1];
  const y = result(node, "f", [m, n]);
  const rows = transA ? Float32Array.from({ length: m * k }, (_, i) => a.data[Math.floor(i / k) + (i % k) * m]) : a.data;
  const weight = weightOf(node, b, k, n, Boolean(transB));
  if (!weight || !timesWeight(y.data, rows, m, weight)) product(y.data, 0, rows, 0, b.data, 0, m, k, n, transB ? 1 : n, transB ? k : 1);
  if (alpha !== 1) for (let i = 0; i < y.data.length; i += 1) y.data[i] *= alpha;
  if (c) {
    const table = tabled(node, [c], [], () => ({ dims: [m, n], maps: [spread(c.dims, [m, n])] }));
    const map = /** @type {Int32Array} */ (table.maps[0]);
    for (let i = 0; i < y.data.length; i += 1) y.data[i] += beta * c.data[map[i]];
  }
  return y;
}

/** Stretches of numbers along one axis: outer, length, inner. @param {number[]} dims @param {number} axis */
export function stretches(dims, axis) {
  const at = from(axis, dims.length);
  return [count(dims.slice(0, at)), dims[at], count(dims.slice(at + 1))];
}
