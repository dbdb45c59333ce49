// @ts-check
/** Products, arithmetic and curves by WebAssembly, four float32 at a time. Where a browser has none, `product.js` and `operator.js` compute all. */

import { bytesFrom } from "./tensor.js";

/** @typedef {import("./tensor.js").Numbers} Numbers */
/** @typedef {import("./tensor.js").Runs} Runs */
/** A weight in the memory of WebAssembly: `n` rows of `k` numbers and zeros, `row` numbers apart. @typedef {{at: number, row: number, k: number, n: number}} Matrix */
/** A place in that memory, which may be written again. @typedef {{at: number, size: number}} Room */
/** @typedef {(y: number, a: number, b: number, row: number, k: number, n: number) => void} Product */
/** @typedef {(op: number, y: number, a: number, s: number, b: number, t: number, n: number) => void} Each */
/** @typedef {(op: number, y: number, a: number, n: number) => void} Curve */
/** @typedef {{dots: Product, mix: Product, each: Each, curve: Curve, memory: WebAssembly.Memory}} Program */

/** `simd.wat`, assembled. */
const CODE = `
AGFzbQEAAAABIARgBn9/f39/fwBgB39/f39/f38AYAF7AXtgBH9/f38AAg8BA2xhYgZtZW1vcnkCAAEDBgUAAAECAwcdBARkb3RzAAADbWl4AAEEZWFjaAACBWN1cnZl
AAQKngkFkwMCA38FeyAAIAVqIQgDQP0MAAAAAAAAAAAAAAAAAAAAACEK/QwAAAAAAAAAAAAAAAAAAAAAIQv9DAAAAAAAAAAAAAAAAAAAAAAhDP0MAAAAAAAAAAAAAAAA
AAAAACENQQAhBgNAIAEgBmr9AAQAIQkgAiAGaiEHIAogCSAH/QAEAP3mAf3kASEKIAcgA2ohByALIAkgB/0ABAD95gH95AEhCyAHIANqIQcgDCAJIAf9AAQA/eYB/eQB
IQwgByADaiEHIA0gCSAH/QAEAP3mAf3kASENIAZBEGohBiAGIARJDQALIAogC/0NAAECAxAREhMEBQYHFBUWFyAKIAv9DQgJCgsYGRobDA0ODxwdHh/95AEhCiAMIA39
DQABAgMQERITBAUGBxQVFhcgDCAN/Q0ICQoLGBkaGwwNDg8cHR4f/eQBIQwgACAKIAz9DQABAgMEBQYHEBESExQVFhcgCiAM/Q0ICQoLDA0ODxgZGhscHR4f/eQB/QsE
ACACIANBAnRqIQIgAEEQaiEAIAAgCEkNAAsLxwECBH8EeyABIARqIQkgAEEAIAX8CwADQCAB/QkCACEKIAH9CQIEIQsgAf0JAgghDCAB/QkCDCENQQAhBgNAIAIgBmoh
ByAHIANBAXRqIQggACAGaiAAIAZq/QAEACAKIAf9AAQA/eYBIAsgByADav0ABAD95gH95AEgDCAI/QAEAP3mASANIAggA2r9AAQA/eYB/eQB/eQB/eQB/QsEACAGQRBq
IQYgBiAFSQ0ACyACIANBAnRqIQIgAUEQaiEBIAEgCUkNAAsLkAECAX8CeyAC/QkCACEIIAT9CQIAIQkgASAGaiEHA0AgAwRAIAL9AAQAIQgLIAUEQCAE/QAEACEJCyAB
IABBAkkEeyAABHsgCCAJ/eUBBSAIIAn95AELBSAAQQJGBHsgCCAJ/eYBBSAIIAn95wELC/0LBAAgAiADaiECIAQgBWohBCABQRBqIQEgASAHSQ0ACwv3AQECeyAAQwAA
rsL9E/3pAUMAALBC/RP96AEhACAAQzuquD/9E/3mAf1qIQEgACABQwCAMT/9E/3mAf3lASEAIAAgAUODgF45/RP95gH95AEhAEMBDVA5/RMhAiACIAD95gFDYQu2Ov0T
/eQBIQIgAiAA/eYBQ4mICDz9E/3kASECIAIgAP3mAUOrqio9/RP95AEhAiACIAD95gFDq6oqPv0T/eQBIQIgAiAA/eYBQwAAAD/9E/3kASECIAIgAP3mASAA/eYBIAD9
5AEhAiAB/fgBQf8A/RH9rgFBF/2rASEBIAEgAv3mASABQwAAgD/9E/3lAf3kAQuyAQIBfwJ7IAEgA2ohBANAIAL9AAQAIQUgAEEBRgRAIAUgBf3kARADIQYgBiAGQwAA
AED9E/3kAf3nASEGBSAF/eEBIQYgAARAIAZDKkLMP/0TIAUgBf3mAUN5IpI9/RP95gH95AH95gEhBgtDAACAP/0TIAYQA0MAAABA/RP95AH95wEhBiAABEAgBiAF/eYB
IQYLCyABIAb9CwQAIAJBEGohAiABQRBqIQEgASAESQ0ACws=`;
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
export const simd = program ? { product: 400, stretch: 32, result: 64 } : { product: Infinity, stretch: Infinity, result: Infinity };

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

/** The products of `m` rows of a, `k` numbers apart, of which the first `used` meet the matrix. @param {Product} product @param {Numbers} y @param {number} yAt @param {number} n @param {Numbers} a @param {number} aAt @param {number} k @param {number} used @param {number} m @param {number} at @param {number} row @returns {boolean} whether there was room */
function rowByRow(product, y, yAt, n, a, aAt, k, used, m, at, row) {
  if (!enough(roomA, filled(used)) || !enough(roomY, filled(n))) return false;
  const [copied, elsewhere] = [a.buffer !== numbers.buffer || used % 4 > 0, y.buffer !== numbers.buffer];
  const answer = elsewhere ? numbers.subarray(roomY.at, roomY.at + n) : null;
  if (copied) numbers.fill(0, roomA.at + used, roomA.at + filled(used));
  for (let i = 0; i < m; i += 1) {
    // What a row is longer by than n is written again by the next row, or lies behind the last one.
    const begin = aAt + i * k, end = yAt + i * n;
    if (copied) numbers.set(used === a.length ? a : a.subarray(begin, begin + used), roomA.at);
    product(answer ? 4 * roomY.at : y.byteOffset + 4 * end, copied ? 4 * roomA.at : a.byteOffset + 4 * begin, 4 * at, 4 * row, 4 * filled(used), 4 * filled(n));
    if (answer) y.set(answer, end);
  }
  return true;
}

/** `m` rows of a times a weight. @param {Numbers} y @param {Numbers} a @param {number} m @param {Matrix} matrix */
export function timesWeight(y, a, m, { at, row, k, n }) {
  return rowByRow(program.dots, y, 0, n, a, 0, k, k, m, at, row);
}

/** Back from there: `m` rows of dy times the transposed weight. @param {Numbers} da @param {Numbers} dy @param {number} m @param {Matrix} matrix */
export function backThroughWeight(da, dy, m, { at, row, k, n }) {
  return rowByRow(program.mix, da, 0, k, dy, 0, n, n, m, at, row);
}

/**
 * `m` rows of a times a matrix [k, n] that was just computed: its rows lie `down` numbers apart, its columns `across`.
 * @param {Numbers} y @param {number} yAt @param {Numbers} a @param {number} aAt @param {Numbers} b @param {number} bAt
 * @param {number} m @param {number} k @param {number} n @param {number} down @param {number} across
 * @returns {boolean} whether it was computed
 */
export function timesMatrix(y, yAt, a, aAt, b, bAt, m, k, n, down, across) {
  const inRows = across === 1;
  if (!inRows && (down !== 1 || k % 4)) return false;
  const size = (k - 1) * down + (n - 1) * across + 1, here = b.buffer === numbers.buffer;
  if (!here && !enough(roomB, size + (inRows ? 0 : 4 * across))) return false;
  const at = here ? b.byteOffset / 4 + bAt : roomB.at;
  if (at + size + 4 * across > numbers.length) return false;
  if (!here) numbers.set(b.subarray(bAt, bAt + size), at);
  if (!inRows) return rowByRow(program.dots, y, yAt, n, a, aAt, k, k, m, at, across);
  const used = k & -4; // four rows at once; those that are left are added one by one
  if (!used || !rowByRow(program.mix, y, yAt, n, a, aAt, k, used, m, at, down)) return false;
  for (let row = 0; row < m; row += 1)
    for (let i = used; i < k; i += 1) {
      const scale = a[aAt + row * k + i], from = at + i * down, to = yAt + row * n;
      for (let j = 0; j < n; j += 1) y[to + j] += scale * numbers[from + j];
    }
  return true;
}

/** Where it begins; what lies outside is copied; -1: there is no room. @param {Numbers} data @param {Room} own */
function addressOf(data, own) {
  if (data.buffer === numbers.buffer) return data.byteOffset;
  if (!enough(own, data.length)) return -1;
  numbers.set(data, own.at);
  return 4 * own.at;
}

/** Sums of what lies here, if it pays: of matrices along their rows, or of stretches. @param {Numbers} y @param {Numbers} x @param {Runs} runs of y, by the places of x @returns {boolean} whether it was computed */
export function summed(y, x, { length, steps: [step], begins: [begins] }) {
  if (x.buffer !== numbers.buffer || length < simd.stretch) return false;
  if (step === 0 && length % 64 === 0 && begins.length === y.length && enough(roomA, length / 16) && enough(roomY, 16)) {
    const part = length / 16; // sixteen sums, which are added in double precision
    numbers.fill(1, roomA.at, roomA.at + part);
    for (let run = 0; run < begins.length; run += 1) {
      program.dots(4 * roomY.at, 4 * roomA.at, x.byteOffset + 4 * run * length, 4 * part, 4 * part, 64);
      let sum = 0;
      for (let i = 0; i < 16; i += 1) sum += numbers[roomY.at + i];
      y[begins[run]] = sum;
    }
    return true;
  }
  const rows = x.length / y.length, size = length * rows;
  if (step !== 1 || rows % 4 || begins.some((to, run) => to !== Math.floor(run / rows) * length)) return false;
  if (!enough(roomA, rows) || !enough(roomY, filled(length))) return false;
  numbers.fill(1, roomA.at, roomA.at + rows);
  for (let at = 0, from = x.byteOffset; at < y.length; at += length, from += 4 * size) {
    program.mix(4 * roomY.at, 4 * roomA.at, from, 4 * length, 4 * rows, 4 * filled(length));
    y.set(numbers.subarray(roomY.at, roomY.at + length), at);
  }
  return true;
}

const CURVES = ["Sigmoid", "Tanh", "GeluTanh"];

/** A curve, if the result lies here. @param {string} op @param {Numbers} y @param {Numbers} x @returns {boolean} whether it was computed */
export function curved(op, y, x) {
  const code = CURVES.indexOf(op);
  if (code < 0 || y.buffer !== numbers.buffer) return false;
  const at = addressOf(x, roomA);
  if (at >= 0) program.curve(code, y.byteOffset, at, 4 * filled(y.length));
  return at >= 0;
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
