// @ts-check
/** The six steps of attention, with numbers that a reader can change: source words, scores, kind of score and alignment. */

import { decode } from "../attention.js";
import { brief } from "../chart.js";
import { button, choice, draw, fill, make, named, say, slider } from "../dom.js";

/** @typedef {import("../attention.js").Phrase} Phrase */
/** @typedef {import("../attention.js").Look} Look */
/** @typedef {import("../dom.js").Words} Words */

const LONGEST = 7; // target words
const KINDS = /** @type {Words[]} */ ([{ en: "determiner", zh: "限定词" }, { en: "adjective", zh: "形容词" }, { en: "noun", zh: "名词" }, { en: "verb", zh: "动词" }, { en: "end", zh: "结束" }]);
const SCORES = /** @type {{value: string, label: Words}[]} */ ([
  { value: "dot", label: { en: "dot", zh: "点积" } }, { value: "additive", label: { en: "additive", zh: "加性" } }, { value: "scaled_dot", label: { en: "scaled dot", zh: "缩放点积" } },
  { value: "general", label: { en: "general", zh: "双线性" } }, { value: "concat", label: { en: "concat", zh: "拼接" } }, { value: "location", label: { en: "location", zh: "按位置" } }, { value: "cosine", label: { en: "cosine", zh: "余弦" } }]);
const ALIGNMENTS = /** @type {{value: string, label: Words}[]} */ ([
  { value: "soft", label: { en: "softmax", zh: "softmax" } }, { value: "sparsemax", label: { en: "sparsemax", zh: "sparsemax" } }, { value: "hard", label: { en: "hard", zh: "硬对齐" } },
  { value: "local_monotonic", label: { en: "local, monotonic", zh: "局部（单调）" } }, { value: "local_predictive", label: { en: "local, predicted", zh: "局部（预测）" } }]);
const STEPS = /** @type {{title: Words, says: Words}[]} */ ([
  { title: { en: "Encode", zh: "编码" }, says: { en: "Each source word becomes a state h: its kind, and which word of that kind. This is done once.", zh: "每个源词得到一个隐状态 h：它是哪类词，是这类中的哪一个。只做一次。" } },
  { title: { en: "Score", zh: "打分" }, says: { en: "The decoder's query asks for a kind of word; each state gets a score e. Drag one.", zh: "解码器的查询说明想要哪类词，每个隐状态得到一个分数 e。可以拖动。" } },
  { title: { en: "Align", zh: "对齐" }, says: { en: "Scores become weights a; softmax makes them sum to 1.", zh: "分数变成权重 a；softmax 使它们之和为 1。" } },
  { title: { en: "Context", zh: "上下文" }, says: { en: "The states are averaged with these weights: c = Σ a h.", zh: "按权重把隐状态加权求和：c = Σ a h。" } },
  { title: { en: "Update", zh: "更新" }, says: { en: "From what was read, the decoder's state s says which kind comes next.", zh: "根据读到的内容更新解码器状态 s：接下来要哪类词。" } },
  { title: { en: "Output", zh: "输出" }, says: { en: "The context gives a probability to every target word; ∎ ends the sentence.", zh: "由上下文得到每个目标词的概率；∎ 表示句子结束。" } }]);

/** @type {import("../views.js").View} */
export const attentionView = {
  id: "attention",
  title: { en: "Six steps of attention", zh: "注意力的六个步骤" },
  lookFor: {
    en: "English puts the adjective first, French the noun: at the second word the weight jumps to the third place and comes back.",
    zh: "英语先说形容词，法语先说名词：译第二个词时，权重先跳到第三个位置，再跳回来。",
  },
  more: {
    en: "Drag a score, and the translation follows. With the score that looks at places only, leave out the adjective, and it goes wrong.",
    zh: "拖动一个分数，译文随之改变。选用只看位置的打分并去掉形容词，翻译就错了。",
  },
  how: {
    equation: "\"1\"  h_j = encoder(x_1 … x_S)_j          \"2\"  e_tj = score(q_t, h_j), q_t = 4 s_{t-1}\n\"3\"  a_t = align(e_t)          \"4\"  c_t = Σ_j a_tj h_j\n\"5\"  s_t = f(s_{t-1}, c_t)          \"6\"  p(y_t) = softmax(output(s_{t-1}, c_t))\n\n\"dot|点积\" q · h    \"scaled|缩放\" q · h / √K    \"cosine|余弦\" g q · h / (|q| |h|)    \"general|双线性\" qᵀ W h    \"additive|加性\" vᵀ tanh(W q + U h + b)    \"location|按位置\" W_j q",
    code: "import torch\nfrom statewise.layers import make_alignment, make_score\n\nquery_BTQ, keys_BSK = torch.randn(1, 1, 8), torch.randn(1, 4, 8)\nscore = make_score(\"dot\", query_width=8, key_width=8)\nalign = make_alignment(\"soft\", query_width=8)\nscores_BTS = score(query_BTQ, score.prepare(keys_BSK))\nweights_BTS = align(scores_BTS, query_BTQ, torch.zeros(1, 1), torch.tensor([4]))\ncontext_BTK = weights_BTS @ keys_BSK",
    command: "statewise train translation --set model.attention.score=additive --set model.attention.alignment=soft",
  },
  needs: ["attention"],
  mount,
};

/** @param {HTMLElement} root @param {any} lab */
function mount(root, lab) {
  /** @type {Phrase} */
  const phrase = lab.extra.attention;
  const kinds = phrase.kinds.length, bySource = new Map(phrase.words.map((word) => [word.source, word]));
  const at = { source: [...phrase.start], score: "dot", alignment: "soft", reach: phrase.reach, position: 1, step: 6, changed: /** @type {Map<string, number>} */ (new Map()) };
  const steps = make("div", { class: "steps" }), output = make("p", { class: "translation", "aria-live": "polite" });
  const matrix = lab.picture("attention-weights", { en: "Where each target word looks", zh: "每个目标词看向哪里" },
    make("p", { class: "note" }, say({ en: "The vectors of this example are set by hand, so that every number can be followed; scores and alignments are those of the package.", zh: "本例的向量是手工设定的，便于逐个核对；打分函数与对齐方式和软件包中的完全一致。" })));
  let looks = /** @type {Look[]} */ ([]);

  const words = () => at.source.filter(Boolean).map((name) => /** @type {import("../attention.js").Word} */ (bySource.get(name)));
  const targetOf = (/** @type {number} */ best) => (best < phrase.words.length ? phrase.words[best].target : "∎");
  const recompute = () => {
    looks = decode(phrase, words(), at, at.changed, LONGEST);
    at.position = Math.min(at.position, looks.length - 1);
  };
  const cells = (/** @type {number[]} */ vector, /** @type {string[]} */ names) => make("span", { class: "vec", role: "img", "aria-label": vector.map((value, index) => `${names[index]} ${value.toFixed(2)}`).join(", ") },
    ...vector.map((value, index) => {
      const cell = make("i", { title: `${names[index]} ${value.toFixed(2)}` }), share = make("b");
      share.style.height = `${Math.min(100, 100 * Math.abs(value))}%`;
      cell.append(share);
      return cell;
    }));
  const marks = () => [...KINDS.slice(0, kinds).map((kind) => lab.t(kind)), ...phrase.kinds.map((_, which) => lab.t({ en: `no. ${which + 1}`, zh: `第 ${which + 1} 个` }))];

  const drawSteps = () => {
    const source = words(), look = looks[at.position], columns = source.length;
    const row = (/** @type {number} */ number, /** @type {Node[]} */ ...body) => make("div", { class: `step${number > at.step ? " later" : ""}${number === at.step ? " now" : ""}`, "data-step": number },
      make("button", { type: "button", class: "stepname", "aria-current": number === at.step ? "step" : undefined, click: () => go(number) }, make("span", { class: "number" }, String(number)), lab.t(STEPS[number - 1].title)),
      make("div", { class: "body" }, number > at.step ? make("p", { class: "note" }, "…") : null, ...(number > at.step ? [] : body), make("p", { class: "note" }, lab.t(STEPS[number - 1].says))));
    const over = (/** @type {(place: number) => Node} */ each) => {
      const line = make("div", { class: "places" }, ...source.map((word, place) => make("div", { class: "place" }, make("span", { class: "word" }, word.source), each(place))));
      line.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
      return line;
    };
    const bars = (/** @type {{name: string, value: number}[]} */ entries) => make("div", { class: "bars" }, ...entries.map(({ name, value }) => {
      const bar = make("span", { class: "bar" });
      bar.style.width = `${100 * Math.min(value, 1)}%`;
      return make("div", {}, make("span", { class: "name" }, name), make("span", { class: "track" }, bar), make("span", { class: "value" }, value.toFixed(2)));
    }));
    const scoreAt = (/** @type {number} */ place) => {
      const value = look.scores[place], key = `${at.position} ${place}`, bar = make("input", {
        type: "range", min: -12, max: 8, step: 0.1, value: value.toFixed(1), "data-place": place, "aria-label": lab.t({ en: `score of ${source[place].source}`, zh: `${source[place].source} 的分数` }),
        input: () => {
          at.changed.set(key, Number(bar.value));
          redraw();
          /** @type {HTMLElement | null} */ (steps.querySelector(`[data-place="${place}"]`))?.focus();
        },
      });
      return make("span", { class: "scored" }, bar, make("output", { class: at.changed.has(key) ? "changed" : undefined }, brief(Number(value.toFixed(2)))));
    };
    const weightAt = (/** @type {number} */ place) => {
      const bar = make("span", { class: "bar" });
      bar.style.width = `${100 * look.weights[place]}%`;
      return make("span", { class: "weighed" }, make("span", { class: "track" }, bar), make("output", {}, look.weights[place].toFixed(2)));
    };
    const likely = look.probabilities.map((value, best) => ({ name: targetOf(best), value })).sort((a, b) => b.value - a.value).slice(0, 4);
    fill(steps,
      row(1, over((place) => make("span", { class: "encoded" }, cells(looksKeys()[place], marks()), make("small", {}, `${marks()[source[place].kind]} · ${marks()[kinds + source[place].which]}`)))),
      row(2, make("p", { class: "asked" }, `q = ${KINDS.slice(0, kinds).map((kind, index) => [lab.t(kind), look.query[index]]).filter(([, value]) => Number(value) > 0.1).map(([name, value]) => `${name} ${brief(Number(value))}`).join(" + ") || "0"}`), over(scoreAt)),
      row(3, over(weightAt)),
      row(4, make("div", { class: "wide" }, cells(look.context, marks()), make("span", { class: "note" }, marks().map((name, index) => [name, look.context[index]]).filter(([, value]) => Number(value) > 0.05).map(([name, value]) => `${name} ${Number(value).toFixed(2)}`).join(" · ")))),
      row(5, bars(KINDS.map((kind, index) => ({ name: lab.t(kind), value: look.state[index] })).filter(({ value }) => value > 0.02))),
      row(6, bars(likely)));
  };
  const looksKeys = () => words().map((word) => Array.from({ length: 2 * kinds }, (_, index) => Number(index === word.kind || index === kinds + word.which)));

  const drawOutput = () => fill(output, ...looks.map((look, position) => make("button", {
    type: "button", class: "act", "aria-pressed": String(position === at.position), "aria-label": lab.t({ en: `Target word ${position + 1}: ${targetOf(look.best)}`, zh: `第 ${position + 1} 个目标词：${targetOf(look.best)}` }),
    click: () => { at.position = position; redraw(); /** @type {HTMLElement} */ (output.children[position]).focus(); } }, position < at.position || at.step === 6 || position > at.position ? targetOf(look.best) : "?")));

  const drawMatrix = () => {
    const source = words(), size = Math.min(56, ((matrix.place.clientWidth || 320) - 80) / source.length), left = 74, top = 24;
    const svg = draw("svg", { class: "chart", viewBox: `0 0 ${left + source.length * size + 6} ${top + looks.length * 34 + 4}`, role: "img", "font-size": 12, "aria-label": lab.t({ en: "Weights of all target words", zh: "所有目标词的权重" }) });
    svg.style.maxWidth = `${left + source.length * size + 6}px`;
    source.forEach((word, place) => svg.append(draw("text", { class: "name", x: left + (place + 0.5) * size, y: 15, "text-anchor": "middle" }, word.source)));
    looks.forEach((look, position) => {
      svg.append(draw("text", { class: "name", x: left - 8, y: top + position * 34 + 21, "text-anchor": "end", "font-weight": position === at.position ? 700 : 400 }, targetOf(look.best)));
      look.weights.forEach((weight, place) => svg.append(
        draw("rect", { class: "cell", x: left + place * size, y: top + position * 34, width: size - 2, height: 32 }),
        draw("g", { class: "c0" }, draw("rect", { class: "shade", x: left + place * size, y: top + position * 34, width: size - 2, height: 32, opacity: (0.75 * weight).toFixed(3) })),
        draw("text", { class: "name", x: left + (place + 0.5) * size, y: top + position * 34 + 20, "text-anchor": "middle" }, weight.toFixed(2))));
    });
    matrix.show(svg, () => [["target", "source", "score", "weight"], ...looks.flatMap((look) => source.map((word, place) => [targetOf(look.best), word.source, look.scores[place], look.weights[place]]))]);
  };

  const redraw = () => {
    recompute();
    drawSteps();
    drawOutput();
    drawMatrix();
  };
  const go = (/** @type {number} */ step) => {
    at.step = step;
    drawSteps();
    drawOutput();
    /** @type {HTMLElement | null} */ (steps.querySelector(`[data-step="${step}"] .stepname`))?.focus();
  };
  const onwards = (/** @type {number} */ by) => {
    const next = at.step + by;
    if (next > 6 && at.position < looks.length - 1) [at.position, at.step] = [at.position + 1, 2]; // the source is encoded once
    else if (next < 1 && at.position > 0) [at.position, at.step] = [at.position - 1, 6];
    else at.step = Math.max(1, Math.min(6, next));
    redraw();
  };
  const pickers = phrase.start.map((_, place) => {
    const select = make("select", { ...named({ en: `Source word ${place + 1}`, zh: `第 ${place + 1} 个源词` }), change: () => {
      const before = at.source[place];
      at.source[place] = select.value;
      if (!words().length) { at.source[place] = before; select.value = before; }
      at.changed.clear();
      redraw();
    } }, make("option", { value: "" }, "–"), ...phrase.words.map((word) => make("option", { value: word.source }, word.source)));
    select.value = phrase.start[place];
    return select;
  });
  fill(root,
    make("div", { class: "controls" },
      make("fieldset", { class: "choice words" }, make("legend", {}, say({ en: "Source sentence", zh: "源句" })), ...pickers),
      choice({ label: { en: "Score", zh: "打分函数" }, options: SCORES, value: at.score, pick: (value) => { at.score = value; at.changed.clear(); redraw(); } }),
      choice({ label: { en: "Alignment", zh: "对齐方式" }, options: ALIGNMENTS, value: at.alignment, pick: (value) => { at.alignment = value; redraw(); } }),
      slider({ label: { en: "Reach of the local forms", zh: "局部对齐的半径" }, min: 1, max: 4, step: 1, value: at.reach, input: (value) => { at.reach = value; redraw(); } }).element,
      make("div", { class: "buttons" },
        button({ en: "◀ Back", zh: "◀ 上一步" }, () => onwards(-1)), button({ en: "Next step ▶", zh: "下一步 ▶" }, () => onwards(1)),
        button({ en: "Undo my scores", zh: "撤销改动的分数" }, () => { at.changed.clear(); redraw(); }))),
    make("div", { class: "panels attention" },
      make("section", { class: "panel", ...named({ en: "The six steps", zh: "六个步骤" }) }, output, steps), matrix.element));
  return { update: redraw };
}
