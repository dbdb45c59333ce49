// @ts-check
/** The page around the views: which one is shown, language, theme, explanations, downloads. */

import { currentLanguage, draw, fill, make, named, say, setLanguage, translate } from "./dom.js";
import { download } from "./download.js";
import { equations } from "./math.js";
import { VIEWS } from "./views.js";

/** @typedef {import("./views.js").View} View */
/** @typedef {import("./download.js").Picture} Picture */

/** What a reader chose is kept where the browser allows it. */
const chosen = {
  /** @param {string} name */
  get(name) {
    try {
      return localStorage.getItem(`statewise-lab-${name}`);
    } catch {
      return null;
    }
  },
  /** @param {string} name @param {string} value */
  set(name, value) {
    try {
      localStorage.setItem(`statewise-lab-${name}`, value);
    } catch {
      // A page from disk may have no storage: the choice lasts as long as the page.
    }
  },
};

/** The data of the page: gzip in base64. @param {string} text @returns {Promise<any>} */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** The colours of each theme, once they were asked for. @type {Map<string | undefined, any>} */
const palettes = new Map();

function palette() {
  const name = document.documentElement.dataset.theme;
  if (!palettes.has(name)) palettes.set(name, readPalette());
  return palettes.get(name);
}

function readPalette() {
  const theme = getComputedStyle(document.documentElement);
  const colour = (/** @type {string} */ name) => theme.getPropertyValue(`--${name}`).trim();
  const names = ["paper", "ink", "rule", "panel", "accent", "heat", "c0"];
  return Object.fromEntries(names.map((name) => [name, colour(name)]));
}

/** Computes the models: here, by another engine, or on a server, which can do more. @typedef {{makeMachine: (record: any) => any, tools?: (lab: any) => any}} Engine */

/** What a view may ask of the page. @param {any} bundle @param {Engine} engine */
function makeLab(bundle, engine) {
  const lab = {
    models: bundle.models.map(engine.makeMachine),
    /** Of a server. @type {any} */
    live: null,
    extra: bundle.extra || {},
    t: translate,
    get palette() {
      return palette();
    },
    /** Buttons that save a picture and its numbers. @param {string} name @param {() => Picture} get */
    exports: (name, get) => {
      const save = (/** @type {"csv" | "svg" | "png"} */ format) =>
        make(
          "button",
          { type: "button", click: () => download(name, get(), format), ...named({ en: `Save ${name} as ${format.toUpperCase()}`, zh: `将 ${name} 存为 ${format.toUpperCase()}` }) },
          format.toUpperCase(),
        );
      return make("div", { class: "export" }, save("csv"), save("svg"), save("png"));
    },
    /** A place for a picture, between its title and what saves it. @param {string} name @param {import("./dom.js").Words | null} title @param {Node[]} below */
    picture: (name, title, ...below) => {
      const place = make("div");
      let shown = /** @type {() => Picture} */ (() => ({ svg: draw("svg"), rows: [] }));
      const show = (/** @type {SVGSVGElement} */ svg, /** @type {() => Picture["rows"]} */ rows) => {
        fill(place, svg);
        shown = () => ({ svg, rows: rows() });
      };
      return { element: make("figure", { class: "panel", id: name }, title && make("h3", {}, say(title)), place, ...below, lab.exports(name, () => shown())), place, show };
    },
  };
  if (engine.tools) lab.live = engine.tools(lab);
  return lab;
}

/** A text to copy, with its button. @param {string} text @param {string} kind */
function copied(text, kind) {
  const block = make("pre", { class: kind, tabindex: 0 }, make("code", {}, text));
  const done = say({ en: "Copy", zh: "复制" });
  const press = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      getSelection()?.selectAllChildren(block); // a frame may not write there: then it is one key away
      return;
    }
    done.dataset.en = "Copied";
    done.dataset.zh = "已复制";
    done.textContent = translate({ en: "Copied", zh: "已复制" });
  };
  return make("div", { class: "copied" }, block, make("button", { type: "button", class: "copy", click: press }, done));
}

/** @param {View} view */
function explanation(view) {
  return make(
    "details",
    { class: "how" },
    make("summary", {}, say({ en: "How it is computed", zh: "如何计算" })),
    make("h3", {}, say({ en: "Equation", zh: "公式" })),
    equations(view.how.equation),
    make("h3", {}, say({ en: "In Python", zh: "Python 代码" })),
    copied(view.how.code, "code"),
    make("h3", {}, say({ en: "The command that gives these numbers", zh: "得到这些数字的命令" })),
    copied(view.how.command, "command"),
  );
}

/** @param {View[]} views @param {any} lab @param {HTMLElement} place */
function viewer(views, lab, place) {
  /** @type {Map<string, {section: HTMLElement, mounted: import("./views.js").Mounted}>} */
  const opened = new Map();
  let shown = "";
  const show = (/** @type {string} */ id) => {
    const view = views.find((one) => one.id === id) || views[0];
    shown = view.id;
    if (!opened.has(view.id)) {
      const number = String(views.indexOf(view) + 1);
      const body = make("div", { class: "view" });
      const heading = make("h2", { id: `view-${view.id}`, tabindex: -1 }, make("span", { class: "number" }, number), say(view.title));
      const section = make("section", { "aria-labelledby": `view-${view.id}` }, heading, make("p", { class: "look" }, say(view.lookFor)), view.more && (!view.needsModels || lab.extra.ask) ? make("p", { class: "more" }, say(view.more)) : null, body, explanation(view));
      place.append(section);
      opened.set(view.id, { section, mounted: view.mount(body, lab) });
    }
    for (const [name, { section, mounted }] of opened) {
      section.hidden = name !== view.id;
      if (name === view.id) mounted.update();
    }
    return view;
  };
  return { show, update: () => opened.get(shown)?.mounted.update() };
}

/** @param {View[]} views @param {(id: string) => void} go */
function navigation(views, go) {
  // In a frame that holds its page as text, a link would lead to the page around it.
  const follow = (/** @type {string} */ id) => (/** @type {MouseEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(id);
  };
  const links = views.map((view, index) =>
    make("a", { href: `#${view.id}`, click: follow(view.id) }, make("span", { class: "number" }, String(index + 1)), say(view.title)),
  );
  const options = views.map((view) => make("option", { value: view.id, "data-en": view.title.en, "data-zh": view.title.zh }, translate(view.title)));
  const select = make("select", { ...named({ en: "View", zh: "视图" }), change: () => go(select.value) }, ...options);
  const mark = (/** @type {View} */ view) => {
    select.value = view.id;
    links.forEach((link, index) => {
      if (views[index] === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    });
  };
  return { element: make("nav", named({ en: "Views", zh: "视图" }), make("div", { class: "links" }, ...links), select), mark };
}

/** @param {() => void} changed */
function switches(changed) {
  const language = make("button", { type: "button", class: "switch", lang: "zh" });
  const theme = make("button", { type: "button", class: "switch" });
  const label = () => {
    const chinese = currentLanguage() === "zh";
    language.textContent = chinese ? "English" : "中文";
    language.lang = chinese ? "en" : "zh-Hans";
    const dark = document.documentElement.dataset.theme === "dark";
    theme.textContent = dark ? translate({ en: "Light", zh: "浅色" }) : translate({ en: "Dark", zh: "深色" });
  };
  language.addEventListener("click", () => {
    const next = currentLanguage() === "zh" ? "en" : "zh";
    setLanguage(next);
    chosen.set("language", next);
    label();
    changed();
  });
  theme.addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    chosen.set("theme", next);
    label();
    changed();
  });
  label();
  return make("div", { class: "switches" }, language, theme);
}

/** @param {Engine} engine */
export async function start(engine) {
  const root = /** @type {HTMLElement} */ (document.getElementById("lab"));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  // A page that embeds one view asks for its own language and theme: `lab.html?language=zh&theme=dark#touch`.
  const asked = new URLSearchParams(location.search);
  document.documentElement.dataset.theme = asked.get("theme") || chosen.get("theme") || (dark ? "dark" : "light");
  setLanguage((asked.get("language") || chosen.get("language") || navigator.language).startsWith("zh") ? "zh" : "en");
  const place = make("main", { id: "view" });
  const header = make(
    "header",
    {},
    make("a", { class: "skip", href: "#view", click: (/** @type {Event} */ event) => { event.preventDefault(); /** @type {HTMLElement | null} */ (place.querySelector("section:not([hidden]) h2"))?.focus(); } }, say({ en: "Skip to the view", zh: "跳到视图" })),
    make("p", { class: "brand" }, "statewise"),
    make("h1", {}, root.dataset.title === "The lab" ? say({ en: "The lab", zh: "实验室" }) : root.dataset.title),
  );
  fill(root, header, place);
  const data = /** @type {HTMLElement} */ (document.getElementById("data"));
  const bundle = await unpacked(/** @type {string} */ (data.textContent));
  data.remove();
  const lab = makeLab(bundle, engine);
  const views = VIEWS.filter((view) => (view.needs || []).every((key) => key in lab.extra) && (!view.needsModels || lab.models.length));
  const shell = viewer(views, lab, place);
  const go = (/** @type {string} */ id) => {
    location.hash = id;
  };
  const nav = navigation(views, go);
  header.append(switches(shell.update));
  if (asked.has("theme")) header.remove();
  else header.after(nav.element);
  const route = () => nav.mark(shell.show(location.hash.slice(1) || root.dataset.view || ""));
  addEventListener("hashchange", () => {
    route();
    window.scrollTo(0, 0);
  });
  let waiting = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(shell.update);
  });
  route();
  document.documentElement.dataset.ready = "yes";
}
