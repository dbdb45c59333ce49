// @ts-check
/** Pictures to save of what the page shows as buttons: a text whose symbols are coloured, the units of a state. */

import { draw } from "./dom.js";
import { channels } from "./widget.js";

const LINE = 64; // symbols
const [WIDE, TALL] = [11, 30]; // pixels of a symbol
const UNIT = 17;

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
