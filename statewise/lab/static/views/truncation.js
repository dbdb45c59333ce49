// @ts-check
/** Move the cuts of truncated backpropagation over a text: bias, spread and memory of the gradient respond. */

import { chart } from "../chart.js";
import { button, choice, draw, fill, make, named, say, slider } from "../dom.js";

/** @typedef {{name: string, pieces: string[], block: number, products: number[][], held: number[], loss: number}} Measured */
/** @typedef {"fixed" | "random" | "unbiased"} Policy */
/** @typedef {{cosine: number, norm: number, bias: number, spread: number, bytes: number}} Quality */

/** The whole matrix of inner products out of its upper half. @param {number[][]} upper @returns {Float64Array} */
export function symmetric(upper) {
  const size = upper.length, all = new Float64Array(size * size);
  upper.forEach((row, at) => row.forEach((value, away) => {
    all[at * size + at + away] = value;
    all[(at + away) * size + at] = value;
  }));
  return all;
}

/** Pairs of blocks a ≤ b, in the order of the inner products. @param {number} blocks @returns {[number, number][]} */
export function pairsOf(blocks) {
  return Array.from({ length: blocks }, (_, a) => Array.from({ length: blocks - a }, (_none, away) => /** @type {[number, number]} */ ([a, a + away]))).flat();
}

/** What passes from block b's loss to block a's weights: the product of the flows between. @param {number[]} flows at boundary 1 … K−1 */
export function weightsOf(flows) {
  return Float64Array.from(pairsOf(flows.length + 1), ([a, b]) => flows.slice(a, b).reduce((product, flow) => product * flow, 1));
}

/** Each way in which a policy may cut, with its probability. @param {boolean[]} cuts @param {Policy} policy @param {number} keep
 *  @returns {{flows: number[], probability: number}[]} */
export function outcomes(cuts, policy, keep) {
  const open = cuts.map((cut) => Number(!cut)), places = cuts.flatMap((cut, at) => (cut ? [at] : []));
  if (policy === "fixed") return [{ flows: open, probability: 1 }];
  if (policy === "unbiased") {
    return Array.from({ length: 2 ** places.length }, (_, number) => {
      const flows = [...open];
      let probability = 1;
      places.forEach((place, bit) => {
        const kept = (number >> bit) & 1;
        flows[place] = kept ? 1 / keep : 0;
        probability *= kept ? keep : 1 - keep;
      });
      return { flows, probability };
    });
  }
  const chosen = Array.from({ length: 2 ** cuts.length }, (_, number) => cuts.map((_cut, bit) => ((number >> bit) & 1 ? 0 : 1)))
    .filter((flows) => flows.filter((flow) => !flow).length === places.length);
  return chosen.map((flows) => ({ flows, probability: 1 / chosen.length }));
}

/** `wᵀ G v`. @param {Float64Array} products @param {Float64Array} w @param {Float64Array} v */
function product(products, w, v) {
  const size = w.length;
  let total = 0;
  for (let row = 0; row < size; row += 1) {
    if (w[row] === 0) continue;
    let sum = 0;
    for (let column = 0; column < size; column += 1) sum += products[row * size + column] * v[column];
    total += w[row] * sum;
  }
  return total;
}

/**
 * Everything in units of the full gradient's norm; bytes of the longest stretch between two cuts.
 * @param {Float64Array} products @param {number[]} held @param {{flows: number[], probability: number}[]} ways @returns {Quality}
 */
export function quality(products, held, ways) {
  const all = weightsOf(ways[0].flows.map(() => 1)), size = all.length, mean = new Float64Array(size);
  let cosine = 0, norm = 0, squares = 0, bytes = 0;
  for (const { flows, probability } of ways) {
    const w = weightsOf(flows), own = product(products, w, w);
    for (let at = 0; at < size; at += 1) mean[at] += probability * w[at];
    cosine += (probability * product(products, w, all)) / Math.sqrt(Math.max(own, 1e-300));
    norm += probability * Math.sqrt(Math.max(own, 0));
    squares += probability * own;
    bytes += probability * held[longest(flows) - 1];
  }
  const off = mean.map((value) => value - 1);
  return {
    cosine, norm, bytes,
    bias: Math.sqrt(Math.max(product(products, off, off), 0)),
    spread: Math.sqrt(Math.max(squares - product(products, mean, mean), 0)),
  };
}

/** Blocks of the longest stretch that a gradient passes. @param {number[]} flows */
export function longest(flows) {
  let most = 1, now = 1;
  for (const flow of flows) {
    now = flow === 0 ? 1 : now + 1;
    most = Math.max(most, now);
  }
  return most;
}

/** @param {number} bytes */
function kilobytes(bytes) {
  return `${(bytes / 1024).toFixed(bytes < 102400 ? 1 : 0)} KiB`;
}

/** @type {import("../views.js").View} */
export const truncationView = {
  id: "truncation",
  title: { en: "Move the truncation cuts", zh: "移动截断点" },
  lookFor: {
    en: "Each cut removes from the gradient everything that a loss owes to earlier blocks: memory falls, and the gradient turns away from the full one.",
    zh: "每一处截断，都会把“后面的损失对前面各段的依赖”从梯度里去掉：内存省了，梯度的方向却偏了。",
  },
  more: {
    en: "The same cuts cost each model differently: choose another and compare.",
    zh: "同样的截断，对不同模型的影响并不相同，换一个模型比比看。",
  },
  how: {
    equation: "g = Σ_{a ≤ b} w_ab m_ab          m_ab = ∂L_b / ∂(\"weights as used in block|段内所用的权重，段\" a)\nw_ab = Π (\"flow at the boundaries between|各边界处的通过率，从\" a \"and|到\" b)     0 \"at a cut,|在截断处，\" 1 \"elsewhere,|在别处，\" 1/p \"where an unbiased cut is kept|在保留的无偏截断处\"\n\"bias|偏差\" = ‖E g − ∇L‖ / ‖∇L‖        \"spread|标准差\"² = E‖g − E g‖² / ‖∇L‖²        ∇L: \"all|全部\" w = 1",
    code: "import statewise as sw\nfrom statewise.inspection import block_gradients\n\nrun = sw.load(\"shakespeare-lstm\")\ntokens_T = run.specimens(text=\"To be, or not to be, that is the question. \" * 3).tokens_T\nfound = block_gradients(run.model, tokens_T[:96], tokens_T[1:97], block=8)\nprint(found.products_NN.shape, found.held_bytes)",
    command: "statewise inspect shakespeare-lstm bptt",
  },
  needs: ["truncation"],
  mount,
};

/** @param {HTMLElement} root @param {any} lab */
function mount(root, lab) {
  /** @type {Measured[]} */
  const runs = lab.extra.truncation;
  const boundaries = runs[0].held.length - 1;
  const at = { run: runs[Math.min(1, runs.length - 1)], cuts: Array.from({ length: boundaries }, (_, index) => index % 3 === 2), policy: /** @type {Policy} */ ("fixed"), keep: 0.5 };
  let products = symmetric(at.run.products);
  const strip = make("div", { class: "strip", role: "group", ...named({ en: "The text, with a place for a cut after each block", zh: "文本，每段之后可以截断" }) });
  const numbers = make("div", { class: "tiles" }), spoken = make("p", { class: "finding", "aria-live": "polite" });
  const triangle = lab.picture("truncation-parts", { en: "Which parts of the gradient are left", zh: "梯度还剩下哪些部分" }, spoken,
    make("p", { class: "note" }, say({ en: "Darker: a larger part of the full gradient; pink: a part that points against it; struck through: removed by a cut.", zh: "颜色越深，占完整梯度的份额越大；粉色：与完整梯度方向相反；划掉：被截断去掉。" })));
  const curve = lab.picture("truncation-curve", { en: "What memory buys", zh: "内存换来了什么" });
  /** @type {HTMLButtonElement[]} */
  let buttons = [];

  const drawStrip = () => {
    const { pieces, block } = at.run, parts = [];
    buttons = at.cuts.map((cut, place) => {
      const mark = make("button", {
        type: "button", class: "cut", "aria-pressed": String(cut), ...named({ en: `Cut after block ${place + 1}`, zh: `在第 ${place + 1} 段之后截断` }),
        click: () => { if (!moved) set(place, !at.cuts[place]); moved = false; },
        keydown: (/** @type {KeyboardEvent} */ event) => {
          const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0, to = place + by;
          if (!by || to < 0 || to >= boundaries) return;
          event.preventDefault();
          if (at.cuts[place] && !at.cuts[to]) move(place, to);
          buttons[to].focus();
        },
        pointerdown: (/** @type {PointerEvent} */ event) => { held = at.cuts[place] ? place : -1; mark.setPointerCapture(event.pointerId); },
        pointermove: (/** @type {PointerEvent} */ event) => {
          if (held < 0) return;
          const under = document.elementFromPoint(event.clientX, event.clientY), to = buttons.findIndex((one) => one === under || one.previousElementSibling === under);
          if (to >= 0 && to !== held && !at.cuts[to]) { move(held, to); held = to; moved = true; }
        },
        pointerup: () => { held = -1; },
      });
      return mark;
    });
    for (let number = 0; number <= boundaries; number += 1) {
      const text = pieces.slice(number * block, (number + 1) * block).map((piece) => piece.replaceAll("\n", "⏎")).join("");
      parts.push(make("span", { class: "block" }, make("code", {}, text), buttons[number] || null));
    }
    fill(strip, ...parts);
  };
  let held = -1, moved = false;
  const set = (/** @type {number} */ place, /** @type {boolean} */ cut) => {
    at.cuts[place] = cut;
    redraw();
  };
  const move = (/** @type {number} */ from, /** @type {number} */ to) => {
    at.cuts[from] = false;
    at.cuts[to] = true;
    redraw();
  };

  const redraw = () => {
    buttons.forEach((mark, place) => mark.setAttribute("aria-pressed", String(at.cuts[place])));
    const ways = outcomes(at.cuts, at.policy, at.keep), now = quality(products, at.run.held, ways);
    const full = at.run.held[boundaries];
    const tile = (/** @type {import("../dom.js").Words} */ name, /** @type {string} */ value, /** @type {import("../dom.js").Words} */ meaning) =>
      make("div", { class: "tile" }, make("b", {}, value), make("span", {}, lab.t(name)), make("small", {}, lab.t(meaning)));
    fill(numbers,
      tile({ en: "cosine", zh: "余弦" }, now.cosine.toFixed(3), { en: "with the full gradient; 1: same direction", zh: "与完整梯度的夹角余弦，1 表示方向一致" }),
      tile({ en: "bias", zh: "偏差" }, now.bias.toFixed(3), { en: "error of the mean gradient; 0: unbiased", zh: "期望梯度的误差，0 表示无偏" }),
      tile({ en: "spread", zh: "标准差" }, now.spread.toFixed(3), { en: "standard deviation over random cuts", zh: "随机截断带来的标准差" }),
      tile({ en: "memory", zh: "内存" }, kilobytes(now.bytes), { en: `kept for the backward pass, of ${kilobytes(full)} without cuts`, zh: `反向传播需要保留的激活，不截断时为 ${kilobytes(full)}` }));
    drawTriangle(ways);
    drawCurve(now);
    fill(spoken, lab.t({
      en: `${at.run.name}: the gradient with ${at.cuts.filter(Boolean).length} cuts keeps ${(100 * now.norm).toFixed(0)}% of its norm and ${(100 * now.bytes / full).toFixed(0)}% of the memory.`,
      zh: `${at.run.name}：截断 ${at.cuts.filter(Boolean).length} 处之后，梯度范数为原来的 ${(100 * now.norm).toFixed(0)}%，内存为原来的 ${(100 * now.bytes / full).toFixed(0)}%。`,
    }));
  };

  const drawTriangle = (/** @type {{flows: number[], probability: number}[]} */ ways) => {
    const blocks = boundaries + 1, pairs = pairsOf(blocks), size = pairs.length;
    const share = pairs.map((_, row) => products.subarray(row * size, (row + 1) * size).reduce((sum, value) => sum + value, 0));
    const passed = new Float64Array(size);
    for (const { flows, probability } of ways) weightsOf(flows).forEach((weight, index) => { passed[index] += probability * weight; });
    const wide = Math.min(triangle.place.clientWidth || 420, 460), left = 34, cell = (wide - left - 8) / blocks;
    const svg = draw("svg", { class: "chart", viewBox: `0 0 ${wide} ${(blocks * cell + 20).toFixed(0)}`, role: "img", "font-size": 11, "aria-label": lab.t({ en: "Parts of the gradient by block of the loss and block of the weights", zh: "梯度的各个部分：损失所在段与权重所在段" }) });
    svg.style.maxWidth = `${wide}px`;
    const most = Math.max(...share.map(Math.abs));
    pairs.forEach(([a, b], index) => {
      const x = left + a * cell, y = b * cell, strength = Math.sqrt(Math.abs(share[index]) / most);
      svg.append(draw("g", { class: share[index] >= 0 ? "c0" : "c4" },
        draw("rect", { class: "cell", x, y, width: cell - 1, height: cell - 1 }),
        draw("rect", { class: "shade", x, y, width: cell - 1, height: cell - 1, opacity: (0.9 * strength * Math.min(passed[index], 1)).toFixed(3) })));
      if (passed[index] < 1e-9) svg.append(draw("path", { class: "grid", d: `M${x + 2},${y + 2}l${cell - 5},${cell - 5}` }));
    });
    for (let number = 0; number < blocks; number += 1) {
      svg.append(
        draw("text", { class: "tick", x: left - 6, y: number * cell + cell / 2 + 4, "text-anchor": "end" }, String(number + 1)),
        draw("text", { class: "tick", x: left + number * cell + cell / 2, y: blocks * cell + 13, "text-anchor": "middle" }, String(number + 1)));
    }
    at.cuts.forEach((cut, place) => {
      if (cut) svg.append(draw("path", { class: "cutline", d: `M${left},${(place + 1) * cell - 0.5}H${left + (place + 1) * cell - 0.5}V${blocks * cell}` }));
    });
    svg.append(
      draw("text", { class: "tick", x: wide - 4, y: 14, "text-anchor": "end" }, lab.t({ en: "row: loss in block b", zh: "行：第 b 段的损失" })),
      draw("text", { class: "tick", x: wide - 4, y: 30, "text-anchor": "end" }, lab.t({ en: "column: weights in block a", zh: "列：第 a 段使用的权重" })));
    triangle.show(svg, () => [["weights in block", "loss in block", "share of the full gradient", "passes"], ...pairs.map(([a, b], index) => [a + 1, b + 1, share[index], passed[index]])]);
  };

  const drawCurve = (/** @type {Quality} */ now) => {
    const lengths = [1, 2, 3, 4, 6, boundaries + 1];
    const regular = lengths.map((length) => ({ length, ...quality(products, at.run.held, outcomes(Array.from({ length: boundaries }, (_, index) => (index + 1) % length === 0), "fixed", 1)) }));
    const svg = chart({
      width: curve.place.clientWidth || 480, height: 300,
      title: lab.t({ en: "Bias against memory", zh: "偏差与内存" }),
      x: { label: lab.t({ en: "memory for the backward pass, KiB", zh: "反向传播所需内存（KiB）" }), min: 0, max: (at.run.held[boundaries] / 1024) * 1.02 },
      y: { label: lab.t({ en: "bias, of the full gradient's norm", zh: "偏差（相对完整梯度的范数）" }), min: 0, max: Math.max(0.1, ...regular.map((one) => one.bias), now.bias) * 1.08 },
      series: [
        { name: lab.t({ en: "a cut every 8, 16, 24, 32, 48, 96 tokens", zh: "每 8、16、24、32、48、96 个词元截断一次" }), points: regular.map((one) => [one.bytes / 1024, one.bias]), hue: 7, mark: true, faint: true },
        { name: lab.t({ en: "your cuts", zh: "你的截断" }), points: [[now.bytes / 1024, now.bias]], hue: 4, mark: true },
      ],
    });
    curve.show(svg, () => [["cut every", "bytes", "bias", "cosine"], ...regular.map((one) => [one.length * at.run.block, one.bytes, one.bias, one.cosine]), ["your cuts", now.bytes, now.bias, now.cosine]]);
  };

  const every = (/** @type {number} */ blocks, /** @type {string} */ en, /** @type {string} */ zh) => button({ en, zh }, () => {
    at.cuts = at.cuts.map((_, index) => blocks > 0 && (index + 1) % blocks === 0);
    redraw();
  });
  const select = make("select", { ...named({ en: "Trained model", zh: "训练好的模型" }), change: () => {
    at.run = runs[Number(select.value)];
    products = symmetric(at.run.products);
    drawStrip();
    redraw();
  } }, ...runs.map((run, index) => make("option", { value: index }, run.name)));
  select.value = String(runs.indexOf(at.run));
  fill(root,
    make("div", { class: "controls" },
      make("label", { class: "pick" }, say({ en: "Model", zh: "模型" }), select),
      choice({ label: { en: "Policy", zh: "截断方式" }, options: [
        { value: "fixed", label: { en: "cuts stay here", zh: "固定在这里" } },
        { value: "random", label: { en: "as many, at random places", zh: "数目相同，位置随机" } },
        { value: "unbiased", label: { en: "unbiased: kept with probability p, times 1/p", zh: "无偏：以概率 p 通过，并乘以 1/p" } }],
        value: at.policy, pick: (value) => { at.policy = value; redraw(); } }),
      slider({ label: { en: "p, unbiased only", zh: "p（仅用于无偏截断）" }, min: 0.1, max: 1, step: 0.05, value: at.keep, show: (value) => value.toFixed(2), input: (value) => { at.keep = value; redraw(); } }).element,
      make("div", { class: "buttons" }, every(0, "no cut", "不截断"), every(1, "every 8", "每 8 个"), every(2, "every 16", "每 16 个"), every(4, "every 32", "每 32 个"))),
    make("p", { class: "note" }, say({ en: "Press a bar between two blocks to cut there or not; drag it, or use the arrow keys, to move it.", zh: "点击两段之间的竖条即可添加或取消截断；拖动它，或用方向键移动。" })),
    strip, numbers,
    make("div", { class: "panels" }, triangle.element, curve.element));
  const own = lab.live?.truncation((/** @type {Measured} */ measured) => {
    runs.push(measured);
    select.append(make("option", { value: runs.length - 1 }, lab.t({ en: `${measured.name}, your text ${runs.length}`, zh: `${measured.name}，你的文本 ${runs.length}` })));
    select.value = String(runs.length - 1);
    select.dispatchEvent(new Event("change"));
  });
  if (own) root.prepend(own);
  drawStrip();
  return { update: redraw };
}
