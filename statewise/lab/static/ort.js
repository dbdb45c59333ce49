// @ts-check
/** Models that onnxruntime-web computes, from the same graphs: for large ones. The interpreter answers what it cannot: edits and gradients. */

import { Graph } from "./graph.js";
import { GraphMachine, makeMachine as makeHere } from "./machine.js";
import { bytesFrom } from "./tensor.js";

/** @typedef {import("./machine.js").State} State */
/** @typedef {import("./machine.js").Step} Step */
/** @typedef {import("./graph.js").Edit} Edit */
/** @typedef {import("./tensor.js").Tensor} Tensor */

/** Its module is in the page, too, and runs when the document is there. @type {Promise<any>} */
const runtime = new Promise((found) => {
  document.addEventListener("DOMContentLoaded", async () => {
    const { ort } = /** @type {any} */ (globalThis), packed = /** @type {HTMLElement} */ (document.getElementById("ort"));
    const stream = new Blob([/** @type {any} */ (bytesFrom(packed.textContent || ""))]).stream().pipeThrough(new DecompressionStream("gzip"));
    packed.remove();
    ort.env.wasm.wasmBinary = await new Response(stream).arrayBuffer();
    ort.env.wasm.numThreads = 1; // a page from disk has no shared memory
    found(ort);
  });
});

/** Its sessions share one memory, so they run one after the other. @type {Promise<any>} */
let before = Promise.resolve();

const TYPES = { f: "float32", i: "int64", b: "bool" };

export class OrtMachine extends GraphMachine {
  /** @param {import("./machine.js").ModelRecord} record */
  constructor(record) {
    super(record);
    /** @type {Promise<{session: any, ort: any}> | null} */
    this.opening = null;
  }

  /** The interpreter's graph: its weights lie in the model. */
  open() {
    const bytes = bytesFrom(this.record.onnx), places = /** @type {[number, number][]} */ (this.record.places);
    const numbers = new Float32Array(places.reduce((sum, [, count]) => sum + count, 0));
    let at = 0;
    for (const [offset, count] of places) {
      numbers.set(new Float32Array(bytes.slice(offset, offset + 4 * count).buffer), at);
      at += count;
    }
    return new Graph(this.record.graph, numbers);
  }

  session() {
    this.opening ??= runtime.then(async (ort) => ({ ort, session: await ort.InferenceSession.create(bytesFrom(this.record.onnx), { executionProviders: ["wasm"], logSeverityLevel: 3 }) }));
    return this.opening;
  }

  /** @param {State} state @param {number} token @param {Map<string, Edit>} edits @returns {Step | Promise<Step>} */
  stepWith(state, token, edits) {
    return edits.size ? super.stepWith(state, token, edits) : this.computed(state, token);
  }

  /** @param {State} state @param {number} token @returns {Promise<Step>} */
  async computed(state, token) {
    const { session, ort } = await this.session();
    const foreign = (/** @type {Tensor} */ { kind, dims, data }) => new ort.Tensor(TYPES[kind], kind === "i" ? BigInt64Array.from(data, BigInt) : data, dims);
    const feed = Object.fromEntries(Array.from(this.feed(state, token), ([name, tensor]) => [name, foreign(tensor)]));
    const running = before.then(() => session.run(feed));
    before = running.catch(() => null);
    const found = await running;
    const own = (/** @type {string} */ name) => {
      const { type, dims, data } = found[name];
      const kind = type === "float32" ? "f" : type === "bool" ? "b" : "i";
      return /** @type {Tensor} */ ({ kind, dims: Array.from(dims), data: kind === "i" ? Float64Array.from(data, Number) : data });
    };
    return {
      logits: /** @type {Float32Array} */ (own("logits").data),
      state: new Map(Array.from(state.keys(), (name) => [name, own(`after.${name}`)])),
      seen: new Map(this.lens.map((name) => [name, own(name)])),
    };
  }
}

/** @param {import("./machine.js").ModelRecord} record */
export function makeMachine(record) {
  return record.onnx ? new OrtMachine(record) : makeHere(record);
}
