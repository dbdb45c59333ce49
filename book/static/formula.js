// Formulas are TeX in the page; without this script they stay readable as such.
for (const place of document.querySelectorAll("span.math, div.math.display > .tex")) {
  const displayMode = place.classList.contains("tex");
  katex.render(place.textContent, place, { displayMode, throwOnError: true });
}
