// @ts-check
/** Pictures to save of what the page shows by other elements: a text whose symbols are coloured, units of a state, bars. */

import { textWidth } from "./chart.js";
import { draw } from "./dom.js";
import { channels } from "./widget.js";

const LINE = 64; // symbols
const [WIDE, TALL] = [11, 30]; // pixels of a symbol
const UNIT = 17;
const [LONG, BAR] = [360, 24]; // of a bar at 100 %, and from bar to bar

/** Between two colours of the page. @param {string} from @param {string} to @param {number} share 0 to 1 */
export function mixed(from, to, share) {
  const [a, b] = [from, to].map(channels);
  return `rgb(${a.map((low, i) => Math.round(low + share * (b[i] - low))).join()})`;
}

/** @param {number} width @param {number} height @param {string} label @param {Element[]} parts */
function framed(width, height, label, parts) {
  return draw("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...parts);
}

/**
 * A text, each symbol on the colour of its share (0 to 1); the asked one is underlined.
 * @param {string[]} texts @param {ArrayLike<number>} shares @param {number} asked @param {any} palette @param {string} label
 */
export function textPicture(texts, shares, asked, palette, label) {
  let [row, column] = [0, 0];
  const parts = texts.flatMap((text, at) => {
    const size = Math.max(1, [...text].length);
    if (column + size > LINE) [row, column] = [row + 1, 0];
    const [x, y] = [column * WIDE, row * TALL];
    column += size;
    const shade = draw("rect", { x, y, width: size * WIDE, height: TALL - 6, fill: mixed(palette.paper, palette.heat, 0.75 * (shares[at] || 0)) });
    const letter = draw("text", { x: x + (size * WIDE) / 2, y: y + 17, "text-anchor": "middle", "font-family": "monospace", "font-size": 16, fill: palette.ink }, text);
    return at === asked ? [shade, letter, draw("rect", { x, y: y + TALL - 7, width: size * WIDE, height: 3, fill: palette.ink })] : [shade, letter];
  });
  return framed(LINE * WIDE, (row + 1) * TALL, label, parts);
}

/** The pixels of a state over time, enlarged. @param {HTMLCanvasElement} canvas @param {string} label */
export function heatPicture(canvas, label) {
  const [width, height] = [960, 480];
  return framed(width, height, label, [draw("image", { href: canvas.toDataURL("image/png"), width, height, preserveAspectRatio: "none", "image-rendering": "pixelated" })]);
}

/**
 * Units as squares: one colour for positive numbers, another for negative ones.
 * @param {ArrayLike<number>} values @param {number} top the size that has the full colour @param {any} palette @param {string} label
 */
export function unitPicture(values, top, palette, label) {
  const columns = Math.ceil(Math.sqrt(2.5 * values.length));
  const parts = Array.from(values, (value, at) =>
    draw("rect", {
      x: (at % columns) * UNIT + 1, y: Math.floor(at / columns) * UNIT + 1, width: UNIT - 2, height: UNIT - 2, stroke: palette.rule,
      fill: mixed(palette.paper, value < 0 ? palette.accent : palette.heat, Math.min(1, Math.abs(value) / top)),
    }));
  return framed(columns * UNIT, Math.ceil(values.length / columns) * UNIT, label, parts);
}

/**
 * Probabilities as bars. Where a row has a second one, a line stands there: as it was before a change.
 * @param {(string | number)[][]} rows label, probability, and the second @param {any} palette @param {string} label
 */
export function barPicture(rows, palette, label) {
  const named = rows.map(([name]) => String(name)), left = 16 + Math.max(...named.map((name) => textWidth(name, 13)));
  const parts = rows.flatMap(([, p, before], at) => {
    const y = at * BAR, text = { y: y + 16, "font-size": 13, fill: palette.ink };
    return [
      draw("text", { ...text, x: left - 8, "text-anchor": "end" }, named[at]),
      draw("rect", { x: left, y: y + 5, width: LONG, height: 14, fill: palette.panel }),
      draw("rect", { x: left, y: y + 5, width: LONG * Number(p), height: 14, fill: palette.c0 }),
      ...(before === undefined ? [] : [draw("rect", { x: left + LONG * Number(before) - 3, y: y + 3, width: 3, height: 18, fill: palette.heat })]),
      draw("text", { ...text, x: left + LONG + 8 }, `${(100 * Number(p)).toFixed(1)}%`),
    ];
  });
  return framed(left + LONG + 64, rows.length * BAR, label, parts);
}
