// Tokens of texts: prints, for each tokenizer and text, its ids, what they decode to, and the parts of the text.
// Usage: node tokens.js CASES.json

import { readFileSync } from "node:fs";
import { makeTokenizer } from "../../../statewise/lab/static/tokenizer.js";

const { cases } = JSON.parse(readFileSync(process.argv[2], "utf-8"));
const found = cases.map(({ record, texts }) => {
  const tokenizer = makeTokenizer(record);
  return texts.map((text) => ({ ids: tokenizer.encode(text), text: tokenizer.decode(tokenizer.encode(text)) }));
});
console.log(JSON.stringify(found));
