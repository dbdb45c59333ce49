"use strict";
(() => {
  // The same figures with plotly: zoom, exact values, series that can be left out. On paper the drawings stand instead.
  const { figures, colours } = JSON.parse(document.getElementById("figures").textContent);
  const HUES = 8, DASHES = ["solid", "dash", "dot"];
  const MARKS = ["circle", "square", "diamond", "triangle-up"];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const number = (series, at) => (series.entry === null ? at : colours[series.entry]);
  const faint = (colour, share) => `${colour}${Math.round(share * 255).toString(16).padStart(2, "0")}`;
  const off = new Map();
  const hand = getComputedStyle(document.body).fontFamily;

  // Names of rows and columns, each as much of it as there is room for, measured as it will be written.
  const SMALL = 11, pen = document.createElement("canvas").getContext("2d");
  pen.font = `${SMALL}px ${hand}`;
  const breadth = (text) => pen.measureText(text).width;
  const shortened = (text, room) => {
    if (breadth(text) <= room) return text;
    const letters = [...text];
    while (letters.length && breadth(`${letters.join("")}…`) > room) letters.pop();
    return `${letters.join("")}…`;
  };
  // Names that begin alike lose their middle instead, so that they can be told apart.
  const middling = (text, room) => {
    const letters = [...text], head = letters.slice(0, letters.length / 2), tail = letters.slice(letters.length / 2);
    while (tail.length && breadth(`${head.join("")}…${tail.join("")}`) > room) (head.length >= tail.length ? head.pop() : tail.shift());
    return `${head.join("")}…${tail.join("")}`;
  };
  const toldApart = (names, room) => {
    const short = names.map((name) => shortened(name, room));
    const alike = (at) => short.some((other, i) => other === short[at] && names[i] !== names[at]);
    return names.map((name, at) => (alike(at) ? middling(name, room) : short[at]));
  };
  const widest = (names) => names.reduce((most, name) => Math.max(most, breadth(name)), 0);

  const binary = (value) => {
    const at = Math.min(Math.max(Math.floor(Math.log2(value) / 10), 0), 4);
    return `${+(value / 2 ** (10 * at)).toPrecision(3)} ${["B", "KiB", "MiB", "GiB", "TiB"][at]}`;
  };
  const seconds = (value) => (value < 1e-3 ? `${+(value * 1e6).toPrecision(3)} µs`
    : value < 1 ? `${+(value * 1e3).toPrecision(3)} ms` : `${+value.toPrecision(3)} s`);
  const counted = (value) => {
    const at = Math.min(Math.max(Math.floor(Math.log10(value) / 3), 0), 5);
    return `${+(value / 1000 ** at).toPrecision(3)}${["", "k", "M", "G", "T", "P"][at]}`;
  };
  const FORMAT = { plain: { exponentformat: "e" }, whole: { tickformat: "," }, seconds: { ticksuffix: " s" }, count: { tickformat: "~s" } };
  const FORMS = { bytes: binary, seconds, count: counted, whole: (v) => v.toLocaleString("en"), plain: (v) => `${+v.toPrecision(4)}` };

  const axis = (figure, which, narrow, wide) => {
    const one = figure[which], ticks = figure.ticks[`${which}-${narrow ? "narrow" : "wide"}`];
    const base = { title: { text: plain(one.label), standoff: 8, font: { size: narrow ? 11 : 13 } }, gridcolor: css("--rule"), linecolor: css("--quiet"),
      zeroline: false, automargin: true, tickfont: { color: css("--quiet"), size: SMALL } };
    if (figure.grid) return { ...base, ...cells(figure, which, narrow, wide) };
    if (one.scale === "category") {
      return { ...base, tickvals: one.categories.map((_, at) => at), range: [one.categories.length - 0.4, -0.6],
        ticktext: toldApart(one.categories, 0.4 * wide).map(plain) };
    }
    const log = one.scale === "log";
    const equal = figure.kind === "plane" && which === "y" ? { scaleanchor: "x" } : {};
    const range = log ? [Math.log10(ticks.low), Math.log10(ticks.high)] : [ticks.low, ticks.high];
    // Plotly's own ticks get finer as one zooms in, but it has no words for bytes, and too many on a logarithm.
    if (!log && one.unit !== "bytes") return { ...base, ...equal, type: "linear", range, nticks: narrow ? 4 : 7, ...FORMAT[one.unit] };
    return { ...base, type: log ? "log" : "linear", range, tickvals: ticks.values, ticktext: ticks.texts.map(plain) };
  };

  // A map's places: names where it has some, else the values that its columns and rows stand for, rows from the top.
  // Only so many names as have room: a line of letters each, in what the other axis and the key of colours leave.
  const LINE = 16, KEY = 84;
  const shown = (figure, which, narrow, wide) => toldApart(figure[which].categories, (narrow ? 0.22 : 0.3) * wide);
  const below = (figure, narrow, wide) => 40 + (widest(shown(figure, "x", narrow, wide)) || 15);
  const cells = (figure, which, narrow, wide) => {
    const names = shown(figure, which, narrow, wide), many = names.length;
    const upside = which === "y" ? { autorange: "reversed" } : {};
    if (!many) return { ...upside, nticks: narrow ? 4 : 7 };
    const beside = 30 + (widest(shown(figure, "y", narrow, wide)) || 38);
    const room = which === "x" ? wide - beside - KEY : tall(figure, narrow, wide) - below(figure, narrow, wide);
    const every = Math.ceil(many / Math.max(Math.floor(room / LINE), 1));
    const named = names.map((_, at) => at).filter((at) => at % every === 0);
    return { ...upside, tickvals: named, tickangle: which === "x" ? -90 : 0, showgrid: false,
      ticktext: named.map((at) => plain(names[at])) };
  };
  const heat = (figure) => {
    const { values, label, unit, log } = figure.grid, [low, high] = figure.ends;
    const place = (which, at) => (figure[which].categories.length ? plain(figure[which].categories[at])
      : `${plain(figure[which].label)} ${figure.grid[which][at]}`);
    const shade = (value) => (value === null ? null : log ? Math.log10(Math.max(value, low)) : value);
    const ends = log ? [Math.log10(low), Math.log10(high)] : [low, high];
    const bar = { thickness: 12, len: 0.9, title: { text: plain(label), side: "right", font: { size: 11 } }, tickfont: { size: 10 } };
    const marks = [0, 0.25, 0.5, 0.75, 1].map((part) => ends[0] + part * (ends[1] - ends[0]));
    if (log) Object.assign(bar, { tickvals: marks, ticktext: marks.map((one) => `${+(10 ** one).toPrecision(2)}`) });
    return [{ type: "heatmap", z: values.map((row) => row.map(shade)), zmin: ends[0], zmax: ends[1], colorscale: figure.palette,
      x: figure.x.categories.length ? undefined : figure.grid.x, y: figure.y.categories.length ? undefined : figure.grid.y,
      hoverinfo: "text", hoverongaps: false, colorbar: bar,
      text: values.map((row, at) => row.map((value, across) => (value === null ? "" :
        `${place("y", at)}<br>${place("x", across)}<br>${plain(label)}: ${plain(FORMS[unit](value))}`))) }];
  };

  const traces = (figure) => figure.grid ? heat(figure) : figure.series.flatMap((series, at) => {
    const nth = number(series, at), colour = css(`--c${nth % HUES}`);
    const visible = !(off.get(figure.name) || new Set()).has(at);
    const line = { color: colour, width: 2, dash: DASHES[Math.floor(nth / HUES) % DASHES.length] };
    const form = (one, value) => (one.scale === "category" ? plain(one.categories[Math.round(value)]) : plain(FORMS[one.unit](value)));
    const text = series.x.map((x, i) => `<b>${plain(series.name)}</b><br>${plain(figure.x.label)}: ${form(figure.x, x)}`
      + `<br>${plain(figure.y.label)}${figure.y.label ? ": " : ""}${form(figure.y, series.y[i])}`
      + (series.low.length ? `<br>from ${plain(`${+series.low[i].toPrecision(5)}`)} to ${plain(`${+series.high[i].toPrecision(5)}`)}` : ""));
    if (figure.kind === "bars") {
      const ends = { type: "data", symmetric: false, color: css("--ink"), thickness: 1.5, width: 0,
        array: series.high.map((v, i) => v - series.x[i]), arrayminus: series.low.map((v, i) => series.x[i] - v) };
      return [{ type: "bar", orientation: "h", name: plain(series.name), x: series.x, y: series.y, visible, text: text, textposition: "none",
        hoverinfo: "text", showlegend: false, marker: { color: colour, opacity: 0.85 }, ...(series.low.length ? { error_x: ends } : {}) }];
    }
    const many = figure.kind === "line" && series.x.length > 48;
    const main = { type: "scatter", name: plain(series.name), x: series.x, y: series.y, visible, text, hoverinfo: "text",
      mode: figure.kind !== "line" ? "markers" : many ? "lines" : "lines+markers", line, showlegend: false,
      marker: { color: colour, symbol: MARKS[(nth + Math.floor(nth / HUES)) % 4], size: series.small || figure.kind === "scatter" || figure.kind === "plane" ? 6 : figure.kind === "line" && series.x.length > 1 ? (figure.series.length > HUES ? 4 : 6) : 11 } };
    if (!series.low.length) return [main];
    if (figure.kind === "line") {
      const band = { type: "scatter", x: [...series.x, ...[...series.x].reverse()], y: [...series.high, ...[...series.low].reverse()],
        fill: "toself", fillcolor: faint(colour, 0.14), line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false, visible };
      return [band, main];
    }
    const middle = figure.kind === "dots" ? series.x : series.y;
    const bars = { type: "data", symmetric: false, color: colour, thickness: 2, width: 0,
      array: series.high.map((v, i) => v - middle[i]), arrayminus: series.low.map((v, i) => middle[i] - v) };
    return [{ ...main, [figure.kind === "dots" ? "error_x" : "error_y"]: bars }];
  });

  const tall = (figure, narrow, wide) => {
    const rows = figure.grid ? figure.grid.values.length : figure.y.categories.length;
    if (figure.grid) return Math.min(Math.max(rows * 14, 260), narrow ? 380 : 560) + below(figure, narrow, wide);
    const each = figure.kind === "bars" ? Math.max(24, 9 * figure.series.length + 8) : 24;
    return rows ? 70 + each * rows : figure.kind === "plane" ? (narrow ? 340 : 460) : narrow ? 300 : 360;
  };
  const circle = (figure) => (figure.circle == null ? [] : [{ type: "circle", xref: "x", yref: "y", x0: -figure.circle,
    x1: figure.circle, y0: -figure.circle, y1: figure.circle, line: { color: css("--quiet"), width: 1 } }]);

  const draw = (figure) => {
    const place = document.querySelector(`.live[data-figure="${figure.name}"]`);
    const chart = place.firstElementChild || place.appendChild(document.createElement("div"));
    const narrow = place.clientWidth < 480;
    const layout = { paper_bgcolor: css("--paper"), plot_bgcolor: css("--paper"), font: { color: css("--ink"), size: 12, family: hand },
      margin: { l: 8, r: 14, t: 8, b: 8 }, height: tall(figure, narrow, place.clientWidth), shapes: circle(figure), bargap: 0.25, hovermode: "closest",
      xaxis: axis(figure, "x", narrow, place.clientWidth), yaxis: axis(figure, "y", narrow, place.clientWidth), showlegend: false };
    return window.Plotly.react(chart, traces(figure), layout, { responsive: true, displaylogo: false, displayModeBar: "hover",
      modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], toImageButtonOptions: { filename: figure.name, scale: 2 } });
  };

  // One's own legend: it wraps under the figure instead of lying on it, and keys can be reached by keyboard.
  const legend = (figure) => {
    if (figure.series.length < 2) return;
    const keys = document.createElement("div");
    keys.className = "keys";
    figure.series.forEach((series, at) => {
      const key = document.createElement("button");
      key.setAttribute("aria-pressed", "true");
      key.title = "show or hide";
      const still = document.getElementById(figure.name).querySelector(`.wide .key[data-series="${at}"]`);
      const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const drawn = still.cloneNode(true);
      drawn.querySelector("text").remove();
      swatch.setAttribute("viewBox", `${still.dataset.left - 1} ${still.dataset.top} 24 14`);
      swatch.setAttribute("class", "chart");
      swatch.setAttribute("style", "width:24px;height:14px;margin:0");
      swatch.append(drawn);
      key.append(swatch, document.createTextNode(series.name));
      key.addEventListener("click", () => {
        const hidden = off.get(figure.name) || new Set();
        hidden.has(at) ? hidden.delete(at) : hidden.add(at);
        off.set(figure.name, hidden);
        key.setAttribute("aria-pressed", String(!hidden.has(at)));
        draw(figure);
      });
      keys.append(key);
    });
    document.querySelector(`.live[data-figure="${figure.name}"]`).append(keys);
  };

  document.documentElement.classList.add("interactive");
  for (const figure of figures) { draw(figure); legend(figure); }
  dark.addEventListener("change", () => figures.forEach(draw));
  let waiting = 0; // a window that is being drawn larger says so many times
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => figures.forEach(draw), 150); });
})();
