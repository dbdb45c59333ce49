// @ts-check
/** View 1: one text through any selection of models, side by side. */

import { button, currentLanguage, make, named, onArrows, say, slider } from "../dom.js";
import { PLACES, coincidence, colourText, followers, quoted } from "../follow.js";
import { barPicture, heatPicture } from "../picture.js";
import { Reading, columnOf, sizeOf, unitsOf } from "../reading.js";
import { bytesText, cards, drawBars, drawHeat, inFrames, readers, textBox, titleOf, visible } from "../widget.js";

/** @typedef {import("../machine.js").Machine} Machine */
/** What was marked in the text: 1 at each token inside, and what marked it. @typedef {{mask: number[], search: object}} Marked */
/** The unit of a model that agrees best with the marked text, and whether it follows it. @typedef {{model: string, unit: string, r: number, follow: boolean}} Best */

const FIRST = ["markov", "elman", "lstm", "transformer", "ttt_linear"];
const WEAK = 0.4; // a smaller correlation is not called following, even where it is no coincidence
const SORTED = 8; // units that are drawn where they are sorted
const FEW = 3; // quotations: with fewer, units that drift agree too easily
const QUOTES = {}; // the search for quotations, which goes on while one types

/** @param {string[]} given */
const sentences = (given) => given.filter(Boolean).join(currentLanguage() === "en" ? " " : "");
/** @param {number} r */
const written = (r) => r.toFixed(2).replace("-", "−");

/** One model's part of the view. @param {Machine} machine @param {any} lab @param {{t: number, marked: Marked | null, pick: (t: number) => void}} shared */
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
  /** All units, those that follow the marked text best first, and the largest correlation by coincidence. */
  let ranked = { all: /** @type {import("../follow.js").Follower[]} */ ([]), by: 0, mask: /** @type {number[]} */ ([]), version: -1 };
  /** Those that are drawn; none: all units are, in their own order. @type {import("../follow.js").Follower[]} */
  let found = [];
  /** @type {Best | null} */
  let best = null;
  /** The unit that a search found first. */
  let kept = { search: /** @type {object | null} */ (null), row: -1 };

  const nameOf = (/** @type {number} */ row) => `${units[row].leaf}[${units[row].index}]`;
  const find = () => {
    const { mask, search } = shared.marked || { mask: [], search: null }, { version } = reading;
    const ready = mask.length === columns.length && units.length > 0;
    for (const one of [inside, coloured, follows]) one.hidden = !ready;
    if (!ready) return ([found, best] = [[], null]);
    if (ranked.mask !== mask || ranked.version !== version) {
      const all = followers(columns, mask);
      ranked = { all, by: coincidence(all, mask), mask, version };
    }
    const { all, by } = ranked, { r } = all[0], unit = nameOf(all[0].row), follow = Math.abs(r) >= Math.max(WEAK, by);
    [found, best] = [all.slice(0, SORTED), { model: machine.name, unit, r, follow }];
    if (kept.search !== search || kept.row < 0) kept = { search, row: follow ? all[0].row : -1 };
    drawHeat(inside, mask.map((value) => Float32Array.of(value)), lab.palette);
    const [within, without] = r < 0 ? [{ en: "low", zh: "低" }, { en: "high", zh: "高" }] : [{ en: "high", zh: "高" }, { en: "low", zh: "低" }];
    const earlier = kept.row >= 0 && kept.row !== all[0].row ? { unit: nameOf(kept.row), r: written(/** @type {any} */ (all.find(({ row }) => row === kept.row)).r) } : null;
    follows.textContent = sentences([
      follow
        ? lab.t({ en: `${unit} follows the underlined text: ${within.en} inside, ${without.en} outside (r = ${written(r)}; by coincidence up to ${written(by)}).`, zh: `${unit} 跟随带下划线的文字：里面${within.zh}，外面${without.zh}（r = ${written(r)}；巧合可达 ${written(by)}）。` })
        : lab.t({ en: `No unit follows the underlined text: the best, ${unit}, has r = ${written(r)} (by coincidence up to ${written(by)}).`, zh: `没有单元跟随带下划线的文字：最好的是 ${unit}，r = ${written(r)}（巧合可达 ${written(by)}）。` }),
      earlier ? lab.t({ en: `${earlier.unit}, which was found in another text, has r = ${earlier.r} here.`, zh: `在另一段文本中找到的 ${earlier.unit} 在这里 r = ${earlier.r}。` }) : "",
      lab.t({ en: "The text in the colours of the best:", zh: "按最好的单元着色的文本：" }),
    ]);
    colourText(coloured, reading.texts, all[0].values, mask, lab.palette);
  };
  const tell = (/** @type {number} */ row, /** @type {number} */ t) => {
    const at = found.length ? found[row].row : row, unit = units[at];
    if (!unit || !columns[t]) return;
    const r = found.length ? `, r = ${written(found[row].r)}` : "";
    unitText.textContent = `${nameOf(at)} = ${columns[t][at].toFixed(3)} ${lab.t({ en: "after", zh: "读完" })} “${visible(reading.texts[t])}”${r}`;
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
    next = drawBars(bars, machine, reading.steps[t].logits);
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
  /** @type {(string | number)[][]} */
  let next = [];
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
  onArrows(canvas, (by) => shared.pick(shared.t + by));
  const state = () => ({
    svg: heatPicture(canvas, lab.t({ en: `State of ${machine.name} over time`, zh: `${machine.name} 的状态随时间的变化` })),
    rows: [["t", "token", ...units.map((_, row) => nameOf(row))], ...columns.map((column, t) => [t, reading.texts[t], ...column])],
  });
  const expected = () => ({ svg: barPicture(next, lab.palette, lab.t({ en: `What ${machine.name} expects next`, zh: `${machine.name} 预测的下一个符号` })), rows: [["symbol", "p"], ...next] });
  const element = make(
    "article",
    { class: "panel model" },
    make("h3", {}, titleOf(machine)),
    facts,
    bars,
    lab.exports(`next-${machine.name}`, expected),
    follows,
    coloured,
    make("div", { class: "heatbox" }, inside, canvas, cursor),
    unitText,
    lab.exports(`state-${machine.name}`, state),
  );
  const read = (/** @type {string} */ text, /** @type {number} */ milliseconds) => {
    const before = reading.steps.length;
    if (text !== known) reading.write(text);
    known = text;
    redrawn = Math.min(redrawn, reading.steps.length, before);
    return reading.read(milliseconds);
  };
  let known = "\0";
  return { element, draw, read, best: () => best };
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
    en: "Where does the LSTM keep an open quote? Press “Find the open quote”: the page names the unit that best follows the quotations between ` and ', and the text takes its colours. The LSTM has a unit that is low inside them and high outside; in the other four no unit follows them. Then type a quotation of your own, and see whether the unit still follows.",
    zh: "LSTM 把“引号还没有关上”记在哪里？按“寻找引号内的单元”：页面会指出最能跟随 ` 与 ' 之间引文的单元，文本按它着色。LSTM 有一个单元在引文里低、在引文外高；另外四个模型没有跟随引文的单元。再输入一段你自己的引文，看看这个单元是否仍然跟随。",
  },
  how: {
    equation: "y_t, s_t = model(x_t, s_{t−1})\np(x_{t+1} | x_1 … x_t) = softmax(y_t)\n\"surprise|意外度\"_t = −log₂ p(x_t | x_1 … x_{t−1})",
    code: 'import statewise as sw\n\nrun = sw.load("shakespeare-lstm")\nat = run.begin("To be, or not")\nprint(sw.state_bytes(at.state))',
    command: "statewise lab --open",
  },
  /** @param {HTMLElement} root @param {any} lab */
  mount(root, lab) {
    const machines = readers(lab);
    let text = machines[0].record.example || "";
    const shared = { t: Infinity, marked: /** @type {Marked | null} */ (null), pick: (/** @type {number} */ t) => pick(t) };
    const pieces = () => machines[0].vocab.pieces(text).map((piece) => piece.text);
    const length = () => pieces().length;
    const time = slider({ label: { en: "Time step", zh: "时间步" }, min: 0, max: length(), step: 1, value: length(), show: (t) => `${t} / ${length()}`, input: (t) => pick(t) });
    const bar = /** @type {HTMLInputElement} */ (time.element.querySelector("input"));
    let follow = true;
    const said = make("p", { class: "finding", "aria-live": "polite" });
    const meaning = make("p", { class: "note" }, say({
      en: `The pictures now show the ${SORTED} best units, the best on top. r: the correlation of a unit with being inside; ±1: exactly, 0: not at all. By coincidence: the largest |r| of any unit where the underlining is moved to ${PLACES - 1} other places of the text; a unit follows if it is above this, and at least at ${WEAK}. A name such as layers.0.c_BD[20] says where the unit is: in layer 0, in its vector c (an LSTM's cell), number 20; the first number is 0.`,
      zh: `图中现在是最好的 ${SORTED} 个单元，最好的在最上面。r：单元的值与“是否在其中”的相关系数；±1 为完全吻合，0 为毫无关系。巧合：把下划线移到文本中另外 ${PLACES - 1} 个位置时，所有单元里最大的 |r|；高于它且不小于 ${WEAK} 才算跟随。layers.0.c_BD[20] 这样的名称说明单元在哪里：第 0 层，向量 c（LSTM 的记忆元），第 20 个数；从 0 数起。`,
    }));
    const draw = () => {
      const all = shown();
      for (const one of all) one.draw();
      const found = all.flatMap((one) => one.best() || []).sort((a, b) => Math.abs(b.r) - Math.abs(a.r));
      meaning.hidden = !found.length;
      if (!found.length) return;
      const units = found.flatMap(({ model, unit, r, follow }) => (follow ? [{ en: `In ${model}, ${unit} follows the underlined text (r = ${written(r)}).`, zh: `${model} 的 ${unit} 跟随带下划线的文字（r = ${written(r)}）。` }] : []));
      const parts = shared.marked?.mask.filter((now, t, mask) => now && !mask[t - 1]).length ?? 0;
      const none = found.flatMap(({ model, follow }) => (follow ? [] : [model]));
      said.textContent = sentences([
        ...units.map(lab.t),
        none.length ? lab.t({ en: `No unit does in ${none.join(", ")}.`, zh: `${none.join("、")} 没有这样的单元。` }) : "",
        quotes && parts < FEW ? lab.t({ en: `In a text with fewer than ${FEW} quotations a unit easily follows by coincidence: type more of them.`, zh: `引文少于 ${FEW} 处的文本里，单元很容易因巧合而跟随：请多输入几处引文。` }) : "",
      ]);
    };
    function pick(/** @type {number} */ t) {
      shared.t = Math.min(Math.max(t, 0), length());
      follow = shared.t === length();
      time.set(shared.t);
      draw();
    }
    const go = inFrames(async () => {
      const done = (await Promise.all(shown().map((one) => one.read(text, 8)))).every(Boolean);
      draw();
      root.dataset.read = done ? "yes" : "no";
      return done;
    });
    /** Units are sorted by what is marked; where nothing is, the reason is said. @param {number[]} mask @param {object} search @param {import("../dom.js").Words} none */
    const mark = (mask, search, none) => {
      const some = mask.some(Boolean);
      shared.marked = some ? { mask, search } : null;
      said.textContent = some ? "" : lab.t(none);
    };
    const markQuotes = () => mark(quoted(["", ...pieces()]), QUOTES, { en: "There is no quotation in this text: one begins with ` and ends with '.", zh: "这段文本里没有引文：引文以 ` 开头，以 ' 结尾。" });
    let quotes = false;
    const press = (/** @type {import("../dom.js").Words} */ words, /** @type {() => void} */ work) => button(words, () => {
      quotes = work === markQuotes;
      work();
      draw();
    });
    const typed = textBox(text, (next) => {
      text = next;
      shared.marked = null;
      said.textContent = "";
      if (quotes) markQuotes();
      bar.max = String(length());
      if (follow) shared.t = length();
      shared.t = Math.min(shared.t, length());
      time.set(shared.t);
      root.dataset.read = "no";
      go();
    });
    const markSelection = () => {
      const { selectionStart, selectionEnd } = typed.box;
      let at = 0;
      const mask = pieces().map((piece) => {
        at += piece.length;
        return Number(at > selectionStart && at <= selectionEnd);
      });
      mark([0, ...mask], {}, { en: "Select a part of the text first.", zh: "请先选中一部分文字。" });
    };
    const sorts = make(
      "div",
      { class: "buttons" },
      press({ en: "Find the open quote", zh: "寻找引号内的单元" }, markQuotes),
      press({ en: "Find units for the selected text", zh: "寻找与所选文字对应的单元" }, markSelection),
      press({ en: "Units in their own order", zh: "恢复单元顺序" }, () => mark([], {}, { en: "", zh: "" })),
    );
    const legend = make("p", { class: "quiet" }, say({ en: "Each picture is the state: one row for each number, one column for each symbol; orange is positive, blue negative.", zh: "每幅图是状态：每行一个数，每列一个符号；橙色为正，蓝色为负。" }));
    shared.t = length();
    const grid = make("div", { class: "panels models" });
    const { boxes, shown, arrange } = cards(machines, FIRST, grid, (machine) => card(machine, lab, shared), () => {
      root.dataset.read = "no";
      go();
    });
    root.append(typed.element, make("div", { class: "controls" }, time.element, sorts), said, meaning, boxes, legend, grid);
    arrange();
    return {
      update: () => {
        time.refresh();
        draw();
      },
    };
  },
};
