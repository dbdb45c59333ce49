// @ts-check
/** What an operator has of its node: its attributes, and memory that it keeps from step to step. */

import { placed, simd } from "./simd.js";
import { count, numbers, sameDims } from "./tensor.js";

/** @typedef {import("./tensor.js").Tensor} Tensor */
/** @typedef {import("./tensor.js").Kind} Kind */
/** @typedef {import("./tensor.js").Numbers} Numbers */
/** @typedef {Record<string, any>} Attributes */
/**
 * A node keeps the memory of its result and its tables from step to step, as long as the dims stay the same.
 * `rooms`: where large results lie in the memory of WebAssembly; `fixed`: its second input is a weight; `matrix`: where
 * that lies there; `lazy`: only a product reads its result, and moves nothing before; `settled`: all inputs but the first are constants; `list`: the
 * input whose numbers a scattering only repeats at the end; `grew`: it did so.
 * @typedef {{op: string, inputs: Int32Array, outputs: Int32Array, attributes: Attributes, kept: Numbers[],
 *   rooms: Map<number, import("./simd.js").Room>, fresh: boolean, fixed: boolean, lazy: boolean, settled: boolean,
 *   list: number, grew: boolean,
 *   matrix: import("./simd.js").Matrix | null, table: Table | null}} Node
 */
/**
 * What an operator knows of dims: those of its result, and for each input where the numbers come from, as `runs`, or as
 * `maps` of all places (null: one for one), which are made when they are first asked for.
 * @typedef {{dims: number[], maps: (Int32Array | null)[], runs?: import("./tensor.js").Runs}} Places
 */
/** @typedef {Places & {from: number[][], value: string}} Table */

/** The memory of a node's result. @param {Node} node @param {Kind} kind @param {number[]} dims @param {number} [index] @returns {Tensor} */
export function result(node, kind, dims, index = 0) {
  const size = count(dims);
  let data = node.kept[index];
  if (node.fresh || data === undefined || data.length !== size) {
    const large = kind === "f" && size >= simd.result && !node.fresh; // what is kept for a gradient would fill that memory
    data = (large && placed(node.rooms, index, size)) || numbers(kind, size);
    if (!node.fresh) node.kept[index] = data;
  }
  return { kind, dims, data };
}

/** Tables depend on dims alone, and on the numbers of `by`. @param {Node} node @param {Tensor[]} given @param {(Tensor | undefined)[]} by @param {() => Places} make @returns {Table} */
export function tabled(node, given, by, make) {
  const old = node.table, value = node.settled ? "" : by.map((one) => (one ? one.data.join() : "")).join(";");
  if (old && old.value === value && old.from.length === given.length && old.from.every((dims, i) => sameDims(dims, given[i].dims))) return old;
  node.table = Object.assign(make(), { from: given.map((one) => one.dims.slice()), value });
  return node.table;
}

