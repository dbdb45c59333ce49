// @ts-check
/** View 6: “I grew up in Italy … I speak fluent”: who still knows, from further and further away, at how many bytes? */

import { chart } from "../chart.js";
import { button, fill, make, say, slider } from "../dom.js";
import { softmaxOf } from "../machine.js";
import { barPicture } from "../picture.js";
import { bytesText, newest, titleOf } from "../widget.js";

/** @typedef {import("../machine.js").Machine} Machine */
/** @typedef {{distance: number, text: string, label: string}} Passage */

/** Shipped readers are called "lstm, passages": here the first word is enough. @param {string} name */
const shortened = (name) => name.replace(", passages", "");

export const askView = {
  id: "ask",
  needs: ["ask"],
  needsModels: true,
  title: { en: "Ask from further away", zh: "从更远处提问" },
  lookFor: {
    en: "Move the slider, and the answer is asked for after more words: a window knows as far as it reaches, the Elman network never learned to keep the country, and gates, lists and matrices still know, with very different numbers of bytes.",
    zh: "移动滑块，提问之前隔的词越来越多：窗口模型只在窗口够得着时知道，Elman 网络始终没学会记住国名，门控、列表和矩阵仍然记得，但所用字节数相差很大。",
  },
  more: {
    en: "The country is named once, at the start; other countries follow. Mamba-2, whose state is a matrix, is right three times in four at every distance.",
    zh: "国名只在开头出现一次，之后还会提到别的国家。Mamba-2 的状态是矩阵，在各个距离上都是四次答对三次。",
  },
  how: {
    equation: "p(\"language|语言\" | \"passage|段落\") = softmax(head(s_T))   \"distance: words from the country to the answer|距离：国名到答案之间的词数\"",
    code: 'from statewise.data.embedded import passages\n\nrow = passages(distance=64).held[0]\nprint(row.text, "→", row.label)',
    command: "statewise compare passages",
  },
  /** @param {HTMLElement} root @param {any} lab */
  mount(root, lab) {
    /** @type {Machine[]} */
    const machines = lab.models.filter((/** @type {Machine} */ machine) => machine.record.task === "classification");
    /** @type {{passages: Passage[], accuracy: Record<string, Record<string, number>>}} */
    const { passages, accuracy } = lab.extra.ask;
    const distances = [...new Set(passages.map((one) => one.distance))].sort((a, b) => a - b);
    let [at, turn] = [0, 0];
    const shown = make("p", { class: "futures" });
    const table = make("div", { class: "scroll", tabindex: 0 });
    const covered = make("p", { class: "finding" });
    const curves = lab.picture("ask-accuracy", { en: "Right answers by distance", zh: "正确率与距离" }, covered);
    /** @type {{machine: Machine, answer: string, p: number, bytes: number}[]} */
    let answers = [];
    const draw = newest(async (isNewest) => {
      const among = passages.filter((one) => one.distance === distances[at]);
      const passage = among[turn % among.length];
      shown.textContent = `${passage.text} …`;
      const answer = async (/** @type {Machine} */ machine) => {
        // The classifiers read the words alone, without a token before them.
        let step = { state: machine.start(), logits: /** @type {ArrayLike<number>} */ ([]) };
        for (const token of machine.vocab.encode(passage.text)) step = await machine.stepWith(step.state, token, new Map());
        const p = softmaxOf(step.logits);
        const best = p.indexOf(Math.max(...p));
        const labels = /** @type {string[]} */ (machine.record.labels);
        return { machine, answer: labels[best], p: p[labels.indexOf(passage.label)], bytes: machine.bytes(step.state) };
      };
      const given = await Promise.all(machines.map(answer));
      if (!isNewest()) return;
      answers = given;
      const head = [{ en: "model", zh: "模型" }, { en: "answer", zh: "回答" }, { en: `p(${passage.label})`, zh: `p(${passage.label})` }, { en: "state", zh: "状态" }, { en: "right, of 250", zh: "正确率（250 段）" }];
      fill(
        table,
        make(
          "table",
          { class: "asked" },
          make("thead", {}, make("tr", {}, ...head.map((words, i) => make("th", { scope: "col", class: i < 2 ? "text" : "" }, say(words))))),
          make(
            "tbody",
            {},
            ...answers.map(({ machine, answer, p, bytes }) =>
              make(
                "tr",
                {},
                make("td", { class: "text" }, shortened(titleOf(machine))),
                make("td", { class: `text ${answer === passage.label ? "right" : "wrong"}` }, `${answer === passage.label ? "✓" : "✗"} ${answer}`),
                make("td", {}, `${(100 * p).toFixed(1)}%`),
                make("td", {}, bytesText(bytes)),
                make("td", {}, accuracy[machine.name] ? `${(100 * accuracy[machine.name][distances[at]]).toFixed(0)}%` : "–"),
              ),
            ),
          ),
        ),
      );
      const series = machines.map((machine, hue) => ({
        name: shortened(machine.name),
        hue: hue % 8,
        mark: true,
        points: /** @type {[number, number][]} */ (Object.entries(accuracy[machine.name] || {}).map(([distance, share]) => [Number(distance), 100 * share])),
      }));
      const width = Math.max(300, curves.place.clientWidth || 640);
      const highest = series.filter(({ points }) => points.length && points.every(([, share]) => share >= 99.5)).map(({ name }) => name);
      covered.textContent = highest.length > 1 ? lab.t({ en: `Their curves lie on each other at 100 %: ${highest.join(", ")}.`, zh: `以下曲线在 100% 处重叠：${highest.join("、")}。` }) : "";
      const svg = chart({ width, height: 260, title: lab.t({ en: "Right answers by distance", zh: "正确率与距离" }), x: { label: lab.t({ en: "words between", zh: "间隔词数" }), log: true, min: distances[0], max: distances[distances.length - 1], ticks: distances, show: String }, y: { label: "%", min: 0, max: 100 }, series, marks: [{ x: distances[at] }] });
      curves.show(svg, () => [["model", ...distances.map((distance) => `right after ${distance} words, %`)], ...series.map(({ name, points }) => [name, ...points.map(([, share]) => share)])]);
    });
    const picture = () => ({
      svg: barPicture(answers.map(({ machine, p }) => [shortened(machine.name), p]), lab.palette, lab.t({ en: "Probability of the right answer", zh: "正确回答的概率" })),
      rows: [["model", "answer", "probability of the right answer", "bytes of state"], ...answers.map(({ machine, answer, p, bytes }) => [machine.name, answer, p, bytes])],
    });
    const bar = slider({ label: { en: "Words between the country and the answer", zh: "国名与答案之间的词数" }, min: 0, max: distances.length - 1, step: 1, value: at, show: (i) => String(distances[i]), input: (i) => { at = i; draw(); } });
    const next = button({ en: "Another passage", zh: "换一段" }, () => {
      turn += 1;
      draw();
    });
    root.append(make("div", { class: "controls" }, bar.element, next), shown, make("div", { class: "panels whole" }, make("div", { class: "panel" }, table, lab.exports("ask-answers", picture)), curves.element));
    draw();
    return { update: draw };
  },
};
