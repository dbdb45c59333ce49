"""What a step takes on several GPUs, and how much memory each needs: the formula of docs/scaling.md.

`scaling.py` prints it and compares it with steps that are measured.
"""

import math
from typing import Any, NamedTuple

NODE = 8  # GPUs
WITHIN, BETWEEN = 450e9, 50e9  # bytes a second each way, for each GPU: NVLink of an H200, and 400 Gbit/s (data sheets)
LATENCY = 20e-6  # of a collective: assumed
# One H200, 64 rows of 256 tokens: parameters and seconds of a step that is not captured (docs/performance.md).
H200 = {"lstm": 4.77e-3, "gru": 5.58e-3, "transformer": 20.8e-3, "ttt_linear": 25.7e-3, "mingru": 16.6e-3}
H200_PARAMETERS, H200_TOKENS = 10e6, 64 * 256


class Machines(NamedTuple):
    """How many processes there are, in nodes of how many, and what an exchange takes."""

    world: int
    node: int
    within: float  # bytes a second, each way
    between: float
    latency: float  # seconds of a collective
    gathers: float = math.inf  # bytes a second, where less of a gather arrives than of an all-reduce

    @property
    def nodes(self) -> int:
        return max(1, self.world // self.node)

    @property
    def parts(self) -> int:
        return min(self.world, self.node)

    def gather(self, size: float) -> float:
        """Or the sum of gradients of which each keeps its rows: within a node."""
        return (self.parts - 1) / self.parts * size / min(self.within, self.gathers) + self.latency

    def all_reduce(self, size: float) -> float:
        """Over all: rings through all links between the nodes side by side."""
        ring = self.within if self.nodes == 1 else min(self.within, self.node * self.between)
        return 2 * (self.world - 1) / self.world * size / ring + self.latency


class Step(NamedTuple):
    """Seconds of a step without and with all of its exchange hidden behind its products, and bytes on each process."""

    least: float
    most: float
    bytes: float


def whole_step(compute: float, parameters: float, kept: float, on: Machines, moments: int = 2) -> Step:
    """One exchange after the backward pass, which nothing hides; it needs a copy of the gradients, and leaves one."""
    seconds = compute + on.all_reduce(4 * parameters)
    return Step(seconds, seconds, 4 * parameters * (2 + moments + 1) + kept)


def sharded_step(
    compute: float, parameters: float, kept: float, on: Machines, *, layers: int, wide: int = 4, moments: int = 2
) -> Step:
    """Gathered forward and backward, gradients summed to where they are kept, and over the nodes."""
    exchange = 2 * on.gather(wide * parameters) + on.gather(4 * parameters) + 3 * layers * on.latency
    if on.nodes > 1:
        exchange += 2 * (on.nodes - 1) / on.nodes * 4 * parameters / on.parts / on.between + on.latency
    held = 4 * parameters * (2 + moments) / on.parts + (2 * wide + 4) * parameters / max(1, layers) + kept
    return Step(max(compute, exchange), compute + exchange, held)


def predict(parameters: float | None, speed: float | None, rows: int) -> list[dict[str, Any]]:
    found = []
    given = {"yours": (parameters or H200_PARAMETERS, rows * 256 / speed)} if speed else None
    for name, (size, compute) in (given or {name: (H200_PARAMETERS, took) for name, took in H200.items()}).items():
        for world in (1, 8, 64, 512, 1024):
            on = Machines(world, NODE, WITHIN, BETWEEN, LATENCY)
            tokens = world * (rows * 256 if given else H200_TOKENS)
            whole = whole_step(compute, size, 0, on)
            divided = sharded_step(compute, size, 0, on, layers=12, wide=2)
            alone = compute if world == 1 else whole.most
            found.append(
                {
                    "model": name,
                    "GPUs": world,
                    "whole: tokens/s": tokens / alone,
                    "GiB": (whole.bytes if world > 1 else 16 * size) / 2**30,
                    "divided: least": tokens / (divided.most if world > 1 else compute),
                    "most": tokens / (divided.least if world > 1 else compute),
                    "its GiB": (divided.bytes if world > 1 else 16 * size) / 2**30,
                }
            )
    return found
