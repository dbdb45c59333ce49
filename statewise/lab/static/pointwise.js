// @ts-check
/** Functions of single numbers, as ONNX defines them, each with its derivative. */

const ROOT_HALF = Math.SQRT1_2;
const TANH_SCALE = Math.sqrt(2 / Math.PI);

/** The error function to 1e-15: a series near 0, a continued fraction elsewhere. @param {number} x @returns {number} */
export function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < 2.5) {
    let term = size;
    let sum = size;
    for (let n = 1; Math.abs(term) > 1e-17 * sum; n += 1) {
      term *= (-size * size) / n;
      sum += term / (2 * n + 1);
    }
    return (Math.sign(x) * 2 * sum) / Math.sqrt(Math.PI);
  }
  let tail = 0;
  for (let n = 60; n > 0; n -= 1) tail = n / 2 / (size + tail);
  return Math.sign(x) * (1 - Math.exp(-size * size) / (Math.sqrt(Math.PI) * (size + tail)));
}

const sigmoid = (/** @type {number} */ x) => (x >= 0 ? 1 / (1 + Math.exp(-x)) : Math.exp(x) / (1 + Math.exp(x)));
const softplus = (/** @type {number} */ x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
const normal = (/** @type {number} */ x) => Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI);
const gelu = (/** @type {number} */ x) => 0.5 * x * (1 + erf(x * ROOT_HALF));
const fastGelu = (/** @type {number} */ x) => 0.5 * x * (1 + Math.tanh(TANH_SCALE * (x + 0.044715 * x * x * x)));
const fastSlope = (/** @type {number} */ x) => {
  const t = Math.tanh(TANH_SCALE * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * TANH_SCALE * (1 + 3 * 0.044715 * x * x);
};

/** Of one number, with its derivative by `(x, y)`; null: it has none. @type {Record<string, [(x: number) => number, ((x: number, y: number) => number) | null]>} */
export const UNARY = {
  Abs: [Math.abs, (x) => Math.sign(x)],
  Ceil: [Math.ceil, null],
  Cos: [Math.cos, (x) => -Math.sin(x)],
  Elu: [(x) => (x > 0 ? x : Math.expm1(x)), (x, y) => (x > 0 ? 1 : y + 1)],
  Erf: [erf, (x) => (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x)],
  Exp: [Math.exp, (_, y) => y],
  Floor: [Math.floor, null],
  Gelu: [gelu, (x) => 0.5 * (1 + erf(x * ROOT_HALF)) + x * normal(x)],
  GeluTanh: [fastGelu, fastSlope],
  IsNaN: [(x) => Number(Number.isNaN(x)), null],
  Log: [Math.log, (x) => 1 / x],
  Neg: [(x) => -x, () => -1],
  Not: [(x) => 1 - x, null],
  Reciprocal: [(x) => 1 / x, (_, y) => -y * y],
  Relu: [(x) => (x > 0 ? x : 0), (x) => Number(x > 0)],
  Sigmoid: [sigmoid, (_, y) => y * (1 - y)],
  Sign: [Math.sign, null],
  Sin: [Math.sin, (x) => Math.cos(x)],
  Softplus: [softplus, sigmoid],
  Sqrt: [Math.sqrt, (_, y) => 0.5 / y],
  Tanh: [Math.tanh, (_, y) => 1 - y * y],
};

/** Of two numbers, with both derivatives by `(a, b, y)`. @type {Record<string, [(a: number, b: number) => number, (((a: number, b: number, y: number) => number)[]) | null]>} */
export const BINARY = {
  Add: [(a, b) => a + b, [() => 1, () => 1]],
  And: [(a, b) => a & b, null],
  Div: [(a, b) => a / b, [(_, b) => 1 / b, (_, b, y) => -y / b]],
  Equal: [(a, b) => Number(a === b), null],
  Greater: [(a, b) => Number(a > b), null],
  GreaterOrEqual: [(a, b) => Number(a >= b), null],
  Less: [(a, b) => Number(a < b), null],
  LessOrEqual: [(a, b) => Number(a <= b), null],
  Max: [Math.max, [(a, b) => (a > b ? 1 : a === b ? 0.5 : 0), (a, b) => (b > a ? 1 : a === b ? 0.5 : 0)]],
  Min: [Math.min, [(a, b) => (a < b ? 1 : a === b ? 0.5 : 0), (a, b) => (b < a ? 1 : a === b ? 0.5 : 0)]],
  Mul: [(a, b) => a * b, [(_, b) => b, (a) => a]],
  Or: [(a, b) => a | b, null],
  Pow: [(a, b) => (b === 2 ? a * a : a ** b), [(a, b) => b * a ** (b - 1), (a, _, y) => (y === 0 ? 0 : y * Math.log(a))]],
  Sub: [(a, b) => a - b, [() => 1, () => -1]],
};
