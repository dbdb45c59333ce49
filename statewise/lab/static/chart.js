// @ts-check
/** Curves over two axes, in the classes and colours of the reports. */

import { draw } from "./dom.js";

/** @typedef {{label: string, log?: boolean, min: number, max: number, ticks?: number[], show?: (value: number) => string}} Axis */
/** @typedef {{name: string, points: [number, number][], hue: number, dash?: string, faint?: boolean, mark?: boolean}} Series */
/** @typedef {{at: (value: number) => number, ticks: number[], show: (value: number) => string}} Ruler */

/** Numbers a person would choose between two, at most `count + 1`. @param {number} min @param {number} max @param {number} count */
export function niceTicks(min, max, count) {
  const rough = (max - min) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999) || 10 * power;
  const first = Math.ceil(min / step - 1e-9);
  const last = Math.floor(max / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * step).toPrecision(12)));
}

const RAISED = new Map([..."-0123456789"].map((sign, index) => [sign, "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"[index]]));

/** @param {number} exponent */
export function powerOfTen(exponent) {
  return `10${[...String(exponent)].map((sign) => RAISED.get(sign)).join("")}`;
}

/** A number in few signs. @param {number} value */
export function brief(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "–" : value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const text = size !== 0 && (size >= 1e6 || size < 1e-3) ? value.toExponential(1) : String(Number(value.toPrecision(3)));
  return text.replace("-", "−").replace("e+", "e").replace("e-", "e−");
}

/** @param {Axis} axis @param {number} from @param {number} to @param {number} count @returns {Ruler} */
export function ruler(axis, from, to, count) {
  if (axis.log) {
    const low = Math.log10(axis.min), high = Math.log10(axis.max);
    const step = Math.max(1, Math.ceil((high - low) / count));
    const exponents = niceTicks(Math.ceil(low), Math.floor(high), count).filter((value) => Number.isInteger(value));
    const shown = exponents.length > 1 ? exponents : [Math.ceil(low), Math.ceil(low) + step];
    return {
      at: (value) => from + ((Math.log10(Math.max(value, 1e-300)) - low) / (high - low || 1)) * (to - from),
      ticks: axis.ticks || shown.map((exponent) => 10 ** exponent),
      show: axis.show || ((value) => (value >= 0.01 && value <= 1000 ? brief(value) : powerOfTen(Math.round(Math.log10(value))))),
    };
  }
  return {
    at: (value) => from + ((value - axis.min) / (axis.max - axis.min || 1)) * (to - from),
    ticks: axis.ticks || niceTicks(axis.min, axis.max, count),
    show: axis.show || brief,
  };
}

/**
 * A chart with axes, curves, and a legend above it. Values outside the axes are cut at the frame.
 * @param {{width: number, height?: number, title: string, x: Axis, y: Axis, series: Series[], marks?: {x?: number, y?: number,
 *   label?: string}[]}} options
 * @returns {SVGSVGElement}
 */
export function chart({ width, height = 260, title, x, y, series, marks = [] }) {
  const size = width < 480 ? 11 : 12;
  const keys = legendRows(series, width, size);
  const top = 10 + keys.rows * (size + 7), left = 56, right = width - 12, bottom = height - 40;
  const across = ruler(x, left, right, Math.max(2, Math.floor((right - left) / 70)));
  const up = ruler(y, bottom, top + size + 8, Math.max(2, Math.floor((bottom - top) / 40)));
  const frame = { left, right, top: top + size + 8, bottom };
  const root = draw("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title, "font-size": size });
  root.append(...keys.elements);
  for (const value of up.ticks) {
    const place = up.at(value);
    if (place < frame.top - 1 || place > bottom + 1) continue;
    root.append(
      draw("line", { class: "grid", x1: left, x2: right, y1: place, y2: place }),
      draw("text", { class: "tick", x: left - 6, y: place + size / 3, "text-anchor": "end" }, up.show(value)),
    );
  }
  for (const value of across.ticks) {
    const place = across.at(value);
    if (place < left - 1 || place > right + 1) continue;
    root.append(draw("text", { class: "tick", x: place, y: bottom + size + 4, "text-anchor": "middle" }, across.show(value)));
  }
  root.append(
    draw("path", { class: "axis", d: `M${left},${frame.top}V${bottom}H${right}` }),
    draw("text", { class: "tick", x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, x.label),
    draw("text", { class: "tick", x: 4, y: top + size - 2 }, y.label),
  );
  for (const mark of marks) root.append(...markLine(mark, across, up, frame, size));
  const limit = (/** @type {number} */ value) => Math.min(Math.max(value, frame.top), bottom);
  for (const one of series) {
    const places = one.points.filter(([, value]) => !Number.isNaN(value)).map(([h, v]) => [across.at(h), limit(up.at(v))]);
    if (!places.length) continue;
    const path = places.map(([h, v], index) => `${index ? "L" : "M"}${h.toFixed(1)},${v.toFixed(1)}`).join("");
    root.append(
      draw(
        "g",
        { class: `series c${one.hue % 8}`, opacity: one.faint ? 0.45 : undefined },
        draw("path", { class: "curve", d: path, "stroke-dasharray": one.dash }),
        ...(one.mark ? places.map(([h, v]) => draw("circle", { class: "mark", cx: h, cy: v, r: 4 })) : []),
      ),
    );
  }
  return root;
}

/** @param {{x?: number, y?: number, label?: string}} mark @param {Ruler} across @param {Ruler} up
 *  @param {{left: number, right: number, top: number, bottom: number}} frame @param {number} size */
function markLine(mark, across, up, frame, size) {
  const { left, right, top, bottom } = frame;
  if (mark.x !== undefined) {
    const place = across.at(mark.x), late = place > (left + right) / 2;
    const text = { class: "tick", x: place + (late ? -5 : 5), y: top + size, "text-anchor": late ? "end" : "start" };
    return [
      draw("line", { class: "axis", x1: place, x2: place, y1: top, y2: bottom, "stroke-dasharray": "3 3" }),
      draw("text", text, mark.label || ""),
    ];
  }
  const place = up.at(/** @type {number} */ (mark.y));
  return [
    draw("line", { class: "axis", x1: left, x2: right, y1: place, y2: place, "stroke-dasharray": "3 3" }),
    draw("text", { class: "tick", x: right - 4, y: place - 4, "text-anchor": "end" }, mark.label || ""),
  ];
}

/** Width of a text of a size, roughly: a Chinese letter is as wide as it is high. @param {string} text @param {number} size */
export function textWidth(text, size) {
  return [...text].reduce((sum, letter) => sum + (letter.charCodeAt(0) > 0x2e7f ? 1.02 : /[mwMW]/.test(letter) ? 0.95 : /[ifjlrt.,: ]/.test(letter) ? 0.4 : 0.62), 0) * size;
}

/** @param {Series[]} series @param {number} width @param {number} size */
function legendRows(series, width, size) {
  let row = 0, x = 4;
  const elements = [];
  for (const one of series.filter(({ name }) => name)) {
    const wide = 24 + textWidth(one.name, size) + 14;
    if (x > 4 && x + wide > width) [row, x] = [row + 1, 4];
    const y = 10 + row * (size + 7);
    elements.push(
      draw(
        "g",
        { class: `key c${one.hue % 8}`, opacity: one.faint ? 0.6 : undefined },
        draw("line", { class: "curve", x1: x, x2: x + 18, y1: y - 4, y2: y - 4, "stroke-dasharray": one.dash }),
        draw("text", { class: "name", x: x + 24, y }, one.name),
      ),
    );
    x += wide;
  }
  return { rows: elements.length ? row + 1 : 0, elements };
}
