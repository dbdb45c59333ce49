// @ts-check
/** The bill: what each model of the lineage pays for a context, in work, state, training memory and path. */

import { chart } from "../chart.js";
import { choice, fill, make, say, slider } from "../dom.js";

/** @typedef {{name: string, family: string, year: number, parameters: number, flops: number[], state: number[],
 *   training: number[] | null, path: string}} Row */
/** @typedef {"state" | "flops" | "training"} Quantity */

const BYTES = Array.from({ length: 9 }, (_, index) => 32 ** index); // ticks: 1 B, 32 B, 1 KiB, …
const SHOWN = ["markov", "lstm", "transformer", "linear_attention", "mamba2", "ttt_linear"];

/** Three digits and a unit, in steps of 1,024. @param {number} bytes */
export function inBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes, unit = 0;
  while (value >= 1023.5 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${unit === 0 ? value : Number(value.toPrecision(3))} ${units[unit]}`;
}

/** Three digits and a prefix, in steps of 1,000. @param {number} count */
export function inThousands(count) {
  const units = ["", "k", "M", "G", "T"];
  let value = count, unit = 0;
  while (value >= 999.5 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${Number(value.toPrecision(3))}${unit ? ` ${units[unit]}` : ""}`;
}

/** How many times larger at the end than at the beginning, against how the context grew. @param {number[]} values */
export function grows(values) {
  return values[values.length - 1] > 1.5 * values[0];
}

const QUANTITIES = /** @type {{value: Quantity, label: import("../dom.js").Words}[]} */ ([
  { value: "state", label: { en: "bytes of state", zh: "状态字节数" } },
  { value: "flops", label: { en: "FLOPs of the next token", zh: "生成下一个词元的浮点运算" } },
  { value: "training", label: { en: "training memory", zh: "训练内存" } },
]);

/** @type {import("../views.js").View} */
export const billView = {
  id: "bill",
  title: { en: "The bill", zh: "账单" },
  lookFor: {
    en: "Move the context: attention pays with bytes and work that grow with every token and gets a path of one step to all of them; a recurrence pays the same for the next token at any length, but a token N steps back is N steps away.",
    zh: "改变上下文长度：注意力的状态和计算量随每个词元增长，换来与任何词元只隔一步；循环网络读下一个词元的代价与长度无关，但 N 步之前的词元就在 N 步之外。",
  },
  how: {
    equation: "\"FLOPs:|浮点运算：\" 2 m n k \"for each product of an|：每次\" m × k \"with a|与\" k × n \"matrix, of one more token after the context|矩阵相乘，指上下文之后再读一个词元\"\n\"state: bytes of one row's state|状态：一行状态的字节数\"      \"training: bytes kept for the backward pass over one row|训练：一行的反向传播所保留的字节数\"\n\"path: operations between two tokens|路径：相距\" N \"apart:|的两个词元之间的运算步数：\" 1, log N, N, \"or none|或没有\"",
    code: "from functools import partial\nfrom statewise.models import LINEAGE, build, cost_of, path, training_bytes\n\nfor row in LINEAGE:\n    cost = cost_of(partial(build, row.spec, vocab=65), context=4096)\n    print(row.name, cost.flops, cost.state_bytes)\nmodel = build(\"lstm\", vocab=65)\nprint(training_bytes(model, 4096), path(model))",
    command: "statewise models --training --context 4096",
  },
  needs: ["bill"],
  mount,
};

/** @param {HTMLElement} root @param {any} lab */
function mount(root, lab) {
  const { contexts, models, vocab } = /** @type {{contexts: number[], models: Row[], vocab: number}} */ (lab.extra.bill);
  const at = { index: contexts.indexOf(4096), quantity: /** @type {Quantity} */ ("state"), shown: new Set(SHOWN) };
  const table = make("div", { class: "scroll", tabindex: 0 }), spoken = make("p", { class: "finding", "aria-live": "polite" });
  const curves = lab.picture("bill-chart", null, spoken);
  const amount = (/** @type {Quantity} */ quantity, /** @type {number} */ value) => (quantity === "flops" ? inThousands(value) : inBytes(value));
  const bars = new Map(QUANTITIES.map(({ value }) => [value, Math.log10(Math.max(...models.flatMap((row) => row[value] || [1])))]));

  const drawChart = () => {
    const chosen = models.filter((row) => at.shown.has(row.name) && row[at.quantity]);
    const values = chosen.flatMap((row) => /** @type {number[]} */ (row[at.quantity])).filter((value) => value > 0);
    const name = /** @type {{label: import("../dom.js").Words}} */ (QUANTITIES.find(({ value }) => value === at.quantity));
    const svg = chart({
      width: curves.place.clientWidth || 600, height: 320, title: lab.t(name.label),
      x: { label: lab.t({ en: "context, tokens", zh: "上下文长度（词元）" }), log: true, min: contexts[0], max: contexts[contexts.length - 1], ticks: contexts.filter((_, index) => index % 2 === 0), show: (value) => value.toLocaleString("en") },
      y: { label: lab.t(name.label), log: true, min: Math.min(...values, 10) / 1.5, max: Math.max(...values, 100) * 2, ticks: at.quantity === "flops" ? undefined : BYTES, show: (value) => amount(at.quantity, value) },
      series: chosen.map((row, index) => ({
        name: row.name, hue: index, dash: ["", "7 3", "2 3"][Math.floor(index / 8) % 3],
        points: /** @type {number[]} */ (row[at.quantity]).flatMap((value, index_) => (value > 0 ? [/** @type {[number, number]} */ ([contexts[index_], value])] : [])),
      })),
      marks: [{ x: contexts[at.index], label: contexts[at.index].toLocaleString("en") }],
    });
    curves.show(svg, rows);
  };

  const drawTable = () => {
    const cell = (/** @type {Row} */ row, /** @type {Quantity} */ quantity) => {
      const values = row[quantity], value = values && values[at.index];
      if (!values || !value) return make("td", {}, "–");
      const bar = make("span", { class: `meter ${grows(values) ? "c4" : "c0"}` });
      bar.style.width = `${(100 * Math.log10(value)) / /** @type {number} */ (bars.get(quantity))}%`;
      return make("td", {}, amount(quantity, value), bar);
    };
    const lines = models.map((row) => {
      const box = make("input", { type: "checkbox", "aria-label": lab.t({ en: `draw ${row.name}`, zh: `画出 ${row.name}` }), change: () => {
        if (box.checked) at.shown.add(row.name);
        else at.shown.delete(row.name);
        drawChart();
      } });
      box.checked = at.shown.has(row.name);
      return make("tr", {}, make("td", {}, make("label", {}, box, " ", row.name)), make("td", { class: "minor" }, String(row.year)), cell(row, "state"), cell(row, "flops"), cell(row, "training"), make("td", {}, row.path === "none" ? lab.t({ en: "none", zh: "无" }) : row.path));
    });
    const head = [{ en: "model", zh: "模型" }, { en: "year", zh: "年份" }, { en: "state", zh: "状态" }, { en: "FLOPs / token", zh: "浮点运算 / 词元" }, { en: "training memory", zh: "训练内存" }, { en: "path", zh: "路径" }];
    fill(table, make("table", { class: "bill" }, make("thead", {}, make("tr", {}, ...head.map((words, index) => make("th", { scope: "col", class: index === 1 ? "minor" : undefined }, lab.t(words))))), make("tbody", {}, ...lines)));
  };

  const redraw = () => {
    drawChart();
    const scrolled = table.scrollLeft;
    drawTable();
    table.scrollLeft = scrolled;
    const [many, few] = ["transformer", "lstm"].map((name) => /** @type {Row} */ (models.find((row) => row.name === name)).state[at.index]);
    fill(spoken, lab.t({
      en: `After ${contexts[at.index].toLocaleString("en")} tokens the Transformer holds ${inBytes(many)}, the LSTM ${inBytes(few)}: ${Math.round(many / few).toLocaleString("en")} times as much.`,
      zh: `读完 ${contexts[at.index].toLocaleString("en")} 个词元，Transformer 的状态占 ${inBytes(many)}，LSTM 只占 ${inBytes(few)}，相差 ${Math.round(many / few).toLocaleString("en")} 倍。`,
    }));
  };
  const rows = () => [["model", "year", "parameters", "context", "state bytes", "FLOPs per token", "training bytes", "path"],
    ...models.flatMap((row) => contexts.map((context, index) => [row.name, row.year, row.parameters, context, row.state[index], row.flops[index], row.training ? row.training[index] : "", row.path]))];
  fill(root,
    make("div", { class: "controls" },
      slider({ label: { en: "Context, tokens", zh: "上下文长度（词元）" }, min: 0, max: contexts.length - 1, step: 1, value: at.index, show: (index) => contexts[index].toLocaleString("en"), input: (index) => { at.index = index; redraw(); } }).element,
      choice({ label: { en: "Drawn below", zh: "下图显示" }, options: QUANTITIES, value: at.quantity, pick: (value) => { at.quantity = value; drawChart(); } })),
    curves.element,
    make("p", { class: "note" },
      say({ en: `Default sizes, vocabulary ${vocab}, one row, float32. Bars are logarithmic. `, zh: `默认规模，词表 ${vocab}，一行，float32。条形为对数刻度。` }),
      make("i", { class: "swatch c4" }), say({ en: "grows with the context  ", zh: "随上下文增长  " }), make("i", { class: "swatch c0" }), say({ en: "does not", zh: "不增长" })),
    table);
  return { update: redraw };
}
