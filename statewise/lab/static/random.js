// @ts-check
/** Random numbers from a seed: the same picture every time. */

/** Uniform numbers in (0, 1): Marsaglia's xorshift with 32 bits (2003). @param {number} seed @returns {() => number} */
export function uniform(seed) {
  let state = Math.imul(seed + 1, 0x9e3779b1) || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

/** Normal numbers of mean 0 and variance 1 (Box and Muller 1958). @param {number} seed @returns {() => number} */
export function normal(seed) {
  const next = uniform(seed);
  return () => Math.sqrt(-2 * Math.log(next())) * Math.cos(2 * Math.PI * next());
}
