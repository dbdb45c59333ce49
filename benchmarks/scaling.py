"""Several processes: what each way to share the work costs, what a formula says for more of them, and how well it does.

    python benchmarks/scaling.py predict [--parameters 3e9 --tokens-per-second 20000]
    torchrun --nproc-per-node 4 benchmarks/scaling.py check [--model transformer] [--width 256]
    torchrun --nproc-per-node 2 benchmarks/scaling.py exchange
    torchrun --nproc-per-node 2 benchmarks/scaling.py save
    torchrun --nproc-per-node 1 benchmarks/scaling.py one
    torchrun --nproc-per-node 1 benchmarks/scaling.py large --device cuda --model transformer --width 2560 --heads 20 \
        --depth 36 --time 1024

predict: tokens/s and memory on 8 to 1,024 GPUs by the formula of docs/scaling.md, from the steps of one H200 that
docs/performance.md gives, or from your own figure. check: the formula and measured steps and bytes, by compute,
bandwidth and latency as they are here. exchange: our one exchange of gradients compared with PyTorch's
DistributedDataParallel. save: what a checkpoint adds to the steps around it, written at once and in the background.
one: FSDP2 in a world of one, compared with none. large: layers gathered in bfloat16 and computed again on the way
back, so that one GPU trains billions of parameters; the bytes that the formula says, and the peak. Milliseconds,
medians of turns in alternation; --device cuda on GPUs.
"""

import gc
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from command_line import console, options, positive, write
from rich.table import Table
from scaling_formula import BETWEEN, LATENCY, WITHIN, Machines, predict, sharded_step, whole_step
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F

from statewise.models import build, training_bytes
from statewise.specs import TrainSpec
from statewise.training import Parallel, RunFolder, Window, parallel
from statewise.training.loop import Trainer
from statewise.training.progress import Silent
from statewise.training.sharded import Sharded, layers_of, recompute
from statewise.training.update import Updater, Whole

VOCAB = 256


# -------------------------------------------------------------------- a task


class Tokens:
    """Random tokens: a step without a loader."""

    judges: Mapping[str, Any] = MappingProxyType({"nats": "lower"})
    regular = True

    def __init__(self, rows: int, time: int, device: torch.device) -> None:
        self.rows, self.time = rows, time
        chance = torch.Generator().manual_seed(int(os.environ.get("RANK", "0")))
        self.content = torch.randint(VOCAB, (rows, time + 1), generator=chance).to(device)

    def begin(self, model: Any, rows: int) -> Any:
        return model.init_state(rows)

    def window(self, step: int) -> Window:
        tokens = self.rows * self.time
        return Window(self.rows, self.time, True, self.content, weight=float(tokens), tokens=tokens, ends=True)

    def loss(self, model: Any, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        logits_BTV, state = model(window.content[some, :-1][:, times], state)
        targets_BT = window.content[some, 1:][:, times]
        return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="sum"), state

    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        return {"nats": 0.0}


class Asked(NamedTuple):
    model: str
    width: int
    depth: int
    rows: int
    steps: int
    time: int
    heads: int | None
    device: torch.device

    def built(self) -> Any:
        heads = {} if self.heads is None else {"heads": self.heads}
        return build(self.model, vocab=VOCAB, width=self.width, depth=self.depth, seed=1, **heads).to(self.device)

    def spec(self, **more: Any) -> TrainSpec:
        fixed = {
            "batch": self.rows,
            "window": self.time,
            "truncation": "full",
            "precision": "float32",
            "graph": "never",
        }
        return TrainSpec.model_validate({**fixed, **more})

    def task(self) -> Tokens:
        return Tokens(self.rows, self.time, self.device)

    def updater(self, par: Parallel, *, divided: bool = False, parts: int | None = None) -> Updater:
        task, model, spec = self.task(), self.built(), self.spec()
        parts = parts or par.world
        placement = Sharded(model, task, par, parts, spec) if divided else Whole(model, task, par)
        return Updater(model, task, spec, seed=1, par=par, placement=placement, guarded=False)


def interleaved(ways: Mapping[str, Callable[[], Any]], par: Parallel, count: int) -> dict[str, float]:
    """Milliseconds of each, the median of turns in alternation; the slowest process counts."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(count + 2):
        for name, way in ways.items():
            if par.world > 1:
                dist.barrier()
            began = time.perf_counter()
            way()
            if par.device.type == "cuda":
                torch.cuda.synchronize(par.device)
            (took,) = par.largest(1e3 * (time.perf_counter() - began))
            if turn >= 2:
                times[name].append(took)
    return {name: statistics.median(of) for name, of in times.items()}


# -------------------------------------------------------------------- the parts


def check(asked: Asked, par: Parallel) -> list[dict[str, Any]]:
    """Predicted from compute, bandwidth and latency that are measured here; and measured steps."""
    alone = asked.updater(Parallel(device=par.device))
    whole, divided = asked.updater(par), asked.updater(par, divided=True)
    size = sum(p.numel() for p in alone.model.parameters())
    flat, few = torch.zeros(size, device=par.device), torch.zeros(2, device=par.device)
    each = flat.new_zeros(-(-size // par.world))
    every = flat.new_zeros(len(each) * par.world)
    steps = {
        "compute": lambda: alone.take(1, rate=1e-3),
        "exchange": lambda: dist.all_reduce(flat),
        "gather": lambda: dist.all_gather_into_tensor(every, each),
        "scatter": lambda: dist.reduce_scatter_tensor(each, every),
        "latency": lambda: dist.all_reduce(few),
        "whole": lambda: whole.take(1, rate=1e-3),
        "divided": lambda: divided.take(1, rate=1e-3),
    }
    took = interleaved(steps, par, asked.steps)
    sent = 2 * (par.world - 1) / par.world * 4 * size
    bandwidth = sent / max(1e-9, took["exchange"] - took["latency"]) * 1e3
    apart = took["gather"] * 2 / 3 + took["scatter"] / 3  # a step gathers twice and scatters once
    gathers = sent / 2 / max(1e-9, apart - took["latency"]) * 1e3
    on = Machines(par.world, par.world, bandwidth, bandwidth, took["latency"] / 1e3, gathers)
    # What a row keeps, with its loss: logits, and their softmax.
    kept = asked.rows * (training_bytes(asked.built().cpu(), asked.time) + 4 * VOCAB * asked.time)
    layers = len(layers_of(asked.built()))
    agreement = 3 * on.latency  # what processes tell each other in a step
    said = {
        "whole": whole_step(took["compute"] / 1e3 + agreement, size, kept, on),
        "divided": sharded_step(took["compute"] / 1e3 + agreement, size, kept, on, layers=layers),
    }
    rows = []
    for name, updater in (("whole", whole), ("divided", divided)):
        measured_kept, between = measured_bytes(updater)
        parts = par.world if name == "divided" else 1
        rows.append(
            {
                "way": name,
                "processes": par.world,
                "said, ms": f"{1e3 * said[name].least:.1f} to {1e3 * said[name].most:.1f}",
                "took, ms": took[name],
                "said between steps, MB": 4 * size * 3 / parts / 1e6,
                "held": between / 1e6,
                "said for backward, MB": kept / 1e6,
                "kept": measured_kept / 1e6,
            }
        )
    here = {"compute, ms": took["compute"], "latency, us": 1e3 * took["latency"]}
    rows[0] |= {**here, "all-reduce, GB/s": bandwidth / 1e9, "gathers, GB/s": gathers / 1e9}
    return rows


def measured_bytes(updater: Updater) -> tuple[int, int]:
    """What a step keeps for its backward pass, and what parameters and optimiser hold after it."""
    kept: dict[int, int] = {}

    def pack(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        # Parameters, and those that are gathered at this moment, are no activations.
        own = {p.untyped_storage().data_ptr() for p in updater.model.parameters() if not hasattr(p, "to_local")}
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return saved

    with saved_tensors_hooks(pack, lambda saved: saved):
        updater.take(2, rate=1e-3)
    gc.collect()
    weights = list(updater.placement.weights.values())
    tensors = [*weights, *(part for p in weights for part in updater.optimizer.state[p].values())]
    return sum(kept.values()), sum(part.numel() * part.element_size() for part in tensors)


class Summed(nn.Module):
    """A loss as one `forward`, as DistributedDataParallel wants it."""

    def __init__(self, model: nn.Module, task: Tokens) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, window: Window) -> Tensor:
        state = self.task.begin(self.model, window.rows)
        return self.task.loss(self.model, window, slice(None), slice(None), state)[0] / window.weight


def exchange(asked: Asked, par: Parallel) -> list[dict[str, Any]]:
    ours = asked.updater(par)
    theirs = asked.updater(Parallel(device=par.device))  # the same step, without an exchange of its own
    wrapped = nn.parallel.DistributedDataParallel(Summed(theirs.model, theirs.task), gradient_as_bucket_view=True)  # type: ignore[arg-type]

    def step() -> None:
        window = theirs.window(1)
        loss = wrapped(window)
        loss.backward()
        float(loss.detach())
        theirs._update(theirs.placement.norm(), 1e-3)

    took = interleaved({"ours": lambda: ours.take(1, rate=1e-3), "DDP": step}, par, asked.steps)
    far = max(float((a - b).detach().abs().max()) for a, b in zip(ours.model.parameters(), theirs.model.parameters()))
    size = sum(p.numel() for p in ours.model.parameters())
    return [{"model": asked.model, "parameters": size, **took, "DDP / ours": took["DDP"] / took["ours"], "apart": far}]


def save(asked: Asked, par: Parallel) -> list[dict[str, Any]]:
    """Each turn: as many steps as asked, a checkpoint after the first of them."""
    place = Path(tempfile.gettempdir(), f"scaling-{os.environ.get('MASTER_PORT', os.getpid())}")
    ways: dict[str, Callable[[], Any]] = {}
    try:
        for name, background in (("no checkpoint", None), ("at once", False), ("background", True)):
            folder = RunFolder(place / name, identity={})
            if par.leads:
                folder.checkpoints.mkdir(parents=True, exist_ok=True)
            spec = asked.spec(save_in_background=bool(background), shard="always", keep=1, batch=asked.rows * par.world)
            task = asked.task()
            trainer = Trainer(asked.built(), task, spec, 1, folder, par, Silent())

            def turn(trainer: Trainer = trainer, saves: bool = background is not None) -> None:
                for number in range(1, asked.steps + 1):
                    trainer.updater.take(number, rate=1e-3)
                    trainer.writes.go_on(*par.largest(*trainer.writes.look()))
                    if saves and number == 1:
                        trainer.save()

            ways[name] = turn
        took = interleaved(ways, par, 5)
    finally:
        if par.leads:
            shutil.rmtree(place, ignore_errors=True)
    none = took.pop("no checkpoint")
    size = sum(p.numel() for p in asked.built().parameters())
    row = {"model": asked.model, "parameters": size, "steps": asked.steps, "a step, ms": none / asked.steps}
    return [
        {**row, "way": name, "adds, ms": of - none, "% of the steps": 100 * (of - none) / none}
        for name, of in took.items()
    ]


@contextmanager
def group(device: torch.device) -> Iterator[None]:
    """torchrun with one process makes none."""
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def one(asked: Asked, par: Parallel) -> list[dict[str, Any]]:
    """A world of one."""
    with group(asked.device):
        plain, divided = asked.updater(par), asked.updater(par, divided=True, parts=1)
        took = interleaved(
            {"plain": lambda: plain.take(1, rate=1e-3), "FSDP2": lambda: divided.take(1, rate=1e-3)}, par, asked.steps
        )
    return [{"model": asked.model, **took, "costs %": 100 * (took["FSDP2"] / took["plain"] - 1)}]


def large(asked: Asked, par: Parallel) -> list[dict[str, Any]]:
    """Said: parameters, gradients and moments in float32, gathered layers, each layer's input, and one layer's rest."""
    layer = asked._replace(depth=1, device=torch.device("cpu")).built()
    inputs = 4 * asked.depth * asked.width * asked.time
    kept = asked.rows * (inputs + training_bytes(layer, asked.time) / 2 + 8 * VOCAB * asked.time)  # in bfloat16: half
    with group(asked.device):
        model, task, spec = asked.built(), asked.task(), asked.spec(precision="bfloat16-weights", recompute=True)
        size = sum(p.numel() for p in model.parameters())
        recompute(model)
        updater = Updater(
            model, task, spec, seed=1, par=par, placement=Sharded(model, task, par, 1, spec), guarded=False
        )
        if asked.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(asked.device)
        took = interleaved({"a step, ms": lambda: updater.take(1, rate=1e-4)}, par, asked.steps)
    said = sharded_step(0, size, kept, Machines(1, 1, WITHIN, BETWEEN, LATENCY), layers=asked.depth, wide=2).bytes
    peak = torch.cuda.max_memory_allocated(asked.device) if asked.device.type == "cuda" else math.nan
    speed = asked.rows * asked.time / took["a step, ms"] * 1e3
    bytes_ = {"said, GB": said / 1e9, "peak, GB": peak / 1e9, "said / peak": said / peak}
    return [{"model": asked.model, "parameters": size, **took, "tokens/s": speed, **bytes_}]


PARTS = {"large": large, "check": check, "exchange": exchange, "save": save, "one": one}


def _shown(cell: Any) -> str:
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:,.0f}" if abs(cell) >= 1000 else f"{cell:.3g}"


def show(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        cells = (row.get(name, "") for name in names)
        table.add_row(*map(_shown, cells))
    console().print(table)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("part", choices=["predict", *PARTS])
    parser.add_argument("--model", default="lstm")
    parser.add_argument("--width", type=positive, default=256)
    parser.add_argument("--depth", type=positive, default=2)
    parser.add_argument("--heads", type=positive, help="of models that have some")
    parser.add_argument("--rows", type=positive, default=8, help="of each process")
    parser.add_argument("--steps", type=positive, default=20)
    parser.add_argument("--time", type=positive, default=64, help="tokens of a row")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--parameters", type=float, help="predict: of a model of your own")
    parser.add_argument("--tokens-per-second", type=float, help="predict: of one GPU, with --rows of 256 tokens")
    given = parser.parse_args()
    if given.part == "predict":
        rows = predict(given.parameters, given.tokens_per_second, given.rows)
        show("tokens/s of all GPUs, and memory of each without activations", rows)
        write(given.json, rows)
        return
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    with parallel(torch.device(given.device)) as par:
        asked = Asked(
            given.model, given.width, given.depth, given.rows, given.steps, given.time, given.heads, par.device
        )
        rows = PARTS[given.part](asked, par)
        if par.leads:
            each = f"{given.rows} rows of {given.time} tokens a process, {par.world} processes"
            show(f"{given.part}: {given.model}, {each}", rows)
            write(given.json, rows)


if __name__ == "__main__":
    main()
