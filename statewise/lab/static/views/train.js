// @ts-check
/** Train a network of 16 units in the page: learning rate, clipping and truncation as sliders. */

import { brief, chart } from "../chart.js";
import { button, choice, draw, fill, make, say, slider } from "../dom.js";
import { clip, forward, gradient, makeNetwork, makeUpdate, softmax } from "../elman.js";
import { EXERCISES } from "../exercise.js";
import { normal, uniform } from "../random.js";

/** @typedef {keyof typeof EXERCISES} Name */

const UNITS = 16, BATCH = 16;
const PREPARED = 60; // updates before the first picture
const LONGEST = 4000; // updates that are kept
const FRAME = 12; // milliseconds of training between two pictures

/** @type {import("../views.js").View} */
export const trainView = {
  id: "train",
  title: { en: "Train it here", zh: "就地训练" },
  lookFor: {
    en: "Recall with truncation at 3: no gradient gets back to the symbol, so the loss falls late or not at all; at 20 it falls at once.",
    zh: "选“回忆”并把截断长度设为 3：梯度回不到最初的符号，损失很晚才降，甚至不降；设为 20 则立刻下降。",
  },
  more: {
    en: "With SGD, raise the rate without clipping, and one steep step throws the network away.",
    zh: "用 SGD、不剪裁而调高学习率，一次陡峭的更新就会毁掉网络。",
  },
  how: {
    equation: "a_t = b + W h_{t-1} + U x_t     h_t = tanh a_t     o_t = c + V h_t\n∇o_t = softmax(o_t) − 1[y_t]     \"sine:|正弦：\" o_t − y_t\n∇h_t = Vᵀ ∇o_t + Wᵀ diag(1 − h_{t+1}²) ∇h_{t+1}          \"the second term is 0 at a cut|在截断处第二项为 0\"\n∇c = Σ ∇o_t     ∇V = Σ ∇o_t h_tᵀ     ∇b = Σ d_t     ∇W = Σ d_t h_{t-1}ᵀ     ∇U = Σ d_t x_tᵀ     d_t = diag(1 − h_t²) ∇h_t\n\"clip:|剪裁：\" ∇ ← ∇ · min(1, θ / ‖∇‖)",
    code: "import torch\nfrom torch.nn import functional as F\nimport statewise as sw\n\nmixer, read = sw.Elman(16, input_width=1), torch.nn.Linear(16, 2)  # U, W, b and V, c\nweights = [*mixer.parameters(), *read.parameters()]\noptimizer = torch.optim.Adam(weights, lr=0.01)\nfor step in range(100):\n    bits_BT = torch.randint(2, (16, 10))\n    h_BTD, state = mixer(2.0 * bits_BT[:, :, None] - 1)  # parity of bits\n    loss = F.cross_entropy(read(h_BTD).flatten(0, 1), (bits_BT.cumsum(1) % 2).flatten())\n    optimizer.zero_grad()\n    loss.backward()\n    torch.nn.utils.clip_grad_norm_(weights, 1.0)\n    optimizer.step()\nprint(loss.item())",
    command: "statewise train elman --set train.truncation.kind=fixed --set train.truncation.length=16",
  },
  mount,
};

/** @param {HTMLElement} root @param {any} lab */
function mount(root, lab) {
  const at = { task: /** @type {Name} */ ("recall"), rate: -2, limit: 1, cut: 20, kind: /** @type {"adam" | "sgd"} */ ("adam"), seed: 0, running: false };
  const spoken = make("p", { class: "finding" });
  const lossCurve = lab.picture("train-loss", { en: "Loss", zh: "损失" }), normCurve = lab.picture("train-norm", { en: "Gradient", zh: "梯度" });
  const example = lab.picture("train-example", { en: "One sequence", zh: "一个序列" }), states = lab.picture("train-states", { en: "What its 16 units do", zh: "16 个单元在做什么" });
  let exercise = EXERCISES[at.task], network = makeNetwork(1, 1, 1, normal(0)), update = makeUpdate(network, "sgd"), next = uniform(0);
  /** @type {number[]} */
  let losses = [];
  /** @type {number[]} */
  let norms = [];
  let shown = exercise.draw(next);

  const restart = () => {
    exercise = EXERCISES[at.task];
    network = makeNetwork(exercise.inputs, UNITS, exercise.outputs, normal(11 + at.seed));
    update = makeUpdate(network, at.kind);
    next = uniform(101 + at.seed);
    shown = exercise.draw(uniform(7));
    [losses, norms] = [[], []];
    for (let count = 0; count < PREPARED; count += 1) learn();
  };
  const learn = () => {
    const batch = Array.from({ length: BATCH }, () => exercise.draw(next));
    const { loss, gradient: found } = gradient(network, batch, exercise.loss, at.cut);
    norms.push(clip(found, at.limit));
    losses.push(loss);
    if (Number.isFinite(loss)) update(found, 10 ** at.rate);
  };
  const frame = () => {
    if (!at.running) return;
    if (!root.isConnected || /** @type {HTMLElement} */ (root.closest("section")).hidden) return pause();
    const until = performance.now() + FRAME;
    while (performance.now() < until && losses.length < LONGEST) learn();
    redraw();
    if (losses.length >= LONGEST) pause();
    else requestAnimationFrame(frame);
  };
  const pause = () => {
    at.running = false;
    start.setAttribute("aria-pressed", "false");
    label();
  };
  const label = () => fill(start, lab.t(at.running ? { en: "Pause", zh: "暂停" } : { en: "Train", zh: "开始训练" }));
  const start = make("button", { type: "button", class: "act main", "aria-pressed": "false", click: () => {
    at.running = !at.running;
    start.setAttribute("aria-pressed", String(at.running));
    label();
    if (at.running) requestAnimationFrame(frame);
  } });

  /** At most 300 points, each the mean of its neighbours. @param {number[]} values @returns {[number, number][]} */
  const thinned = (values) => {
    const by = Math.ceil(values.length / 300), points = [];
    for (let from = 0; from < values.length; from += by) {
      const part = values.slice(from, from + by);
      points.push(/** @type {[number, number]} */ ([from + part.length, part.reduce((sum, value) => sum + value, 0) / part.length]));
    }
    return points;
  };

  const redraw = () => {
    const updates = { label: lab.t({ en: "updates", zh: "更新次数" }), min: 0, max: Math.max(100, losses.length) };
    const rows = () => [["update", "loss", "norm of the gradient"], ...losses.map((loss, index) => [index + 1, loss, norms[index]])];
    lossCurve.show(chart({
      width: lossCurve.place.clientWidth || 460, height: 240, title: lab.t({ en: "Loss against updates", zh: "损失随更新次数的变化" }), x: updates,
      y: { label: exercise.loss === "classes" ? lab.t({ en: "loss, nats", zh: "损失（nat）" }) : lab.t({ en: "loss, half a squared error", zh: "损失（平方误差的一半）" }), log: true, min: 1e-4, max: 10 },
      series: [{ name: "", points: thinned(losses), hue: 0 }],
      marks: [{ y: exercise.floor, label: lab.t({ en: "guessing", zh: "随机猜测" }) }],
    }), rows);
    normCurve.show(chart({
      width: normCurve.place.clientWidth || 460, height: 240, title: lab.t({ en: "Norm of the gradient against updates", zh: "梯度范数随更新次数的变化" }), x: updates,
      y: { label: lab.t({ en: "norm of the gradient, before clipping", zh: "梯度范数（剪裁之前）" }), log: true, min: 1e-4, max: 100 },
      series: [{ name: "", points: thinned(norms), hue: 2 }],
      marks: at.limit > 0 ? [{ y: at.limit, label: lab.t({ en: "clipped above", zh: "超过即剪裁" }) }] : [],
    }), rows);
    drawExample();
    const last = losses[losses.length - 1];
    fill(spoken, Number.isFinite(last) ? lab.t({ en: `After ${losses.length} updates the loss is ${brief(last)}; guessing has ${brief(exercise.floor)}.`, zh: `更新 ${losses.length} 次后，损失为 ${brief(last)}；随机猜测为 ${brief(exercise.floor)}。` })
      : lab.t({ en: "The loss is not a number: the weights exploded. Lower the rate or clip, then start again.", zh: "损失已不是数：权重爆炸了。请降低学习率或启用剪裁，然后重新开始。" }));
  };

  const drawExample = () => {
    const { h, o } = forward(network, shown.x), steps = shown.x.length;
    const wide = example.place.clientWidth || 460, cell = Math.min(34, (wide - 72) / steps);
    const label_ = (/** @type {string} */ text, /** @type {number} */ y) => draw("text", { class: "tick", x: 66, y: y + 4, "text-anchor": "end" }, text);
    if (exercise.loss === "value") {
      const svg = chart({
        width: wide, height: 200, title: lab.t({ en: "A sine and its prediction", zh: "正弦与预测" }), x: { label: lab.t({ en: "time step", zh: "时间步" }), min: 1, max: steps }, y: { label: "", min: -1.5, max: 1.5 },
        series: [
          { name: lab.t({ en: "next value", zh: "下一个值" }), points: shown.y.map((value, t) => [t + 1, value]), hue: 7, dash: "4 3" },
          { name: lab.t({ en: "prediction", zh: "预测" }), points: o.map((out, t) => [t + 1, out[0]]), hue: 0 }],
      });
      example.show(svg, () => [["step", "input", "next value", "prediction"], ...o.map((out, t) => [t + 1, shown.x[t][0], shown.y[t], out[0]])]);
    } else {
      const read = (/** @type {number} */ t) => (exercise.inputs === 1 ? (shown.x[t][0] > 0 ? "1" : "0") : "ABCD?·"[shown.x[t].indexOf(1)]);
      const name = (/** @type {number} */ y) => (exercise.inputs === 1 ? String(y) : "ABCD"[y]);
      const svg = draw("svg", { class: "chart", viewBox: `0 0 ${wide} 104`, role: "img", "font-size": 12, "aria-label": lab.t({ en: "A sequence, its answers and the network's", zh: "一个序列、正确答案与网络的回答" }) });
      svg.append(label_(lab.t({ en: "input", zh: "输入" }), 18), label_(lab.t({ en: "answer", zh: "答案" }), 46), label_(lab.t({ en: "network", zh: "网络" }), 80));
      const rows = /** @type {(string | number)[][]} */ ([["step", "input", "answer", "network", "probability of the answer"]]);
      for (let t = 0; t < steps; t += 1) {
        const x = 72 + t * cell + cell / 2, p = softmax(o[t]), best = p.indexOf(Math.max(...p)), counts = shown.counts[t];
        svg.append(draw("text", { class: "name", x, y: 22, "text-anchor": "middle" }, read(t)));
        rows.push([t + 1, read(t), counts ? name(shown.y[t]) : "", counts ? name(best) : "", counts ? p[shown.y[t]] : ""]);
        if (!counts) continue;
        svg.append(
          draw("text", { class: "name", x, y: 50, "text-anchor": "middle" }, name(shown.y[t])),
          draw("g", { class: best === shown.y[t] ? "c0" : "c4" }, draw("rect", { class: "shade", x: x - cell / 2 + 1, y: 64, width: cell - 2, height: 24, opacity: (0.15 + 0.6 * p[best]).toFixed(2) })),
          draw("text", { class: "name", x, y: 80, "text-anchor": "middle" }, name(best)));
      }
      example.show(svg, () => rows);
    }
    drawStates(h);
  };

  const drawStates = (/** @type {Float64Array[]} */ h) => {
    const wide = states.place.clientWidth || 460, cell = (wide - 40) / h.length, tall = 11;
    const svg = draw("svg", { class: "chart", viewBox: `0 0 ${wide} ${UNITS * tall + 26}`, role: "img", "font-size": 11, "aria-label": lab.t({ en: "The 16 units over time", zh: "16 个单元随时间的变化" }) });
    h.forEach((state, t) => state.forEach((value, unit) => svg.append(draw("g", { class: value >= 0 ? "c0" : "c4" }, draw("rect", { class: "shade", x: 34 + t * cell, y: unit * tall, width: Math.max(cell - 1, 1), height: tall - 1, opacity: Math.abs(value).toFixed(2) })))));
    for (const unit of [1, 8, 16]) svg.append(draw("text", { class: "tick", x: 28, y: unit * tall - 1, "text-anchor": "end" }, String(unit)));
    svg.append(draw("text", { class: "tick", x: (34 + wide) / 2, y: UNITS * tall + 18, "text-anchor": "middle" }, lab.t({ en: "time step; blue: positive, red: negative", zh: "时间步；蓝为正，红为负" })));
    states.show(svg, () => [["step", ...Array.from({ length: UNITS }, (_, unit) => `unit ${unit + 1}`)], ...h.map((state, t) => [t + 1, ...state])]);
  };

  const again = () => { restart(); redraw(); };
  fill(root,
    make("div", { class: "controls" },
      choice({ label: { en: "Task", zh: "任务" }, options: [
        { value: "recall", label: { en: "recall a symbol after 18 blanks", zh: "回忆：隔 18 个空白说出符号" } },
        { value: "parity", label: { en: "parity of bits", zh: "奇偶：比特和的奇偶性" } },
        { value: "sine", label: { en: "next value of a sine", zh: "正弦：预测下一个值" } }],
        value: at.task, pick: (value) => { at.task = value; again(); } }),
      slider({ label: { en: "Learning rate", zh: "学习率" }, min: -4, max: 1, step: 0.25, value: at.rate, show: (value) => brief(10 ** value), input: (value) => { at.rate = value; } }).element,
      slider({ label: { en: "Clip the gradient's norm at", zh: "梯度范数剪裁阈值" }, min: 0, max: 5, step: 0.25, value: at.limit, show: (value) => (value ? value.toFixed(2) : lab.t({ en: "off", zh: "关" })), input: (value) => { at.limit = value; redraw(); } }).element,
      slider({ label: { en: "Truncation: steps between cuts", zh: "截断：每几步切断一次" }, min: 1, max: 24, step: 1, value: at.cut, input: (value) => { at.cut = value; again(); } }).element,
      choice({ label: { en: "Optimizer", zh: "优化器" }, options: [{ value: "adam", label: { en: "Adam", zh: "Adam" } }, { value: "sgd", label: { en: "SGD", zh: "SGD" } }], value: at.kind, pick: (value) => { at.kind = value; again(); } }),
      make("div", { class: "buttons" }, start,
        button({ en: "One update", zh: "更新一次" }, () => { learn(); redraw(); }),
        button({ en: "Start again, other weights", zh: "换一组初始权重重来" }, () => { at.seed += 1; again(); }))),
    spoken,
    make("div", { class: "panels" }, lossCurve.element, normCurve.element, example.element, states.element));
  const own = lab.live?.train();
  if (own) root.prepend(own);
  restart();
  return { update: () => { label(); redraw(); } };
}
