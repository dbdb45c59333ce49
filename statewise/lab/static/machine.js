// @ts-check
/** A model as a state machine: `{logits, state, seen} = machine.stepWith(state, token, edits)`. States are values: keep any of them. */

import { gradientOf } from "./backward.js";
import { edited, Graph } from "./graph.js";
import { Markov } from "./markov.js";
import { bytesOf, copyOf, decoded, tensorFrom } from "./tensor.js";
import { makeTokenizer } from "./tokenizer.js";

/** @typedef {import("./tensor.js").Tensor} Tensor */
/** @typedef {import("./graph.js").Edit} Edit */
/** The leaves of a state by their paths. @typedef {Map<string, Tensor>} State */
/** What one step gives: `seen` are the observed values by name. @typedef {{logits: Float32Array, state: State, seen: Map<string, Tensor>}} Step */
/** A model's record in the bundle. @typedef {Record<string, any>} ModelRecord */

const AFTER = "after.";

/** How far the memory of a list is filled. @type {WeakMap<ArrayBufferLike, number>} */
const filled = new WeakMap();

/** A list that has grown at its end. It lies in one memory with the list that it was, if no other has grown there. @param {Tensor} old @param {Tensor} now @returns {Tensor} */
function grown(old, { kind, dims, data }) {
  const from = old.data.length, { buffer } = old.data;
  const goesOn = filled.get(buffer) === from && data.byteLength <= buffer.byteLength;
  const room = goesOn ? new Float32Array(buffer) : new Float32Array(2 * data.length);
  room.set(goesOn ? data.subarray(from) : data, goesOn ? from : 0);
  filled.set(room.buffer, data.length);
  return { kind, dims, data: room.subarray(0, data.length) };
}

/** Names that every machine has. */
export class Described {
  /** @param {ModelRecord} record */
  constructor(record) {
    this.record = record;
    this.name = /** @type {string} */ (record.name);
    this.kind = /** @type {string} */ (record.kind);
    this.year = /** @type {number} */ (record.year);
    this.lens = /** @type {string[]} */ (record.lens);
    this.vocab = makeTokenizer(record.tokenizer);
    /** The places of each leaf that may be drawn; null: all. @type {Record<string, number[] | null> | null} */
    this.known = null;
    /** Tokens that it can read. */
    this.most = /** @type {number} */ (record.context ?? Infinity);
    /** The classes that it chooses from; null: it writes tokens. */
    this.labels = /** @type {string[] | null} */ (record.labels);
    /** The token that stands before a text; a classifier has none. */
    this.first = /** @type {number | null} */ (record.labels ? null : record.first);
    this.initial = record.states.map((/** @type {any} */ leaf) => [leaf.name, tensorFrom(leaf)]);
  }

  /** The state before anything was read. @returns {State} */
  start() {
    return new Map(this.initial.map((/** @type {[string, Tensor]} */ [name, leaf]) => [name, copyOf(leaf)]));
  }

  /** @param {State} state @returns {State} */
  clone(state) {
    return new Map(Array.from(state, ([name, leaf]) => [name, copyOf(leaf)]));
  }

  /** @param {State} state */
  bytes(state) {
    let sum = 0;
    for (const leaf of state.values()) sum += bytesOf(leaf);
    return sum;
  }

  /** @param {State} state @returns {{name: string, tensor: Tensor}[]} */
  leaves(state) {
    return Array.from(state, ([name, tensor]) => ({ name, tensor }));
  }

  /** Sets numbers of a leaf. @param {State} state @param {string} leaf @param {number} begin @param {number} end @param {number} value */
  put(state, leaf, begin, end, value) {
    /** @type {Tensor} */ (state.get(leaf)).data.fill(value, begin, end);
  }

  /** @param {State} _state @param {number} _token @param {Map<string, Edit>} _edits @returns {Step | Promise<Step>} */
  stepWith(_state, _token, _edits) {
    throw new Error("a machine has to say how it steps");
  }

  /**
   * |d loss_t / d x_s| for each s ≤ t: x_s is the vector that token s is read as, and loss_t is -log p(target) after
   * token t. `states[0]` is the state before the first token.
   * @param {State[]} _states @param {ArrayLike<number>} _tokens @param {number} _t @param {number} [_target]
   * @returns {Float64Array | Promise<Float64Array>}
   */
  gradient(_states, _tokens, _t, _target) {
    throw new Error("a machine has to say what its gradient is");
  }

  /** Some of the next steps, at least one. @param {State} state @param {number[]} tokens @param {Map<string, Edit>} edits @returns {Step[] | Promise<Step[]>} */
  steps(state, tokens, edits) {
    const step = this.stepWith(state, tokens[0], edits);
    return step instanceof Promise ? step.then((done) => [done]) : [step];
  }

  /** The most probable token after a step. @param {Step} step */
  chosen(step) {
    return bestOf(step.logits, this.vocab.unknown);
  }

  /** The most probable tokens that follow a step. @param {Step} step @param {number} length @param {Map<string, Edit>} edits @returns {number[] | Promise<number[]>} */
  future(step, length, edits) {
    /** @type {number[]} */
    const tokens = [];
    while (tokens.length < length) {
      const token = this.chosen(step);
      tokens.push(token);
      const next = this.stepWith(step.state, token, edits);
      if (next instanceof Promise) return next.then(async (done) => [...tokens, ...(await this.future(done, length - tokens.length, edits))]);
      step = next;
    }
    return tokens;
  }
}

/** A model that learned by gradients: its exported graph, interpreted. */
export class GraphMachine extends Described {
  /** @param {ModelRecord} record */
  constructor(record) {
    super(record);
    /** Read when it is first used, so that a page with many models opens at once. @type {Graph | null} */
    this.opened = null;
  }

  open() {
    return new Graph(this.record.graph, decoded(this.record.weights));
  }

  get graph() {
    this.opened ??= this.open();
    return this.opened;
  }

  /** @param {State} state @param {number} token @returns {Map<string, Tensor>} */
  feed(state, token) {
    /** @type {Map<string, Tensor>} */
    const feed = new Map(state);
    feed.set("tokens", { kind: "i", dims: [1], data: Float64Array.of(token) });
    return feed;
  }

  /**
   * One step with some observed values replaced, as a lens with `edit` does.
   * @param {State} state @param {number} token @param {Map<string, Edit>} edits @returns {Step | Promise<Step>}
   */
  stepWith(state, token, edits) {
    const { graph } = this;
    const places = new Map(Array.from(edits, ([name, edit]) => [/** @type {number} */ (graph.place.get(name)), edit]));
    const values = graph.run(this.feed(state, token), places.size ? places : null, false);
    return this.outcome(state, values);
  }

  /** @param {State} state @param {(Tensor | undefined)[]} values @returns {Step} */
  outcome(state, values) {
    const { graph } = this;
    const own = (/** @type {string} */ name) => {
      const old = graph.before(values, name), now = graph.value(values, name);
      return old ? grown(old, now) : copyOf(now);
    };
    return {
      logits: /** @type {Float32Array} */ (own("logits").data),
      state: new Map(Array.from(state.keys(), (name) => [name, own(AFTER + name)])),
      seen: new Map(this.lens.map((name) => [name, own(name)])),
    };
  }

  /** By reverse mode. @param {State[]} states @param {ArrayLike<number>} tokens @param {number} t @param {number} [target] @returns {Float64Array} */
  gradient(states, tokens, t, target = tokens[t + 1]) {
    return gradientOf(this, states[0], tokens, t, target).norms;
  }
}

/** Counts, not weights: a table is looked up. */
export class TableMachine extends Described {
  /** @param {ModelRecord} record */
  constructor(record) {
    super(record);
    this.table = new Markov(record.table);
  }

  /** @param {State} state @param {number} token @param {Map<string, Edit>} edits @returns {Step} */
  stepWith(state, token, edits) {
    const old = /** @type {Tensor} */ (state.get("last_BK"));
    const data = new Float64Array(old.data.length);
    for (let i = 1; i < data.length; i += 1) data[i - 1] = old.data[i];
    data[data.length - 1] = token;
    const { known, p } = this.table.distribution(data);
    const edit = edits.get("markov.probabilities");
    const shown = edit === undefined ? p : edited(p, edit);
    const seen = new Map([
      ["markov.known", /** @type {Tensor} */ ({ kind: "i", dims: [1], data: Float64Array.of(known) })],
      ["markov.probabilities", /** @type {Tensor} */ ({ kind: "f", dims: [1, p.length], data: Float32Array.from(shown) })],
    ]);
    return {
      logits: Float32Array.from(shown, Math.log),
      state: new Map([["last_BK", /** @type {Tensor} */ ({ kind: "i", dims: old.dims, data })]]),
      seen,
    };
  }

  /**
   * A count has no gradient. In its place stands how much the loss changes by each older symbol that is taken into
   * account: |log p_k(target) - log p_{k-1}(target)| for the k-th newest.
   * @param {State[]} states @param {ArrayLike<number>} tokens @param {number} t @param {number} [target] @returns {Float64Array}
   */
  gradient(states, tokens, t, target = tokens[t + 1]) {
    let state = states[0];
    for (let s = Math.max(0, t - this.table.order); s <= t; s += 1) state = this.stepWith(state, tokens[s], new Map()).state;
    const context = /** @type {Tensor} */ (state.get("last_BK")).data;
    const norms = new Float64Array(t + 1);
    let before = Math.log(this.table.distribution(context, 0).p[target]);
    for (let k = 1; k <= Math.min(this.table.order, t + 1); k += 1) {
      const now = Math.log(this.table.distribution(context, k).p[target]);
      norms[t + 1 - k] = Math.abs(now - before);
      before = now;
    }
    return norms;
  }
}

/** @typedef {Described} Machine */

/** @param {ModelRecord} record @returns {Machine} */
export function makeMachine(record) {
  return record.table ? new TableMachine(record) : new GraphMachine(record);
}

/** @param {ArrayLike<number>} logits @param {number | null} never */
export function bestOf(logits, never) {
  let best = -1;
  for (let i = 0; i < logits.length; i += 1) if (i !== never && (best < 0 || logits[i] > logits[best])) best = i;
  return best;
}

/** Probabilities of logits. @param {ArrayLike<number>} logits @returns {Float64Array} */
export function softmaxOf(logits) {
  const p = Float64Array.from(logits);
  let top = -Infinity;
  for (const value of p) top = Math.max(top, value);
  let sum = 0;
  for (let i = 0; i < p.length; i += 1) {
    p[i] = Math.exp(p[i] - top);
    sum += p[i];
  }
  for (let i = 0; i < p.length; i += 1) p[i] /= sum;
  return p;
}
