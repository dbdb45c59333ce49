// Formulas are TeX in the page; without this script they stay readable as such.
for (const place of document.querySelectorAll("span.math, div.math.display > .tex")) {
  const displayMode = place.classList.contains("tex");
  katex.render(place.textContent, place, { displayMode, throwOnError: true });
  // No line begins with the comma behind a formula: a word joiner holds them together.
  const next = place.nextSibling;
  if (next?.nodeType === Node.TEXT_NODE && /^[,.;:!?)\]，。；：、！？）”]/.test(next.data)) next.data = `\u2060${next.data}`;
}
