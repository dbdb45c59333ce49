"""Characters on a CPU: time to a validation loss against nanoGPT, and a training step against torch.nn.

    python benchmarks/cpu_char.py --text tinyshakespeare.txt [--peer NANOGPT_CHECKOUT]

Part 1 runs the recipe `shakespeare-cpu` from the command line, in a separate process, and records when the
validation loss first reaches the target. With --peer, nanoGPT's own CPU setting runs after it, scored by its own log
in the same way. Part 2 times whole training steps, interleaved, medians: our loop with the fused and with the naive
kernel, and a bare loop around torch.nn.
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from command_line import console, options, positive, readable, write
from race import prepare_peer
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from statewise.data import open_corpus
from statewise.models import build
from statewise.specs import LanguageModelSpec, make_spec
from statewise.tasks import LanguageModelJob
from statewise.training import Parallel
from statewise.training.loop import Trainer
from statewise.training.progress import Silent

CONSOLE = console()
PEER_OPTIONS = [
    "config/train_shakespeare_char.py",
    "--device=cpu",
    "--compile=False",
    "--eval_iters=20",
    "--log_interval=100",
    "--block_size=64",
    "--batch_size=12",
    "--n_layer=4",
    "--n_head=4",
    "--n_embd=128",
    "--max_iters=2000",
    "--lr_decay_iters=2000",
    "--dropout=0.0",
]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--text", type=readable, help="tinyshakespeare, one file; without it part 1 is left out")
    parser.add_argument("--peer", type=Path, help="a checkout of nanoGPT, run beside ours")
    parser.add_argument("--target", type=float, default=1.88, help="validation loss in nats per character")
    parser.add_argument("--repeats", type=positive, default=15, help="timed steps of each kind in part 2")
    chosen = parser.parse_args()
    if chosen.peer is not None and chosen.text is None:
        parser.error("--peer needs --text")
    CONSOLE.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    rows = []
    if chosen.text is not None:
        rows += time_to_target(chosen.text.resolve(), chosen.peer, chosen.target)
        write(chosen.json, rows)
    write(chosen.json, [*rows, *training_steps(chosen.repeats)])


# ------------------------------------------------------------------- part 1


def time_to_target(text: Path, peer: Path | None, target: float) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "statewise", "train", "shakespeare-cpu", "--data", str(text)]
        ours = watch([*command, "--out", f"{folder}/run"], re.compile(r"step \d+: nats ([\d.]+)"), target, cwd=folder)
    theirs = None
    if peer is not None:
        with tempfile.TemporaryDirectory() as folder:
            theirs = watch(
                [sys.executable, "train.py", *PEER_OPTIONS],
                re.compile(r"val loss ([\d.]+)"),
                target,
                cwd=prepare_peer(peer, text, Path(folder)),
            )
    table = Table(title=f"Time from process start to validation {target} nats per character", title_justify="left")
    for heading in ("run", "reached after", "whole run", "last validation"):
        table.add_column(heading, justify="left" if heading == "run" else "right")
    rows = []
    for name, result in (("statewise, recipe shakespeare-cpu", ours), ("nanoGPT, its CPU setting", theirs)):
        if result is not None:
            reached = "not reached" if result[0] is None else f"{result[0]:.1f} s"
            table.add_row(name, reached, f"{result[1]:.1f} s", f"{result[2]:.4f}")
            rows.append(
                {"run": name, "target": target, "reached_s": result[0], "whole_s": result[1], "last": result[2]}
            )
    CONSOLE.print(table)
    if theirs is not None and ours[0] is not None:
        whole = theirs[0] or theirs[1]
        CONSOLE.print(f"ratio: {whole / ours[0]:.2f} times the peer's speed to the target\n")
    return rows


def watch(
    command: list[str], pattern: re.Pattern[str], target: float, *, cwd: str | Path
) -> tuple[float | None, float, float]:
    """Seconds until a line reports the target, seconds in all, and the last value reported."""
    began, reached, last = time.monotonic(), None, float("nan")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    with subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found = pattern.search(line)
            if found:
                last = float(found[1])
                CONSOLE.print(f"  {time.monotonic() - began:6.1f} s  {line.strip()}", highlight=False)
                if reached is None and last <= target:
                    reached = time.monotonic() - began
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with code {process.returncode}")
    return reached, time.monotonic() - began, last


# ------------------------------------------------------------------- part 2


class Bare(nn.Module):
    """What one writes without a package: embedding, torch.nn layer, linear head."""

    def __init__(self, layer: type[nn.RNNBase], vocab: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.layer = layer(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens_BT: torch.Tensor, state: object) -> tuple[torch.Tensor, object]:
        y_BTD, state = self.layer(self.embedding(tokens_BT), state)
        return self.head(y_BTD), state


def bare_step(kind: str, spec: LanguageModelSpec, task: LanguageModelJob, vocab: int) -> Callable[[], None]:
    layer = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind]
    model = Bare(layer, vocab, spec.model.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=spec.train.lr)
    memory: dict[str, object] = {"state": None, "step": 0}

    def step() -> None:
        batch = task.window(int(memory["step"])).content.tokens
        logits_BTV, state = model(batch.inputs_BT, memory["state"])
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), batch.targets_BT.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        memory["state"] = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()
        memory["step"] = int(memory["step"]) + 1

    return step


def our_step(spec: LanguageModelSpec, task: LanguageModelJob, vocab: int) -> Callable[[], None]:
    trainer = Trainer(build(spec.model, vocab=vocab), task, spec.train, 0, None, Parallel(), Silent())
    count = [0]

    def step() -> None:
        count[0] += 1
        trainer.step(count[0])

    return step


def training_steps(repeats: int) -> list[dict[str, Any]]:
    """Interleaved: one step of each kind in turn, so that a noisy machine disturbs all alike."""
    table = Table(
        title="A training step (forward, backward, clip, AdamW), 32 rows of 64 characters, width 256, milliseconds",
        title_justify="left",
        caption="Medians. A ratio above 1 says that our loop with the fused kernel is faster.",
        caption_justify="left",
    )
    for heading in ("model", "ours, fused", "bare torch.nn", "ours, naive", "over torch.nn", "over naive"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    rows: list[dict[str, Any]] = []
    # One document, so that no state is ever reset and the bare loop does the same work.
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("".join(chr(33 + (i * i + i // 7) % 60) for i in range(400_000)))
        for kind in ("elman", "gru", "lstm"):
            spec = make_spec({"model": {"kind": kind}, "data": {"text": str(text)}})
            naive = make_spec({"model": {"kind": kind, "kernel": "naive"}, "data": {"text": str(text)}})
            corpus = open_corpus(spec.data)
            task = LanguageModelJob(corpus, spec, par=Parallel())
            vocab = corpus.tokenizer.vocab
            steps = [our_step(spec, task, vocab), bare_step(kind, spec, task, vocab), our_step(naive, task, vocab)]
            times: list[list[float]] = [[], [], []]
            for turn in range(repeats + 2):
                for place in range(len(steps)):
                    which = (turn + place) % len(steps)  # who goes first changes: a step leaves caches to the next
                    began = time.perf_counter()
                    steps[which]()
                    if turn >= 2:  # the first two warm caches and allocators
                        times[which].append(1e3 * (time.perf_counter() - began))
            fused, bare, slow = (statistics.median(record) for record in times)
            rows.append({"model": kind, "ours_ms": fused, "torch_nn_ms": bare, "naive_ms": slow})
            table.add_row(
                kind, f"{fused:.1f}", f"{bare:.1f}", f"{slow:.1f}", f"{bare / fused:.2f}x", f"{slow / fused:.2f}x"
            )
    CONSOLE.print(table)
    return rows


if __name__ == "__main__":
    main()
