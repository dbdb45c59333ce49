// Formulas are TeX in the page; without this script they stay readable as such.
for (const place of document.querySelectorAll("span.math, div.math.display > .tex")) {
  const displayMode = place.classList.contains("tex");
  katex.render(place.textContent, place, { displayMode, throwOnError: true });
  // No line begins with the comma behind a formula: no break after the formula's last part, and a word joiner.
  const behind = place.nextSibling;
  if (displayMode || !/^[,.;:!?)\]，。；：、！？）”]/.test(behind?.data ?? "")) continue;
  const kept = Object.assign(document.createElement("span"), { className: "kept" });
  const last = place.querySelector(".katex-html").lastElementChild;
  last.replaceWith(kept);
  kept.append(last);
  behind.data = `\u2060${behind.data}`;
}
