// Sliders: one picture at a time. Without this script all of them are shown.
for (const figure of document.querySelectorAll("figure.live")) {
  const slides = [...figure.querySelectorAll(".slide")];
  if (slides.length < 2) continue;
  const control = document.createElement("label");
  const range = Object.assign(document.createElement("input"), { type: "range", min: 0, max: slides.length - 1, step: 1 });
  const said = document.createElement("output");
  const show = () => {
    slides.forEach((slide, at) => (slide.hidden = at !== Number(range.value)));
    said.textContent = slides[range.value].dataset.value;
    range.setAttribute("aria-valuetext", said.textContent);
  };
  const wide = (text) => [...text].reduce((sum, letter) => sum + (letter < "\u2e80" ? 1 : 2), 0);
  said.style.minWidth = `${Math.max(...slides.map((slide) => wide(slide.dataset.value)))}ch`; // so that the slider stays in place
  range.value = 0;
  range.addEventListener("input", show);
  control.className = "control";
  control.append(`${figure.dataset.label} `, range, said);
  figure.prepend(control);
  figure.classList.add("ready");
  show();
}

// Views of the lab, inside the page, in its language and theme. Without this script they are links.
for (const link of document.querySelectorAll("figure.lab a.open")) {
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: link.textContent });
  button.addEventListener("click", () => {
    const set = document.body.dataset.theme;
    const dark = set === "dark" || (set !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
    const frame = document.createElement("iframe");
    frame.title = link.textContent;
    frame.src = `lab.html?language=${document.documentElement.lang}&theme=${dark ? "dark" : "light"}#${link.dataset.view}`;
    button.replaceWith(frame);
    frame.focus();
  });
  link.replaceWith(button);
}

// The long names of tests in a table may break, so that their column does not take the width of the others.
for (const name of document.querySelectorAll("td code .pre")) {
  if (name.textContent.length > 40) name.innerHTML = name.innerHTML.replaceAll(/::|_/g, "$&<wbr>");
}
