// @ts-check
/** Saves a picture or its numbers as a file: SVG, PNG, CSV. */

/** A picture and its numbers. @typedef {{svg: SVGSVGElement, rows: (string | number)[][]}} Picture */

/** A spreadsheet takes text that starts with these for a formula. */
const FORMULA = /^[=+\-@\t\r]/;

/** @param {(string | number)[][]} rows */
export function csv(rows) {
  const cell = (/** @type {string | number} */ value) => {
    if (typeof value === "number") return String(value);
    const safe = FORMULA.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return `\ufeff${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

/** A drawing with the rules and colours of the page, since it has no page around it. @param {SVGSVGElement} drawing */
function standalone(drawing) {
  const copy = /** @type {SVGSVGElement} */ (drawing.cloneNode(true));
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(drawing.viewBox.baseVal.width));
  copy.setAttribute("height", String(drawing.viewBox.baseVal.height));
  const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
  const theme = getComputedStyle(document.documentElement);
  const css = /** @type {HTMLStyleElement} */ (document.querySelector("style")).textContent || "";
  const own = css.split("\n").filter((line) => /^\.chart|^\.c\d/.test(line)).join("\n").replaceAll(".chart ", "");
  const resolved = own.replaceAll(/var\((--(?!c\))[\w-]+)\)/g, (_, name) => theme.getPropertyValue(name).trim());
  style.textContent = `svg{background:${theme.getPropertyValue("--paper")};font-family:sans-serif}\n${resolved}`;
  copy.prepend(style);
  return new XMLSerializer().serializeToString(copy);
}

/** @param {Blob} blob @param {string} name */
function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** @param {string} text @param {number} width @param {number} height @param {(blob: Blob) => void} then */
function painted(text, width, height, then) {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = 2 * width;
    canvas.height = 2 * height;
    /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => blob && then(blob), "image/png");
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

/** @param {string} name @param {Picture} picture @param {"csv" | "svg" | "png"} format */
export function download(name, { svg, rows }, format) {
  if (format === "csv") return save(new Blob([csv(rows)], { type: "text/csv" }), `${name}.csv`);
  const text = standalone(svg), { width, height } = svg.viewBox.baseVal;
  if (format === "svg") save(new Blob([text], { type: "image/svg+xml" }), `${name}.svg`);
  else painted(text, width, height, (blob) => save(blob, `${name}.png`));
}
