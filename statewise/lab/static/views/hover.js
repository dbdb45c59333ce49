// @ts-check
/** View 3: the past lights up by gradient, for the prediction under the pointer. */

import { make, named, onArrows, say } from "../dom.js";
import { quoted } from "../follow.js";
import { mixed, textPicture } from "../picture.js";
import { Reading } from "../reading.js";
import { bytesText, cards, inFrames, readers, textBox, titleOf, visible } from "../widget.js";

/** @typedef {import("../machine.js").Machine} Machine */

const FIRST = ["markov", "elman", "lstm", "transformer"];
const SHARE = 0.9;
const MOST = 200; // symbols that are read
const LETTER = /^[\p{Ll}\p{Lu}\p{Nd}`'".,;:!?-]$/u; // of a script that writes words apart, or a mark next to it

/** How many newest symbols hold a share of the sum. @param {ArrayLike<number>} norms */
export function reach(norms) {
  let total = 0;
  for (let s = 0; s < norms.length; s += 1) total += norms[s];
  let [sum, count] = [0, 0];
  while (count < norms.length && sum < SHARE * total) {
    count += 1;
    sum += norms[norms.length - count];
  }
  return count;
}

/** Of the largest, for the symbols of the text: the first norm is of what stands before it. @param {ArrayLike<number>} norms */
function sharesOf(norms) {
  const own = Array.from(norms).slice(1), top = Math.max(0, ...own);
  return own.map((norm) => (top > 0 ? norm / top : 0));
}

/** @param {Machine} machine @param {any} lab @param {(t: number) => void} pick */
function row(machine, lab, pick) {
  const reading = new Reading(machine);
  const letters = make("p", { class: "letters", role: "group", ...named({ en: `Text as ${machine.name} reads it`, zh: `${machine.name} 读到的文本` }) });
  const facts = make("p", { class: "finding" });
  /** @type {HTMLButtonElement[]} */
  let buttons = [];
  /** @type {Map<number, Float64Array>} */
  const known = new Map();
  let [written, shown] = ["\0", 1];
  const write = (/** @type {string} */ text) => {
    if (text === written) return;
    reading.write((written = text));
    known.clear();
    buttons = reading.texts.slice(1).map((piece, index) => {
      const t = index + 1;
      const one = make("button", { type: "button", tabindex: index ? -1 : 0, click: () => pick(t), pointerenter: () => pick(t), focus: () => pick(t), ...named({ en: `symbol ${t}: ${visible(piece)}`, zh: `第 ${t} 个符号：${visible(piece)}` }) }, visible(piece).replace("␣", " "));
      onArrows(one, (by) => buttons[Math.min(buttons.length - 1, Math.max(0, index + by))].focus());
      return one;
    });
    // A line could end between any two buttons: those of a word are kept together.
    letters.replaceChildren();
    buttons.forEach((one, at) => {
      const goesOn = at > 0 && LETTER.test(reading.texts[at]) && (LETTER.test(reading.texts[at + 1]) || reading.texts[at + 1] === " ");
      if (!goesOn) letters.append(make("span", { class: "joined" }));
      letters.lastElementChild?.append(one);
    });
  };
  const draw = async (/** @type {number} */ asked) => {
    const t = Math.min(asked, reading.tokens.length - 1), { version } = reading;
    if (t < 1) return;
    const norms = known.get(t) || (await reading.gradient(t));
    await reading.read();
    if (version !== reading.version || shown !== asked) return;
    known.set(t, norms);
    const shares = sharesOf(norms), { paper, heat } = lab.palette;
    buttons.forEach((one, index) => {
      const share = shares[index] || 0;
      one.style.background = share > 0.01 ? mixed(paper, heat, 0.75 * share) : "";
      one.setAttribute("aria-pressed", String(index + 1 === t));
      one.tabIndex = index + 1 === t ? 0 : -1;
    });
    const surprise = reading.surprise(t);
    const near = reach(norms.subarray(1));
    const said = machine.labels ? lab.t({
      en: `surprise of “${machine.labels[reading.answer]}”: ${surprise.toFixed(2)} bit after “${visible(reading.texts[t])}” · 90 % of the gradient lies in the last ${near} symbols`,
      zh: `读完“${visible(reading.texts[t])}”后，“${machine.labels[reading.answer]}”的意外度为 ${surprise.toFixed(2)} bit · 90% 的梯度落在最近 ${near} 个符号上`,
    }) : lab.t({
      en: `surprise of “${visible(reading.texts[t])}”: ${surprise.toFixed(2)} bit · 90 % of the gradient lies in the last ${near} symbols · remembers ${bytesText(machine.bytes(reading.before(t)))}`,
      zh: `“${visible(reading.texts[t])}”的意外度为 ${surprise.toFixed(2)} bit · 90% 的梯度落在最近 ${near} 个符号上 · 记住 ${bytesText(machine.bytes(reading.before(t)))}`,
    });
    facts.textContent = said;
  };
  const picture = (/** @type {number} */ t) => ({
    svg: textPicture(reading.texts.slice(1).map((text) => visible(text).replace("␣", " ")), sharesOf(known.get(t) || []), t - 1, lab.palette, lab.t({ en: `Gradient by ${machine.name}`, zh: `${machine.name} 的梯度` })),
    rows: [["position", "symbol", "gradient norm"], ...Array.from(known.get(t) || [], (value, s) => [s, reading.texts[s], value])],
  });
  const element = make("article", { class: "panel" }, make("h3", {}, titleOf(machine)), letters, facts, lab.exports(`gradient-${machine.name}`, () => picture(shown)));
  const read = (/** @type {string} */ text, /** @type {number} */ t) => {
    write(text);
    return draw((shown = t));
  };
  return { element, read };
}

export const hoverView = {
  id: "hover",
  needsModels: true,
  title: { en: "Hover over a letter: the past lights up", zh: "指向一个字母：过去亮起来" },
  lookFor: {
    en: "The stronger the colour of an earlier letter, the more the prediction of the chosen letter depends on it: a Markov chain has a hard edge, an RNN fades, attention can jump.",
    zh: "前面的字母颜色越深，对所选字母的预测影响越大：马尔可夫链有明确的边界，循环神经网络逐渐衰减，注意力可以跳跃。",
  },
  more: {
    en: "Point at a letter, or use the arrow keys. The example begins with the ' that closes a quotation: the Transformer looks back at the ` that opened it.",
    zh: "指向一个字母，或用方向键移动。例子一开始选中的是结束引文的 '：Transformer 会回看引文开头的 `。",
  },
  how: {
    equation: "g_s = ‖ ∂ (−log p(x_t | x_1 … x_{t−1})) / ∂ e(x_s) ‖   s < t\n\"Markov:|马尔可夫：\" |log p_k − log p_{k−1}| \"for the|对第\" k\"-th newest symbol|个最近的符号\"",
    code: "from torch.nn import functional as F\nimport statewise as sw\n\nrun = sw.load(\"shakespeare-lstm\")\ntokens_T = run.specimens(text=\"To be, or not to be\").tokens_T\ninputs = []  # vectors of the symbols, whose gradients are kept\nrun.model.embedding.register_forward_hook(lambda module, given, x: inputs.append(x) or x.retain_grad())\nlogits_BTV, _ = run.model(tokens_T[None, :-1])\nF.cross_entropy(logits_BTV[0, -1], tokens_T[-1]).backward()\nprint(inputs[0].grad.norm(dim=-1))",
    command: "statewise inspect shakespeare-lstm gradient",
  },
  /** @param {HTMLElement} root @param {any} lab */
  mount(root, lab) {
    const machines = readers(lab);
    let text = (machines[0].record.example || "").slice(0, 160);
    const inside = quoted(["", ...machines[0].vocab.pieces(text).map((piece) => piece.text)]);
    const closing = inside.findIndex((now, at) => inside[at - 1] === 1 && !now);
    let t = closing > 0 ? closing : Math.max(1, Math.min(text.length, 110));
    let drawn = new Set();
    const go = inFrames(async () => {
      const [next, ...others] = shown().filter((one) => !drawn.has(one));
      drawn.add(next);
      await next?.read(text, t);
      return !others.length;
    });
    const redraw = () => {
      drawn = new Set();
      go();
    };
    const pick = (/** @type {number} */ next) => {
      if (next === t && drawn.size) return;
      t = next;
      redraw();
    };
    const place = make("div", { class: "panels" });
    const { boxes, shown, arrange } = cards(machines, FIRST, place, (machine) => row(machine, lab, pick), redraw);
    const typed = textBox(text, (next) => {
      text = next.slice(0, MOST);
      t = Math.max(1, text.length);
      redraw();
    });
    root.append(typed.element, boxes, place, make("p", { class: "note" }, say({ en: "Only the first 200 symbols are read here, because each gradient goes back through all of them.", zh: "此处只读前 200 个符号，因为每次求梯度都要反向经过全部符号。" })));
    arrange();
    return { update: redraw };
  },
};
