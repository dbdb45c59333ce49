// @ts-check
/** Products with a matrix by WebAssembly, four float32 at a time. Where a browser has none, `product.js` computes all of them. */

import { bytesFrom } from "./tensor.js";

/** @typedef {import("./tensor.js").Numbers} Numbers */
/** A matrix in the memory of WebAssembly: `n` rows of `k` numbers and zeros, `row` numbers apart. @typedef {{at: number, row: number, k: number, n: number}} Matrix */
/** @typedef {(y: number, a: number, b: number, row: number, k: number, n: number) => void} Product */

/** `simd.wat`, assembled. */
const CODE = `
AGFzbQEAAAABCgFgBn9/f39/fwADAwIAAAUDAQABBxcDBm1lbW9yeQIABGRvdHMAAANtaXgAAQrfBAKTAwIDfwV7IAAgBWohCANA/QwAAAAAAAAAAAAAAAAA
AAAAIQr9DAAAAAAAAAAAAAAAAAAAAAAhC/0MAAAAAAAAAAAAAAAAAAAAACEM/QwAAAAAAAAAAAAAAAAAAAAAIQ1BACEGA0AgASAGav0ABAAhCSACIAZqIQcg
CiAJIAf9AAQA/eYB/eQBIQogByADaiEHIAsgCSAH/QAEAP3mAf3kASELIAcgA2ohByAMIAkgB/0ABAD95gH95AEhDCAHIANqIQcgDSAJIAf9AAQA/eYB/eQB
IQ0gBkEQaiEGIAYgBEkNAAsgCiAL/Q0AAQIDEBESEwQFBgcUFRYXIAogC/0NCAkKCxgZGhsMDQ4PHB0eH/3kASEKIAwgDf0NAAECAxAREhMEBQYHFBUWFyAM
IA39DQgJCgsYGRobDA0ODxwdHh/95AEhDCAAIAogDP0NAAECAwQFBgcQERITFBUWFyAKIAz9DQgJCgsMDQ4PGBkaGxwdHh/95AH9CwQAIAIgA0ECdGohAiAA
QRBqIQAgACAISQ0ACwvHAQIEfwR7IAEgBGohCSAAQQAgBfwLAANAIAH9CQIAIQogAf0JAgQhCyAB/QkCCCEMIAH9CQIMIQ1BACEGA0AgAiAGaiEHIAcgA0EB
dGohCCAAIAZqIAAgBmr9AAQAIAogB/0ABAD95gEgCyAHIANq/QAEAP3mAf3kASAMIAj9AAQA/eYBIA0gCCADav0ABAD95gH95AH95AH95AH9CwQAIAZBEGoh
BiAGIAVJDQALIAIgA0ECdGohAiABQRBqIQEgASAJSQ0ACws=`;

/** @type {{memory: WebAssembly.Memory, dots: Product, mix: Product} | null} */
const made = (() => {
  try {
    return /** @type {any} */ (new WebAssembly.Instance(new WebAssembly.Module(bytesFrom(CODE))).exports);
  } catch {
    return null; // an old browser, or a page around this one forbids it
  }
})();

/** Multiplications for one row from which a call pays. Tests set it, to compute all or none here. */
export const simd = { least: made ? 400 : Infinity };

const filled = (/** @type {number} */ size) => (size + 3) & -4;
const PAGE = 1 << 14; // numbers
let numbers = made ? new Float32Array(made.memory.buffer) : new Float32Array(0);
let used = 0;

/** Room for some numbers, and for four more that a product reads and drops. @param {number} size */
function take(size) {
  const { memory } = /** @type {NonNullable<typeof made>} */ (made), at = used;
  used += filled(size);
  const missing = used + 4 - numbers.length;
  if (missing > 0) {
    memory.grow(Math.ceil(missing / PAGE));
    numbers = new Float32Array(memory.buffer);
  }
  return at;
}

/** Room that every call writes again. */
const rooms = { a: { at: 0, size: 0 }, b: { at: 0, size: 0 }, y: { at: 0, size: 0 } };

/** @param {keyof typeof rooms} name @param {number} size */
function room(name, size) {
  const own = rooms[name];
  if (own.size < size) {
    own.size = 2 * size;
    own.at = take(own.size);
  }
  return own.at;
}

/** Keeps a weight there, for good. @param {Numbers} b [k, n], or [n, k] if `transposed` @param {number} k @param {number} n @param {boolean} transposed @returns {Matrix} */
export function resident(b, k, n, transposed) {
  const row = filled(k), at = take(row * filled(n));
  for (let j = 0; j < n; j += 1) {
    const begin = at + j * row;
    for (let i = 0; i < k; i += 1) numbers[begin + i] = transposed ? b[j * k + i] : b[i * n + j];
  }
  return { at, row, k, n };
}

/** @param {Product} product @param {Numbers} y @param {number} yAt @param {number} n @param {Numbers} a @param {number} aAt @param {number} k @param {number} m @param {number} at @param {number} row */
function rowByRow(product, y, yAt, n, a, aAt, k, m, at, row) {
  const from = room("a", filled(k)), to = room("y", filled(n));
  numbers.fill(0, from + k, from + filled(k));
  const answer = numbers.subarray(to, to + n);
  for (let i = 0; i < m; i += 1) {
    numbers.set(a.subarray(aAt + i * k, aAt + i * k + k), from);
    product(4 * to, 4 * from, 4 * at, 4 * row, 4 * filled(k), 4 * filled(n));
    y.set(answer, yAt + i * n);
  }
}

/** `m` rows of a times a weight. @param {Numbers} y @param {Numbers} a @param {number} m @param {Matrix} matrix */
export function timesWeight(y, a, m, { at, row, k, n }) {
  rowByRow(/** @type {NonNullable<typeof made>} */ (made).dots, y, 0, n, a, 0, k, m, at, row);
}

/** Back from there: `m` rows of dy times the transposed weight. @param {Numbers} da @param {Numbers} dy @param {number} m @param {Matrix} matrix */
export function backThroughWeight(da, dy, m, { at, row, k, n }) {
  rowByRow(/** @type {NonNullable<typeof made>} */ (made).mix, da, 0, k, dy, 0, n, m, at, row);
}

/** `m` rows of a times a matrix [k, n] that was just computed. @param {Numbers} y @param {number} yAt @param {Numbers} a @param {number} aAt @param {Numbers} b @param {number} bAt @param {number} m @param {number} k @param {number} n */
export function timesMatrix(y, yAt, a, aAt, b, bAt, m, k, n) {
  const at = room("b", filled(k) * n);
  room("a", filled(k)), room("y", filled(n));
  numbers.set(b.subarray(bAt, bAt + k * n), at);
  numbers.fill(0, at + k * n, at + filled(k) * n);
  rowByRow(/** @type {NonNullable<typeof made>} */ (made).mix, y, yAt, n, a, aAt, k, m, at, n);
}
