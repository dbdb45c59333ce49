// @ts-check
/**
 * Equations as MathML, which browsers draw themselves, from a plain notation: `h_{t-1}`, `W^k`, `√K`, `"prose|in Chinese"`.
 * Three spaces begin another equation in the same line.
 */

import { make, translate } from "./dom.js";

const MATHML = "http://www.w3.org/1998/Math/MathML";
const RAISED = new Map(Array.from("⁰¹²³⁴⁵⁶⁷⁸⁹⁻ᵀ", (sign, i) => /** @type {[string, string]} */ ([sign, "0123456789−T"[i]])));
const LOWERED = new Map(Array.from("₀₁₂₃₄₅₆₇₈₉", (sign, i) => /** @type {[string, string]} */ ([sign, String(i)])));
const PART = /"[^"]*"|\p{L}+|\d+(?:\.\d+)?|\s+|[^]/gu;
const SPACED = /^[\p{L}\p{N}√∂∇|‖]/u; // what stands apart from prose in front of it
const OPERATORS = new Map([["-", "−"], ["*", "·"]]);

/** @param {string} tag @param {(Node | string)[]} children */
function element(tag, ...children) {
  const made = document.createElementNS(MATHML, tag);
  made.append(...children);
  return made;
}

/** Letters and raised or lowered signs apart: `Vᵀ` is a letter and a sign. @param {string} text */
function parts(text) {
  return (text.match(PART) || []).flatMap((part) => (/^\p{L}/u.test(part) ? part.match(/[ᵀ]|[^ᵀ]+/gu) || [] : [part])).filter((part) => part.trim());
}

/** One thing that an index may stand at. @param {string} part */
function atom(part) {
  if (part.startsWith('"')) {
    const [en, zh = en] = part.slice(1, -1).replaceAll(" ", "\u00a0").split("|");
    const text = element("mtext", translate({ en, zh }));
    text.setAttribute("data-en", en);
    text.setAttribute("data-zh", zh);
    return text;
  }
  if (/^\p{L}/u.test(part) && !RAISED.has(part)) return element("mi", part);
  if (/^\d/.test(part)) return element("mn", part);
  const sign = element("mo", OPERATORS.get(part) || part);
  if (/[()[\]|‖]/.test(part)) sign.setAttribute("stretchy", "false");
  return sign;
}

/** @param {string[]} given consumed from its start @param {string} [end] @returns {Element} */
function row(given, end) {
  const made = element("mrow");
  while (given.length && given[0] !== end) {
    const part = /** @type {string} */ (given.shift());
    const base = part === "{" ? row(given, "}") : part === "√" ? element("msqrt", group(given)) : atom(part);
    made.append(scripted(base, given));
    if (/^\p{L}{2,}$/u.test(part) && /^[\p{L}"]/u.test(given[0] || "")) made.append(element("mtext", "\u2009"));
    else if ((part.startsWith('"') && SPACED.test(given[0] || "")) || (part !== "(" && given[0]?.startsWith('"'))) made.append(element("mtext", "\u2002"));
  }
  given.shift();
  return made;
}

/** What follows `_`, `^` or `√`: a group in braces, or one part; letters stand side by side. @param {string[]} given @returns {Element} */
function group(given) {
  const part = given.shift() || "";
  return part === "{" ? row(given, "}") : /^\p{L}{2,3}$/u.test(part) ? element("mrow", ...Array.from(part, atom)) : atom(part);
}

/** @param {Element} base @param {string[]} given @returns {Element} */
function scripted(base, given) {
  /** @type {Element | null} */
  let low = null;
  /** @type {Element | null} */
  let high = null;
  for (;;) {
    const next = given[0];
    if (next === "_" || next === "^") {
      given.shift();
      if (next === "_") low = group(given);
      else high = group(given);
    } else if (RAISED.has(next) || LOWERED.has(next)) {
      const known = RAISED.has(next) ? RAISED : LOWERED;
      let text = "";
      while (known.has(given[0])) text += known.get(/** @type {string} */ (given.shift()));
      const made = element(/^[T]$/.test(text) ? "mi" : /\d/.test(text) ? "mn" : "mo", text);
      if (known === RAISED) high = made;
      else low = made;
    } else break;
  }
  let primes = "";
  while (given[0] === "'") primes += given.shift() && "′";
  // As text: a font for letters draws a prime raised and small, and one for mathematics does so only to an exponent.
  if (primes) return element("mrow", base, element("mtext", primes));
  return low && high ? element("msubsup", base, low, high) : low ? element("msub", base, low) : high ? element("msup", base, high) : base;
}

/** @param {string} text */
export function equations(text) {
  const lines = text.split("\n").map((line) => make("div", {}, ...line.split(/ {3,}/).filter(Boolean).map((one) => {
    const math = element("math", row(parts(one)));
    math.setAttribute("alttext", one);
    return math;
  })));
  return make("div", { class: "equation", tabindex: 0 }, ...lines);
}
