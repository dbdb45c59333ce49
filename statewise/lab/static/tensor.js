// @ts-check
/** Tensors as typed arrays: what each number means is in `dims`, the last axis fastest. */

/** @typedef {"f" | "i" | "b"} Kind */
/** @typedef {Float32Array | Float64Array | Uint8Array} Numbers */
/** `f` float32, `i` int64 (held as doubles, exact to 2^53), `b` booleans; `strides`: where numbers are not in the order of dims. @typedef {{kind: Kind, dims: number[], data: Numbers, strides?: number[]}} Tensor */

const BYTES = { f: 4, i: 8, b: 1 };

/** @param {Kind} kind @param {number} size @returns {Numbers} */
export function numbers(kind, size) {
  return kind === "f" ? new Float32Array(size) : kind === "i" ? new Float64Array(size) : new Uint8Array(size);
}

/** @param {number[]} dims */
export function count(dims) {
  let size = 1;
  for (const dim of dims) size *= dim;
  return size;
}

/** @param {{kind: Kind, dims: number[], data: (number | string)[]}} record @returns {Tensor} */
export function tensorFrom({ kind, dims, data }) {
  const made = numbers(kind, data.length);
  const word = { inf: Infinity, "-inf": -Infinity, nan: NaN };
  for (let i = 0; i < data.length; i += 1) {
    const value = data[i];
    made[i] = typeof value === "number" ? value : word[/** @type {keyof typeof word} */ (value)];
  }
  return { kind, dims, data: made };
}

/** @param {Tensor} tensor @returns {Tensor} */
export function copyOf(tensor) {
  return { kind: tensor.kind, dims: tensor.dims.slice(), data: tensor.data.slice() };
}

/** Bytes in PyTorch: 4 for a float, 8 for a whole number. @param {Tensor} tensor */
export function bytesOf(tensor) {
  return count(tensor.dims) * BYTES[tensor.kind];
}

/** @param {number[]} a @param {number[]} b */
export function sameDims(a, b) {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i += 1) if (a[i] !== b[i]) return false;
  return true;
}

/** @param {number[]} dims @returns {number[]} */
export function stridesOf(dims) {
  const strides = new Array(dims.length);
  let stride = 1;
  for (let axis = dims.length - 1; axis >= 0; axis -= 1) {
    strides[axis] = stride;
    stride *= dims[axis];
  }
  return strides;
}

/** The dims that two broadcast to. @param {number[]} a @param {number[]} b @returns {number[]} */
export function broadcast(a, b) {
  const rank = Math.max(a.length, b.length);
  const dims = new Array(rank);
  for (let i = 1; i <= rank; i += 1) {
    const left = i <= a.length ? a[a.length - i] : 1;
    const right = i <= b.length ? b[b.length - i] : 1;
    if (left !== right && left !== 1 && right !== 1) throw new Error(`cannot broadcast [${a}] and [${b}]`);
    dims[rank - i] = left === 1 ? right : left;
  }
  return dims;
}

/**
 * Where each number of a result comes from: `offset + Σ index·stride` over the axes of `dims`.
 * @param {number[]} dims @param {number[]} strides @param {number} [offset] @returns {Int32Array}
 */
export function places(dims, strides, offset = 0) {
  const size = count(dims);
  const map = new Int32Array(size);
  const rank = dims.length;
  const index = new Int32Array(rank);
  let at = offset;
  for (let i = 0; i < size; i += 1) {
    map[i] = at;
    for (let axis = rank - 1; axis >= 0; axis -= 1) {
      index[axis] += 1;
      at += strides[axis];
      if (index[axis] < dims[axis]) break;
      at -= strides[axis] * dims[axis];
      index[axis] = 0;
    }
  }
  return map;
}

/** How far apart the numbers of a tensor lie along the axes that it is broadcast to: 0 where one stands for all. @param {number[]} from @param {number[]} to */
export function sharedStrides(from, to) {
  const strides = stridesOf(from);
  const lead = to.length - from.length;
  return to.map((_, axis) => (axis < lead || from[axis - lead] === 1 ? 0 : strides[axis - lead]));
}

/** The places of a tensor of `from` in one that it is broadcast to. @param {number[]} from @param {number[]} to */
export function spread(from, to) {
  return places(to, sharedStrides(from, to));
}

/**
 * A result as stretches of `length` numbers: for each input, where each stretch begins, and the step along it.
 * @typedef {{length: number, steps: number[], begins: Int32Array[]}} Runs
 */

/** The longest stretches along which every input keeps one step. @param {number[]} dims @param {number[][]} strides of each input @param {number} [offset] @returns {Runs} */
export function runsOf(dims, strides, offset = 0) {
  /** @type {number[]} */
  const sizes = [];
  const kept = strides.map(() => /** @type {number[]} */ ([]));
  dims.forEach((size, axis) => {
    if (size === 1) return;
    const last = sizes.length - 1;
    const goesOn = last >= 0 && strides.every((own, i) => kept[i][last] === own[axis] * size);
    if (goesOn) sizes[last] *= size;
    else sizes.push(size);
    kept.forEach((own, i) => (goesOn ? (own[last] = strides[i][axis]) : own.push(strides[i][axis])));
  });
  const length = sizes.pop() ?? 1;
  const steps = kept.map((own) => own.pop() ?? 0);
  return { length, steps, begins: kept.map((own) => places(sizes, own, offset)) };
}

/** @param {string} text @returns {Uint8Array} */
export function bytesFrom(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i += 1) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** Weights in base64: float32, or float16, of which few browsers know a type. @param {{kind: string, data: string}} weights @returns {Float32Array} */
export function decoded({ kind, data }) {
  const bytes = bytesFrom(data);
  if (kind === "f4") return new Float32Array(bytes.buffer);
  const halves = new Uint16Array(bytes.buffer);
  const values = new Float32Array(halves.length);
  for (let i = 0; i < halves.length; i += 1) {
    const half = halves[i];
    const exponent = (half >> 10) & 31;
    const fraction = half & 1023;
    const size =
      exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? (fraction ? NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15);
    values[i] = half & 0x8000 ? -size : size;
  }
  return values;
}
