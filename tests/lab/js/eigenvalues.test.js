import assert from "node:assert/strict";
import { test } from "node:test";

import { counted, drawnNorms, gradientNorms, matrixOf, spectralNorm, trajectory } from "../../../statewise/lab/static/views/eigenvalues.js";
import { cases, close } from "./cases.js";

for (const one of cases("eigenvalues")) {
  test(`eigenvalues ${JSON.stringify(one.first)}, shear ${one.shear}, ${one.tanh ? "tanh" : "linear"}`, () => {
    const w = matrixOf(one.first, one.second, one.shear);
    close(w, one.matrix, 1e-12, "matrix");
    const states = trajectory(w, [1, 0.5], one.norms.length - 1, one.tanh);
    close(states.flat(), one.states.flat(), 1e-9, "states");
    close(gradientNorms(w, states, one.tanh), one.norms, 1e-9, "norms");
  });
}

test("the largest singular value", () => {
  close([spectralNorm([3, 0, 0, -4]), spectralNorm([0, 2, 0, 0])], [4, 2], 1e-12, "norm");
});

test("norms of draws are those of the product", () => {
  const { width, numbers, norms } = cases("drawn");
  for (const shared of [true, false]) {
    let at = 0;
    const logs = drawnNorms(width, 5, 1, shared, () => numbers[at++]);
    close(Array.from(logs[0], Math.exp), norms[String(shared)], 1e-9, shared ? "one matrix" : "another at each step");
  }
});

test("every draw is counted once", () => {
  const logs = [0, -5, 5].map((factor) => Float64Array.from([0, factor, 2 * factor]));
  assert.deepEqual(counted(logs, 2, 1), { vanished: 1, exploded: 1, between: 1 });
  assert.deepEqual(counted(logs, 2, 1e-4), { vanished: 3, exploded: 0, between: 0 });
});
