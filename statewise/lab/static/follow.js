// @ts-check
/** Which units of a state follow a part of the text: their correlation with being inside it, what coincidence gives, and the text in a unit's colours. */

import { make } from "./dom.js";
import { mixed } from "./picture.js";
import { visible } from "./widget.js";

export const PLACES = 20; // of the marked part: its own, and others that tell what coincidence gives
const OPEN = "`";
const CLOSE = "'";
const FULL = 2; // standard deviations that have the full colour

/** 1 at each token that lies inside a quotation. @param {string[]} texts */
export function quoted(texts) {
  let inside = 0;
  return texts.map((text, t) => {
    if (text === OPEN) inside = 1;
    else if (text === CLOSE && !/[A-Za-z]/.test(texts[t + 1] || "")) inside = 0;
    return inside;
  });
}

/** Each number's distance from the mean, in standard deviations; 0 where all are the same. @param {ArrayLike<number>} values */
export function standardised(values) {
  const n = values.length;
  let [mean, square] = [0, 0];
  for (let i = 0; i < n; i += 1) mean += values[i] / n;
  for (let i = 0; i < n; i += 1) square += (values[i] - mean) ** 2 / n;
  const scale = square > 0 ? 1 / Math.sqrt(square) : 0;
  return Float32Array.from(values, (value) => (value - mean) * scale);
}

/** A unit that was found: its row among the columns, its correlation, and its standardised values. @typedef {{row: number, r: number, values: Float32Array}} Follower */

/** @param {Float32Array} a @param {Float32Array} b both standardised */
function correlation(a, b) {
  let sum = 0;
  for (let t = 0; t < a.length; t += 1) sum += a[t] * b[t];
  return sum / a.length;
}

/** All units, those that follow a mask best first. @param {Float32Array[]} columns one for each token @param {number[]} mask @returns {Follower[]} */
export function followers(columns, mask) {
  const wanted = standardised(mask);
  const all = Array.from(columns[0] || [], (_, row) => {
    const values = standardised(columns.map((column) => column[row]));
    return { row, r: correlation(values, wanted), values };
  });
  return all.sort((a, b) => Math.abs(b.r) - Math.abs(a.r));
}

/** The largest correlation of any unit with the mask at other places: the best of many units that drift is large by coincidence. @param {Follower[]} found @param {number[]} mask */
export function coincidence(found, mask) {
  let most = 0;
  for (let place = 1; place < PLACES; place += 1) {
    const by = Math.round((place * mask.length) / PLACES);
    const moved = standardised(mask.map((_, t) => mask[(t + by) % mask.length]));
    for (const { values } of found) most = Math.max(most, Math.abs(correlation(values, moved)));
  }
  return most;
}

/** The text, each symbol on the colour of a unit's value there; what lies inside is underlined. @param {HTMLElement} place @param {string[]} texts @param {ArrayLike<number>} values @param {number[]} mask @param {any} palette */
export function colourText(place, texts, values, mask, palette) {
  const symbols = texts.map((text, t) => {
    const symbol = make(mask[t] ? "u" : "span", {}, visible(text).replace("␣", " ").replace("∅", ""));
    symbol.style.background = mixed(palette.paper, values[t] < 0 ? palette.accent : palette.heat, 0.7 * Math.min(1, Math.abs(values[t]) / FULL));
    return symbol;
  });
  place.replaceChildren(...symbols);
}
