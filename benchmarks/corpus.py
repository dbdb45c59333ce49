"""Speed and peak memory of turning text into tokens and batches.

    python benchmarks/corpus.py --megabytes 100 char byte word bpe

Each kind of tokenizer runs in a separate process, so that its peak memory is its own.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

KINDS = ("char", "byte", "word", "bpe")
MEGABYTE = 10**6
SAMPLE = 2 * MEGABYTE


def write_text(path: Path, *, megabytes: int) -> None:
    """Zipf-distributed made-up words in lines of about a dozen, ASCII but for one word in fifty."""
    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    words = ["".join(random.choice(letters, size=size)) for size in random.integers(2, 11, size=20_000)]
    words[::50] = [word + "é" for word in words[::50]]
    vocabulary = np.array(words, dtype=object)
    written = 0
    with path.open("wb") as file:
        while written < megabytes * MEGABYTE:
            ids = np.minimum(random.zipf(1.2, size=120_000), len(words)) - 1
            lines = vocabulary[ids].reshape(-1, 12)
            data = ("\n".join(" ".join(line) for line in lines) + "\n").encode()
            written += file.write(data[: megabytes * MEGABYTE - written].decode(errors="ignore").encode() or b"\n")


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def megabytes_resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE


def measure(kind: str, path: Path, cache: Path) -> dict[str, float]:
    """One kind's row of the table."""
    from statewise.data import Batches, Tokenizer, open_corpus
    from statewise.specs import DataSpec

    imported = megabytes_resident()
    spec = DataSpec(text=(str(path),), tokenizer=kind)
    first = seconds(lambda: open_corpus(spec, cache=cache))
    peak = megabytes_resident()
    cached = seconds(lambda: open_corpus(spec, cache=cache))
    corpus = open_corpus(spec, cache=cache)

    with path.open(encoding="utf-8") as file:
        sample = file.read(SAMPLE)
    tokenizer: Tokenizer = corpus.tokenizer
    encode = min(seconds(lambda: tokenizer.encode(sample)) for _ in range(3))
    library = min(seconds(lambda: tokenizer.encode_with_library(sample)) for _ in range(3))

    batches = Batches(corpus.train.tokens, end_id=tokenizer.end_id, batch=32, window=64)
    batch = seconds(lambda: [batches.at(step) for step in range(200)]) / 200
    return {
        "vocab": tokenizer.vocab,
        "encode MB/s": SAMPLE / MEGABYTE / encode,
        "× library": library / encode,
        "first s": first,
        "first MB/s": path.stat().st_size / MEGABYTE / first,
        "cached s": cached,
        "imports MB": imported,
        "peak MB": peak,
        "32×64 µs": batch * 1e6,
        "train MB": train(kind, path),
    }


def train(kind: str, path: Path) -> float:
    """Peak memory after some steps of training and an evaluation on all of it, from the cached tokens."""
    import statewise

    settings = {"data.tokenizer": kind, "train.steps": 200, "train.evaluate_every": 100, "data.order": "random"}
    with tempfile.TemporaryDirectory() as folder:
        statewise.train("lstm", data=path, out=Path(folder, "run"), settings={**settings, "model.width": 64})
    return megabytes_resident()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="a file for the numbers")
    parser.add_argument("kinds", nargs="*", metavar="kind", help=f"of {', '.join(KINDS)}; none: all")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--measure", nargs=3, metavar=("KIND", "PATH", "CACHE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        kind, path, cache = arguments.measure
        print(json.dumps(measure(kind, Path(path), Path(cache))))
        return
    if arguments.megabytes < 1:
        parser.error("--megabytes takes a number from 1 on")
    for kind in arguments.kinds:
        if kind not in KINDS:
            parser.error(f"{kind!r} is not a kind; valid: {', '.join(KINDS)}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text.txt")
        write_text(path, megabytes=arguments.megabytes)
        print(f"{path.stat().st_size / MEGABYTE:.0f} MB of text")
        for number, kind in enumerate(arguments.kinds or KINDS):
            command = [sys.executable, __file__, "--measure", kind, str(path), str(Path(folder, "cache", "statewise"))]
            environment = {**os.environ, "XDG_CACHE_HOME": str(Path(folder, "cache"))}
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
            row = json.loads(done.stdout)
            rows.append({"kind": kind, **row})
            if number == 0:
                print("  ".join(["kind".ljust(5), *(name.rjust(11) for name in row)]))
            cells = (f"{value:11.3f}" if value < 10 else f"{value:11.0f}" for value in row.values())
            print("  ".join([kind.ljust(5), *cells]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"megabytes": arguments.megabytes, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
