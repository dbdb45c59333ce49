// @ts-check
/** What the views of machines share: which models, a text, bars of the next symbol, and pictures of states. */

import { make, named, say } from "./dom.js";
import { softmaxOf } from "./machine.js";

/** @typedef {import("./machine.js").Machine} Machine */
/** @typedef {import("./dom.js").Words} Words */

const SAMPLED = 1500; // numbers that decide how strong a colour is
const sample = new Float32Array(SAMPLED);
const SIGNS = new Map([[" ", "␣"], ["\n", "↵"], ["\t", "⇥"], ["", "∅"]]);

/** A token as a label: white space is made visible. @param {string} text */
export function visible(text) {
  return SIGNS.get(text) ?? text.replaceAll("\n", "↵").replace(/^ | $/g, "␣");
}

/** @param {number} bytes */
export function bytesText(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const [size, unit] = bytes < 1 << 20 ? [bytes / 1024, "KiB"] : [bytes / (1 << 20), "MiB"];
  return `${size < 10 ? size.toFixed(2) : size < 100 ? size.toFixed(1) : Math.round(size)} ${unit}`;
}

/** The models that read what is typed: all but those of the question that is asked from further away. @param {any} lab @returns {Machine[]} */
export function readers(lab) {
  return lab.models.filter((/** @type {Machine} */ machine) => machine.labels === null || !lab.extra.ask);
}

/** A name with its year. @param {Machine} machine */
export function titleOf(machine) {
  return machine.year ? `${machine.name} (${machine.year})` : machine.name;
}

/**
 * Any selection of models, as boxes to tick, with a card for each one that is ticked.
 * @template {{element: HTMLElement}} Card
 * @param {Machine[]} machines @param {string[]} first names of those that are ticked @param {HTMLElement} place @param {(machine: Machine) => Card} create @param {() => void} change
 */
export function cards(machines, first, place, create, change) {
  const known = machines.filter(({ name }) => first.includes(name));
  const chosen = new Set(known.length ? known : machines.slice(0, first.length));
  /** @type {Map<Machine, Card>} */
  const made = new Map();
  /** Those that are ticked, in the order of the models. */
  const shown = () => machines.filter((machine) => chosen.has(machine)).map((machine) => {
    const card = made.get(machine) || create(machine);
    made.set(machine, card);
    return card;
  });
  const arrange = () => {
    place.replaceChildren(...shown().map(({ element }) => element));
    change();
  };
  const boxes = machines.map((machine) => {
    const input = make("input", { type: "checkbox", value: machine.name, change: () => {
      if (input.checked) chosen.add(machine);
      else chosen.delete(machine);
      arrange();
    } });
    input.checked = chosen.has(machine);
    return make("label", { class: "chip" }, input, titleOf(machine));
  });
  return { boxes: make("fieldset", { class: "chips" }, make("legend", {}, say({ en: "Models", zh: "模型" })), ...boxes), shown, arrange };
}

/** One of the models. @param {Machine[]} machines @param {string} value @param {(machine: Machine) => void} pick @param {Words} [label] */
export function oneModel(machines, value, pick, label = { en: "Model", zh: "模型" }) {
  const options = machines.map((machine) => make("option", { value: machine.name }, titleOf(machine)));
  const select = make("select", { change: () => pick(/** @type {Machine} */ (machines.find((one) => one.name === select.value))) }, ...options);
  select.value = value;
  return make("label", { class: "pick" }, say(label), select);
}

/** @param {string} value @param {(text: string) => void} input @param {Words} [label] @param {number} [rows] */
export function textBox(value, input, label = { en: "Text", zh: "文本" }, rows = 4) {
  const box = make("textarea", { rows, spellcheck: "false", maxlength: 600, ...named(label) });
  box.value = value;
  box.addEventListener("input", () => input(box.value));
  return { element: make("label", { class: "typed" }, say(label), box), box };
}

/** Another text, if it is another one. @param {HTMLElement} element @param {string} text */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The most probable next symbols as bars; those of `other` are drawn behind them. @param {HTMLElement} place @param {Machine} machine @param {ArrayLike<number>} logits @param {{most?: number, labels?: string[] | null, other?: ArrayLike<number> | null}} [options] */
export function drawBars(place, machine, logits, { most = 8, labels = machine.record.labels, other = null } = {}) {
  const p = softmaxOf(logits);
  const q = other ? softmaxOf(other) : null;
  const order = largest(q ? p.map((value, id) => Math.max(value, q[id])) : p, most);
  // Elements are kept from key to key: new ones would have to be styled and laid out again.
  while (place.children.length > order.length) place.lastElementChild?.remove();
  while (place.children.length < order.length) {
    place.append(make("div", {}, make("span", { class: "symbol" }, ""), make("span", { class: "track" }, make("span", { class: "ghost" }), make("span", { class: "bar" })), make("span", { class: "value" }, "")));
  }
  return order.map((id, row) => {
    const [symbol, track, value] = /** @type {Iterable<HTMLElement>} */ (place.children[row].children);
    const [behind, bar] = /** @type {Iterable<HTMLElement>} */ (track.children);
    const label = labels ? labels[id] : visible(machine.vocab.label(id));
    write(symbol, label);
    write(value, `${(100 * p[id]).toFixed(1)}%`);
    bar.style.width = `${100 * p[id]}%`;
    behind.hidden = !q;
    if (q) behind.style.width = `${100 * q[id]}%`;
    return [label, p[id], ...(q ? [q[id]] : [])];
  });
}

/** The places of the largest numbers, the largest first. @param {Float64Array} values @param {number} most */
function largest(values, most) {
  /** @type {number[]} */
  const order = [];
  for (let id = 0; id < values.length; id += 1) {
    if (order.length === most && values[id] <= values[order[most - 1]]) continue;
    let at = order.length;
    while (at > 0 && values[order[at - 1]] < values[id]) at -= 1;
    order.splice(at, 0, id);
    if (order.length > most) order.pop();
  }
  return order;
}

/** A colour as three numbers. @param {string} colour `#rrggbb` */
export function channels(colour) {
  const number = Number.parseInt(colour.slice(1), 16);
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255];
}

const SHADES = 255; // of each sign: a screen has no more between two colours
/** @type {Map<string, Uint32Array>} */
const shadesKnown = new Map();

/** Pixels from the most negative number over 0 to the most positive one. @param {any} palette */
function shadesOf(palette) {
  const key = [palette.paper, palette.heat, palette.accent].join();
  const known = shadesKnown.get(key);
  if (known) return known;
  const [paper, high, low] = [palette.paper, palette.heat, palette.accent].map(channels);
  const made = new Uint8ClampedArray(4 * (2 * SHADES + 1));
  for (let shade = -SHADES; shade <= SHADES; shade += 1) {
    const to = shade < 0 ? low : high;
    made.set([0, 1, 2].map((channel) => paper[channel] + (Math.abs(shade) / SHADES) * (to[channel] - paper[channel])), 4 * (SHADES + shade));
    made[4 * (SHADES + shade) + 3] = 255;
  }
  shadesKnown.set(key, new Uint32Array(made.buffer));
  return new Uint32Array(made.buffer);
}

/**
 * Columns over time as an image, one pixel a number: `high` for positive ones, `low` for negative ones, paper for 0.
 * @param {HTMLCanvasElement} canvas @param {Float32Array[]} columns @param {any} palette
 * @returns {number} the size that has the full colour
 */
export function drawHeat(canvas, columns, palette) {
  const rows = columns.length ? columns[0].length : 1;
  const wide = Math.max(1, columns.length);
  if (canvas.width !== wide) canvas.width = wide; // setting it clears the picture
  if (canvas.height !== rows) canvas.height = rows;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(wide, rows);
  const total = columns.length * rows, sampled = sample.subarray(0, Math.min(total, SAMPLED));
  for (let i = 0; i < sampled.length; i += 1) {
    const at = Math.floor((i * total) / sampled.length);
    sampled[i] = Math.abs(columns[Math.floor(at / rows)][at % rows]);
  }
  const top = sampled.length ? sampled.sort()[Math.floor(0.98 * (sampled.length - 1))] || 1 : 1;
  const shades = shadesOf(palette), pixels = new Uint32Array(image.data.buffer), scale = SHADES / top;
  for (let x = 0; x < columns.length; x += 1) {
    const column = columns[x];
    for (let y = 0, at = x; y < rows; y += 1, at += wide) {
      const value = column[y] * scale + SHADES + 0.5; // rounded below by cutting it off
      pixels[at] = shades[(value < 0 ? 0 : value > 2 * SHADES ? 2 * SHADES : value) | 0];
    }
  }
  context.putImageData(image, 0, 0);
  return top;
}

/** Calls `work` in the next frames until it says that all is done; never twice at a time. @param {() => Promise<boolean>} work */
export function inFrames(work) {
  let [waiting, busy] = [false, false];
  const frame = async () => {
    [waiting, busy] = [false, true];
    const done = await work().finally(() => {
      busy = false;
    });
    if (!done || waiting) requestAnimationFrame(frame);
    waiting = !done || waiting;
  };
  return () => {
    if (!waiting && !busy) requestAnimationFrame(frame);
    waiting = true;
  };
}

/** Work that may wait: an older call asks whether it is still the newest. @template {any[]} A @param {(isNewest: () => boolean, ...given: A) => Promise<void>} work */
export function newest(work) {
  let calls = 0;
  return (/** @type {A} */ ...given) => {
    calls += 1;
    const own = calls;
    return work(() => own === calls, ...given);
  };
}
