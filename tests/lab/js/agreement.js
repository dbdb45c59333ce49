// What PyTorch computed, computed again by the interpreter, once in plain JavaScript and once with all that WebAssembly
// can take: prints the largest differences as JSON.
// Usage: node agreement.js CASE.json

import { readFileSync } from "node:fs";
import { makeMachine } from "../../../statewise/lab/static/machine.js";
import { engines } from "./engine.js";

const given = JSON.parse(readFileSync(process.argv[2], "utf-8"));
const made = () => makeMachine({
  name: "case", kind: "", family: "", year: 0, parameters: 0, first: 0, tokenizer: { kind: "char", tokens: [], unknown: null, end: 0, lower: false },
  ...given.record,
});

const far = (a, b) => {
  if (a.length !== b.length) throw new Error(`${a.length} numbers, expected ${b.length}`);
  let most = 0;
  for (let i = 0; i < a.length; i += 1) {
    const off = a[i] === b[i] ? 0 : Math.abs(a[i] - b[i]) / Math.max(1, Math.abs(b[i]));
    most = Math.max(most, Number.isNaN(off) ? Infinity : off);
  }
  return most;
};

const found = { names: made().lens.length, logits: 0, state: 0, seen: 0, gradient: 0, edited: 0, forked: 0, bytes: 0 };
for (const choose of engines) {
  choose();
  const machine = made();
  let state = machine.start();
  given.tokens.forEach((token, t) => {
    // A state is a value: another future of it changes neither this one nor is changed by it.
    const fork = t % 10 === 3 ? machine.stepWith(state, (token + 1) % 13, new Map()).state : machine.start();
    const was = machine.clone(fork);
    const step = machine.stepWith(state, token, new Map());
    state = step.state;
    for (const [name, leaf] of fork) found.forked = Math.max(found.forked, far(leaf.data, was.get(name).data));
    found.logits = Math.max(found.logits, far(step.logits, given.logits[t]));
    for (const [name, values] of Object.entries(given.seen[t] || {})) {
      if (step.seen.has(name)) found.seen = Math.max(found.seen, far(step.seen.get(name).data, values));
    }
  });
  found.bytes = machine.bytes(state);
  for (const [name, values] of Object.entries(given.state)) found.state = Math.max(found.state, far(state.get(name).data, values));
  if (given.gradient) {
    const { tokens, t, target, norms } = given.gradient;
    const top = Math.max(...norms, 1e-12);
    found.gradient = far(Array.from(machine.gradient([machine.start()], tokens, t, target), (x) => x / top), norms.map((x) => x / top));
  }
  for (const { name, factor, logits } of given.edits || []) {
    let state = machine.start();
    let last = null;
    for (const token of given.gradient.tokens.slice(0, 6)) {
      const step = machine.stepWith(state, token, new Map([[name, (values) => values.map((x) => x * factor)]]));
      [state, last] = [step.state, step.logits];
    }
    const off = far(last, logits);
    if (off > found.edited) [found.edited, found.editedName] = [off, name];
  }
}
console.log(JSON.stringify(found));
