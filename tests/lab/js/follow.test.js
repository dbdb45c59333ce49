// Units that follow a part of a text, and what coincidence gives.

import assert from "node:assert/strict";
import { test } from "node:test";
import { coincidence, followers, PLACES } from "../../../statewise/lab/static/follow.js";
import { normal } from "../../../statewise/lab/static/random.js";

const LENGTH = 10 * PLACES;
const mask = Array.from({ length: LENGTH }, (_, t) => Number((t > 12 && t < 60) || (t > 90 && t < 101)));
/** Units that drift, and one more. */
const columns = (own) => {
  const next = normal(3), at = new Float32Array(12);
  return Array.from({ length: LENGTH }, (_, t) => Float32Array.from([...at.map((value, i) => (at[i] = value + next())), own(t)]));
};

test("a unit that is the mask itself follows it, better than by coincidence", () => {
  const found = followers(columns((t) => -mask[t]), mask);
  assert.equal(found.length, 13);
  assert.equal(found[0].row, 12);
  assert.ok(Math.abs(found[0].r + 1) < 1e-6);
  assert.ok(coincidence(found, mask) < 0.95);
});

test("units that drift agree no better than by coincidence", () => {
  const found = followers(columns(() => 0), mask);
  assert.ok(Math.abs(found[0].r) > 0.3, "with so few changes the best of them is large");
  assert.ok(Math.abs(found[0].r) <= coincidence(found, mask));
});

test("coincidence looks at the other places, and not at the marked one", () => {
  assert.ok(coincidence(followers(columns((t) => mask[(t + 50) % LENGTH]), mask), mask) > 0.999);
});
