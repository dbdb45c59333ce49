"""A training step of a language model: a bare PyTorch loop, ours, and ours as one captured graph.

    python benchmarks/train_step.py                  on a GPU: about ten million parameters, 64 rows of 256 tokens
    python benchmarks/train_step.py --device cpu     small, and without capture, which is for CUDA

All three train the same model from the same weights on the same windows, in blocks of steps that take turns; medians
over blocks. The bare loop is PyTorch alone: windows prepared before, autocast, fused AdamW, clip_grad_norm_, a look at
the loss every tenth step. Ours reads its windows through the product's own pipeline and checks every step. That the
losses agree is checked before anything is timed.
"""

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from command_line import console, device_of, need_gpu
from rich.table import Table
from torch import nn

from statewise.core import detach, map_state
from statewise.specs import make_spec
from statewise.tasks.job import Opening
from statewise.tasks.language_model import LanguageModelJob
from statewise.training import Parallel
from statewise.training.step_report import Readings
from statewise.training.update import Updater, autocast

CONSOLE = console()
RATE = 1e-3
AGREE = {"float32": 1e-3, "bfloat16": 2e-2}  # relative, of the mean loss over the steps that are compared
COMPARED = 12  # steps
READ_EVERY = 10  # of the bare loop

# Depth, width and what else makes about ten million parameters with a vocabulary of characters; and a small one.
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "lstm": ({"width": 768, "depth": 2}, {"width": 32}),
    "gru": ({"width": 896, "depth": 2}, {"width": 32}),
    "transformer": ({"width": 384, "depth": 6, "heads": 6}, {"width": 32, "heads": 2}),
    "ttt_linear": ({"width": 512, "depth": 9, "heads": 8}, {"width": 32, "heads": 2}),
    "mingru": ({"width": 896, "depth": 6}, {"width": 32}),
}


class Way(NamedTuple):
    name: str
    steps: Callable[[int], None]  # make so many
    losses: Callable[[], list[float]]  # of all steps so far
    why: Callable[[], str]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--device", type=device_of, default="cuda" if torch.cuda.is_available() else "cpu")
    options.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    options.add_argument("--precision", choices=["float32", "bfloat16"])
    options.add_argument(
        "--optimizer", choices=["adamw", "muon"], default="adamw", help="ours; the bare loop has AdamW"
    )
    options.add_argument("--batch", type=int)
    options.add_argument("--window", type=int)
    options.add_argument("--block", type=int, help="steps between two looks at the clock")
    options.add_argument("--repeats", type=int, default=7, help="blocks of each")
    options.add_argument("--json", type=Path, default=Path("train_step.json"))
    chosen = options.parse_args()
    need_gpu(chosen.device)
    cuda = chosen.device.type == "cuda"
    settings = {
        "train.device": str(chosen.device),
        "train.precision": chosen.precision or ("bfloat16" if cuda else "float32"),
        "train.optimizer": chosen.optimizer,
        "train.batch": chosen.batch or (64 if cuda else 4),
        "train.window": chosen.window or (256 if cuda else 32),
        "train.truncation": "full",
    }
    block = chosen.block or (30 if cuda else 3)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text(some_text(4_000_000 if cuda else 40_000))
        for name in chosen.models:
            found.append(measured(name, settings, text, block=block, repeats=chosen.repeats, large=cuda))
            print(name, found[-1]["milliseconds"], f"off {found[-1]['off']:.1e}", found[-1]["why"], flush=True)
    show(found, settings)
    chosen.json.write_text(json.dumps({"settings": settings, "torch": torch.__version__, "found": found}, indent=1))
    if not all(row["agree"] for row in found):
        sys.exit("the losses do not agree")


def some_text(characters: int) -> str:
    """One document of made-up words: something can be learned from it, and no state is ever reset."""
    chance = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(chance.choices(letters, range(26, 0, -1), k=chance.randint(2, 9))) for _ in range(2000)]
    made = " ".join(chance.choices(words, [1 / (1 + n) for n in range(len(words))], k=characters // 6))
    return made[:characters]


def measured(
    name: str, settings: dict[str, Any], text: Path, *, block: int, repeats: int, large: bool
) -> dict[str, Any]:
    size = MODELS[name][0 if large else 1]
    order = {"data.order": "random"} if name == "transformer" else {}  # keys of all windows would never end
    overrides = [f"{path}={json.dumps(value)}" for path, value in {**settings, **order}.items()]
    spec = make_spec({"model": {"kind": name, **size}, "data": {"text": str(text)}}, overrides)
    par = Parallel(device=torch.device(settings["train.device"]))
    job = LanguageModelJob.open(spec, Opening(text.parent / name, par))
    ways = [bare(job, par), ours(job, par, graph="never")]
    if par.device.type == "cuda":
        ways.append(ours(job, par, graph="always"))
    for way in ways:
        way.steps(COMPARED)
    losses = {way.name: way.losses() for way in ways}
    means = [statistics.fmean(each) for each in losses.values()]
    off = max(abs(mean / means[0] - 1) for mean in means)
    times: dict[str, list[float]] = {way.name: [] for way in ways}
    for _ in range(repeats):
        for way in ways:
            wait(par.device)
            began = time.perf_counter()
            way.steps(block)
            wait(par.device)
            times[way.name].append((time.perf_counter() - began) / block * 1e3)
    return {
        "model": name,
        "parameters": job.num_parameters(),
        "milliseconds": {way: statistics.median(each) for way, each in times.items()},
        "spread": {way: (min(each), max(each)) for way, each in times.items()},
        "first_losses": losses,
        "off": off,
        "agree": math.isfinite(off) and off <= AGREE[settings["train.precision"]],
        "why": {way.name: way.why() for way in ways},
    }


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def bare(job: LanguageModelJob, par: Parallel) -> Way:
    spec = job.spec
    model: Any = job.build().to(par.device).train()
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": spec.train.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=spec.train.betas, fused=True)
    windows = [job.window(step) for step in range(64)]
    tokens = [job.read(window, slice(None), slice(0, window.time)) for window in windows]
    seen: list[Any] = []
    memory: dict[str, Any] = {"state": None}

    def step() -> None:
        window = windows[len(seen) % len(windows)]
        inputs_BT, targets_BT, _ = tokens[len(seen) % len(windows)]
        state = None if window.fresh else memory["state"]
        with autocast(spec.train, par.device):
            y_BTD, state = model.features(inputs_BT, state)
            loss = model.head.total_nats(y_BTD, targets_BT) / window.weight
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), spec.train.clip)
        optimizer.step()
        memory["state"] = None if window.ends else map_state(lambda leaf: leaf.clone(), detach(state))
        seen.append(loss.detach())
        if len(seen) % READ_EVERY == 0:
            float(seen[-1])

    def steps(count: int) -> None:
        for _ in range(count):
            step()

    return Way("bare torch", steps, lambda: [float(loss) for loss in seen], lambda: "")


def ours(job: LanguageModelJob, par: Parallel, *, graph: str) -> Way:
    train = job.spec.train.model_copy(update={"graph": graph})
    updater = Updater(job.build().to(par.device), job, train, seed=job.spec.seed, par=par)
    readings, losses, number, scale = Readings(), [], [0], [1.0]

    def steps(count: int) -> None:
        for _ in range(count):
            number[0] += 1
            taken = updater.take(number[0], rate=RATE)
            scale[0] = taken.scale
            numbers = taken.numbers
            readings.put(numbers if isinstance(numbers, torch.Tensor) else torch.tensor(numbers, dtype=torch.float64))
            losses.extend(numbers[0] * taken.scale for numbers in readings.due())

    def all_losses() -> list[float]:
        losses.extend(numbers[0] * scale[0] for numbers in readings.due(all_of_them=True))
        return list(losses)

    def why() -> str:
        return str(updater.graphs.why or "") if updater.graphs is not None else ""

    return Way("ours, captured" if graph == "always" else "ours", steps, all_losses, why)


def show(found: list[dict[str, Any]], settings: dict[str, Any]) -> None:
    table = Table(
        title=f"A training step, {settings['train.batch']} rows of {settings['train.window']} characters, "
        f"{settings['train.precision']}, milliseconds",
        title_justify="left",
        caption="Medians over blocks that took turns. Off: the largest difference of the mean first losses, relative.",
        caption_justify="left",
    )
    names = list(found[0]["milliseconds"])
    for heading in ("model", "parameters", *names, "over bare", "off"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for row in found:
        times = row["milliseconds"]
        table.add_row(
            row["model"],
            f"{row['parameters']:,}",
            *(f"{times[name]:.3f}" for name in names),
            f"{times[names[0]] / times[names[-1]]:.2f}",
            f"{row['off']:.1e}",
        )
    CONSOLE.print(table)


if __name__ == "__main__":
    main()
