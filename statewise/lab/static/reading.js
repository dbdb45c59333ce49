// @ts-check
/** A text as one machine reads it: every state is kept, and only what follows a change is read again. */

import { softmaxOf } from "./machine.js";

/** @typedef {import("./machine.js").Machine} Machine */
/** @typedef {import("./machine.js").State} State */
/** @typedef {import("./machine.js").Step} Step */
/** @typedef {import("./graph.js").Edit} Edit */

export class Reading {
  /** @param {Machine} machine */
  constructor(machine) {
    this.machine = machine;
    /** Tokens: the first stands before the text. @type {number[]} */
    this.tokens = [];
    /** The part of the text that each token stands for. @type {string[]} */
    this.texts = [];
    /** After each token. @type {Step[]} */
    this.steps = [];
    /** Values that are replaced at every step, by name. @type {Map<string, Edit>} */
    this.edits = new Map();
    /** Where the state before a token was replaced by another. @type {Map<number, State>} */
    this.replaced = new Map();
  }

  /** Sets the text; states of what stays the same are kept. @param {string} text */
  write(text) {
    const pieces = this.machine.vocab.pieces(text);
    const tokens = [this.machine.first, ...pieces.map((piece) => piece.id)];
    let same = 0;
    while (same < tokens.length && same < this.tokens.length && tokens[same] === this.tokens[same]) same += 1;
    this.tokens = tokens;
    this.texts = ["", ...pieces.map((piece) => piece.text)];
    this.forget(same);
  }

  /** Steps from here on are computed again. @param {number} from */
  forget(from) {
    if (this.steps.length > from) this.steps.length = from;
  }

  /** Reads on, for at most some milliseconds. @param {number} [milliseconds] @returns {boolean} whether all is read */
  read(milliseconds = Infinity) {
    const end = performance.now() + milliseconds;
    while (this.steps.length < this.tokens.length) {
      const t = this.steps.length;
      this.steps.push(this.machine.stepWith(this.before(t), this.tokens[t], this.edits));
      if (performance.now() > end) return this.steps.length === this.tokens.length;
    }
    return true;
  }

  /** The state that token t is read with. @param {number} t @returns {State} */
  before(t) {
    return this.replaced.get(t) || (t === 0 ? this.machine.start() : this.steps[t - 1].state);
  }

  /** Another state in place of the one before token t. @param {number} t @param {State | null} state null: its own */
  replace(t, state) {
    if (state === null) this.replaced.delete(t);
    else this.replaced.set(t, state);
    this.forget(t);
  }

  /** -log2 p of each token, given those before it; the first has none. @returns {number[]} */
  surprises() {
    return this.tokens.map((token, t) => (t === 0 || t > this.steps.length ? NaN : -Math.log2(softmaxOf(this.steps[t - 1].logits)[token])));
  }

  /** The most probable text that follows, token by token. @param {number} length @param {number} [from] after which token */
  continued(length, from = this.steps.length - 1) {
    let { logits, state } = this.steps[from];
    const tokens = [];
    for (let i = 0; i < length; i += 1) {
      const token = bestOf(logits, this.machine.vocab.unknown);
      tokens.push(token);
      ({ logits, state } = this.machine.stepWith(state, token, this.edits));
    }
    return tokens;
  }
}

/** @param {ArrayLike<number>} logits @param {number | null} never */
export function bestOf(logits, never) {
  let best = -1;
  for (let i = 0; i < logits.length; i += 1) if (i !== never && (best < 0 || logits[i] > logits[best])) best = i;
  return best;
}

/** A number of a state: which leaf, which place in it; `list`: it belongs to a row of a list that grows. @typedef {{leaf: string, index: number, list: boolean}} Unit */

/** The numbers that make up one column of a picture of the state: all of a fixed size, and the newest row of lists. @param {Machine} machine @param {number} [most] @returns {Unit[]} */
export function unitsOf(machine, most = 160) {
  const start = machine.start();
  const { state } = machine.step(start, machine.first);
  /** @type {Unit[]} */
  const units = [];
  const leaves = Array.from(state).filter(([, leaf]) => leaf.kind === "f");
  for (const [name, leaf] of leaves.length ? leaves : Array.from(state)) {
    const list = leaf.data.length !== /** @type {any} */ (start.get(name)).data.length;
    const rows = list ? leaf.dims[1] : 1;
    for (let index = 0; index < leaf.data.length / rows; index += 1) units.push({ leaf: name, index, list });
  }
  if (units.length <= most) return units;
  return Array.from({ length: most }, (_, i) => units[Math.floor((i * units.length) / most)]);
}

/** How many numbers a state holds that could be drawn. @param {Machine} machine @param {State} state */
export function sizeOf(machine, state) {
  return machine.leaves(state).reduce((sum, { tensor }) => sum + (tensor.kind === "f" ? tensor.data.length : 0), 0);
}

/** @param {Unit[]} units @param {State} state @returns {Float32Array} */
export function columnOf(units, state) {
  return Float32Array.from(units, ({ leaf, index, list }) => {
    const tensor = /** @type {import("./tensor.js").Tensor} */ (state.get(leaf));
    const offset = list ? (tensor.data.length / tensor.dims[1]) * (tensor.dims[1] - 1) : 0;
    return tensor.data[offset + index];
  });
}
