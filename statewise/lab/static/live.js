// @ts-check
/** Models that a server computes: a state here is its id, the changes made to it, and the numbers that are drawn. */

import { brief, chart } from "./chart.js";
import { button, fill, make, named, say, slider } from "./dom.js";
import { Described, makeMachine as makeHere } from "./machine.js";
import { count, decoded } from "./tensor.js";
import { newest, textBox } from "./widget.js";

/** @typedef {import("./machine.js").State} State */
/** @typedef {import("./machine.js").Step} Step */
/** @typedef {import("./machine.js").ModelRecord} ModelRecord */
/** @typedef {import("./graph.js").Edit} Edit */
/** @typedef {import("./tensor.js").Tensor} Tensor */
/** @typedef {{dims: number[], data: string | number[]}} Sent */
/** @typedef {{leaf: string, begin: number, end: number, value: number}} Change */

const AT_ONCE = 32; // tokens of one request
const UPDATES = 5; // of one request

/** Asks the server; what it refuses is shown above the page. @param {string} what @param {Record<string, any>} body @returns {Promise<any>} */
async function ask(what, body) {
  let said = "";
  try {
    const answer = await fetch(`lab/${what}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    const found = await answer.json();
    if (answer.ok) return found;
    said = found.error.message;
  } catch {
    said = "the server does not answer";
  }
  const place = document.querySelector("#lab main");
  place?.querySelector("[role=alert]")?.remove();
  place?.prepend(make("p", { role: "alert", class: "look" }, said));
  throw new Error(said);
}

export class LiveMachine extends Described {
  /** @param {ModelRecord} record */
  constructor(record) {
    super(record);
    /** The places whose numbers are sent, by leaf; null: all. @type {Record<string, number[] | null>} */
    this.known = record.live.known;
    /** What the server knows a state by. @type {WeakMap<State, {state: string | null, changes: Change[]}>} */
    this.asked = new WeakMap();
  }

  /** @param {Record<string, Sent>} sent @param {string | null} id @returns {State} */
  opened(sent, id) {
    /** @type {State} */
    const state = new Map();
    for (const [name, { dims, data }] of Object.entries(sent)) {
      const numbers = typeof data === "string" ? decoded({ kind: "f4", data }) : Float64Array.from(data);
      const places = this.known[name], kind = this.record.live.kinds[name];
      if (!places || numbers.length !== places.length) {
        state.set(name, { kind, dims, data: numbers });
        continue;
      }
      /** Only some numbers are here: the others are never drawn. @type {Record<string, number>} */
      const some = { length: places[places.length - 1] + 1 };
      places.forEach((place, i) => { some[place] = numbers[i]; });
      state.set(name, { kind, dims, data: /** @type {any} */ (some) });
    }
    this.asked.set(state, { state: id, changes: [] });
    return state;
  }

  /** @param {State} state */
  named(state) {
    return /** @type {{state: string | null, changes: Change[]}} */ (this.asked.get(state));
  }

  start() {
    return this.opened(this.record.live.begin, null);
  }

  /** @param {State} state @returns {State} */
  clone(state) {
    const copy = new Map(Array.from(state, ([name, leaf]) => [name, { ...leaf, data: ArrayBuffer.isView(leaf.data) ? leaf.data.slice() : { .../** @type {any} */ (leaf.data) } }]));
    const { state: id, changes } = this.named(state);
    this.asked.set(copy, { state: id, changes: [...changes] });
    return copy;
  }

  /** @param {State} state @param {string} leaf @param {number} begin @param {number} end @param {number} value */
  put(state, leaf, begin, end, value) {
    const { data, dims } = /** @type {Tensor} */ (state.get(leaf)), offset = count(dims) - data.length;
    for (let place = Math.max(begin - offset, 0); place < end - offset; place += 1) if (data[place] !== undefined) data[place] = value;
    const own = this.named(state), last = own.changes[own.changes.length - 1];
    if (last && last.leaf === leaf && last.begin === begin && last.end === end) last.value = value;
    else own.changes.push({ leaf, begin, end, value });
  }

  /** @param {State} state @param {Map<string, Edit>} edits */
  request(state, edits) {
    return { model: this.name, ...this.named(state), holds: Array.from(edits, ([name, edit]) => ({ name, .../** @type {object} */ (edit) })) };
  }

  /** @param {State} state @param {number[]} tokens @param {Map<string, Edit>} edits @returns {Promise<Step[]>} */
  async steps(state, tokens, edits) {
    const { steps } = await ask("read", { ...this.request(state, edits), tokens: tokens.slice(0, AT_ONCE) });
    return steps.map((/** @type {any} */ step) => ({
      logits: decoded({ kind: "f4", data: step.logits }),
      state: this.opened(step.state, step.id),
      seen: new Map(step.seen.map((/** @type {[string, number[]]} */ [name, dims]) => [name, { kind: "f", dims, data: new Float32Array(0) }])),
    }));
  }

  /** @param {State} state @param {number} token @param {Map<string, Edit>} edits @returns {Promise<Step>} */
  async stepWith(state, token, edits) {
    return (await this.steps(state, [token], edits))[0];
  }

  /** @param {Step} step @param {number} length @param {Map<string, Edit>} edits @returns {Promise<number[]>} */
  async future(step, length, edits) {
    if (length < 2) return length < 1 ? [] : [this.chosen(step)];
    const token = this.chosen(step);
    const { tokens } = await ask("future", { ...this.request(step.state, edits), token, length: length - 1, never: this.vocab.unknown });
    return [token, ...tokens];
  }

  /** @param {State[]} _states @param {ArrayLike<number>} tokens @param {number} t @param {number} [target] @returns {Promise<Float64Array>} */
  async gradient(_states, tokens, t, target = tokens[t + 1]) {
    return Float64Array.from((await ask("gradient", { model: this.name, tokens: Array.from(tokens).slice(0, t + 1), target })).norms);
  }
}

/** @param {ModelRecord} record */
export function makeMachine(record) {
  return record.live ? new LiveMachine(record) : makeHere(record);
}

/** What a server adds to the page's views. @param {any} lab */
export function tools(lab) {
  const names = lab.models.filter((/** @type {any} */ machine) => machine instanceof LiveMachine && machine.labels === null).map((/** @type {any} */ machine) => machine.name);
  const example = () => /** @type {string} */ (lab.models[0].record.example || "");
  const choose = () => make("select", named({ en: "Model", zh: "模型" }), ...names.map((/** @type {string} */ name) => make("option", { value: name }, name)));

  /** A text of the reader's own, whose gradient is measured. @param {(measured: any) => void} use */
  const truncation = (use) => {
    if (!names.length) return null;
    let text = example();
    const select = choose();
    const measure = button({ en: "Measure the gradient of this text", zh: "测量这段文本的梯度" }, async () => {
      measure.disabled = true;
      await ask("truncation", { model: select.value, text }).then(use).finally(() => { measure.disabled = false; });
    });
    return make("div", { class: "panel own" }, textBox(text, (next) => { text = next; }, { en: "Your text (its first 97 tokens)", zh: "你的文本（前 97 个词元）" }, 2).element,
      make("div", { class: "controls" }, make("label", { class: "pick" }, say({ en: "model", zh: "模型" }), select), measure));
  };

  /** Training of a copy of a reader's own model. */
  const train = () => {
    if (!names.length) return null;
    let text = example(), running = false, fresh = true;
    const at = { rate: -3, clip: 1, cut: 32 };
    /** @type {number[]} */
    let losses = [];
    /** @type {number[]} */
    let norms = [];
    const select = choose(), place = make("div"), facts = make("p", { class: "finding", "aria-live": "polite" }), before = make("p", { class: "futures" }), after = make("p", { class: "futures" });
    const svg = () => chart({
      width: place.clientWidth || 640, height: 220, title: lab.t({ en: "Loss against updates", zh: "损失随更新次数的变化" }),
      x: { label: lab.t({ en: "updates", zh: "更新次数" }), min: 0, max: Math.max(20, losses.length) },
      y: { label: lab.t({ en: "nats a token; gradient's norm", zh: "每个词元的损失（nat）；梯度范数" }), log: true, min: 1e-5, max: 100 },
      series: [{ name: lab.t({ en: "loss", zh: "损失" }), points: losses.map((loss, i) => [i + 1, loss]), hue: 0 }, { name: lab.t({ en: "norm before clipping", zh: "剪裁前的范数" }), points: norms.map((norm, i) => [i + 1, norm]), hue: 2, faint: true }],
    });
    const go = newest(async (isNewest) => {
      while (running && root.isConnected && root.checkVisibility()) {
        const found = await ask("train", { model: select.value, text, updates: UPDATES, rate: 10 ** at.rate, clip: at.clip, cut: at.cut, restart: fresh }).catch(stop);
        if (!found || !isNewest()) return;
        fresh = false;
        losses = [...losses, ...found.losses.map((/** @type {number | null} */ loss) => loss ?? NaN)];
        norms = [...norms, ...found.norms.map((/** @type {number | null} */ norm) => norm ?? NaN)];
        fill(place, svg());
        [before.textContent, after.textContent] = found.written;
        const last = brief(losses[losses.length - 1]);
        facts.textContent = lab.t({ en: `After ${losses.length} updates the loss is ${last} nats a token. The run itself stays as it is.`, zh: `更新 ${losses.length} 次后，每个词元的损失为 ${last} nat。训练的是副本，原模型不变。` });
      }
      stop();
    });
    const label = () => fill(press, say(running ? { en: "Pause", zh: "暂停" } : { en: "Train a copy on this text", zh: "用这段文本训练副本" }));
    const stop = () => {
      running = false;
      label();
    };
    const press = make("button", { type: "button", class: "act main", click: () => {
      running = !running;
      label();
      if (running) go();
    } });
    const again = () => {
      [losses, norms, fresh] = [[], [], true];
      fill(place, svg());
    };
    select.addEventListener("change", again);
    const root = make("div", { class: "panel own" },
      make("h3", {}, say({ en: "Train your own model further", zh: "继续训练你自己的模型" })),
      textBox(text, (next) => { text = next; }, { en: "Text that it learns", zh: "要学习的文本" }, 3).element,
      make("div", { class: "controls" },
        make("label", { class: "pick" }, say({ en: "model", zh: "模型" }), select),
        slider({ label: { en: "learning rate", zh: "学习率" }, min: -5, max: 0, step: 0.25, value: at.rate, show: (value) => brief(10 ** value), input: (value) => { at.rate = value; } }).element,
        slider({ label: { en: "clip the gradient's norm at", zh: "梯度范数剪裁阈值" }, min: 0, max: 5, step: 0.25, value: at.clip, show: (value) => (value ? value.toFixed(2) : lab.t({ en: "off", zh: "关" })), input: (value) => { at.clip = value; } }).element,
        slider({ label: { en: "truncation: tokens between cuts", zh: "截断：每几个词元切断一次" }, min: 1, max: 256, step: 1, value: at.cut, input: (value) => { at.cut = value; } }).element,
        make("div", { class: "buttons" }, press, button({ en: "Start again", zh: "重新开始" }, again))),
      facts, place, lab.exports("train-own", () => ({ svg: place.querySelector("svg"), rows: [["update", "loss", "norm of the gradient"], ...losses.map((loss, i) => [i + 1, loss, norms[i]])] })),
      make("h3", {}, say({ en: "What it writes: the run, and the copy", zh: "它写出的文字：原模型与副本" })), before, after);
    label();
    fill(place, svg());
    return root;
  };
  return { truncation, train };
}
