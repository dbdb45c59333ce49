// @ts-check
/** View 2: a state is a value. Change a unit, erase a row, paste the state of another text; compare two futures. */

import { button, fill, make, named, onArrows, say, slider } from "../dom.js";
import { followers, quoted } from "../follow.js";
import { futures, readTwice } from "../futures.js";
import { mixed, unitPicture } from "../picture.js";
import { Reading, columnOf, placeOf, unitsOf } from "../reading.js";
import { count } from "../tensor.js";
import { bytesText, readers, newest, oneModel, textBox, visible } from "../widget.js";

/** @typedef {import("../machine.js").Machine} Machine */
/** @typedef {import("../machine.js").State} State */

const STEP = 0.1;
const MOST = 240; // units that are drawn

/** An example up to the end of its first quotation, which is still open; or its beginning. @param {Machine} machine @param {string} example */
function opened(machine, example) {
  const texts = machine.vocab.pieces(example).map((piece) => piece.text), inside = quoted(texts);
  const end = inside.findIndex((now, t) => inside[t - 1] === 1 && !now);
  return (end > 0 ? texts.slice(0, end) : texts.slice(0, 90)).join("");
}

/** The unit that follows the quotations of an example best; without quotations, the first. @param {Machine} machine @param {string} example */
async function following(machine, example) {
  const read = new Reading(machine);
  read.write(example);
  await read.read();
  const mask = quoted(read.texts), units = unitsOf(machine, read.steps[read.steps.length - 1].state, MOST);
  if (!mask.some(Boolean)) return 0;
  return followers(read.steps.map((step) => columnOf(units, step.state)), mask)[0]?.row ?? 0;
}

export const touchView = {
  id: "touch",
  needsModels: true,
  title: { en: "Touch the state", zh: "触摸状态" },
  lookFor: {
    en: "Everything the model knows of the text is in these numbers: drag a square up or down, or use the arrow keys, and the prediction changes.",
    zh: "模型对文本所知道的一切都在这些数字里：上下拖动一个方格，或按方向键，预测随之改变。",
  },
  more: {
    en: "In the example a quotation is open, and the chosen unit is the one that follows quotations: raise it, and the LSTM expects the closing ' much less. Or paste the state of another text: the model goes on as if it had read that one.",
    zh: "例子里的引号还没有关上，选中的正是跟随引文的那个单元：把它调高，LSTM 对关引号 ' 的预期就大大降低。也可以粘贴另一段文本的状态：模型会像读过那段文本一样继续。",
  },
  how: {
    equation: "s' = s \"with|其中\" s'[i] = v\ny, s'' = model(x, s')        \"the future depends on the past through|未来对过去的依赖只经过\" s \"alone|\"",
    code: "import torch\nimport statewise as sw\n\nrun = sw.load(\"shakespeare-lstm\")\nat = run.begin(\"To be, or not\")\nlayer = at.state.layers[0]\nerased = layer._replace(c_BD=layer.c_BD.index_fill(1, torch.tensor([7]), 0.0))\nlogits_BV, _ = run.model.step(at.token_B, at.state._replace(layers=(erased,)))",
    command: "statewise lab --open",
  },
  /** @param {HTMLElement} root @param {any} lab */
  mount(root, lab) {
    const machines = readers(lab);
    let machine = machines.find((one) => one.kind === "lstm") || machines[0];
    const example = machine.record.example || "";
    let text = opened(machine, example), other = example.slice(-80).replace(/^\S*\s/, "");
    let [old, changed] = [new Reading(machine), new Reading(machine)];
    /** @type {State} */
    let state = machine.start();
    /** @type {import("../reading.js").Unit[]} */
    let units = [];
    let chosen = 0;
    const grid = make("div", { class: "units", role: "group", ...named({ en: "Units of the state", zh: "状态的单元" }) });
    const about = make("p", { class: "finding" });
    const erase = make("div", {});
    const two = futures(lab, "touch-next");
    const top = () => Math.max(0.5, ...columnOf(units, state).map(Math.abs));
    /** Reads the last token of the text from the changed state. */
    const compute = newest(async (isNewest) => {
      tell();
      changed.edits = old.edits;
      changed.replace(changed.tokens.length - 1, machine.clone(state));
      await changed.read();
      if (isNewest()) await two.draw(old, changed);
    });
    const tell = () => {
      const unit = units[chosen];
      const value = columnOf([unit], state)[0];
      about.textContent = `${unit.leaf}[${unit.index}] = ${value.toFixed(3)} · ${lab.t({ en: "the state has", zh: "状态共" })} ${bytesText(machine.bytes(state))}`;
    };
    const set = (/** @type {number} */ index, /** @type {number} */ value) => {
      const at = placeOf(units[index], state);
      machine.put(state, units[index].leaf, at, at + 1, value);
      paint();
      compute();
    };
    const paint = () => {
      const [column, most, palette] = [columnOf(units, state), top(), lab.palette];
      Array.from(grid.children).forEach((cell, i) => {
        const one = /** @type {HTMLButtonElement} */ (cell);
        one.style.background = mixed(palette.paper, column[i] < 0 ? palette.accent : palette.heat, Math.min(1, Math.abs(column[i]) / most));
        one.setAttribute("aria-pressed", String(i === chosen));
        one.tabIndex = i === chosen ? 0 : -1;
        one.setAttribute("aria-label", `${units[i].leaf}[${units[i].index}] ${column[i].toFixed(2)}`);
      });
    };
    const cell = (/** @type {number} */ i) => {
      const one = make("button", { type: "button" });
      let [from, value] = [0, 0];
      one.addEventListener("focus", () => {
        chosen = i;
        paint();
        tell();
      });
      one.addEventListener("pointerdown", (event) => {
        [from, value] = [event.clientY, columnOf([units[i]], state)[0]];
        one.setPointerCapture(event.pointerId);
      });
      one.addEventListener("pointermove", (event) => {
        if (one.hasPointerCapture(event.pointerId) && event.clientY !== from) set(i, value + (from - event.clientY) * 0.02 * top());
      });
      one.addEventListener("keydown", (event) => {
        const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
        if (by === undefined && event.key !== "0") return;
        event.preventDefault();
        set(i, by === undefined ? 0 : columnOf([units[i]], state)[0] + by * STEP * top());
      });
      onArrows(one, (by) => /** @type {HTMLElement} */ (grid.children[Math.min(units.length - 1, Math.max(0, i + by))]).focus());
      return one;
    };
    /** Of lists that grow: a row of each can be erased. */
    const rows = () => {
      const lists = machine.leaves(state).filter(({ name, tensor }) => tensor.kind === "f" && units.some((unit) => unit.leaf === name && unit.list));
      const held = lists.length ? lists[0].tensor.dims[1] : 0;
      if (!held) return fill(erase);
      let at = held - 1;
      const show = (/** @type {number} */ t) => `${t}: “${visible(old.texts[t] || "")}”`;
      const pick = slider({ label: { en: "Row of the list", zh: "列表的行" }, min: 0, max: held - 1, step: 1, value: at, show, input: (t) => (at = t) });
      const press = button({ en: "Erase this row (keys and values 0)", zh: "清除这一行（键与值置 0）" }, () => {
        for (const { name, tensor } of lists) {
          const size = count(tensor.dims) / tensor.dims[1];
          machine.put(state, name, at * size, (at + 1) * size, 0);
        }
        paint();
        compute();
      });
      fill(erase, make("div", { class: "controls" }, pick.element, press));
    };
    const fresh = newest(async (isNewest) => {
      const both = await readTwice(machine, text);
      if (!isNewest()) return;
      [old, changed] = both;
      state = machine.clone(old.before(old.tokens.length - 1));
      units = unitsOf(machine, old.steps[old.steps.length - 1].state, MOST);
      chosen = Math.min(chosen, units.length - 1);
      grid.replaceChildren(...units.map((_, i) => cell(i)));
      rows();
      paint();
      await compute();
    });
    const typed = textBox(text, (next) => {
      text = next;
      fresh();
    });
    const second = textBox(other, (next) => (other = next), { en: "Another text", zh: "另一段文本" }, 2);
    const paste = button({ en: "Paste its state", zh: "粘贴它的状态" }, async () => {
      const read = new Reading(machine);
      read.write(other);
      await read.read();
      if (read.machine !== machine) return;
      state = machine.clone(read.steps[read.steps.length - 1].state);
      paint();
      rows();
      compute();
    });
    const zero = button({ en: "Set all units to 0", zh: "全部置 0" }, () => {
      for (const { name, tensor } of machine.leaves(state)) if (tensor.kind === "f") machine.put(state, name, 0, count(tensor.dims), 0);
      paint();
      compute();
    });
    const back = button({ en: "Back to its own state", zh: "恢复原状态" }, fresh);
    const pickModel = oneModel(machines, machine.name, (next) => {
      machine = next;
      fresh();
    });
    const saved = lab.exports("touch", () => {
      const values = columnOf(units, state), its = columnOf(units, old.before(old.tokens.length - 1));
      const svg = unitPicture(values, top(), lab.palette, lab.t({ en: `State of ${machine.name}`, zh: `${machine.name} 的状态` }));
      return { svg, rows: [["unit", "value", "as it was"], ...units.map((unit, i) => [`${unit.leaf}[${unit.index}]`, values[i], its[i]])] };
    });
    const panel = make("div", { class: "panel" }, make("h3", {}, say({ en: "The state before the last symbol", zh: "读入最后一个符号之前的状态" })), grid, about, make("p", { class: "quiet" }, say({ en: "Orange is positive, blue negative.", zh: "橙色为正，蓝色为负。" })), saved, erase);
    root.append(make("div", { class: "controls" }, pickModel, zero, back), typed.element, second.element, make("div", { class: "buttons" }, paste), make("div", { class: "panels after" }, panel, two.element));
    following(machine, example).then((unit) => {
      chosen = unit;
      return fresh();
    });
    return {
      update: () => {
        if (!old.steps.length) return; // it is still being read
        paint();
        two.draw(old, changed);
        tell();
      },
    };
  },
};
