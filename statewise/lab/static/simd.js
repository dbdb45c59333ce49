// @ts-check
/** Products and arithmetic by WebAssembly, four float32 at a time. Where a browser has none, `product.js` and `operator.js` compute all. */

import { bytesFrom } from "./tensor.js";

/** @typedef {import("./tensor.js").Numbers} Numbers */
/** @typedef {import("./tensor.js").Runs} Runs */
/** A weight in the memory of WebAssembly: `n` rows of `k` numbers and zeros, `row` numbers apart. @typedef {{at: number, row: number, k: number, n: number}} Matrix */
/** A place in that memory, which may be written again. @typedef {{at: number, size: number}} Room */
/** @typedef {(y: number, a: number, b: number, row: number, k: number, n: number) => void} Product */
/** @typedef {(op: number, y: number, a: number, s: number, b: number, t: number, n: number) => void} Each */
/** @typedef {{dots: Product, mix: Product, each: Each, memory: WebAssembly.Memory}} Program */

/** `simd.wat`, assembled. */
const CODE = `
AGFzbQEAAAABFAJgBn9/f39/fwBgB39/f39/f38AAg8BA2xhYgZtZW1vcnkCAAEDBAMAAAEHFQMEZG90cwAAA21peAABBGVhY2gAAgrxBQOTAwIDfwV7IAAg
BWohCANA/QwAAAAAAAAAAAAAAAAAAAAAIQr9DAAAAAAAAAAAAAAAAAAAAAAhC/0MAAAAAAAAAAAAAAAAAAAAACEM/QwAAAAAAAAAAAAAAAAAAAAAIQ1BACEG
A0AgASAGav0ABAAhCSACIAZqIQcgCiAJIAf9AAQA/eYB/eQBIQogByADaiEHIAsgCSAH/QAEAP3mAf3kASELIAcgA2ohByAMIAkgB/0ABAD95gH95AEhDCAH
IANqIQcgDSAJIAf9AAQA/eYB/eQBIQ0gBkEQaiEGIAYgBEkNAAsgCiAL/Q0AAQIDEBESEwQFBgcUFRYXIAogC/0NCAkKCxgZGhsMDQ4PHB0eH/3kASEKIAwg
Df0NAAECAxAREhMEBQYHFBUWFyAMIA39DQgJCgsYGRobDA0ODxwdHh/95AEhDCAAIAogDP0NAAECAwQFBgcQERITFBUWFyAKIAz9DQgJCgsMDQ4PGBkaGxwd
Hh/95AH9CwQAIAIgA0ECdGohAiAAQRBqIQAgACAISQ0ACwvHAQIEfwR7IAEgBGohCSAAQQAgBfwLAANAIAH9CQIAIQogAf0JAgQhCyAB/QkCCCEMIAH9CQIM
IQ1BACEGA0AgAiAGaiEHIAcgA0EBdGohCCAAIAZqIAAgBmr9AAQAIAogB/0ABAD95gEgCyAHIANq/QAEAP3mAf3kASAMIAj9AAQA/eYBIA0gCCADav0ABAD9
5gH95AH95AH95AH9CwQAIAZBEGohBiAGIAVJDQALIAIgA0ECdGohAiABQRBqIQEgASAJSQ0ACwuQAQIBfwJ7IAL9CQIAIQggBP0JAgAhCSABIAZqIQcDQCAD
BEAgAv0ABAAhCAsgBQRAIAT9AAQAIQkLIAEgAEECSQR7IAAEeyAIIAn95QEFIAggCf3kAQsFIABBAkYEeyAIIAn95gEFIAggCf3nAQsL/QsEACACIANqIQIg
BCAFaiEEIAFBEGohASABIAdJDQALCw==`;
const PAGE = 1 << 16;

/** Memory never grows, or arrays that lie in it would end. A system gives what is used only. @param {number} megabytes @returns {Program | null} */
function started(megabytes) {
  try {
    const memory = new WebAssembly.Memory({ initial: (megabytes << 20) / PAGE });
    const { exports } = new WebAssembly.Instance(new WebAssembly.Module(/** @type {any} */ (bytesFrom(CODE))), { lab: { memory } });
    return /** @type {any} */ ({ ...exports, memory });
  } catch {
    return null; // too much, an old browser, or a page around this one forbids it
  }
}

const program = /** @type {Program} */ (started(256) || started(32));
const numbers = program ? new Float32Array(program.memory.buffer) : new Float32Array(0);
let used = 0;

/** Sizes from which a call pays: multiplications for one row of a product; numbers of a stretch; numbers of a result. Tests set them. */
export const simd = program ? { product: 400, stretch: 32, result: 1024 } : { product: Infinity, stretch: Infinity, result: Infinity };

const filled = (/** @type {number} */ size) => (size + 3) & -4;

/** Room for some numbers, and for four more that are computed and dropped; -1: there is no more. @param {number} size */
function take(size) {
  const at = used, next = used + filled(size) + 4;
  if (next > numbers.length) return -1;
  used = next;
  return at;
}

/** @param {Room} own @param {number} size @returns {boolean} whether there is as much */
function enough(own, size) {
  if (own.size < size) [own.at, own.size] = [take(2 * size), 2 * size];
  return own.at >= 0;
}

/** @returns {Room} */
const empty = () => ({ at: 0, size: 0 });
/** What every call writes again. */
const [roomA, roomB, roomY] = [empty(), empty(), empty()];

/** Numbers in that memory for a result, in place of `old`; null: there is no room. @param {Map<number, Room>} rooms @param {number} index @param {number} size */
export function placed(rooms, index, size) {
  const own = rooms.get(index) || empty();
  rooms.set(index, own);
  return enough(own, size) ? numbers.subarray(own.at, own.at + size) : null;
}

/** Keeps a weight, for good. @param {Numbers} b [k, n], or [n, k] if `transposed` @param {number} k @param {number} n @param {boolean} transposed @returns {Matrix | null} */
export function resident(b, k, n, transposed) {
  const row = filled(k), at = take(row * filled(n));
  if (at < 0) return null;
  for (let j = 0; j < n; j += 1) {
    const begin = at + j * row;
    for (let i = 0; i < k; i += 1) numbers[begin + i] = transposed ? b[j * k + i] : b[i * n + j];
  }
  return { at, row, k, n };
}

/** @param {Product} product @param {Numbers} y @param {number} yAt @param {number} n @param {Numbers} a @param {number} aAt @param {number} k @param {number} m @param {number} at @param {number} row @returns {boolean} whether there was room */
function rowByRow(product, y, yAt, n, a, aAt, k, m, at, row) {
  if (!enough(roomA, filled(k)) || !enough(roomY, filled(n))) return false;
  const [from, to] = [roomA.at, roomY.at];
  numbers.fill(0, from + k, from + filled(k));
  const answer = numbers.subarray(to, to + n);
  for (let i = 0; i < m; i += 1) {
    numbers.set(a.subarray(aAt + i * k, aAt + i * k + k), from);
    product(4 * to, 4 * from, 4 * at, 4 * row, 4 * filled(k), 4 * filled(n));
    y.set(answer, yAt + i * n);
  }
  return true;
}

/** `m` rows of a times a weight. @param {Numbers} y @param {Numbers} a @param {number} m @param {Matrix} matrix */
export function timesWeight(y, a, m, { at, row, k, n }) {
  return rowByRow(program.dots, y, 0, n, a, 0, k, m, at, row);
}

/** Back from there: `m` rows of dy times the transposed weight. @param {Numbers} da @param {Numbers} dy @param {number} m @param {Matrix} matrix */
export function backThroughWeight(da, dy, m, { at, row, k, n }) {
  return rowByRow(program.mix, da, 0, k, dy, 0, n, m, at, row);
}

/** `m` rows of a times a matrix [k, n] that was just computed. @param {Numbers} y @param {number} yAt @param {Numbers} a @param {number} aAt @param {Numbers} b @param {number} bAt @param {number} m @param {number} k @param {number} n */
export function timesMatrix(y, yAt, a, aAt, b, bAt, m, k, n) {
  if (b.buffer === numbers.buffer && k % 4 === 0) return rowByRow(program.mix, y, yAt, n, a, aAt, k, m, b.byteOffset / 4 + bAt, n);
  if (!enough(roomB, filled(k) * n)) return false;
  numbers.set(b.subarray(bAt, bAt + k * n), roomB.at);
  numbers.fill(0, roomB.at + k * n, roomB.at + filled(k) * n);
  return rowByRow(program.mix, y, yAt, n, a, aAt, k, m, roomB.at, n);
}

/** Where it begins; what lies outside is copied; -1: there is no room. @param {Numbers} data @param {Room} own */
function addressOf(data, own) {
  if (data.buffer === numbers.buffer) return data.byteOffset;
  if (!enough(own, data.length)) return -1;
  numbers.set(data, own.at);
  return 4 * own.at;
}

/** Sums of matrices along their rows, if it pays and they lie here. @param {Numbers} y @param {Numbers} x @param {Runs} runs of y, by the places of x @returns {boolean} whether it was computed */
export function summed(y, x, { length, steps: [step], begins: [begins] }) {
  const rows = x.length / y.length, size = length * rows;
  if (x.buffer !== numbers.buffer || length < simd.stretch || step !== 1 || rows % 4 || begins.some((to, run) => to !== Math.floor(run / rows) * length)) return false;
  if (!enough(roomA, rows) || !enough(roomY, filled(length))) return false;
  numbers.fill(1, roomA.at, roomA.at + rows);
  for (let at = 0, from = x.byteOffset; at < y.length; at += length, from += 4 * size) {
    program.mix(4 * roomY.at, 4 * roomA.at, from, 4 * length, 4 * rows, 4 * filled(length));
    y.set(numbers.subarray(roomY.at, roomY.at + length), at);
  }
  return true;
}

const ARITHMETIC = ["Add", "Sub", "Mul", "Div"];

/** Arithmetic along stretches, if it pays and the result lies here. @param {string} op @param {Numbers} y @param {Numbers} a @param {Numbers} b @param {Runs} runs @returns {boolean} whether it was computed */
export function arithmetic(op, y, a, b, { length, steps: [s, t], begins: [as, bs] }) {
  if (y.buffer !== numbers.buffer || length < simd.stretch || s > 1 || t > 1) return false;
  const squared = op === "Pow" && b.length === 1 && b[0] === 2;
  const code = squared ? 2 : ARITHMETIC.indexOf(op);
  if (code < 0) return false;
  const left = addressOf(a, roomA), right = squared ? left : addressOf(b, roomB);
  if (left < 0 || right < 0) return false;
  for (let run = 0, at = y.byteOffset; run < as.length; run += 1, at += 4 * length) {
    const other = squared ? as[run] : bs[run];
    program.each(code, at, left + 4 * as[run], 16 * s, right + 4 * other, 16 * (squared ? s : t), 4 * length);
  }
  return true;
}
