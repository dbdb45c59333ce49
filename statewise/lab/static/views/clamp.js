// @ts-check
/** View 8: an observed value is held at a number, at every step: a gate is clamped, a head is silenced. */

import { chart } from "../chart.js";
import { fill, make, say, slider } from "../dom.js";
import { futures, readTwice } from "../futures.js";
import { Reading } from "../reading.js";
import { readers, newest, oneModel, textBox, visible } from "../widget.js";

/** @typedef {import("../machine.js").Machine} Machine */

/** Gates first, then attention, then the rest. @param {string} name */
function rank(name) {
  return /gate|decay|rate|leak/.test(name) ? 0 : /weights|attention/.test(name) ? 1 : 2;
}

/** @param {number[]} values */
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);

export const clampView = {
  id: "clamp",
  needsModels: true,
  title: { en: "Clamp a gate, silence a head", zh: "固定一个门，关掉一个头" },
  lookFor: {
    en: "Hold the LSTM's forget gate at 1, and it cannot forget and soon predicts badly; hold it at 0, and it is left with the last symbol.",
    zh: "把 LSTM 的遗忘门固定为 1，它无法遗忘，预测很快变差；固定为 0，它只剩下最近一个符号。",
  },
  more: {
    en: "Or choose the Transformer's attention weights and silence one head: which one matters?",
    zh: "也可以选择 Transformer 的注意力权重，关掉一个头：哪个头更重要？",
  },
  how: {
    equation: "f_t = σ(W x_t + U h_{t−1} + b)   \"is replaced by|换成\"   f_t = v   \"at every step|每一步都如此\"",
    code: "import torch\nimport statewise as sw\n\nrun = sw.load(\"shakespeare-lstm\")\ntokens_T = run.specimens(text=\"To be, or not to be\").tokens_T\nwith sw.lens(\"*forget_gate\", edit=lambda name, f: torch.ones_like(f)):\n    logits_BTV, state = run.model(tokens_T[None])",
    command: "statewise inspect shakespeare-lstm intervene",
  },
  /** @param {HTMLElement} root @param {any} lab */
  mount(root, lab) {
    const machines = readers(lab).filter((machine) => machine.lens.length);
    let machine = machines.find((one) => one.kind === "lstm") || machines[0];
    let text = machine.record.example || "";
    let name = "";
    let part = -1;
    let value = 1;
    let [old, changed] = [new Reading(machine), new Reading(machine)];
    const two = futures(lab, "clamp-next");
    const facts = make("p", { class: "finding" });
    const curves = lab.picture("clamp-surprise", { en: "Surprise", zh: "意外度" }, facts);
    const options = make("div", { class: "controls" });
    const seen = () => old.steps[old.steps.length - 1].seen;
    /** Parts that can be held alone: heads of attention, units of a vector. */
    const parts = () => {
      const value = seen().get(name);
      return value && value.dims.length > 1 ? value.dims[1] : 1;
    };
    const draw = () => {
      const answer = machine.labels ? old.answer : undefined; // the same class before and after
      const surprises = [old, changed].map((one) => one.surprises(answer).slice(1));
      const high = Math.max(4, ...surprises.flat().filter(Number.isFinite));
      const series = surprises.map((values, index) => ({
        name: lab.t(index ? { en: "clamped", zh: "固定后" } : { en: "as trained", zh: "原样" }),
        points: /** @type {[number, number][]} */ (values.map((one, t) => [t + 1, Math.min(one, 1e3)])),
        hue: index ? 4 : 0,
      }));
      const width = Math.max(300, Math.min(900, curves.place.clientWidth || 640));
      const svg = chart({ width, height: 220, title: lab.t({ en: "Surprise at each symbol", zh: "每个符号的意外度" }), x: { label: lab.t({ en: "symbol", zh: "符号" }), min: 1, max: Math.max(2, surprises[0].length) }, y: { label: "bit", min: 0, max: high }, series });
      curves.show(svg, () => [["t", "symbol", "bits as trained", "bits clamped"], ...surprises[0].map((one, t) => [t + 1, visible(old.texts[t + 1]), one, surprises[1][t]])]);
      facts.textContent = lab.t({ en: `mean surprise ${mean(surprises[0]).toFixed(2)} bit as trained, ${mean(surprises[1]).toFixed(2)} bit with ${name} held at ${value}`, zh: `平均意外度：原样 ${mean(surprises[0]).toFixed(2)} bit；将 ${name} 固定为 ${value} 后 ${mean(surprises[1]).toFixed(2)} bit` });
      two.draw(old, changed);
    };
    const hold = newest(async (isNewest) => {
      changed.edits = new Map([[name, { value, part, parts: parts() }]]);
      changed.forget(0);
      await changed.read();
      if (isNewest()) draw();
    });
    const choose = () => {
      const names = machine.lens.filter((one) => seen().get(one)?.kind === "f").sort((a, b) => rank(a) - rank(b));
      if (!names.length) return; // a classifier that has read nothing
      name = names.includes(name) ? name : names[0];
      const list = make("select", { change: () => { name = list.value; part = -1; choose(); hold(); } }, ...names.map((one) => make("option", { value: one }, one)));
      list.value = name;
      const count = parts();
      const which = slider({ label: { en: "Part (unit or head)", zh: "部分（单元或头）" }, min: -1, max: count - 1, step: 1, value: part, show: (at) => (at < 0 ? lab.t({ en: "all", zh: "全部" }) : `${at + 1} / ${count}`), input: (at) => { part = at; hold(); } });
      const level = slider({ label: { en: "Held at", zh: "固定为" }, min: -1, max: 1, step: 0.05, value, show: (at) => at.toFixed(2), input: (at) => { value = at; hold(); } });
      fill(options, pickModel, make("label", { class: "pick" }, say({ en: "Observed value", zh: "观测值" }), list), which.element, level.element);
    };
    const fresh = newest(async (isNewest) => {
      const both = await readTwice(machine, text);
      if (!isNewest()) return;
      [old, changed] = both;
      choose();
      await hold();
    });
    const again = newest(async (isNewest) => {
      for (const one of [old, changed]) await one.read();
      if (isNewest()) draw();
    });
    const pickModel = oneModel(machines, machine.name, (next) => {
      machine = next;
      part = -1;
      value = next.kind === "lstm" ? 1 : 0;
      fresh();
    });
    const typed = textBox(text, (next) => {
      text = next;
      for (const one of [old, changed]) one.write(text);
      again();
    });
    root.append(typed.element, options, make("div", { class: "panels" }, curves.element, two.element));
    fresh();
    return { update: () => void (old.steps.length && draw()) };
  },
};
