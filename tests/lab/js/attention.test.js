import assert from "node:assert/strict";
import { test } from "node:test";

import { align, decode, score } from "../../../statewise/lab/static/attention.js";
import { cases, close } from "./cases.js";

for (const one of cases("scores")) {
  test(`${one.kind} scores are the package's`, () => {
    one.query.forEach((query, at) => close(score(one.kind, one.weights, query, one.keys), one.scores[at], 1e-6, one.kind));
  });
}

for (const one of cases("alignments")) {
  test(`${one.kind} weights over ${one.scores[0].length} places are the package's`, () => {
    one.scores.forEach((scores, at) => close(align(one.kind, one.weights, scores, one.query[at], at, one.reach), one.found[at], 1e-6, one.kind));
  });
}

const phrase = cases("phrase");
const words = (text) => text.split(" ").map((name) => phrase.words.find((word) => word.source === name));
const translated = (text, chosen, changed = new Map()) =>
  decode(phrase, words(text), { alignment: "soft", reach: 1, ...chosen }, changed, 7).map((look) => phrase.words[look.best]?.target ?? "").join(" ").trim();

for (const name of Object.keys(phrase.scores)) {
  test(`the phrase is translated with the score ${name}`, () => {
    assert.equal(translated("the black cat sleeps", { score: name }), "le chat noir dort");
    assert.equal(translated("my red robot runs", { score: name }), "mon robot rouge court");
  });
}

test("a score that looks at places only fails when a word is left out", () => {
  assert.equal(translated("my dog eats", { score: "dot" }), "mon chien mange");
  assert.notEqual(translated("my dog eats", { score: "location" }), "mon chien mange");
});

test("a score that a reader sets changes the translation", () => {
  assert.equal(translated("the black cat sleeps", { score: "dot" }, new Map([["1 3", 8]])).split(" ")[1], "dort");
});
