// @ts-check
/** Movements: tables of where each number of a result comes from. Their reverse adds each number back to its place. */

import { result } from "./node.js";
import { count, places, runsOf, stridesOf } from "./tensor.js";

/** @typedef {import("./tensor.js").Tensor} Tensor */
/** @typedef {import("./node.js").Node} Node */
/** @typedef {import("./node.js").Table} Table */

/** A movement: `map[i]` is the place in the input of number i, -1 where `fill` stands; null: all stay where they are. @param {Node} node @param {Tensor} x @param {Table} table @param {number} [fill] @returns {Tensor} */
export function moved(node, x, table, fill = 0) {
  if (table.runs) return stretched(node, x, table.dims, table.runs);
  const map = table.maps[0];
  if (map === null) return viewed(x, table.dims);
  const y = result(node, x.kind, table.dims);
  for (let i = 0; i < map.length; i += 1) y.data[i] = map[i] < 0 ? fill : x.data[map[i]];
  return y;
}

const COPIED = 16; // numbers side by side from which `set` is faster than a loop

/** @param {Node} node @param {Tensor} x @param {number[]} dims @param {import("./tensor.js").Runs} runs @returns {Tensor} */
function stretched(node, x, dims, { length, steps: [step], begins: [begins] }) {
  const y = result(node, x.kind, dims);
  const [to, of] = [y.data, x.data];
  for (let run = 0, at = 0; at < to.length; run += 1, at += length) {
    const begin = begins[run];
    if (step === 1 && length >= COPIED) to.set(of.subarray(begin, begin + length), at);
    else for (let i = 0; i < length; i += 1) to[at + i] = of[begin + i * step];
  }
  return y;
}

/** Numbers at regular distances. @param {number[]} dims @param {number[]} strides @param {number} [offset] @returns {import("./node.js").Places} */
export function strided(dims, strides, offset = 0) {
  /** @type {Int32Array[] | null} */
  let maps = null;
  return {
    dims,
    runs: runsOf(dims, [strides], offset),
    get maps() {
      return (maps ??= [places(dims, strides, offset)]);
    },
  };
}

/** The same numbers with other dims. @param {Tensor} x @param {number[]} dims @returns {Tensor} */
export const viewed = (x, dims) => ({ kind: x.kind, dims, data: x.data });
export const listed = (/** @type {Tensor | undefined} */ x) => (x ? Array.from(x.data) : undefined);
export const from = (/** @type {number} */ axis, /** @type {number} */ rank) => (axis < 0 ? axis + rank : axis);

/** @param {Tensor} x @param {number[]} asked @param {number} [allowZero] */
export function reshaped(x, asked, allowZero) {
  const dims = asked.map((size, axis) => (size === 0 && !allowZero ? x.dims[axis] : size));
  const open = dims.indexOf(-1);
  if (open >= 0) dims[open] = count(x.dims) / -count(dims);
  return dims;
}

/** @param {number[]} dims @param {number[]} starts @param {number[]} ends @param {number[]} axes @param {number[]} steps */
export function sliceTable(dims, starts, ends, axes, steps) {
  const strides = stridesOf(dims);
  const sizes = dims.slice();
  const jumps = strides.slice();
  let offset = 0;
  axes.forEach((given, i) => {
    const axis = from(given, dims.length);
    const size = dims[axis];
    const step = steps[i];
    const bound = (/** @type {number} */ place) => {
      const at = place < 0 ? place + size : place;
      return step > 0 ? Math.min(Math.max(at, 0), size) : Math.min(Math.max(at, -1), size - 1);
    };
    const begin = bound(starts[i]);
    sizes[axis] = Math.max(0, Math.ceil((bound(ends[i]) - begin) / step));
    offset += begin * strides[axis];
    jumps[axis] = strides[axis] * step;
  });
  return strided(sizes, jumps, offset);
}

/** Where the numbers that an index names are: of `Gather`, `GatherElements` and `GatherND`. @param {Node} node @param {Tensor} x @param {Tensor} at @returns {import("./node.js").Places} */
export function gatherTable(node, x, at) {
  const strides = stridesOf(x.dims);
  if (node.op === "GatherND") {
    const depth = at.dims[at.dims.length - 1];
    const inner = places(x.dims.slice(depth), strides.slice(depth));
    const map = new Int32Array((at.data.length / depth) * inner.length);
    for (let row = 0; row < at.data.length / depth; row += 1) {
      let base = 0;
      for (let k = 0; k < depth; k += 1) base += from(at.data[row * depth + k], x.dims[k]) * strides[k];
      for (let i = 0; i < inner.length; i += 1) map[row * inner.length + i] = base + inner[i];
    }
    return { dims: [...at.dims.slice(0, -1), ...x.dims.slice(depth)], maps: [map] };
  }
  const axis = from(node.attributes.axis || 0, x.dims.length);
  if (node.op === "GatherElements") {
    const map = places(at.dims, strides.map((stride, i) => (i === axis ? 0 : stride)));
    for (let i = 0; i < map.length; i += 1) map[i] += from(at.data[i], x.dims[axis]) * strides[axis];
    return { dims: at.dims, maps: [map] };
  }
  const dims = [...x.dims.slice(0, axis), ...at.dims, ...x.dims.slice(axis + 1)];
  const inner = count(x.dims.slice(axis + 1)), size = at.data.length;
  const begins = Int32Array.from({ length: count(x.dims.slice(0, axis)) * size }, (_, i) => (Math.floor(i / size) * x.dims[axis] + from(at.data[i % size], x.dims[axis])) * inner);
  /** @type {Int32Array[] | null} */
  let maps = null;
  return {
    dims,
    runs: { length: inner, steps: [1], begins: [begins] },
    get maps() {
      return (maps ??= [Int32Array.from({ length: begins.length * inner }, (_, i) => begins[Math.floor(i / inner)] + (i % inner))]);
    },
  };
}

/** Where scattered numbers go: of `ScatterND` and `ScatterElements`. @param {Node} node @param {Tensor} x @param {Tensor} at @param {Tensor} updates @returns {Int32Array} */
export function scatterPlaces(node, x, at, updates) {
  const as = { ...node, op: node.op === "ScatterND" ? "GatherND" : "GatherElements" };
  const map = /** @type {Int32Array} */ (gatherTable(as, x, at).maps[0]);
  if (count(updates.dims) !== map.length) throw new Error(`${node.op}: ${map.length} places for ${count(updates.dims)} values`);
  return map;
}

