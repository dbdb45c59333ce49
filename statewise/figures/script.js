"use strict";
(() => {
  document.documentElement.classList.add("script");
  const charts = [...document.querySelectorAll("svg.chart")];
  const seriesOf = new Map(charts.map((chart) => [chart, [...chart.querySelectorAll(".series")]]));

  // Highlight: an entry in every chart that has it, a series without an entry in its own chart only.
  const light = (some, matches) => {
    for (const chart of some) {
      const series = seriesOf.get(chart), on = series.filter(matches);
      chart.classList.toggle("lit", on.length > 0);
      for (const one of series) one.classList.toggle("on", on.includes(one));
    }
  };
  const keys = [...document.querySelectorAll(".legend button")];
  const entries = (key) => key.dataset.entries.split("\n");
  const among = (names) => (one) => names.includes(one.dataset.entry);
  let pinned = null; // the key that was clicked
  const rest = () => light(charts, pinned ? among(entries(pinned)) : () => false);
  for (const [chart, series] of seriesOf) {
    for (const one of series) {
      one.addEventListener("pointerenter", () => (one.dataset.entry !== undefined ? light(charts, among([one.dataset.entry]))
        : light([chart], (other) => other.dataset.series === one.dataset.series)));
      one.addEventListener("pointerleave", rest);
    }
  }
  for (const key of keys) {
    key.addEventListener("pointerenter", () => light(charts, among(entries(key))));
    key.addEventListener("pointerleave", rest);
    key.addEventListener("click", () => {
      pinned = pinned === key ? null : key;
      for (const other of keys) other.setAttribute("aria-pressed", String(other === pinned));
      rest();
    });
  }

  // Values of the nearest point, or of the cell under the pointer. The browser's own tooltips would lie on top.
  const tip = document.body.appendChild(document.createElement("div"));
  tip.className = "tip";
  tip.hidden = true;
  for (const chart of charts) {
    const label = [...chart.children].filter((one) => one.matches("title, desc")).map((one) => one.textContent).join(". ");
    chart.setAttribute("aria-label", label);
    for (const title of [...chart.querySelectorAll("title")]) {
      title.parentNode.dataset.tip = title.textContent;
      title.remove();
    }
  }
  const cells = new WeakMap(); // of a map that is one image: its CSV, read when it is first pointed at
  const records = (text) => [...text.matchAll(/("(?:[^"]|"")*"|[^,\r\n]*)(,|\r?\n|$)/g)].reduce((rows, [, cell, end]) => {
    rows.at(-1).push(cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell);
    if (end !== ",") rows.push([]);
    return rows;
  }, [[]]);
  const cell = (image, event) => {
    if (!cells.has(image)) {
      const link = image.closest("figure").querySelector(".export a").href;
      cells.set(image, records(decodeURIComponent(link.slice(link.indexOf(",") + 1)).replace("\ufeff", "")));
    }
    const box = image.getBoundingClientRect(), { rows, columns } = image.dataset;
    const row = Math.floor((event.clientY - box.top) / box.height * rows), column = Math.floor((event.clientX - box.left) / box.width * columns);
    const [head, ...body] = cells.get(image), found = body[row * columns + column];
    return found && found[2] ? found.map((value, at) => `${head[at]}: ${at < 2 ? value : +Number(value).toPrecision(4)}`).join("\n") : "";
  };
  const nearest = (chart, event) => {
    const box = chart.getBoundingClientRect(), zoom = chart.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * zoom, y = (event.clientY - box.top) * zoom;
    let found = null, least = 28 ** 2;
    for (const point of chart.querySelectorAll("[data-at]")) {
      const [left, top] = point.dataset.at.split(" ");
      const away = (left - x) ** 2 + (top - y) ** 2;
      if (away < least && (!chart.classList.contains("lit") || point.closest(".on"))) [found, least] = [point, away];
    }
    return found;
  };
  const said = (chart, event) => {
    const under = event.target.closest("rect[data-tip]");
    if (under) return under.dataset.tip;
    if (event.target.matches("image.map")) return cell(event.target, event);
    return nearest(chart, event)?.dataset.tip || "";
  };
  for (const chart of charts) {
    const show = (event) => {
      const text = said(chart, event);
      tip.hidden = !text;
      if (!text) return;
      tip.textContent = text;
      const right = document.documentElement.clientWidth - tip.offsetWidth - 8;
      tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, right))}px`;
      const above = event.clientY + 18 + tip.offsetHeight > innerHeight;
      tip.style.top = `${above ? event.clientY - tip.offsetHeight - 12 : event.clientY + 18}px`;
    };
    chart.addEventListener("pointermove", show);
    chart.addEventListener("pointerdown", show);
    chart.addEventListener("pointerleave", () => { tip.hidden = true; });
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

  // Click a column header to sort; empty cells stay at the end.
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

  // A link or a print-out shows what is folded.
  const unfold = () => { const to = location.hash && document.getElementById(location.hash.slice(1)); if (to) for (let one = to; one; one = one.parentElement) if (one.matches("details")) one.open = true; };
  addEventListener("hashchange", unfold);
  unfold();
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
})();
