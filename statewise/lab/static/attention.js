// @ts-check
/** The scores and alignments of the package (statewise/layers/score.py, alignment.py), for one query. */

/** @typedef {Record<string, any>} Weights as nested lists, by the package's names */

/** @param {number[]} u @param {number[]} v */
const dot = (u, v) => u.reduce((sum, value, at) => sum + value * v[at], 0);
/** @param {number[][]} matrix @param {number[]} v */
const times = (matrix, v) => matrix.map((row) => dot(row, v));
/** @param {number[]} v */
const unit = (v) => {
  const size = Math.max(Math.hypot(...v), 1e-12);
  return v.map((value) => value / size);
};

/** @param {number[]} scores */
export function softmaxOf(scores) {
  const most = Math.max(...scores), powers = scores.map((score) => Math.exp(score - most));
  const sum = powers.reduce((total, one) => total + one, 0);
  return powers.map((one) => one / sum);
}

/** How well each key answers a query. @param {string} kind @param {Weights} weights @param {number[]} query @param {number[][]} keys @returns {number[]} */
export function score(kind, weights, query, keys) {
  switch (kind) {
    case "dot":
      return keys.map((key) => dot(query, key));
    case "scaled_dot":
      return keys.map((key) => dot(query, key) / Math.sqrt(key.length));
    case "cosine":
      return keys.map((key) => weights.sharpness * dot(unit(query), unit(key)));
    case "general":
      return keys.map((key) => dot(query, times(weights.w_QK, key)));
    case "additive":
    case "concat": {
      const asked = times(weights.w_AQ, query);
      return keys.map((key) => {
        const there = times(weights.u_AK, key);
        return dot(weights.v_A, asked.map((value, at) => Math.tanh(value + there[at] + (weights.b_A ? weights.b_A[at] : 0))));
      });
    }
    case "location":
      return keys.map((_, place) => dot(weights.w_LQ[place], query));
    default:
      throw new Error(`${kind} is not a score`);
  }
}

/** Softmax over what is allowed. @param {number[]} scores @param {(place: number) => boolean} allowed */
function masked(scores, allowed) {
  const places = scores.flatMap((_, place) => (allowed(place) ? [place] : []));
  const found = scores.map(() => 0);
  if (places.length) softmaxOf(places.map((place) => scores[place])).forEach((weight, at) => { found[places[at]] = weight; });
  return found;
}

/** The nearest point of the simplex. @param {number[]} scores */
function sparsemax(scores) {
  const sorted = [...scores].sort((a, b) => b - a);
  let sum = 0, tau = 0;
  sorted.forEach((value, at) => {
    sum += value;
    if (1 + (at + 1) * value > sum) tau = (sum - 1) / (at + 1);
  });
  return scores.map((value) => Math.max(value - tau, 0));
}

/**
 * From scores to weights. `position`: the query's own; `reach`: of the local forms.
 * @param {string} kind @param {Weights} weights @param {number[]} scores @param {number[]} query @param {number} position @param {number} reach @returns {number[]}
 */
export function align(kind, weights, scores, query, position, reach) {
  const last = scores.length - 1;
  switch (kind) {
    case "soft":
      return masked(scores, () => true);
    case "sparsemax":
      return sparsemax(scores);
    case "local_monotonic":
      return masked(scores, (place) => Math.abs(place - Math.min(position, last)) <= reach);
    case "local_predictive": {
      const centre = predictedCentre(weights, query, last);
      return masked(scores, (place) => Math.abs(place - centre) <= reach).map((weight, place) => weight * Math.exp(-2 * ((place - centre) / reach) ** 2));
    }
    case "hard": {
      const best = scores.indexOf(Math.max(...scores));
      return scores.map((_, place) => (place === best ? 1 : 0));
    }
    default:
      throw new Error(`${kind} is not an alignment`);
  }
}

/** @param {Weights} weights @param {number[]} query @param {number} last */
export function predictedCentre(weights, query, last) {
  return last / (1 + Math.exp(-dot(weights.v_Q, times(weights.w_QQ, query).map(Math.tanh))));
}

/**
 * @typedef {{source: string, target: string, kind: number, which: number}} Word
 * @typedef {{words: Word[], kinds: string[], start: string[], wanted: number[][], query: number, sharpness: number, output: number,
 *   end: number, reach: number, scores: Record<string, Weights>, alignments: Record<string, Weights>}} Phrase
 * @typedef {{query: number[], computed: number[], scores: number[], weights: number[], context: number[], before: number[],
 *   state: number[], probabilities: number[], best: number}} Look
 */

/** The state of a source word: its kind, and which of that kind. @param {Word} word @param {number} kinds */
export function encoded(word, kinds) {
  const state = Array.from({ length: 2 * kinds }, () => 0);
  state[word.kind] = 1;
  state[kinds + word.which] = 1;
  return state;
}

/**
 * The whole decoding: at each target position the six steps. `changed`: scores that a reader set, by position and place.
 * @param {Phrase} phrase @param {Word[]} source @param {{score: string, alignment: string, reach: number}} chosen
 * @param {Map<string, number>} changed @param {number} longest @returns {Look[]}
 */
export function decode(phrase, source, chosen, changed, longest) {
  const kinds = phrase.kinds.length, keys = source.map((word) => encoded(word, kinds)), looks = [];
  let before = [1, ...phrase.kinds.map(() => 0)]; // a determiner is wanted first
  for (let position = 0; position < longest; position += 1) {
    const query = [...before.slice(0, kinds).map((value) => phrase.query * value), ...phrase.kinds.map(() => 0)];
    const computed = score(chosen.score, phrase.scores[chosen.score], query, keys);
    const scores = computed.map((value, place) => changed.get(`${position} ${place}`) ?? value);
    const weights = align(chosen.alignment, phrase.alignments[chosen.alignment], scores, query, position, chosen.reach);
    const context = Array.from({ length: 2 * kinds }, (_, at) => weights.reduce((sum, weight, place) => sum + weight * keys[place][at], 0));
    const read = softmaxOf(context.slice(0, kinds).map((value) => phrase.sharpness * value));
    const state = before.map((_, at) => read.reduce((sum, share, kind) => sum + share * phrase.wanted[kind][at], 0));
    const logits = [...phrase.words.map((word) => phrase.output * (context[word.kind] + context[kinds + word.which])), phrase.end * before[kinds]];
    const probabilities = softmaxOf(logits), best = probabilities.indexOf(Math.max(...probabilities));
    looks.push({ query, computed, scores, weights, context, before, state, probabilities, best });
    if (best === phrase.words.length) break;
    before = state;
  }
  return looks;
}
