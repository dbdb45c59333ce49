// @ts-check
/** Two futures of one text: as the model would go on, and after something was changed. */

import { make, say } from "./dom.js";
import { barPicture } from "./picture.js";
import { Reading } from "./reading.js";
import { drawBars, newest } from "./widget.js";

const LENGTH = 80;

/** A text, read twice: one reading is changed then. @param {import("./machine.js").Machine} machine @param {string} text */
export async function readTwice(machine, text) {
  const both = /** @type {[Reading, Reading]} */ ([new Reading(machine), new Reading(machine)]);
  for (const one of both) one.write(text);
  for (const one of both) await one.read();
  return both;
}

/** @param {any} lab @param {string} name of the pictures that are saved */
export function futures(lab, name) {
  const bars = make("div", { class: "next" });
  const before = make("p", { class: "futures" });
  const after = make("p", { class: "futures" });
  const facts = make("p", { class: "finding" });
  const texts = make(
    "div",
    {},
    make("h3", {}, say({ en: "Future as it was", zh: "原来的后续" })),
    before,
    make("h3", {}, say({ en: "Future after the change", zh: "改动后的后续" })),
    after,
  );
  /** @type {(string | number)[][]} */
  let found = [];
  const picture = () => ({
    svg: barPicture(found, lab.palette, lab.t({ en: "What comes next: bars after the change, lines as it was", zh: "接下来：色条为改动之后，竖线为改动之前" })),
    rows: [["symbol", "p after", "p before"], ...found],
  });
  const element = make(
    "figure",
    { class: "panel", id: name },
    make("h3", {}, say({ en: "What comes next", zh: "接下来" })),
    bars,
    make("p", { class: "quiet" }, say({ en: "Bars: after the change. Lines: as it was.", zh: "色条：改动之后。竖线：改动之前。" })),
    lab.exports(name, picture),
    texts,
    facts,
  );
  const draw = newest(async (isNewest, /** @type {Reading} */ old, /** @type {Reading} */ changed) => {
    const { machine } = old;
    const [last, now] = [old.steps[old.steps.length - 1], changed.steps[changed.steps.length - 1]];
    if (!last || !now) return; // one is being read, and is drawn then
    found = drawBars(bars, machine, now.logits, { other: last.logits });
    texts.hidden = machine.labels !== null;
    if (machine.labels) {
      const [a, b] = [old, changed].map((one) => /** @type {string[]} */ (machine.labels)[one.answer]);
      facts.textContent = a === b ? lab.t({ en: `The answer is still “${a}”.`, zh: `回答仍是“${a}”。` }) : lab.t({ en: `The answer was “${a}” and is now “${b}”.`, zh: `回答从“${a}”变成了“${b}”。` });
      return;
    }
    // Both are asked for at once: one may change while the other is awaited.
    const [a, b] = await Promise.all([old.continued(LENGTH), changed.continued(LENGTH)]);
    if (!isNewest()) return;
    let same = 0;
    while (same < a.length && a[same] === b[same]) same += 1;
    const text = (/** @type {number[]} */ tokens) => machine.vocab.decode(tokens).replaceAll("\n", "↵");
    const part = (/** @type {number[]} */ tokens) => [make("span", { class: "read" }, text(tokens.slice(0, same))), make("strong", {}, text(tokens.slice(same)))];
    before.replaceChildren(...part(a));
    after.replaceChildren(...part(b));
    facts.textContent = same === a.length ? lab.t({ en: "Both futures are the same.", zh: "两个后续相同。" }) : lab.t({ en: `They differ from symbol ${same + 1} on.`, zh: `从第 ${same + 1} 个符号开始不同。` });
  });
  return { element, draw };
}
