"""The lab: its first paint, from a key press to the repaint, the interpreter and onnxruntime-web, from a run to a page.

    python benchmarks/lab.py paint [--json FILE]
    python benchmarks/lab.py repaint [--symbols N] [--json FILE]
    python benchmarks/lab.py engines --package node_modules/onnxruntime-web [--json FILE]
    python benchmarks/lab.py start --data TEXT [--model NAME] [--steps N] [--json FILE]

`paint`: the whole lineage is opened from disk five times in each browser; first contentful paint, and what was fetched
or complained. `repaint`: the five models that the page begins with read a text; letters are typed at its end, and each
is timed from the browser's time stamp of the key to the end of the frame that shows it. `engines`: in one page, each
engine reads ten tokens in turn, from a state of its own; medians of a step. `start`: a run is trained and becomes a
page; processor time and wall time of each part. The first three need Chromium and Playwright; Firefox is left out where
there is none.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median, quantiles
from typing import Any

from command_line import console, options, positive, readable, write
from rich.table import Table

from statewise.lab import foreign, lineage, page
from statewise.lab.onnxruntime import onnx_record
from statewise.lab.page import script
from statewise.models import LINEAGE, build

ROOT = Path(__file__).parents[1]
OPENED = 5  # times that each browser opens the page
KEYS, PAUSE = 60, 100  # letters that are typed, milliseconds between two
MODELS = ("elman", "lstm", "gru", "transformer", "mamba2", "ttt_linear")
PARAMETERS = (60_000, 250_000, 1_000_000)
WIDTHS = range(16, 1200, 16)
VOCAB = 65
WATCH = """() => {
  const view = document.querySelector('.view'), { port1, port2 } = new MessageChannel();
  let began = 0;
  window.times = [];
  addEventListener('keydown', (event) => { began = event.timeStamp; }, true);
  port1.onmessage = () => times.push(performance.now() - began);
  new MutationObserver(() => { if (began && view.dataset.read === 'yes') port2.postMessage(0); })
    .observe(view, { attributes: true, attributeFilter: ['data-read'] });
}"""
RACE = """async ({ record, turns, each }) => {
  const machine = engines.theirs.makeMachine(record), none = new Map();
  const ours = Object.getPrototypeOf(Object.getPrototypeOf(machine)).stepWith;
  const theirs = (state, token) => machine.computed(state, token);
  const read = [(state, token) => ours.call(machine, state, token, none), theirs];
  const states = [machine.start(), machine.start()], times = [[], []];
  let token = 1;
  for (let turn = 0; turn < turns; turn += 1) for (const side of turn % 2 ? [1, 0] : [0, 1]) {
    const began = performance.now();
    for (let i = 0; i < each; i += 1) {
      const step = read[side](states[side], (token = (token * 7 + 3) % 61));
      states[side] = (step instanceof Promise ? await step : step).state;
    }
    times[side].push((performance.now() - began) / each);
  }
  return times;
}"""


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("part", choices=("paint", "repaint", "engines", "start"))
    parser.add_argument("--symbols", type=positive, default=200, help="length of the text that is read")
    parser.add_argument("--package", type=Path, help="the folder of the npm package onnxruntime-web")
    parser.add_argument("--data", type=readable, help="a text to train on")
    parser.add_argument("--model", default="lstm")
    parser.add_argument("--steps", type=positive, default=100)
    given = parser.parse_args()
    if given.part == "start":
        if given.data is None:
            parser.error("start needs --data")
        return start(given.model, given.data, given.steps, given.json)
    if given.part == "engines" and given.package is None:
        parser.error("engines needs --package: npm install onnxruntime-web")
    sys.path.insert(0, str(ROOT / "tests"))
    from inspected_page import opened_browser

    if given.part == "paint":
        return paint(given.json)
    with opened_browser() as browser, tempfile.TemporaryDirectory() as folder:
        if given.part == "repaint":
            repaint(browser, Path(folder) / "lab.html", given.symbols, given.json)
        else:
            engines(browser, Path(folder) / "lab.html", given.package, given.json)


def paint(json: Path | None) -> None:
    sys.path.insert(0, str(ROOT / "tests/lab"))
    from firefox import BROWSERS, opened_firefox
    from inspected_page import Watched, opened_browser

    ready, first = (
        "document.querySelector('.view[data-read=yes]')",
        "performance.getEntriesByName('first-contentful-paint')",
    )
    times: dict[str, list[float]] = {}
    wrong: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lab.html"
        path.write_text(page(lineage(), "The lab"), encoding="utf-8")
        size = path.stat().st_size
        with opened_browser() as browser:
            for _ in range(OPENED):
                with Watched(browser, path) as seen:
                    seen.page.wait_for_selector(".view[data-read=yes]")
                    times.setdefault("chromium", []).append(seen.page.evaluate(f"{first}[0].startTime"))
                    wrong.setdefault("chromium", []).extend(seen.wrong)
        if any(map(shutil.which, BROWSERS)):
            (Path(folder) / "firefox").mkdir()
            with opened_firefox(Path(folder) / "firefox") as firefox:
                for _ in range(OPENED):
                    firefox.open(path)
                    firefox.until(ready)
                    times.setdefault("firefox", []).append(firefox.run(f"return {first}[0].startTime;"))
                    wrong.setdefault("firefox", []).extend(firefox.wrong())
    table = Table("browser", "bytes", "first paint, median", "slowest", "requests and complaints")
    for name, values in times.items():
        table.add_row(name, f"{size:,}", f"{median(values):.0f} ms", f"{max(values):.0f} ms", str(len(wrong[name])))
    console().print(table)
    write(json, [{"browser": name, "bytes": size, "ms": times[name], "wrong": wrong[name]} for name in times])


def repaint(browser: Any, path: Path, symbols: int, json: Path | None) -> None:
    path.write_text(page(lineage(), "The lab", view="step"), encoding="utf-8")
    shown = browser.new_page(viewport={"width": 1280, "height": 900})
    shown.goto(path.as_uri())
    shown.wait_for_selector(".view[data-read=yes]")
    box = shown.locator("textarea").first
    text = (box.input_value() * (1 + symbols // 100))[: symbols - KEYS // 2]
    box.fill(text)
    shown.wait_for_timeout(1000)
    shown.evaluate(WATCH)
    box.focus()
    shown.keyboard.press("Control+End")
    shown.evaluate("times.length = 0")
    for number in range(KEYS):
        shown.keyboard.press("etaoin shrdlu"[number % 13])
        shown.wait_for_timeout(PAUSE)
    times = shown.evaluate("times")
    low, middle, high = quantiles(times, n=4)
    table = Table("symbols", "keys", "lower quartile", "median", "upper quartile")
    table.add_row(str(symbols), str(len(times)), *(f"{value:.1f} ms" for value in (low, middle, high)))
    console().print(table)
    write(json, [{"symbols": symbols, "milliseconds": times}])


def engines(browser: Any, path: Path, package: Path, json: Path | None) -> None:
    runtime = foreign(package)
    program = script("ort").replace("$shell.start($ort);", "globalThis.engines = { theirs: $ort };")
    path.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><script type="x" id="ort">{runtime.binary}</script>'
        f'<script type="module">{runtime.module}</script><script>{program}</script>',
        encoding="utf-8",
    )
    shown = browser.new_page()
    shown.goto(path.as_uri())
    table, rows = Table("model", "parameters", "interpreter", "onnxruntime-web", "times as fast"), []
    for name in MODELS:
        (row,) = (row for row in LINEAGE if row.name == name)
        for wanted in PARAMETERS:
            machine, size = _sized(row.spec, wanted)
            about = {
                "name": name,
                "kind": name,
                "family": "",
                "year": 0,
                "labels": None,
                "parameters": size,
                "first": 0,
            }
            tokenizer = {"kind": "char", "tokens": [], "unknown": None, "end": 0, "lower": False}
            record = {**about, "tokenizer": tokenizer, **onnx_record(machine, machine.init_state(1))}
            times = shown.evaluate(RACE, {"record": record, "turns": 24, "each": 10})
            ours, theirs = (median(some[4:]) for some in times)  # the first turns compile
            table.add_row(name, f"{size:,}", f"{ours:.2f} ms", f"{theirs:.2f} ms", f"{theirs / ours:.2f}")
            rows.append({"model": name, "parameters": size, "interpreter_ms": ours, "onnxruntime_ms": theirs})
    console().print(table)
    write(json, rows)


def _sized(spec: Any, wanted: int) -> tuple[Any, int]:
    """The widest model that has no more parameters than wanted."""
    best = None
    for width in WIDTHS:
        made = build(spec.model_copy(update={"width": width}), vocab=VOCAB)
        size = sum(part.numel() for part in made.parameters())
        if size > wanted and best is not None:
            break
        best = width, size
    assert best is not None
    return build(spec.model_copy(update={"width": best[0]}), vocab=VOCAB, seed=0).eval(), best[1]


def start(model: str, data: Path, steps: int, json: Path | None) -> None:
    table, rows = Table("command", "processor", "wall"), []
    with tempfile.TemporaryDirectory() as folder:
        run = f"{folder}/run"
        words = {
            "train": ["train", model, "--data", str(data), "--out", run, "--set", f"train.steps={steps}", "--quiet"],
            "lab": ["lab", run, "--out", f"{folder}/lab.html"],
        }
        for name, command in words.items():
            before, began = getrusage(RUSAGE_CHILDREN), time.perf_counter()
            done = subprocess.run([sys.executable, "-m", "statewise", *command], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(done.stderr)
            after, wall = getrusage(RUSAGE_CHILDREN), time.perf_counter() - began
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            table.add_row(f"statewise {name}", f"{used:.1f} s", f"{wall:.1f} s")
            rows.append({"command": name, "processor_seconds": used, "wall_seconds": wall})
    table.add_row("both", *(f"{sum(row[key] for row in rows):.1f} s" for key in ("processor_seconds", "wall_seconds")))
    console().print(table)
    write(json, rows)


if __name__ == "__main__":
    main()
