"""A Transformer on a GPU, over batches of ever new lengths: attention as we choose it, and as PyTorch would choose.

    python benchmarks/lengths.py [--json FILE] [--lengths 24]

On Hopper and later PyTorch prefers cuDNN's kernels, which need a new plan for every shape. Both sides
evaluate and train on every length in turn; reported are the first time, the later ones, and the very first, which also
loads and compiles. The run also checks that both have the same losses. Milliseconds; medians over lengths.
"""

import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from command_line import need_gpu, options, positive, write
from torch import Tensor

from statewise.kernels.attention import fused
from statewise.models import build

WIDTH, DEPTH, HEADS, VOCAB, ROWS, LATER = 384, 6, 6, 256, 16, 3
SHORTEST, LONGEST = 64, 512
AGREES = 2e-3  # relative, of a loss in bfloat16
SIDES = ("ours", "PyTorch's choice")


@contextmanager
def side(name: str) -> Iterator[None]:
    before = fused.PAYS_FROM
    if name != "ours":
        fused.PAYS_FROM = 0
    try:
        yield
    finally:
        fused.PAYS_FROM = before


def loss_of(model: Any, tokens_BT: Tensor) -> Tensor:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y_BTD, _ = model.features(tokens_BT[:, :-1], None)
        total: Tensor = model.head.total_nats(y_BTD, tokens_BT[:, 1:])
    return total / tokens_BT[:, 1:].numel()


def learn(model: Any, tokens_BT: Tensor) -> Tensor:
    loss = loss_of(model, tokens_BT)
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    model.zero_grad(set_to_none=True)
    return loss.detach()


@torch.no_grad()
def read(model: Any, tokens_BT: Tensor) -> Tensor:
    return loss_of(model, tokens_BT)


def timed(way: Any, model: Any, tokens_BT: Tensor) -> tuple[float, float]:
    """Milliseconds, and the loss."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    loss = way(model, tokens_BT)
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - began), float(loss)


def measure(way: Any, model: Any, lengths: list[int]) -> dict[str, dict[str, float]]:
    times: dict[str, dict[str, list[float]]] = {name: {"first": [], "later": []} for name in SIDES}
    for length in lengths:
        generator = torch.Generator("cuda").manual_seed(length)
        tokens_BT = torch.randint(VOCAB, (ROWS, length + 1), device="cuda", generator=generator)
        losses = {}
        for turn in range(1 + LATER):
            for name in SIDES:
                with side(name):
                    spent, losses[name] = timed(way, model, tokens_BT)
                times[name]["later" if turn else "first"].append(spent)
        one, other = losses.values()
        if abs(one / other - 1) > AGREES:
            raise SystemExit(f"length {length}: losses {one:.5f} and {other:.5f} do not agree")
    return {
        name: {
            "first of all": found["first"][0],
            "first of a length": statistics.median(found["first"][1:]),
            "later": statistics.median(found["later"]),
        }
        for name, found in times.items()
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--lengths", type=positive, default=24, help=f"so many, drawn from {SHORTEST} to {LONGEST}")
    chosen = parser.parse_args()
    need_gpu()
    count = min(max(chosen.lengths, 2), LONGEST - SHORTEST)
    lengths = random.Random(0).sample(range(SHORTEST, LONGEST), count)
    torch.manual_seed(0)
    model = build("transformer", vocab=VOCAB, width=WIDTH, depth=DEPTH, heads=HEADS).cuda()
    print(f"{DEPTH} layers of {WIDTH}, {ROWS} rows of {count} lengths, bfloat16, {torch.cuda.get_device_name()}\n")
    print("| | | first of all | first of a length | later |\n|---|---|---|---|---|")
    rows = []
    for label, way in (("reading", read), ("learning", learn)):
        for name, found in measure(way, model, lengths).items():
            rows.append({"what": label, "side": name, **found})
            print(f"| {label} | {name} | " + " | ".join(f"{value:.1f}" for value in found.values()) + " |", flush=True)
    write(chosen.json, rows, lengths=lengths)


if __name__ == "__main__":
    main()
