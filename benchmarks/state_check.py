"""Cost of checking a state at every step: one step of each model on this CPU, with and without the check.

    python benchmarks/state_check.py [--rounds 400] [--threads 1]

A step of one row is the smallest call, so the relative cost is the largest. Each step takes the state of the previous
one, as in decoding. Short rounds with and without the check alternate, so that both have the same caches and load; the
cost is the difference of their lower quartiles (slower rounds were disturbed), in CPU time of the thread. The guard of
every part runs in both (0.1 us each).
"""

import math
import statistics
import time
from contextlib import nullcontext
from typing import Any

import torch
from command_line import console, options, positive, write
from rich.table import Table

from statewise.core import state_bytes
from statewise.core.state_check import unchecked
from statewise.models import LINEAGE, build

_VOCAB = 65
_SECONDS = 0.002  # a round at least
_CYCLE = 16  # steps of TTT's mini-batch, the last of which does most of the work: each round has whole cycles


class Decoding:
    """Steps that each take the state that the last one returned; a list begins again with each round."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.token_B, self.begin = torch.zeros(1, dtype=torch.int64), model.init_state(1)
        for _ in range(2 * _CYCLE):
            _, self.begin = model.step(self.token_B, self.begin)
        self.state = self.begin

    def seconds_a_step(self, steps: int) -> float:
        model, token_B = self.model, self.token_B
        _, state = model.step(token_B, self.state)  # from here on the check knows the state again
        begin = time.thread_time()
        for _ in range(steps):
            _, state = model.step(token_B, state)
        taken = (time.thread_time() - begin) / steps
        self.state = state if state_bytes(state) == state_bytes(self.begin) else self.begin
        return taken


@torch.no_grad()
def measure(model: Any, *, rounds: int) -> tuple[float, float]:
    """Lower quartiles of a step without the check, and of what the check adds."""
    decoding = Decoding(model)  # one for both, so that their tensors lie alike in memory
    cycles = math.ceil(_SECONDS / decoding.seconds_a_step(4 * _CYCLE - 1) / _CYCLE)
    steps = cycles * _CYCLE - 1  # and the one outside the clock
    taken: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(rounds):
        for checked in (True, False) if turn % 2 else (False, True):
            with nullcontext() if checked else unchecked():
                taken[checked].append(decoding.seconds_a_step(steps))
    with_check, without = (statistics.quantiles(taken[checked], n=4)[0] for checked in (True, False))
    return without, with_check - without


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=positive, default=400)
    parser.add_argument("--threads", type=positive, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    table = Table(title="Checking the state, at every step")
    for heading in ("model", "step, unchecked (us)", "check (us)", "share"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    rows = []
    for entry in LINEAGE:
        step, check = measure(build(entry.spec, vocab=_VOCAB).eval(), rounds=asked.rounds)
        rows.append({"model": entry.name, "step_us": step * 1e6, "check_us": check * 1e6})
        table.add_row(entry.name, f"{step * 1e6:.1f}", f"{check * 1e6:.2f}", f"{check / step:.1%}")
    console().print(table)
    write(asked.json, rows)


if __name__ == "__main__":
    main()
