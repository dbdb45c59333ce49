import assert from "node:assert/strict";
import { test } from "node:test";

import { outcomes, quality, symmetric } from "../../../statewise/lab/static/views/truncation.js";
import { cases, close } from "./cases.js";

const { products, held, policies } = cases("truncation");
const all = symmetric(products), boundaries = held.length - 1;

for (const one of policies) {
  test(`a cut every ${one.length} blocks is as the BPTT laboratory measures it`, () => {
    const cuts = Array.from({ length: boundaries }, (_, at) => (at + 1) % one.length === 0);
    const found = quality(all, held, outcomes(cuts, "fixed", 1));
    close([found.cosine, found.norm, found.bias], [one.cosine, one.norm, one.bias], 1e-5, "estimate");
    assert.equal(found.spread, 0);
    assert.equal(found.bytes, one.bytes);
  });
}

test("an unbiased truncation has a spread instead of a bias", () => {
  const cuts = Array.from({ length: boundaries }, (_, at) => (at + 1) % 2 === 0), keep = cases("unbiased").keep;
  const found = quality(all, held, outcomes(cuts, "unbiased", keep)), wanted = cases("unbiased");
  close([found.bias], [0], 1e-6, "bias");
  close([found.spread, found.norm], [wanted.spread, wanted.norm], 1e-5, "over all outcomes");
});

test("random cuts: every subset of the same size, equally probable", () => {
  const ways = outcomes([true, false, true, false], "random", 1);
  assert.equal(ways.length, 6);
  close([ways.reduce((sum, way) => sum + way.probability, 0)], [1], 1e-12, "probability");
  assert.ok(ways.every(({ flows }) => flows.filter((flow) => flow === 0).length === 2));
});
