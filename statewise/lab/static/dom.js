// @ts-check
/** Elements, controls and texts in two languages. Text only ever becomes a text node: no markup is parsed. */

/** @typedef {{en: string, zh: string}} Words */
/** @typedef {Node | string | null | undefined} Child */
/** @typedef {Record<string, string | number | boolean | ((event: any) => void) | undefined>} Attributes */

const SVG = "http://www.w3.org/2000/svg";

/** @type {"en" | "zh"} */
let language = "en";

/** @returns {"en" | "zh"} */
export function currentLanguage() {
  return language;
}

/** Sets the language, and the text of every element made by `say`. @param {"en" | "zh"} chosen */
export function setLanguage(chosen) {
  language = chosen;
  document.documentElement.lang = chosen === "zh" ? "zh-Hans" : "en";
  for (const element of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-en]"))) {
    element.textContent = /** @type {string} */ (element.dataset[chosen]);
  }
  for (const element of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-name-en]"))) {
    element.setAttribute("aria-label", /** @type {string} */ (chosen === "zh" ? element.dataset.nameZh : element.dataset.nameEn));
  }
}

/** @param {Words} words */
export function translate(words) {
  return words[language];
}

/**
 * @template {Element} T
 * @param {T} element @param {Attributes} attributes @param {Child[]} children @returns {T}
 */
function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(.../** @type {(Node | string)[]} */ (children.filter((child) => child !== null && child !== undefined)));
  return element;
}

/**
 * An HTML element. A function among the attributes is a listener.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Attributes} [attributes] @param {...Child} children @returns {HTMLElementTagNameMap[K]}
 */
export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/**
 * An SVG element.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag @param {Attributes} [attributes] @param {...Child} children @returns {SVGElementTagNameMap[K]}
 */
export function draw(tag, attributes = {}, ...children) {
  return /** @type {any} */ (filled(document.createElementNS(SVG, tag), attributes, children));
}

/** A span whose text follows the language. @param {Words} words */
export function say(words) {
  return make("span", { "data-en": words.en, "data-zh": words.zh }, words[language]);
}

/** The name of an element for those who do not see it, in both languages. @param {Words} words @returns {Attributes} */
export function named(words) {
  return { "aria-label": words[language], "data-name-en": words.en, "data-name-zh": words.zh };
}

let made = 0;

/** An id that no other element has. */
export function freshId() {
  made += 1;
  return `lab-${made}`;
}

/**
 * A slider with its label and its value.
 * @param {{label: Words, min: number, max: number, step: number, value: number, show?: (value: number) => string,
 *   input: (value: number) => void}} options
 * @returns {{element: HTMLElement, set: (value: number) => void, refresh: () => void}}
 */
export function slider({ label, min, max, step, value, show = String, input }) {
  const id = freshId();
  const output = make("output", { for: id }, show(value));
  const bar = make("input", { id, type: "range", min, max, step, value: String(value) });
  const refresh = () => {
    output.textContent = show(Number(bar.value));
    bar.setAttribute("aria-valuetext", /** @type {string} */ (output.textContent));
  };
  bar.addEventListener("input", () => {
    refresh();
    input(Number(bar.value));
  });
  refresh();
  return {
    element: make("div", { class: "control" }, make("label", { for: id }, say(label)), bar, output),
    set: (next) => {
      bar.value = String(next);
      refresh();
    },
    refresh,
  };
}

/**
 * One of a few, as buttons side by side.
 * @template {string} T
 * @param {{label: Words, options: {value: T, label: Words}[], value: T, pick: (value: T) => void}} options
 */
export function choice({ label, options, value, pick }) {
  const group = freshId();
  const inputs = options.map((option) => {
    const input = make("input", { type: "radio", name: group, value: option.value, change: () => pick(option.value) });
    input.checked = option.value === value;
    return make("label", {}, input, say(option.label));
  });
  return make("fieldset", { class: "choice" }, make("legend", {}, say(label)), ...inputs);
}

/** @param {Words} words @param {() => void} press */
export function button(words, press) {
  return make("button", { type: "button", class: "act", click: press }, say(words));
}

/** Arrow keys to the left and right move by one. @param {HTMLElement} element @param {(by: number) => void} move */
export function onArrows(element, move) {
  element.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    move(by);
  });
}

/** Replaces what an element holds. @param {Element} element @param {...Child} children */
export function fill(element, ...children) {
  element.replaceChildren(.../** @type {(Node | string)[]} */ (children.filter((child) => child !== null && child !== undefined)));
}
