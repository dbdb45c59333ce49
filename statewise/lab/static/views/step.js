// @ts-check
/** View 1: one text through any selection of models, side by side. */

import { button, make, named, say, slider } from "../dom.js";
import { colourText, followers, quoted } from "../follow.js";
import { Reading, columnOf, sizeOf, unitsOf } from "../reading.js";
import { bytesText, drawBars, drawHeat, inFrames, readers, severalModels, textBox, titleOf, visible } from "../widget.js";

/** @typedef {import("../machine.js").Machine} Machine */
/** @typedef {{element: HTMLElement, reading: Reading, draw: () => void, read: (text: string, milliseconds: number) => Promise<boolean>}} Card */

const FIRST = ["markov", "elman", "lstm", "transformer", "ttt_linear"];
const WEAK = 0.4; // a smaller correlation is not called following

/** One model's part of the view. @param {Machine} machine @param {any} lab @param {{t: number, mask: number[] | null, pick: (t: number) => void}} shared @returns {Card} */
function card(machine, lab, shared) {
  const reading = new Reading(machine);
  /** @type {import("../reading.js").Unit[]} */
  let units = [];
  const bars = make("div", { class: "next" });
  const canvas = make("canvas", { class: "heat", role: "img", tabindex: 0, ...named({ en: `State of ${machine.name} over time: one row a unit`, zh: `${machine.name} 的状态随时间的变化：每行一个单元` }) });
  const cursor = make("span", { class: "cursor" });
  const facts = make("p", { class: "finding" });
  const unitText = make("p", { class: "finding quiet" });
  /** @type {Float32Array[]} */
  let columns = [];
  const inside = make("canvas", { class: "inside", "aria-hidden": true });
  const coloured = make("p", { class: "coloured" });
  const follows = make("p", { class: "follows" });
  /** Those that follow the marked text; none: all units are drawn. @type {import("../follow.js").Follower[]} */
  let found = [];

  const find = () => {
    const { mask } = shared;
    found = mask && mask.length === columns.length && units.length ? followers(columns, mask) : [];
    for (const one of [inside, coloured, follows]) one.hidden = !found.length;
    if (!mask || !found.length) return;
    drawHeat(inside, mask.map((value) => Float32Array.of(value)), lab.palette);
    const [{ row, r, values }] = found;
    const name = `${units[row].leaf}[${units[row].index}]`, size = r.toFixed(2).replace("-", "−");
    const strength = lab.t({ en: `r = ${size}; ±1: exactly, 0: not at all`, zh: `r = ${size}；±1：完全吻合，0：毫无关系` });
    const [within, without] = r < 0 ? [{ en: "low", zh: "低" }, { en: "high", zh: "高" }] : [{ en: "high", zh: "高" }, { en: "low", zh: "低" }];
    follows.textContent = Math.abs(r) < WEAK
      ? lab.t({ en: `No unit follows the underlined text; ${name} is the best (${strength}). The text in its colours:`, zh: `没有单元跟随带下划线的文字；最好的是 ${name}（${strength}）。按它的值着色的文本：` })
      : lab.t({ en: `${name} follows the underlined text: ${within.en} inside, ${without.en} outside (${strength}). The text in its colours:`, zh: `${name} 跟随带下划线的文字：里面${within.zh}，外面${without.zh}（${strength}）。按它的值着色的文本：` });
    colourText(coloured, reading.texts, values, mask, lab.palette);
  };
  const tell = (/** @type {number} */ row, /** @type {number} */ t) => {
    const at = found.length ? found[row].row : row, unit = units[at];
    if (!unit || !columns[t]) return;
    const r = found.length ? `, r = ${found[row].r.toFixed(2)}` : "";
    unitText.textContent = `${unit.leaf}[${unit.index}] = ${columns[t][at].toFixed(3)} ${lab.t({ en: "after", zh: "读完" })} “${visible(reading.texts[t])}”${r}`;
  };
  const draw = () => {
    const t = Math.min(shared.t, reading.steps.length - 1);
    if (t < 0) return;
    if (!units.length && (machine.first !== null || t > 0)) units = unitsOf(machine, reading.steps[reading.steps.length - 1].state);
    while (columns.length > reading.steps.length) columns.pop();
    for (let s = 0; s < reading.steps.length; s += 1) if (!columns[s] || s >= redrawn) columns[s] = columnOf(units, reading.steps[s].state);
    redrawn = reading.steps.length;
    find();
    if (units.length) drawHeat(canvas, found.length ? columns.map((_, s) => Float32Array.from(found, ({ values }) => values[s])) : columns, lab.palette);
    cursor.style.left = `${(100 * (t + 0.5)) / columns.length}%`;
    drawBars(bars, machine, reading.steps[t].logits);
    const { state } = reading.steps[t];
    const size = sizeOf(machine, state);
    const surprise = reading.surprise(t);
    const said = [
      `${lab.t({ en: "remembers", zh: "记住" })} ${bytesText(machine.bytes(state))}`,
      machine.labels ? `${lab.t({ en: "answers", zh: "回答" })} “${machine.labels[reading.answer]}”` : Number.isFinite(surprise) ? `${lab.t({ en: "surprise", zh: "意外度" })} ${surprise.toFixed(2)} bit` : "",
      reading.tokens.length === machine.most ? lab.t({ en: `reads ${machine.most} symbols and no more`, zh: `最多读 ${machine.most} 个符号` }) : "",
      size > units.length ? `${units.length} / ${size.toLocaleString("en")} ${lab.t({ en: "numbers drawn", zh: "个数被画出" })}` : "",
    ];
    facts.textContent = said.filter(Boolean).join(" · ");
    if (found.length) tell(0, t);
  };
  let redrawn = 0;
  const place = (/** @type {PointerEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    const t = Math.min(columns.length - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * columns.length)));
    const rows = found.length || units.length;
    return { t, row: Math.min(rows - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * rows))) };
  };
  canvas.addEventListener("pointermove", (event) => {
    const { t, row } = place(event);
    tell(row, t);
  });
  canvas.addEventListener("click", (event) => shared.pick(place(/** @type {PointerEvent} */ (event)).t));
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    shared.pick(shared.t + by);
  });
  const picture = () => ({ canvas, rows: [["t", "token", ...units.map((unit) => `${unit.leaf}[${unit.index}]`)], ...columns.map((column, t) => [t, reading.texts[t], ...column])] });
  const element = make(
    "article",
    { class: "panel model" },
    make("h3", {}, titleOf(machine)),
    facts,
    bars,
    make("div", { class: "heatbox" }, inside, canvas, cursor),
    unitText,
    follows,
    coloured,
    lab.exports(`state-${machine.name}`, picture),
  );
  const read = (/** @type {string} */ text, /** @type {number} */ milliseconds) => {
    const before = reading.steps.length;
    if (text !== written) reading.write(text);
    written = text;
    redrawn = Math.min(redrawn, reading.steps.length, before);
    return reading.read(milliseconds);
  };
  let written = "\0";
  return { element, reading, draw, read };
}

export const stepView = {
  id: "step",
  needsModels: true,
  title: { en: "Type, and every model reads along", zh: "输入文字，所有模型同时阅读" },
  lookFor: {
    en: "Type a letter: each model updates its state and says what it expects next, and only the lists of attention grow with every symbol.",
    zh: "输入一个字母：每个模型更新自己的状态，并给出下一个符号的概率；只有注意力模型的列表随每个符号增长。",
  },
  more: {
    en: "Where does the LSTM keep an open quote? Press “Find the open quote”: under each model, the text takes the colours of the unit that best follows the quotations between ` and '. The LSTM has one colour inside them and another outside, the Elman network does not. Then try a quotation of your own.",
    zh: "LSTM 把“引号还没有关上”记在哪里？按“寻找引号内的单元”：每个模型下方的文本会按最能跟随 ` 与 ' 之间引文的那个单元着色。LSTM 在引文里外是两种颜色，Elman 网络则不是。再换一段你自己的引文试试。",
  },
  how: {
    equation: "y_t, s_t = model(x_t, s_{t−1})\np(x_{t+1} | x_1 … x_t) = softmax(y_t)\n\"surprise|意外度\"_t = −log₂ p(x_t | x_1 … x_{t−1})",
    code: 'import statewise as sw\n\nrun = sw.load("shakespeare-lstm")\nat = run.begin("To be, or not")\nprint(sw.state_bytes(at.state))',
    command: "statewise lab --open",
  },
  /** @param {HTMLElement} root @param {any} lab */
  mount(root, lab) {
    const machines = readers(lab);
    const known = machines.filter((machine) => FIRST.includes(machine.name));
    const chosen = new Set((known.length ? known : machines.slice(0, 5)).map((machine) => machine.name));
    let text = machines[0].record.example || "";
    /** @type {Map<string, Card>} */
    const cards = new Map();
    const shared = { t: Infinity, mask: /** @type {number[] | null} */ (null), pick: (/** @type {number} */ t) => pick(t) };
    const grid = make("div", { class: "panels models" });
    const length = () => machines[0].vocab.pieces(text).length;
    const time = slider({ label: { en: "Time step", zh: "时间步" }, min: 0, max: length(), step: 1, value: length(), show: (t) => `${t} / ${length()}`, input: (t) => pick(t) });
    const bar = /** @type {HTMLInputElement} */ (time.element.querySelector("input"));
    let follow = true;
    function pick(/** @type {number} */ t) {
      shared.t = Math.min(Math.max(t, 0), length());
      follow = shared.t === length();
      time.set(shared.t);
      for (const name of chosen) cards.get(name)?.draw();
    }
    const go = inFrames(async () => {
      const read = await Promise.all(Array.from(chosen, (name) => /** @type {Card} */ (cards.get(name)).read(text, 8)));
      const done = read.every(Boolean);
      for (const name of chosen) cards.get(name)?.draw();
      root.dataset.read = done ? "yes" : "no";
      return done;
    });
    const arrange = () => {
      for (const machine of machines) if (chosen.has(machine.name) && !cards.has(machine.name)) cards.set(machine.name, card(machine, lab, shared));
      grid.replaceChildren(...machines.filter((machine) => chosen.has(machine.name)).map((machine) => /** @type {Card} */ (cards.get(machine.name)).element));
      root.dataset.read = "no";
      go();
    };
    const typed = textBox(text, (next) => {
      text = next;
      shared.mask = null;
      bar.max = String(length());
      if (follow) shared.t = length();
      shared.t = Math.min(shared.t, length());
      time.set(shared.t);
      root.dataset.read = "no";
      go();
    });
    const mark = (/** @type {number[] | null} */ mask) => {
      shared.mask = mask;
      for (const name of chosen) cards.get(name)?.draw();
    };
    const selection = () => {
      const pieces = machines[0].vocab.pieces(text);
      const { selectionStart, selectionEnd } = typed.box;
      let at = 0;
      const mask = pieces.map((piece) => {
        at += piece.text.length;
        return Number(at > selectionStart && at <= selectionEnd);
      });
      return mask.some(Boolean) ? [0, ...mask] : null;
    };
    const sorts = make(
      "div",
      { class: "buttons" },
      button({ en: "Find the open quote", zh: "寻找引号内的单元" }, () => mark(quoted(["", ...machines[0].vocab.pieces(text).map((piece) => piece.text)]))),
      button({ en: "Find units for the selected text", zh: "寻找与所选文字对应的单元" }, () => mark(selection())),
      button({ en: "Units in their own order", zh: "恢复单元顺序" }, () => mark(null)),
    );
    const legend = make("p", { class: "quiet" }, say({ en: "Each picture is the state: one row for each number, one column for each symbol; orange is positive, blue negative.", zh: "每幅图是状态：每行一个数，每列一个符号；橙色为正，蓝色为负。" }));
    shared.t = length();
    root.append(typed.element, make("div", { class: "controls" }, time.element, sorts), severalModels(machines, chosen, arrange), legend, grid);
    arrange();
    return {
      update: () => {
        time.refresh();
        for (const name of chosen) cards.get(name)?.draw();
      },
    };
  },
};
