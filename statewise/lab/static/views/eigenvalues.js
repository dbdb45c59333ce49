// @ts-check
/** Drag the eigenvalues of a recurrent matrix: where states go, and what is left of a gradient. */

import { brief, chart } from "../chart.js";
import { button, choice, draw, fill, make, say, slider } from "../dom.js";
import { normal } from "../random.js";

/** @typedef {[number, number, number, number]} Matrix row by row */
/** @typedef {{re: number, im: number}} Complex */

/** Below and above these a gradient has vanished or exploded. */
const VANISHED = 1e-3, EXPLODED = 1e3;
const DRAWS = 200;

/**
 * A 2 × 2 matrix with these eigenvalues (a conjugate pair, or two real ones), sheared by `shear` so that its
 * eigenvectors are not at right angles.
 * @param {Complex} first @param {Complex} second @param {number} shear @returns {Matrix}
 */
export function matrixOf(first, second, shear) {
  const [a, b, c, d] = first.im === 0 ? [first.re, 0, 0, second.re] : [first.re, -first.im, first.im, first.re];
  return [a + shear * c, b + shear * (d - a) - shear * shear * c, c, d - shear * c];
}

/** The largest singular value. @param {Matrix} matrix */
export function spectralNorm([a, b, c, d]) {
  return (Math.hypot(a + d, b - c) + Math.hypot(a - d, b + c)) / 2;
}

/**
 * States h_0 … h_T of `h_t = φ(W h_{t-1})`.
 * @param {Matrix} w @param {[number, number]} start @param {number} steps @param {boolean} tanh @returns {[number, number][]}
 */
export function trajectory(w, start, steps, tanh) {
  const states = [start];
  for (let step = 0; step < steps; step += 1) {
    const [x, y] = states[step];
    const next = /** @type {[number, number]} */ ([w[0] * x + w[1] * y, w[2] * x + w[3] * y]);
    states.push(tanh ? [Math.tanh(next[0]), Math.tanh(next[1])] : next);
  }
  return states;
}

/**
 * Norms of `∂h_T / ∂h_{T-k}` for k = 0 … T, along a trajectory.
 * @param {Matrix} w @param {[number, number][]} states @param {boolean} tanh @returns {number[]}
 */
export function gradientNorms(w, states, tanh) {
  /** @type {Matrix} */
  let product = [1, 0, 0, 1];
  const norms = [1];
  for (let step = states.length - 1; step > 0; step -= 1) {
    const [p, q, r, s] = product, [x, y] = states[step];
    const [left, right] = tanh ? [1 - x * x, 1 - y * y] : [1, 1];
    const [a, b, c, d] = [left * w[0], left * w[1], right * w[2], right * w[3]];
    product = [p * a + q * c, p * b + q * d, r * a + s * c, r * b + s * d];
    norms.push(spectralNorm(product));
  }
  return norms;
}

/**
 * Logarithms of gradient norms at distance 0 … steps, for weights of variance 1/width; a scale g adds `k log g`.
 * @param {number} width @param {number} steps @param {number} draws @param {boolean} shared @param {() => number} next
 * @returns {Float64Array[]} for each draw
 */
export function drawnNorms(width, steps, draws, shared, next) {
  const spread = 1 / Math.sqrt(width);
  const fresh = (/** @type {Float64Array} */ matrix) => {
    for (let index = 0; index < matrix.length; index += 1) matrix[index] = spread * next();
  };
  return Array.from({ length: draws }, () => {
    const matrix = new Float64Array(width * width), logs = new Float64Array(steps + 1);
    let gradient = Float64Array.from({ length: width }, () => next());
    let size = Math.hypot(...gradient), total = 0;
    gradient = gradient.map((value) => value / size);
    fresh(matrix);
    for (let step = 1; step <= steps; step += 1) {
      if (!shared && step > 1) fresh(matrix);
      const after = new Float64Array(width);
      for (let row = 0; row < width; row += 1)
        for (let column = 0; column < width; column += 1) after[column] += matrix[row * width + column] * gradient[row];
      size = Math.hypot(...after);
      total += Math.log(size);
      gradient = after.map((value) => value / size);
      logs[step] = total;
    }
    return logs;
  });
}

/** How many of the draws have vanished or exploded. @param {Float64Array[]} logs @param {number} step @param {number} scale */
export function counted(logs, step, scale) {
  const sizes = logs.map((one) => one[step] + step * Math.log(scale));
  const vanished = sizes.filter((size) => size < Math.log(VANISHED)).length;
  const exploded = sizes.filter((size) => size > Math.log(EXPLODED)).length;
  return { vanished, exploded, between: logs.length - vanished - exploded };
}

const SCALES = Array.from({ length: 51 }, (_, index) => 0.5 + index * 0.02);
const REACH = 1.4; // of the complex plane

/** @param {Complex} value */
function written({ re, im }) {
  return im === 0 ? brief(re) : `${brief(re)} ${im < 0 ? "−" : "+"} ${brief(Math.abs(im))}i`;
}

/** @type {import("../views.js").View} */
export const eigenvaluesView = {
  id: "eigenvalues",
  title: { en: "Drag eigenvalues", zh: "拖动特征值" },
  lookFor: {
    en: "Move an eigenvalue across the unit circle: inside it states and gradients die out by a constant factor per step, outside they blow up, and only on the circle do they last.",
    zh: "把特征值拖过单位圆：在圆内，隐状态和梯度每一步都按固定比例缩小；在圆外则不断放大；只有恰好落在圆上，信息才能保留下来。",
  },
  how: {
    equation: "h_t = φ(W h_{t-1})\n∂h_T/∂h_{T-k} = Π_{j=T-k+1}^T diag(φ'(a_j)) W          \"linear:|线性：\" W^k = Q Λ^k Q⁻¹\n\"vanished: norm|消失：范数\" < 10⁻³     \"exploded: norm|爆炸：范数\" > 10³     W_ij ~ N(0, g²/n)",
    code: "from statewise.inspection import gradient_norms\n\n# 200 random matrices: norms of the gradient at distance 0 … 60\nnorms_RT = gradient_norms(width=16, steps=60, draws=200, variance=1.0, shared=True)\nprint((norms_RT[:, 60] < 1e-3).sum(), \"vanished,\", (norms_RT[:, 60] > 1e3).sum(), \"exploded\")",
    command: "statewise inspect shakespeare-elman gradient",
  },
  mount,
};

/** @param {HTMLElement} root @param {any} lab */
function mount(root, lab) {
  const at = { first: { re: 0.85, im: 0.49 }, second: { re: 0.85, im: -0.49 }, shear: 0, tanh: false, steps: 40, scale: 1, width: 16, shared: true };
  let logs = drawnNorms(at.width, 100, DRAWS, at.shared, normal(1));
  const spoken = make("p", { class: "finding", "aria-live": "polite" });
  const counted_ = make("p", { class: "finding", "aria-live": "polite" });
  const plane = lab.picture("eigenvalues-plane", { en: "Eigenvalues of W: drag them", zh: "W 的特征值：拖动它们" }, spoken);
  const paths = lab.picture("eigenvalues-paths", { en: "Where states go", zh: "隐状态的轨迹" });
  const curve = lab.picture("eigenvalues-curve", { en: "What is left of a gradient", zh: "梯度还剩多少" });
  /** @type {SVGCircleElement[]} */
  let handles = [];

  const moved = (/** @type {number} */ which, /** @type {Complex} */ to) => {
    const real = Math.abs(to.im) < 0.03;
    const im = real ? 0 : to.im;
    const pair = /** @type {const} */ (["first", "second"]);
    at[pair[which]] = { re: to.re, im };
    if (!real) at[pair[1 - which]] = { re: to.re, im: -im };
    else if (at[pair[1 - which]].im !== 0) at[pair[1 - which]] = { re: at[pair[1 - which]].re, im: 0 };
    redraw();
  };

  const place = () => handles.forEach((handle, which) => {
    const value = which ? at.second : at.first, size = Math.hypot(value.re, value.im);
    const middle = Number(handle.dataset.middle), zoom = Number(handle.dataset.zoom);
    handle.setAttribute("cx", String(middle + value.re * zoom));
    handle.setAttribute("cy", String(middle - value.im * zoom));
    handle.setAttribute("aria-valuenow", size.toFixed(2));
    handle.setAttribute("aria-valuetext", `${written(value)}, |λ| = ${size.toFixed(2)}`);
  });

  const drawPlane = () => {
    const size = Math.min(plane.place.clientWidth || 360, 420), middle = size / 2, zoom = (middle - 14) / REACH;
    const root_ = draw("svg", { class: "chart", viewBox: `0 0 ${size} ${size}`, "font-size": 12 });
    root_.style.maxWidth = `${size}px`;
    root_.append(
      draw("circle", { class: "disc", cx: middle, cy: middle, r: zoom }),
      draw("line", { class: "grid", x1: 0, x2: size, y1: middle, y2: middle }),
      draw("line", { class: "grid", x1: middle, x2: middle, y1: 0, y2: size }),
      draw("circle", { class: "circle", cx: middle, cy: middle, r: zoom }),
      draw("text", { class: "tick", x: middle + zoom + 4, y: middle - 5 }, "1"),
      draw("text", { class: "tick", x: middle + 5, y: middle - zoom - 5 }, "i"),
      draw("text", { class: "tick", x: size - 4, y: size - 6, "text-anchor": "end" }, lab.t({ en: "complex plane, circle: |λ| = 1", zh: "复平面，圆：|λ| = 1" })),
    );
    handles = [0, 1].map((which) => {
      const handle = draw("circle", {
        class: `handle c${which}`, r: 9, tabindex: 0, role: "slider", "aria-valuemin": 0, "aria-valuemax": 2,
        "aria-label": lab.t({ en: `Eigenvalue ${which + 1}; arrow keys move it`, zh: `特征值 ${which + 1}，用方向键移动` }),
        "data-middle": middle, "data-zoom": zoom,
        pointerdown: (/** @type {PointerEvent} */ event) => handle.setPointerCapture(event.pointerId),
        pointermove: (/** @type {PointerEvent} */ event) => {
          if (!handle.hasPointerCapture(event.pointerId)) return;
          const box = root_.getBoundingClientRect(), unit = (box.width / size) * zoom;
          const limit = (/** @type {number} */ value) => Math.max(-REACH, Math.min(REACH, value));
          moved(which, { re: limit((event.clientX - box.left - box.width / 2) / unit), im: limit((box.top + box.height / 2 - event.clientY) / unit) });
        },
        keydown: (/** @type {KeyboardEvent} */ event) => {
          const by = event.shiftKey ? 0.1 : 0.01, own = which ? at.second : at.first;
          const [h, v] = { ArrowLeft: [-by, 0], ArrowRight: [by, 0], ArrowUp: [0, by], ArrowDown: [0, -by] }[event.key] || [0, 0];
          if (!h && !v) return;
          event.preventDefault();
          // From the real axis and back to it in one press: values next to it count as real.
          const im = own.im === 0 ? Math.sign(v) * 0.03 : Math.abs(own.im + v) < 0.03 ? 0 : own.im + v;
          moved(which, { re: own.re + h, im: v ? im : own.im });
        },
      });
      return handle;
    });
    root_.append(...handles);
    plane.show(root_, () => [["eigenvalue", "real", "imaginary"], [1, at.first.re, at.first.im], [2, at.second.re, at.second.im]]);
  };

  const redraw = () => {
    place();
    const w = matrixOf(at.first, at.second, at.shear);
    const starts = Array.from({ length: 8 }, (_, index) => /** @type {[number, number]} */ ([Math.cos((index * Math.PI) / 4), Math.sin((index * Math.PI) / 4)]));
    const runs = starts.map((start) => trajectory(w, start, at.steps, at.tanh));
    drawPaths(runs);
    const norms = gradientNorms(w, runs[0], at.tanh);
    drawCurve(norms);
    drawCounts();
    const size = Math.hypot(at.first.re, at.first.im), other = Math.hypot(at.second.re, at.second.im), largest = Math.max(size, other);
    fill(spoken, lab.t({
      en: `λ = ${written(at.first)} and ${written(at.second)}; the larger |λ| is ${largest.toFixed(3)}. After ${at.steps} steps the gradient is ${brief(norms[at.steps])} times its size.`,
      zh: `λ = ${written(at.first)} 与 ${written(at.second)}；较大的 |λ| = ${largest.toFixed(3)}。经过 ${at.steps} 步，梯度变为原来的 ${brief(norms[at.steps])} 倍。`,
    }));
  };

  const drawPaths = (/** @type {[number, number][][]} */ runs) => {
    const size = Math.min(paths.place.clientWidth || 360, 420), middle = size / 2, zoom = middle / 1.5;
    const to = (/** @type {number} */ value) => Math.max(-4 * size, Math.min(4 * size, value * zoom));
    const svg = draw("svg", { class: "chart", viewBox: `0 0 ${size} ${size}`, role: "img", "font-size": 12,
      "aria-label": lab.t({ en: "Trajectories of the state from eight starting points", zh: "隐状态从八个起点出发的轨迹" }) });
    svg.style.maxWidth = `${size}px`;
    svg.append(draw("line", { class: "grid", x1: 0, x2: size, y1: middle, y2: middle }), draw("line", { class: "grid", x1: middle, x2: middle, y1: 0, y2: size }));
    runs.forEach((run, index) => {
      const points = run.map(([x, y]) => `${(middle + to(x)).toFixed(1)},${(middle - to(y)).toFixed(1)}`);
      svg.append(draw("g", { class: index ? "c7" : "c0", opacity: index ? 0.35 : 1 },
        draw("polyline", { class: "path", points: points.join(" ") }),
        ...run.map(([x, y], step) => draw("circle", { class: "dot", cx: middle + to(x), cy: middle - to(y), r: step === 0 ? 4.5 : index ? 1.3 : 2.2 }))));
    });
    svg.append(draw("text", { class: "tick", x: size - 4, y: size - 6, "text-anchor": "end" }, lab.t({ en: "h, from eight starts", zh: "隐状态 h，八个起点" })));
    paths.show(svg, () => [["start", "step", "h1", "h2"], ...runs.flatMap((run, start) => run.map(([x, y], step) => [start + 1, step, x, y]))]);
  };

  const drawCurve = (/** @type {number[]} */ norms) => {
    const largest = Math.max(Math.hypot(at.first.re, at.first.im), Math.hypot(at.second.re, at.second.im));
    const extent = Math.max(...[...norms, largest ** at.steps].map((norm) => Math.abs(Math.log10(Math.max(norm, 1e-300)))));
    const decades = Math.min(12, Math.max(2, Math.ceil(extent)));
    const svg = chart({
      width: curve.place.clientWidth || 520, height: 270,
      title: lab.t({ en: "Norm of the gradient against distance", zh: "梯度范数随距离的变化" }),
      x: { label: lab.t({ en: "distance, steps", zh: "距离（步）" }), min: 0, max: at.steps },
      y: { label: lab.t({ en: "norm of ∂h(T) / ∂h(T−k)", zh: "∂h(T) / ∂h(T−k) 的范数" }), log: true, min: 10 ** -decades, max: 10 ** decades },
      series: [
        { name: lab.t({ en: "gradient", zh: "梯度" }), points: norms.map((norm, step) => [step, norm]), hue: 0 },
        { name: `|λ|ᵏ = ${largest.toFixed(2)}ᵏ`, points: norms.map((_, step) => [step, largest ** step]), hue: 7, dash: "5 4", faint: true },
      ],
      marks: [{ y: 1 }],
    });
    curve.show(svg, () => [["distance", "norm", "largest eigenvalue to the power"], ...norms.map((norm, step) => [step, norm, largest ** step])]);
  };

  const drawCounts = () => {
    const all = SCALES.map((scale) => ({ scale, ...counted(logs, at.steps, scale) }));
    const svg = chart({
      width: counts.place.clientWidth || 520, height: 270,
      title: lab.t({ en: "Vanished and exploded gradients against the scale of the weights", zh: "梯度消失与爆炸的个数随权重尺度的变化" }),
      x: { label: lab.t({ en: "scale g of the weights", zh: "权重尺度 g" }), min: 0.5, max: 1.5 },
      y: { label: lab.t({ en: `of ${DRAWS} draws`, zh: `${DRAWS} 次抽样中的个数` }), min: 0, max: DRAWS },
      series: [
        { name: lab.t({ en: "vanished", zh: "消失" }), points: all.map((one) => [one.scale, one.vanished]), hue: 0 },
        { name: lab.t({ en: "in between", zh: "介于其间" }), points: all.map((one) => [one.scale, one.between]), hue: 2, dash: "7 3" },
        { name: lab.t({ en: "exploded", zh: "爆炸" }), points: all.map((one) => [one.scale, one.exploded]), hue: 1, dash: "2 3" },
      ],
      marks: [{ x: at.scale, label: `g = ${at.scale.toFixed(2)}` }],
    });
    counts.show(svg, () => [["scale", "vanished", "in between", "exploded"], ...all.map((one) => [one.scale, one.vanished, one.between, one.exploded])]);
    const now = counted(logs, at.steps, at.scale);
    fill(counted_, lab.t({
      en: `At g = ${at.scale.toFixed(2)}, after ${at.steps} steps: ${now.vanished} of ${DRAWS} vanished, ${now.exploded} exploded, ${now.between} in between.`,
      zh: `g = ${at.scale.toFixed(2)}，${at.steps} 步之后：${DRAWS} 次抽样中 ${now.vanished} 次消失，${now.exploded} 次爆炸，${now.between} 次介于其间。`,
    }));
  };

  const preset = (/** @type {string} */ en, /** @type {string} */ zh, /** @type {Complex} */ first, /** @type {Complex} */ second, shear = 0) =>
    button({ en, zh }, () => {
      Object.assign(at, { first, second, shear });
      shears.set(shear);
      redraw();
    });
  const shears = slider({ label: { en: "Shear: eigenvectors not at right angles", zh: "剪切：特征向量不正交" }, min: 0, max: 3, step: 0.1, value: 0, show: (value) => value.toFixed(1), input: (value) => { at.shear = value; redraw(); } });
  const redrawn = () => {
    logs = drawnNorms(at.width, 100, DRAWS, at.shared, normal(1));
    drawCounts();
  };
  const counts = lab.picture("eigenvalues-counts", { en: "How many random networks vanish or explode", zh: "随机网络中有多少梯度消失或爆炸" }, counted_,
    make("div", { class: "controls" },
      slider({ label: { en: "Scale g of the weights", zh: "权重尺度 g" }, min: 0.5, max: 1.5, step: 0.02, value: 1, show: (value) => value.toFixed(2), input: (value) => { at.scale = value; drawCounts(); } }).element,
      slider({ label: { en: "Units n", zh: "单元数 n" }, min: 2, max: 32, step: 2, value: at.width, input: (value) => { at.width = value; redrawn(); } }).element,
      choice({ label: { en: "Weights", zh: "权重" }, options: [{ value: "shared", label: { en: "one matrix", zh: "同一个矩阵" } }, { value: "own", label: { en: "another at each step", zh: "每步不同" } }], value: "shared", pick: (value) => { at.shared = value === "shared"; redrawn(); } })));
  fill(
    root,
    make("div", { class: "controls" },
      slider({ label: { en: "Steps", zh: "步数" }, min: 5, max: 100, step: 1, value: at.steps, input: (value) => { at.steps = value; redraw(); } }).element,
      shears.element,
      choice({ label: { en: "Activation", zh: "激活函数" }, options: [{ value: "linear", label: { en: "linear", zh: "线性" } }, { value: "tanh", label: { en: "tanh", zh: "tanh" } }], value: "linear", pick: (value) => { at.tanh = value === "tanh"; redraw(); } }),
      make("div", { class: "buttons" },
        preset("forgets", "遗忘", { re: 0.7, im: 0.3 }, { re: 0.7, im: -0.3 }),
        preset("keeps", "保持", { re: Math.cos(0.3), im: Math.sin(0.3) }, { re: Math.cos(0.3), im: -Math.sin(0.3) }),
        preset("explodes", "爆炸", { re: 1.02, im: 0.3 }, { re: 1.02, im: -0.3 }),
        preset("grows, then dies", "先增后减", { re: 0.9, im: 0 }, { re: 0.6, im: 0 }, 3)),
    ),
    make("div", { class: "panels" }, plane.element, paths.element, curve.element, counts.element),
  );
  return { update: () => { drawPlane(); redraw(); } };
}
