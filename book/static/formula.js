// Formulas are TeX in the page; without this script they stay readable as such.
for (const place of document.querySelectorAll("span.math, div.math.display > .tex")) {
  const displayMode = place.classList.contains("tex");
  katex.render(place.textContent, place, { displayMode, throwOnError: true });
  // No line begins with the comma behind a formula: no break after the formula's last part.
  if (displayMode || !/^[,.;:!?)\]，。；：、！？）”]/.test(place.nextSibling?.data ?? "")) continue;
  const kept = Object.assign(document.createElement("span"), { className: "kept" });
  const last = place.querySelector(".katex-html").lastElementChild;
  last.replaceWith(kept);
  kept.append(last);
}
