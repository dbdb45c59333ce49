// The same graphs in onnxruntime-web and in the interpreter: prints the largest difference of each, and the times of a step.
// Usage: node oracle.js CASES.json FOLDER-OF-ONNXRUNTIME-WEB

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { makeMachine } from "../../../statewise/lab/static/machine.js";

const ort = createRequire(import.meta.url)(process.argv[3]);
ort.env.wasm.numThreads = 1;
const { cases } = JSON.parse(readFileSync(process.argv[2], "utf-8"));
const tokenizer = { kind: "char", tokens: [], unknown: null, end: 0, lower: false };
const about = { name: "case", kind: "", family: "", year: 0, parameters: 0, first: 0, tokenizer };

const foreign = ({ kind, dims, data }) =>
  kind === "i" ? new ort.Tensor("int64", BigInt64Array.from(data, (x) => BigInt(x)), dims) : kind === "b" ? new ort.Tensor("bool", Uint8Array.from(data), dims) : new ort.Tensor("float32", Float32Array.from(data), dims);

const found = [];
for (const { name, record, model, tokens } of cases) {
  const machine = makeMachine({ ...about, ...record });
  const session = await ort.InferenceSession.create(Uint8Array.from(Buffer.from(model, "base64")), { executionProviders: ["wasm"], logSeverityLevel: 3 });
  let state = machine.start();
  let theirs = Object.fromEntries(Array.from(state, ([path, leaf]) => [path, foreign(leaf)]));
  let [error, own, other] = [0, 0, 0];
  for (const token of tokens) {
    let clock = performance.now();
    const step = machine.stepWith(state, token, new Map());
    own += performance.now() - clock;
    clock = performance.now();
    const out = await session.run({ tokens: new ort.Tensor("int64", BigInt64Array.of(BigInt(token)), [1]), ...theirs });
    other += performance.now() - clock;
    const logits = out.logits.data;
    for (let i = 0; i < logits.length; i += 1) error = Math.max(error, Math.abs(logits[i] - step.logits[i]) / Math.max(1, Math.abs(logits[i])));
    theirs = Object.fromEntries(Object.keys(theirs).map((path) => [path, out[`after.${path}`]]));
    state = step.state;
  }
  found.push({ name, error, own: own / tokens.length, theirs: other / tokens.length });
}
console.log(JSON.stringify(found));
