// @ts-check
/** Text to tokens and back, by the run's own tokenizer: characters, bytes, words, or byte-level BPE. */

/** A token and the part of the text that it stands for. @typedef {{id: number, text: string}} Piece */
/**
 * `kind`: char, byte, word or bpe. `tokens[id]` is its text (of bpe, in the alphabet of bytes); `split`: a regular
 * expression whose matches are words; `unspaced`: signs that no space parts. @typedef {{kind: string, tokens: string[], unknown: number | null, end: number,
 * lower: boolean, merges?: string[], split?: string, unspaced?: string}} TokenizerRecord
 */

const MARK = "\ufffd";

/** The letter that stands for each byte in BPE's alphabet. */
function byteLetters() {
  const printable = new Set();
  for (const [from, to] of [[33, 126], [161, 172], [174, 255]]) for (let byte = from; byte <= to; byte += 1) printable.add(byte);
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(printable.has(byte) ? byte : next++));
}

export class Tokenizer {
  /** @param {TokenizerRecord} record */
  constructor(record) {
    this.record = record;
    this.size = record.tokens.length;
    this.unknown = record.unknown;
    this.end = record.end;
    /** @type {Map<string, number>} */
    this.id = new Map();
    record.tokens.forEach((token, id) => {
      if (!this.id.has(token)) this.id.set(token, id);
    });
    this.letters = record.kind === "bpe" || record.kind === "byte" ? byteLetters() : [];
    /** @type {Map<string, number>} */
    this.byte = new Map(this.letters.map((letter, byte) => [letter, byte]));
    /** @type {Map<string, number>} */
    this.rank = new Map((record.merges || []).map((pair, rank) => [pair, rank]));
  }

  /** @param {string} text @returns {number[]} */
  encode(text) {
    return this.pieces(text).map((piece) => piece.id);
  }

  /** The tokens of a text, each with its part of the text. @param {string} text @returns {Piece[]} */
  pieces(text) {
    const given = this.record.lower ? text.toLowerCase() : text;
    switch (this.record.kind) {
      case "char":
        return Array.from(given, (letter) => this.piece(letter, letter));
      case "byte":
        return Array.from(given).flatMap((letter) => this.alphabet(letter).map((one, i) => this.piece(one, i ? "" : letter)));
      case "word":
        return Array.from(given.matchAll(new RegExp(this.record.split || "\\S+", "gu")), ([word]) => this.piece(word, word));
      default:
        return Array.from(given.matchAll(new RegExp(this.record.split || "[^]+", "gu"))).flatMap(([word]) => this.merged(word));
    }
  }

  /** @param {string} token @param {string} text @returns {Piece} */
  piece(token, text) {
    const id = this.id.get(token);
    return { id: id === undefined ? this.unknown ?? this.end : id, text };
  }

  /** A text in the alphabet of bytes. @param {string} text */
  alphabet(text) {
    return Array.from(new TextEncoder().encode(text), (byte) => this.letters[byte]);
  }

  /** The pairs that were merged first in training are merged first. @param {string} word @returns {Piece[]} */
  merged(word) {
    const parts = this.alphabet(word);
    for (;;) {
      let best = Infinity;
      for (let i = 1; i < parts.length; i += 1) best = Math.min(best, this.rank.get(`${parts[i - 1]} ${parts[i]}`) ?? Infinity);
      if (best === Infinity) return parts.map((part) => this.piece(part, this.shown(part)));
      for (let i = 1; i < parts.length; i += 1)
        if (this.rank.get(`${parts[i - 1]} ${parts[i]}`) === best) parts.splice(i - 1, 2, parts[i - 1] + parts[i]);
    }
  }

  /** Letters of BPE's alphabet as text. @param {string} letters */
  shown(letters) {
    const bytes = Array.from(letters, (letter) => this.byte.get(letter));
    if (bytes.some((byte) => byte === undefined)) return letters;
    return new TextDecoder().decode(Uint8Array.from(/** @type {number[]} */ (bytes)));
  }

  /** The text of one token, as it is labelled. @param {number} id */
  label(id) {
    const token = this.record.tokens[id] ?? MARK;
    return this.letters.length ? this.shown(token) : token;
  }

  /** @param {Iterable<number>} ids @returns {string} */
  decode(ids) {
    const tokens = Array.from(ids).filter((id) => id !== this.end).map((id) => this.record.tokens[id] ?? MARK);
    if (this.letters.length) return this.shown(tokens.join(""));
    if (this.record.kind !== "word") return tokens.join("");
    const text = tokens.join(" ").replaceAll(" \n", "\n").replaceAll("\n ", "\n");
    const { unspaced } = this.record;
    return unspaced ? text.replace(new RegExp(`(?<=${unspaced}) (?=${unspaced})`, "gu"), "") : text;
  }
}

/** @param {TokenizerRecord} record */
export function makeTokenizer(record) {
  return new Tokenizer(record);
}
