"use strict";
(() => {
  document.documentElement.classList.add("script");

  // Point at a curve or at its name: the others fade.
  for (const chart of document.querySelectorAll("svg.chart")) {
    const series = [...chart.querySelectorAll(".series")];
    for (const one of series) {
      one.addEventListener("pointerenter", () => {
        chart.classList.add("lit");
        for (const other of series) other.classList.toggle("on", other.dataset.series === one.dataset.series);
      });
      one.addEventListener("pointerleave", () => chart.classList.remove("lit"));
    }
  }

  // A saved drawing has no page around it: the colours it takes from the page go with it, always the light ones.
  const rules = () => {
    const css = document.querySelector("style").textContent;
    const light = css.slice(css.indexOf("--paper"), css.indexOf("}"));
    const own = css.split("\n").filter((line) => /^\.chart|^\.c\d/.test(line)).join("\n");
    return `svg{${light} background:#fff;font-family:sans-serif}\n${own.replaceAll(".chart ", "")}`;
  };
  const standalone = (chart) => {
    const copy = chart.cloneNode(true);
    const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
    style.textContent = rules();
    copy.classList.remove("lit");
    copy.prepend(style);
    return new XMLSerializer().serializeToString(copy);
  };
  const save = (blob, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  for (const button of document.querySelectorAll("button[data-save]")) {
    button.addEventListener("click", () => {
      const chart = document.getElementById(button.dataset.name).querySelector("svg.chart");
      const text = standalone(chart);
      if (button.dataset.save === "svg") return save(new Blob([text], { type: "image/svg+xml" }), `${button.dataset.name}.svg`);
      const image = new Image();
      image.onload = () => {
        const canvas = document.createElement("canvas");
        canvas.width = 2 * chart.viewBox.baseVal.width;
        canvas.height = 2 * chart.viewBox.baseVal.height;
        canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
        canvas.toBlob((blob) => save(blob, `${button.dataset.name}.png`), "image/png");
      };
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
    });
  }

  // A column is sorted by its title; what has no value stays at the end.
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const heads = [...table.querySelectorAll("th")];
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = (row) => row.cells[column].dataset.value;
        const body = table.tBodies[0];
        const order = (a, b) => {
          if (value(a) === "" || value(b) === "") return (value(a) === "") - (value(b) === "");
          const gap = Number(value(a)) - Number(value(b));
          return (up ? 1 : -1) * (Number.isNaN(gap) ? value(a).localeCompare(value(b)) : gap);
        };
        body.append(...[...body.rows].sort(order));
      });
    });
  }

  // On paper nothing is folded away.
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
})();
