// @ts-check
/** A Markov model: counts of what followed each context, smoothed. The same equations as `kernels/ngram/naive.py`. */

export class Markov {
  /**
   * Contexts are nodes of a tree: that of a context is found from its newest symbol to its oldest.
   * @param {{vocab: number, order: number, add: number | null, discounts: number[][], keys: number[], sizes: number[],
   *   symbols: number[], counts: number[]}} table `keys` and `sizes`: of each node, differences of keys, and followers
   */
  constructor(table) {
    this.vocab = table.vocab;
    this.order = table.order;
    this.add = table.add;
    this.discounts = table.discounts;
    this.symbols = table.symbols;
    this.counts = table.counts;
    /** @type {Map<number, number>} */
    this.node = new Map();
    this.start = new Int32Array(table.sizes.length + 1);
    let key = 0;
    table.keys.forEach((difference, node) => {
      key += difference;
      this.node.set(key, node);
      this.start[node + 1] = this.start[node] + table.sizes[node];
    });
  }

  /** The node of the newest `length` symbols; -1 if they were never seen together. @param {ArrayLike<number>} context @param {number} length */
  find(context, length) {
    let node = 0;
    for (let back = 1; back <= length; back += 1) {
      const next = this.node.get(node * (this.vocab + 1) + context[context.length - back]);
      if (next === undefined) return -1;
      node = next;
    }
    return this.start[node + 1] > this.start[node] ? node : -1;
  }

  /**
   * The distribution after a context, of which at most the newest `longest` symbols are taken into account; and how many were
   * found. @param {ArrayLike<number>} context @param {number} [longest] @returns {{known: number, p: Float64Array}}
   */
  distribution(context, longest = this.order) {
    const p = new Float64Array(this.vocab);
    let known = 0;
    if (this.add !== null) {
      const node = this.find(context, longest);
      let total = 0;
      for (let k = longest; k > 0 && known === 0; k -= 1) if (this.find(context, k) >= 0) known = k;
      p.fill(this.add);
      if (node >= 0)
        for (let g = this.start[node]; g < this.start[node + 1]; g += 1) {
          p[this.symbols[g]] += this.counts[g];
          total += this.counts[g];
        }
      for (let v = 0; v < p.length; v += 1) p[v] /= total + this.add * this.vocab;
      return { known, p };
    }
    p.fill(1 / this.vocab);
    for (let k = 0; k <= longest; k += 1) {
      const node = this.find(context, k);
      if (node < 0) continue;
      known = k;
      let total = 0;
      let taken = 0;
      for (let g = this.start[node]; g < this.start[node + 1]; g += 1) {
        total += this.counts[g];
        taken += this.discounts[k][Math.min(this.counts[g], 3) - 1];
      }
      for (let v = 0; v < p.length; v += 1) p[v] *= taken / total;
      for (let g = this.start[node]; g < this.start[node + 1]; g += 1)
        p[this.symbols[g]] += (this.counts[g] - this.discounts[k][Math.min(this.counts[g], 3) - 1]) / total;
    }
    return { known, p };
  }
}
