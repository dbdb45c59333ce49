"""A text larger than memory: tokens in shards, compared with litdata, mosaicml-streaming and datasets on the same file.

    python benchmarks/shards.py --large 4000 --megabytes 60

Two parts. `--large` megabytes are built by the byte tokenizer and started from within 2 GB (of a control group, where
one can be made, so that the file cache counts too): memory and the time to the first batch, whatever the tokenizer.
`--megabytes` are tokenised by one BPE vocabulary by everybody, which is compared by CPU seconds with the bare library.
A peer that is not installed is left out. The loader's share of a step is that of an LSTM's.
"""

import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from command_line import console, options, positive, write
from corpus import MEGABYTE, write_text
from rich.table import Table

LIMIT = 2 * 10**9
SLICE = 1 << 20
BATCH, WINDOW = 32, 256
_GROUPS = Path("/sys/fs/cgroup/memory")  # version 1


def cpu_seconds() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def slices(path: Path) -> Iterator[str]:
    """About a megabyte at a time, cut at line ends."""
    with path.open(encoding="utf-8") as file:
        while text := file.read(SLICE):
            yield text + file.readline()


def library(tokenizer: str) -> Any:
    import tokenizers

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return tokenizers.Tokenizer.from_file(tokenizer)


def bare(text: Path, tokenizer: str, out: Path, workers: int) -> None:
    """What cannot be saved: the library alone, one thread, results thrown away."""
    backend = library(tokenizer)
    for part in slices(text):
        for encoded in backend.encode_batch_fast([part[at : at + (1 << 17)] for at in range(0, len(part), 1 << 17)]):
            _ = encoded.ids


def statewise(text: Path, tokenizer: str, out: Path, workers: int) -> None:
    from statewise.data import build_shards
    from statewise.specs import DataSpec

    build_shards(DataSpec(text=(str(text),), tokenizer=tokenizer), out, workers=workers)


def start_statewise(out: Path) -> None:
    from statewise.data import Batches, open_corpus
    from statewise.specs import DataSpec

    corpus = open_corpus(DataSpec(text=(str(out),)))
    end_id = corpus.tokenizer.end_id
    batches = Batches(corpus.train.tokens, end_id=end_id, batch=BATCH, window=WINDOW, order="shuffled")
    assert batches.at(0).inputs_BT.shape == (BATCH, WINDOW)


def encoded_slice(part: str, tokenizer: str) -> Iterator[Any]:
    import torch

    if tokenizer not in _LOADED:
        _LOADED[tokenizer] = library(tokenizer)
    yield torch.tensor(_LOADED[tokenizer].encode(part).ids, dtype=torch.int32)


_LOADED: dict[str, Any] = {}


def litdata(text: Path, tokenizer: str, out: Path, workers: int) -> None:
    from functools import partial

    from litdata import TokensLoader, optimize

    optimize(
        partial(encoded_slice, tokenizer=tokenizer),
        inputs=list(slices(text)),
        output_dir=str(out),
        num_workers=workers,
        chunk_bytes="64MB",
        item_loader=TokensLoader(),
    )


def start_litdata(out: Path) -> None:
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader

    data = StreamingDataset(str(out), item_loader=TokensLoader(block_size=WINDOW + 1), shuffle=True)
    assert next(iter(StreamingDataLoader(data, batch_size=BATCH))).shape == (BATCH, WINDOW + 1)


def streaming(text: Path, tokenizer: str, out: Path, workers: int) -> None:
    import numpy as np
    from streaming import MDSWriter

    backend, rest = library(tokenizer), np.zeros(0, np.uint16)
    with MDSWriter(out=str(out), columns={"tokens": f"ndarray:uint16:{WINDOW + 1}"}, size_limit=1 << 26) as writer:
        for part in slices(text):
            rest = np.concatenate([rest, np.array(backend.encode(part).ids, np.uint16)])
            rows = rest[: len(rest) // (WINDOW + 1) * (WINDOW + 1)].reshape(-1, WINDOW + 1)
            rest = rest[rows.size :]
            for row in rows:
                writer.write({"tokens": row})


def start_streaming(out: Path) -> None:
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    data = StreamingDataset(local=str(out), shuffle=True, batch_size=BATCH)
    assert next(iter(DataLoader(data, batch_size=BATCH)))["tokens"].shape == (BATCH, WINDOW + 1)


def windows(rows: dict[str, list[str]], tokenizer: str) -> dict[str, list[list[int]]]:
    if tokenizer not in _LOADED:
        _LOADED[tokenizer] = library(tokenizer)
    ids = [i for encoded in _LOADED[tokenizer].encode_batch_fast(rows["text"]) for i in encoded.ids]
    return {"tokens": [ids[at : at + WINDOW + 1] for at in range(0, len(ids) - WINDOW, WINDOW + 1)]}


def datasets(text: Path, tokenizer: str, out: Path, workers: int) -> None:
    from functools import partial

    from datasets import load_dataset

    rows = load_dataset("text", data_files=str(text), split="train", cache_dir=str(out / "cache"))
    made = rows.map(
        partial(windows, tokenizer=tokenizer), batched=True, batch_size=10_000, num_proc=workers, remove_columns="text"
    )
    made.save_to_disk(out / "made")


def start_datasets(out: Path) -> None:
    from datasets import load_from_disk
    from torch.utils.data import DataLoader

    data = load_from_disk(out / "made").shuffle(seed=0).with_format("torch")
    assert next(iter(DataLoader(data, batch_size=BATCH)))["tokens"].shape == (BATCH, WINDOW + 1)


BUILDERS: dict[str, Callable[[Path, str, Path, int], None]] = {
    "bare tokenizers": bare,
    "statewise": statewise,
    "litdata": litdata,
    "streaming": streaming,
    "datasets": datasets,
}
STARTERS = {
    "statewise": start_statewise,
    "litdata": start_litdata,
    "streaming": start_streaming,
    "datasets": start_datasets,
}


def loading(out: Path) -> dict[str, float]:
    """The loader's share of a training step, in CPU time of one thread; what checking a shard adds, once, is apart."""
    import torch

    from statewise.data import Batches, open_corpus
    from statewise.data.shards import SHARD_TOKENS
    from statewise.models import build
    from statewise.specs import DataSpec, LSTMSpec

    torch.set_num_threads(1)
    corpus = open_corpus(DataSpec(text=(str(out),)))
    model = build(LSTMSpec(width=256), vocab=corpus.tokenizer.vocab)
    began, number = time.process_time(), 0
    for number in range(-(-len(corpus.train.tokens) // SHARD_TOKENS)):
        corpus.train.tokens[number * SHARD_TOKENS : number * SHARD_TOKENS + 1]
    shares = {"checking a shard, ms": 1e3 * (time.process_time() - began) / (number + 1)}
    for order in ("sequential", "shuffled"):
        batches = Batches(corpus.train.tokens, end_id=corpus.tokenizer.end_id, batch=BATCH, window=WINDOW, order=order)
        batches.at(0)
        loads = steps = 0.0
        for step in range(6):
            began = time.process_time()
            batch = batches.at(step)
            read = time.process_time()
            logits_BTV, _ = model(batch.inputs_BT, None)
            torch.nn.functional.cross_entropy(logits_BTV.flatten(0, 1), batch.targets_BT.flatten()).backward()
            if step:  # the first one warms up
                loads, steps = loads + read - began, steps + time.process_time() - began
        shares[f"{order} loading %"] = 100 * loads / steps
    return shares


def resident(pid: int) -> int:
    """Bytes of a process and all below it; pages that they share count for each."""
    total = 0
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        total = pages * resource.getpagesize() + sum(resident(int(child)) for child in children)
    except (OSError, IndexError):  # it has just ended
        pass
    return total


def measured(case: list[str], *, limit: int | None = None) -> dict[str, float]:
    """One case in a process of its own: seconds, CPU seconds, and the peak of what is resident."""
    group = _group(limit)
    command = [sys.executable, __file__, "--case", *case]
    if group is not None:
        inside = f"echo $$ > {group}/cgroup.procs && exec " + '"$@"'
        command = ["bash", "-c", inside, "bash", *command]
    peak = [0]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            peak[0] = max(peak[0], resident(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, err = process.communicate()
    over.set()
    watcher.join()
    found: dict[str, float] = {}
    if group is not None:
        found["with cache MB"] = int((group / "memory.max_usage_in_bytes").read_text()) / MEGABYTE
        group.rmdir()
    if process.returncode:
        raise SystemExit(f"{' '.join(case)} failed:\n{err[-2000:]}")
    return {**json.loads(out.splitlines()[-1]), "peak MB": peak[0] / MEGABYTE, **found}


def _group(limit: int | None) -> Path | None:
    if limit is None or not os.access(_GROUPS, os.W_OK):
        return None
    group = _GROUPS / f"shards-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit))
    except OSError:
        return None
    return group


def run_case(kind: str, name: str, text: str, tokenizer: str, out: str, workers: str) -> None:
    began, before = time.perf_counter(), cpu_seconds()
    found: dict[str, float] = {}
    if kind == "build":
        BUILDERS[name](Path(text), tokenizer, Path(out), int(workers))
    elif kind == "start":
        STARTERS[name](Path(out))
    else:
        found = loading(Path(out))
    print(json.dumps({"seconds": time.perf_counter() - began, "cpu s": cpu_seconds() - before, **found}))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--large", type=positive, default=4000, help="megabytes within 2 GB of memory")
    parser.add_argument("--megabytes", type=positive, default=60, help="megabytes for everybody")
    parser.add_argument("--workers", type=positive, default=2)
    parser.add_argument("--only", choices=["large", "peers"], help="one of the two parts")
    parser.add_argument("--case", nargs=6, help="(one measurement, in a process of its own)")
    asked = parser.parse_args()
    if asked.case:
        run_case(*asked.case)
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        if asked.only != "peers":
            rows += large(Path(temporary), asked.large, asked.workers)
        if asked.only != "large":
            rows += peers(Path(temporary), asked.megabytes, asked.workers)
    write(asked.json, rows)


def large(folder: Path, megabytes: int, workers: int) -> list[dict[str, Any]]:
    text, out = folder / "large.txt", folder / "large"
    write_text(text, megabytes=megabytes)
    rows: list[dict[str, Any]] = []
    for kind in ("build", "start", "loading"):
        found = measured([kind, "statewise", str(text), "byte", str(out), str(workers)], limit=LIMIT)
        rows.append({"case": kind, "MB": megabytes, **found})
    show(f"{megabytes:,} MB of text, bytes as tokens, {workers} processes, within {LIMIT / MEGABYTE:,.0f} MB", rows)
    return rows


def peers(folder: Path, megabytes: int, workers: int) -> list[dict[str, Any]]:
    from statewise.data import Tokenizer

    text = folder / "text.txt"
    write_text(text, megabytes=megabytes)
    Tokenizer.train("bpe", slices(text), vocab=8000).save(folder / "tokenizer.json")
    rows: list[dict[str, Any]] = []
    for name in BUILDERS:
        if name != "bare tokenizers" and importlib.util.find_spec(name) is None:
            continue
        case = [name, str(text), str(folder / "tokenizer.json"), str(folder / name), str(workers)]
        row = {"who": name, **measured(["build", *case])}
        if name in STARTERS:
            start = measured(["start", *case])
            row |= {"first batch s": start["seconds"], "its cpu s": start["cpu s"]}
        row["MB / cpu s"] = megabytes / row["cpu s"]
        row["% of bare"] = 100 * row["MB / cpu s"] / (rows[0]["MB / cpu s"] if rows else row["MB / cpu s"])
        rows.append(row)
    show(f"{megabytes:,} MB of text, BPE of 8,000 tokens, {workers} processes where there can be several", rows)
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        cells = (row.get(name, "") for name in names)
        table.add_row(*(f"{cell:,.2f}" if isinstance(cell, float) else str(cell) for cell in cells))
    console().print(table)


if __name__ == "__main__":
    main()
