// @ts-check
/** An exported step graph: its nodes in their order, over values that are numbered. */

import { OPERATORS } from "./operator.js";
import { count, tensorFrom } from "./tensor.js";

/** @typedef {import("./tensor.js").Tensor} Tensor */
/** @typedef {import("./tensor.js").Numbers} Numbers */
/** @typedef {import("./node.js").Node} Node */
/** One of `parts` equal stretches of a result (-1: all of it) is held at a number. @typedef {{value: number, part: number, parts: number}} Hold */
/** New numbers of a node's result: a function of those that were computed, or a part that is held. @typedef {Hold | ((numbers: Numbers) => ArrayLike<number>)} Edit */
/**
 * @typedef {{size: number, inputs: [string, number][], outputs: [string, number][], nodes: [string, number[], number[],
 *   Record<string, any>][], constants: [number, import("./tensor.js").Kind, number[], (number | string)[] | null][]}} GraphRecord
 */

export class Graph {
  /** @param {GraphRecord} record @param {Float32Array} numbers its weights, one after the other */
  constructor(record, numbers) {
    let at = 0;
    /** @type {(Tensor | undefined)[]} */
    this.constants = new Array(record.size);
    for (const [place, kind, dims, data] of record.constants) {
      if (data) {
        this.constants[place] = tensorFrom({ kind, dims, data });
      } else {
        this.constants[place] = { kind, dims, data: numbers.subarray(at, at + count(dims)) };
        at += count(dims);
      }
    }
    this.size = record.size;
    this.inputs = record.inputs;
    this.outputs = record.outputs;
    /** @type {Map<string, number>} */
    this.place = new Map([...record.inputs, ...record.outputs]);
    /** @type {Node[]} */
    this.nodes = record.nodes.map(([op, inputs, outputs, attributes]) => {
      const name = op === "Gelu" && attributes.approximate === "tanh" ? "GeluTanh" : op;
      if (!(name in OPERATORS)) throw new Error(`the operator ${op} is not known here`);
      const fixed = inputs.length > 1 && this.constants[inputs[1]]?.dims.length === 2;
      return { op: name, inputs: Int32Array.from(inputs), outputs: Int32Array.from(outputs), attributes, kept: [], rooms: new Map(), fresh: false, fixed, lazy: false, settled: false, list: -1, grew: false, matrix: null, table: null };
    });
    const read = new Map(record.outputs.map(([, place]) => [place, [false]])); // by which nodes; `true`: by a product, as its second factor
    for (const { op, inputs } of this.nodes) inputs.forEach((place, i) => read.set(place, [...(read.get(place) ?? []), op === "MatMul" && i === 1]));
    const made = new Map(this.nodes.map((node) => [node.outputs[0], node]));
    const given = new Set(record.inputs.map(([, place]) => place));
    for (const node of this.nodes) {
      node.settled = node.inputs.slice(1).every((place) => place < 0 || this.constants[place] !== undefined);
      // What a list is joined with is often scattered to the end of the new list once more.
      const [whole, , updates] = node.inputs, join = node.op === "ScatterND" ? made.get(whole) : undefined;
      if (join?.op === "Concat" && join.inputs.length === 2 && join.inputs[1] === updates && given.has(join.inputs[0])) node.list = join.inputs[0];
    }
    this.lists = new Map(this.nodes.filter((node) => node.list >= 0).map((node) => [node.outputs[0], node]));
    for (const node of this.nodes) node.lazy = node.op === "Transpose" && (read.get(node.outputs[0]) ?? []).every(Boolean);
  }

  /**
   * All values of one step, by number. What is not an output is overwritten by the next step, unless `fresh`.
   * @param {Map<string, Tensor>} feed @param {Map<number, Edit> | null} edits @param {boolean} fresh
   * @returns {(Tensor | undefined)[]}
   */
  run(feed, edits, fresh) {
    const values = this.constants.slice();
    for (const [name, place] of this.inputs) {
      const given = feed.get(name);
      if (given === undefined) throw new Error(`the graph has no value for its input ${name}`);
      values[place] = given;
    }
    for (const node of this.nodes) {
      node.fresh = fresh;
      const given = new Array(node.inputs.length);
      for (let i = 0; i < given.length; i += 1) given[i] = node.inputs[i] < 0 ? undefined : values[node.inputs[i]];
      const found = OPERATORS[node.op](node, given);
      for (let i = 0; i < node.outputs.length; i += 1) {
        const place = node.outputs[i];
        const value = Array.isArray(found) ? found[i] : i === 0 ? found : undefined;
        const edit = edits === null ? undefined : edits.get(place);
        values[place] = edit === undefined || value === undefined ? value : { ...value, data: edited(value.data, edit) };
      }
    }
    return values;
  }

  /** The list that grew into a value in this step. @param {(Tensor | undefined)[]} values @param {string} name */
  before(values, name) {
    const node = this.lists.get(/** @type {number} */ (this.place.get(name)));
    return node?.grew ? values[node.list] : undefined;
  }

  /** @param {(Tensor | undefined)[]} values @param {string} name @returns {Tensor} */
  value(values, name) {
    const place = this.place.get(name);
    const found = place === undefined ? undefined : values[place];
    if (found === undefined) throw new Error(`the graph has no value ${name}`);
    return found;
  }
}

/** @template {Numbers} T @param {T} numbers @param {Edit} edit @returns {T} */
export function edited(numbers, edit) {
  const data = /** @type {T} */ (numbers.slice());
  if (typeof edit === "function") {
    const given = edit(data);
    if (given.length !== data.length) throw new Error(`an edit has ${given.length} numbers, the value ${data.length}`);
    for (let i = 0; i < data.length; i += 1) data[i] = given[i];
    return data;
  }
  const size = data.length / edit.parts;
  return /** @type {T} */ (edit.part < 0 ? data.fill(edit.value) : data.fill(edit.value, edit.part * size, (edit.part + 1) * size));
}
