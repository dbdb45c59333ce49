// @ts-check
/** What a small network can be trained on in the page: parity, recall, a sine. */

/** @typedef {import("./elman.js").Sequence} Sequence */
/**
 * `floor`: the loss of an answer that ignores the input.
 * @typedef {{inputs: number, outputs: number, loss: import("./elman.js").Loss, steps: number, floor: number,
 *   draw: (next: () => number) => Sequence}} Exercise
 */

const SYMBOLS = 4, ASK = SYMBOLS, BLANK = SYMBOLS + 1;
const PERIOD = 11; // steps of the sine's circle, roughly

/** @param {number} size @param {number} at */
function oneHot(size, at) {
  const vector = new Float64Array(size);
  vector[at] = 1;
  return vector;
}

/** @type {Record<"parity" | "recall" | "sine", Exercise>} */
export const EXERCISES = {
  /** Bits; at each step: is the number of ones so far odd? */
  parity: {
    inputs: 1, outputs: 2, loss: "classes", steps: 10, floor: Math.log(2),
    draw: (next) => {
      const bits = Array.from({ length: 10 }, () => (next() < 0.5 ? 0 : 1));
      let odd = 0;
      return { x: bits.map((bit) => Float64Array.of(2 * bit - 1)), y: bits.map((bit) => (odd ^= bit)), counts: bits.map(() => true) };
    },
  },
  /** A symbol, blanks, a question: which symbol was it? */
  recall: {
    inputs: SYMBOLS + 2, outputs: SYMBOLS, loss: "classes", steps: 20, floor: Math.log(SYMBOLS),
    draw: (next) => {
      const symbol = Math.floor(next() * SYMBOLS), x = Array.from({ length: 20 }, () => oneHot(SYMBOLS + 2, BLANK));
      x[0] = oneHot(SYMBOLS + 2, symbol);
      x[19] = oneHot(SYMBOLS + 2, ASK);
      return { x, y: x.map(() => symbol), counts: x.map((_, at) => at === 19) };
    },
  },
  /** The next value of a sine of some phase and frequency. */
  sine: {
    inputs: 1, outputs: 1, loss: "value", steps: 24, floor: 0.25,
    draw: (next) => {
      const phase = 2 * Math.PI * next(), speed = (2 * Math.PI) / (PERIOD * (0.8 + 0.4 * next()));
      const wave = Array.from({ length: 25 }, (_, at) => Math.sin(phase + speed * at));
      return { x: wave.slice(0, -1).map((value) => Float64Array.of(value)), y: wave.slice(1), counts: wave.slice(1).map(() => true) };
    },
  },
};
