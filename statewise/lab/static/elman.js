// @ts-check
/**
 * Elman's network with its gradients in closed form, as docs/derivations/bptt.md derives them:
 *
 *   a_t = b + W h_{t-1} + U x_t,   h_t = tanh a_t,   o_t = c + V h_t
 *   ∇o_t = softmax(o_t) - 1[y_t]  (classes)   or   o_t - y_t  (a value, loss ½ (o - y)²)
 *   ∇h_t = Vᵀ ∇o_t + Wᵀ diag(1 - h_{t+1}²) ∇h_{t+1}        without the second term at the last step and at a cut
 *
 * Matrices are stored row by row.
 */

/** @typedef {{U: Float64Array, W: Float64Array, b: Float64Array, V: Float64Array, c: Float64Array}} Weights */
/** @typedef {{inputs: number, width: number, outputs: number, weights: Weights}} Network */
/** `y`: a class, or a value; `counts`: whether the loss counts at a step.
 *  @typedef {{x: Float64Array[], y: number[], counts: boolean[]}} Sequence */
/** @typedef {"classes" | "value"} Loss */

export const NAMES = /** @type {const} */ (["U", "W", "b", "V", "c"]);

/** @param {number} inputs @param {number} width @param {number} outputs @param {() => number} next normal numbers @returns {Network} */
export function makeNetwork(inputs, width, outputs, next) {
  const drawn = (/** @type {number} */ rows, /** @type {number} */ columns) => Float64Array.from({ length: rows * columns }, () => next() / Math.sqrt(columns));
  return {
    inputs, width, outputs,
    weights: { U: drawn(width, inputs), W: drawn(width, width), b: new Float64Array(width), V: drawn(outputs, width), c: new Float64Array(outputs) },
  };
}

/** All weights as zeros. @param {Network} network @returns {Weights} */
export function zeros({ weights }) {
  const { U, W, b, V, c } = weights;
  return { U: new Float64Array(U.length), W: new Float64Array(W.length), b: new Float64Array(b.length), V: new Float64Array(V.length), c: new Float64Array(c.length) };
}

/** `to += M v`. @param {Float64Array} to @param {Float64Array} matrix @param {Float64Array} vector */
function addProduct(to, matrix, vector) {
  const columns = vector.length;
  for (let row = 0; row < to.length; row += 1) {
    let sum = 0;
    for (let column = 0; column < columns; column += 1) sum += matrix[row * columns + column] * vector[column];
    to[row] += sum;
  }
}

/** `to += Mᵀ v`. @param {Float64Array} to @param {Float64Array} matrix @param {Float64Array} vector */
function addTransposed(to, matrix, vector) {
  const columns = to.length;
  for (let row = 0; row < vector.length; row += 1)
    for (let column = 0; column < columns; column += 1) to[column] += matrix[row * columns + column] * vector[row];
}

/** `to += u vᵀ`. @param {Float64Array} to @param {Float64Array} u @param {Float64Array} v */
function addOuter(to, u, v) {
  for (let row = 0; row < u.length; row += 1)
    for (let column = 0; column < v.length; column += 1) to[row * v.length + column] += u[row] * v[column];
}

/** States h_1 … h_T and outputs o_1 … o_T, from h_0 = 0. @param {Network} network @param {Float64Array[]} x */
export function forward(network, x) {
  const { U, W, b, V, c } = network.weights, h = [], o = [];
  let before = new Float64Array(network.width);
  for (const input of x) {
    const state = Float64Array.from(b), output = Float64Array.from(c);
    addProduct(state, W, before);
    addProduct(state, U, input);
    for (let unit = 0; unit < state.length; unit += 1) state[unit] = Math.tanh(state[unit]);
    addProduct(output, V, state);
    h.push(state);
    o.push(output);
    before = state;
  }
  return { h, o };
}

/** @param {Float64Array} scores */
export function softmax(scores) {
  const most = Math.max(...scores), powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((total, one) => total + one, 0);
  return powers.map((one) => one / sum);
}

/**
 * Adds a sequence's gradient, times `scale`, to `into`, and returns its loss, summed over the steps that count.
 * @param {Network} network @param {Sequence} sequence @param {Loss} kind @param {number} cut steps between two cuts
 * @param {Weights} into @param {number} scale
 */
export function addGradient(network, sequence, kind, cut, into, scale) {
  const { W, V } = network.weights, { h, o } = forward(network, sequence.x), { width } = network;
  let loss = 0, back = new Float64Array(width);
  for (let t = h.length - 1; t >= 0; t -= 1) {
    const dOut = new Float64Array(o[t].length);
    if (sequence.counts[t]) {
      const y = sequence.y[t];
      if (kind === "classes") {
        const p = softmax(o[t]);
        loss -= Math.log(p[y]);
        for (let k = 0; k < p.length; k += 1) dOut[k] = scale * (p[k] - (k === y ? 1 : 0));
      } else {
        loss += 0.5 * (o[t][0] - y) ** 2;
        dOut[0] = scale * (o[t][0] - y);
      }
    }
    const dState = back;
    addTransposed(dState, V, dOut);
    addOuter(into.V, dOut, h[t]);
    for (let k = 0; k < dOut.length; k += 1) into.c[k] += dOut[k];
    const dSum = dState.map((value, unit) => value * (1 - h[t][unit] ** 2));
    for (let unit = 0; unit < width; unit += 1) into.b[unit] += dSum[unit];
    addOuter(into.U, dSum, sequence.x[t]);
    if (t > 0) addOuter(into.W, dSum, h[t - 1]);
    back = new Float64Array(width);
    if (t % cut !== 0) addTransposed(back, W, dSum);
  }
  return loss;
}

/** Mean loss and its gradient over a batch. @param {Network} network @param {Sequence[]} batch @param {Loss} kind @param {number} cut */
export function gradient(network, batch, kind, cut) {
  const into = zeros(network), steps = batch.reduce((sum, one) => sum + one.counts.filter(Boolean).length, 0);
  let loss = 0;
  for (const one of batch) loss += addGradient(network, one, kind, cut, into, 1 / steps);
  return { loss: loss / steps, gradient: into };
}

/** The norm of all gradients together. @param {Weights} gradients */
export function normOf(gradients) {
  return Math.sqrt(NAMES.reduce((sum, name) => sum + gradients[name].reduce((total, value) => total + value * value, 0), 0));
}

/** Scales gradients down to a norm; 0: never. Returns the norm that they had. @param {Weights} gradients @param {number} limit */
export function clip(gradients, limit) {
  const norm = normOf(gradients);
  if (limit > 0 && norm > limit) for (const name of NAMES) gradients[name].forEach((value, at) => { gradients[name][at] = (value * limit) / norm; });
  return norm;
}

/** Updates by SGD, or by Adam (Kingma and Ba 2015). @param {Network} network @param {"sgd" | "adam"} kind */
export function makeUpdate(network, kind) {
  const mean = zeros(network), square = zeros(network);
  let steps = 0;
  return (/** @type {Weights} */ gradients, /** @type {number} */ rate) => {
    steps += 1;
    for (const name of NAMES) {
      const weights = network.weights[name], g = gradients[name], m = mean[name], v = square[name];
      for (let at = 0; at < weights.length; at += 1) {
        if (kind === "sgd") weights[at] -= rate * g[at];
        else {
          m[at] = 0.9 * m[at] + 0.1 * g[at];
          v[at] = 0.999 * v[at] + 0.001 * g[at] * g[at];
          weights[at] -= (rate * (m[at] / (1 - 0.9 ** steps))) / (Math.sqrt(v[at] / (1 - 0.999 ** steps)) + 1e-8);
        }
      }
    }
  };
}
