// @ts-check
/** A text as one machine reads it: every state is kept, and only what follows a change is read again. */

import { bestOf, softmaxOf } from "./machine.js";
import { count } from "./tensor.js";

/** @typedef {import("./machine.js").Machine} Machine */
/** @typedef {import("./machine.js").State} State */
/** @typedef {import("./machine.js").Step} Step */
/** @typedef {import("./graph.js").Edit} Edit */
/** @typedef {import("./tensor.js").Tensor} Tensor */

export class Reading {
  /** @param {Machine} machine */
  constructor(machine) {
    this.machine = machine;
    /** Tokens: the first stands before the text (-1: there is none). @type {number[]} */
    this.tokens = [];
    /** The part of the text that each token stands for. @type {string[]} */
    this.texts = [];
    /** After each token. @type {Step[]} */
    this.steps = [];
    /** Values that are replaced at every step, by name. @type {Map<string, Edit>} */
    this.edits = new Map();
    /** Where the state before a token was replaced by another. @type {Map<number, State>} */
    this.replaced = new Map();
    /** Counts changes: what was asked before one is not kept. */
    this.version = 0;
    /** The reading that goes on. @type {Promise<void> | null} */
    this.going = null;
  }

  /** Sets the text, as far as the model can read; states of what stays the same are kept. @param {string} text */
  write(text) {
    const pieces = this.machine.vocab.pieces(text).slice(0, this.machine.most - 1);
    const tokens = [this.machine.first ?? -1, ...pieces.map((piece) => piece.id)];
    let same = 0;
    while (same < tokens.length && same < this.tokens.length && tokens[same] === this.tokens[same]) same += 1;
    this.tokens = tokens;
    this.texts = ["", ...pieces.map((piece) => piece.text)];
    this.forget(same);
  }

  /** Steps from here on are computed again. @param {number} from */
  forget(from) {
    if (this.steps.length > from) this.steps.length = from;
    this.version += 1;
  }

  /** Reads on, for at most some milliseconds. A change that comes when a reading has just ended is read, too. @param {number} [milliseconds] @returns {Promise<boolean>} whether all is read */
  async read(milliseconds = Infinity) {
    do {
      this.going ??= this.advance(performance.now() + milliseconds).finally(() => {
        this.going = null;
      });
      await this.going;
    } while (milliseconds === Infinity && this.steps.length < this.tokens.length);
    return this.steps.length === this.tokens.length;
  }

  /** A machine of this page answers at once, another one later: then the text may have changed. @param {number} end */
  async advance(end) {
    if (!this.steps.length && this.machine.labels && this.machine.first === null) {
      this.steps.push({ logits: new Float32Array(this.machine.labels.length), state: this.machine.start(), seen: new Map() });
    }
    while (this.steps.length < this.tokens.length) {
      const { version } = this, t = this.steps.length;
      let until = t + 1;
      while (until < this.tokens.length && !this.replaced.has(until)) until += 1;
      const asked = this.machine.steps(this.before(t), this.tokens.slice(t, until), this.edits);
      const steps = asked instanceof Promise ? await asked : asked;
      if (version === this.version) this.steps.push(...steps);
      if (performance.now() > end) break;
    }
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

  /** The class that is chosen at the end. */
  get answer() {
    return bestOf(this.steps[this.steps.length - 1].logits, null);
  }

  /** -log2 p of token t, given those before it; the first has none. Of a classifier: of `answer`, after token t. @param {number} t @param {number} [answer] */
  surprise(t, answer = this.machine.labels ? this.answer : this.tokens[t]) {
    const step = this.steps[this.machine.labels ? t : t - 1];
    return t === 0 || step === undefined ? NaN : -Math.log2(softmaxOf(step.logits)[answer]);
  }

  /** How much each symbol up to token t - 1 changes the loss of token t; of a classifier: up to token t, that of `answer`. @param {number} t */
  async gradient(t) {
    const { machine, tokens } = this;
    if (machine.first !== null) return machine.gradient([machine.start()], tokens, t - 1, tokens[t]);
    await this.read();
    return Float64Array.of(0, ...(await machine.gradient([machine.start()], tokens.slice(1), t - 1, this.answer)));
  }

  /** That of each token. @param {number} [answer] @returns {number[]} */
  surprises(answer = this.machine.labels ? this.answer : undefined) {
    return this.tokens.map((_, t) => this.surprise(t, answer));
  }

  /** The most probable text that follows, token by token. @param {number} length @param {number} [from] after which token */
  continued(length, from = this.steps.length - 1) {
    return this.machine.future(this.steps[from], Math.min(length, this.machine.most - 1 - from), this.edits);
  }
}

/** A number of a state: which leaf, which place in it; `list`: it belongs to a row of a list that grows. @typedef {{leaf: string, index: number, list: boolean}} Unit */

/** The numbers that make up one column of a picture of the state: all of a fixed size, and the newest row of lists. @param {Machine} machine @param {State} state after one token @param {number} [most] @returns {Unit[]} */
export function unitsOf(machine, state, most = 160) {
  const start = machine.start();
  /** @type {Unit[]} */
  const units = [];
  const leaves = Array.from(state).filter(([, leaf]) => leaf.kind === "f");
  for (const [name, leaf] of leaves.length ? leaves : Array.from(state)) {
    const list = count(leaf.dims) !== count(/** @type {Tensor} */ (start.get(name)).dims);
    const size = count(leaf.dims) / (list ? leaf.dims[1] : 1);
    for (const index of machine.known?.[name] ?? Array(size).keys()) units.push({ leaf: name, index, list });
  }
  if (units.length <= most) return units;
  return Array.from({ length: most }, (_, i) => units[Math.floor((i * units.length) / most)]);
}

/** How many numbers a state holds that could be drawn. @param {Machine} machine @param {State} state */
export function sizeOf(machine, state) {
  return machine.leaves(state).reduce((sum, { tensor }) => sum + (tensor.kind === "f" ? count(tensor.dims) : 0), 0);
}

/** @param {Unit[]} units @param {State} state @returns {Float32Array} */
export function columnOf(units, state) {
  return Float32Array.from(units, ({ leaf, index, list }) => {
    const { data, dims } = /** @type {Tensor} */ (state.get(leaf));
    return data[index + (list ? data.length - count(dims) / dims[1] : 0)];
  });
}

/** The place of a unit among the numbers of its leaf. @param {Unit} unit @param {State} state */
export function placeOf({ leaf, index, list }, state) {
  const { dims } = /** @type {Tensor} */ (state.get(leaf));
  return index + (list ? count(dims) - count(dims) / dims[1] : 0);
}
