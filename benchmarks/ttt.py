"""Test-time training, forward and backward: our implementations, and the paper's public code.

    python benchmarks/ttt.py                                  one Triton kernel against PyTorch; needs a CUDA device
    python benchmarks/ttt.py --peer TTT_LM_PYTORCH_CHECKOUT   against their layers, on a GPU or (small) a CPU

Without --peer it is `python benchmarks/gpu_ops.py --only ttt`: errors against float64, then medians. With it, layers of
the same width, heads and mini-batch make training steps (forward and backward) on the same input, interleaved, medians;
first it checks that both compute the same where their definitions agree (`ttt_peer.py` lists the differences).
Theirs is timed as published, and without the rotation and the last norm, which ours does not have.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from command_line import console, need_gpu, options, positive, write
from rich.table import Table
from torch import Tensor, nn

from statewise.kernels.choice import Wish
from statewise.mixers import TTT
from statewise.mixers.ttt import Inner
from statewise.specs import UserError

CONSOLE = console()
SLOW = ("ours, naive",)  # a loop over tokens in Python: timed once
AGREES = 1e-9
FORMS: tuple[Wish, ...] = ("triton", "batched", "naive")


def main() -> None:
    cuda = torch.cuda.is_available()
    parser = options(__doc__)
    parser.add_argument("--peer", type=Path, help="a checkout of test-time-training/ttt-lm-pytorch")
    parser.add_argument("--width", type=positive, default=768 if cuda else 64)
    parser.add_argument("--heads", type=positive, default=12 if cuda else 2)
    parser.add_argument("--batch", type=positive, default=16 if cuda else 2)
    parser.add_argument("--time", type=positive, default=1024 if cuda else 64)
    parser.add_argument("--mini-batch", type=positive, default=16)
    parser.add_argument("--repeats", type=positive, default=5)
    parser.add_argument("--seconds", type=float, default=25, help="at most, for the timing of each of the two layers")
    parser.add_argument("--naive", action="store_true", help="time the equation token by token too, which takes long")
    chosen = parser.parse_args()
    if chosen.peer is None:
        need_gpu()
        from gpu_ops import main as compare_forms

        sys.argv[1:] = ["--only", "ttt", *(["--json", str(chosen.json)] if chosen.json else [])]
        compare_forms()
        return
    from ttt_peer import load_peer  # needs transformers

    peer, shims = load_peer(chosen.peer)
    device = torch.device("cuda" if cuda else "cpu")
    CONSOLE.print(
        f"torch {torch.__version__} on {torch.cuda.get_device_name() if cuda else 'cpu'}; put in place: {shims}"
    )
    kinds: tuple[Inner, ...] = ("linear", "mlp")
    rows: list[dict[str, Any]] = []
    for inner in kinds:  # what was found is shown and written at once: whoever stops it here has the first half
        rows += compare(peer, inner, chosen, device)
        show(rows, chosen)
        write(chosen.json or Path("ttt.json"), rows, shims=shims)


def compare(peer: Any, inner: Inner, chosen: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    from ttt_peer import bare, difference, their_layer

    tried = {"width": 64, "heads": 2, "mini_batch": chosen.mini_batch, "time": 3 * chosen.mini_batch + 5}
    same = difference(peer, inner, **tried)
    CONSOLE.print(f"{inner}: relative difference where the definitions agree, float64: {same}")
    if max(same.values()) > AGREES:
        raise SystemExit("the two do not compute the same; nothing was timed")
    sizes = {"width": chosen.width, "heads": chosen.heads, "mini_batch": chosen.mini_batch}
    x_BTD = torch.randn(chosen.batch, chosen.time, chosen.width, device=device)
    at_T = torch.arange(chosen.time, device=device)[None]
    half = torch.bfloat16 if device.type == "cuda" else torch.float32

    published = their_layer(peer, inner, **sizes).to(device)
    narrow = their_layer(peer, inner, **sizes).to(device, half)
    plain: Any = their_layer(peer, inner, **sizes).to(device)
    plain.post_norm = nn.Identity()
    runs: dict[str, Callable[[], Any]] = {
        "theirs, autocast": step(published, x_BTD, half, partial(published, position_ids=at_T)),
        "theirs, weights in bfloat16": step(narrow, x_BTD.to(half), None, partial(narrow, position_ids=at_T)),
        "theirs, no rotation, no last norm": step(
            plain, x_BTD, half, partial(plain, position_ids=at_T), around=lambda: bare(peer)
        ),
    }
    narrowed: dict[str, dict[str, float]] = {}
    for kernel in FORMS:
        ours = TTT(chosen.width, heads=chosen.heads, mini_batch=chosen.mini_batch, inner=inner, kernel=kernel)
        ours.to(device)
        try:
            ours.choice()
            narrowed[f"ours, {kernel}"] = difference(
                peer, inner, **tried, kernel=kernel, device=device, dtype=torch.float32
            )
        except UserError as error:
            CONSOLE.print(f"  ours, {kernel}: {error}", highlight=False)
            continue
        CONSOLE.print(f"  ours, {kernel}, the same in float32: {narrowed[f'ours, {kernel}']}")
        if kernel != "naive" or chosen.naive:
            runs[f"ours, {kernel}"] = step(ours, x_BTD, half, lambda x, layer=ours: layer(x)[0])
    if device.type == "cpu":
        del runs["theirs, weights in bfloat16"]  # slower than float32 there, and not what anybody would run
    found = medians(runs, device, chosen)
    theirs = min(ms for name, ms in found.items() if name.startswith("theirs"))
    return [
        {
            "layer": f"TTT-{inner}",
            "form": name,
            "ms": ms,
            "ratio": theirs / ms,
            "float64_difference": same,
            "float32_difference": narrowed.get(name),
        }
        for name, ms in found.items()
    ]


def step(
    layer: nn.Module,
    x: Tensor,
    dtype: torch.dtype | None,
    run: Callable[[Tensor], Tensor],
    *,
    around: Callable[[], Any] = nullcontext,
) -> Callable[[], None]:
    """Forward and backward to all weights and to the input, as inside a deeper model."""
    x = x.clone().requires_grad_()
    wanted = [x, *layer.parameters()]

    def go() -> None:
        casts = dtype is not None and dtype != torch.float32
        with around(), torch.autocast(x.device.type, dtype=dtype, enabled=casts):
            y = run(x)
        torch.autograd.grad(y.float().square().mean(), wanted, allow_unused=True)

    return go


def medians(runs: dict[str, Callable[[], Any]], device: torch.device, chosen: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of each, interleaved. Whoever fails is reported and left out."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    began = time.monotonic()
    failed: set[str] = set()
    for turn in range(chosen.repeats + 1):  # the first compiles
        for name, run in runs.items():
            late = time.monotonic() - began > chosen.seconds and bool(times[name])
            if name in failed or late or (name in SLOW and turn > 1):
                continue
            wait(device)
            before = time.perf_counter()
            try:
                run()
                wait(device)
            except (RuntimeError, torch.OutOfMemoryError) as error:
                failed.add(name)
                CONSOLE.print(f"  {name} failed: {str(error).splitlines()[0]}", highlight=False)
                continue
            if turn:
                times[name].append(1e3 * (time.perf_counter() - before))
    return {name: statistics.median(kept) for name, kept in times.items() if kept}


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def show(rows: list[dict[str, Any]], chosen: argparse.Namespace) -> None:
    table = Table(
        title=f"A training step of one layer: {chosen.batch} rows of {chosen.time}, width {chosen.width}, "
        f"{chosen.heads} heads, mini-batches of {chosen.mini_batch}; milliseconds",
        title_justify="left",
        caption="ratio: the fastest of theirs over this one. Ours has no rotation, no inner bias and no last norm.",
        caption_justify="left",
    )
    for heading in ("layer", "form", "ms", "ratio"):
        table.add_column(heading, justify="right" if heading in ("ms", "ratio") else "left")
    for row in rows:
        table.add_row(row["layer"], row["form"], f"{row['ms']:.2f}", f"{row['ratio']:.2f}")
    CONSOLE.print(table)


if __name__ == "__main__":
    main()
