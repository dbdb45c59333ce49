/** Numbers that Python wrote, and how close the page's must be. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

/** @param {string} name */
export function cases(name) {
  return JSON.parse(readFileSync(process.env.LAB_CASES, "utf-8"))[name];
}

/** @param {ArrayLike<number>} found @param {ArrayLike<number>} wanted @param {number} within @param {string} what */
export function close(found, wanted, within, what) {
  assert.equal(found.length, wanted.length, what);
  for (let at = 0; at < found.length; at += 1) {
    const away = Math.abs(found[at] - wanted[at]);
    assert.ok(away <= within, `${what}: ${found[at]} is ${away} away from ${wanted[at]} at ${at}`);
  }
}
