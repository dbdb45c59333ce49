// @ts-check
/** The views, in the order of the page. */

import { askView } from "./views/ask.js";
import { attentionView } from "./views/attention.js";
import { billView } from "./views/bill.js";
import { clampView } from "./views/clamp.js";
import { eigenvaluesView } from "./views/eigenvalues.js";
import { hoverView } from "./views/hover.js";
import { stepView } from "./views/step.js";
import { touchView } from "./views/touch.js";
import { trainView } from "./views/train.js";
import { truncationView } from "./views/truncation.js";

/** @typedef {import("./dom.js").Words} Words */
/** @typedef {{equation: string, code: string, command: string}} How */
/** @typedef {{update: () => void}} Mounted */
/**
 * `needs`: keys of `extra` without which the view is left out; `needsModels`: it shows the page's models; `more`: what else
 * to try, with those that come with the package.
 * @typedef {{id: string, title: Words, lookFor: Words, more?: Words, how: How, needs?: string[], needsModels?: boolean,
 *   mount: (root: HTMLElement, lab: any) => Mounted}} View
 */

/** @type {View[]} */
export const VIEWS = [
  stepView, touchView, hoverView, attentionView, truncationView, askView, eigenvaluesView, clampView, trainView, billView,
];
