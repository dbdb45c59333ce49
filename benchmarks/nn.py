"""statewise.nn against torch.nn on this CPU: the same weights, the same input, interleaved.

    python benchmarks/nn.py [--threads 1] [--kernel batched]
    python benchmarks/nn.py --threads 1 --clock cpu

`--clock cpu` measures the CPU time of the thread: a busy machine affects it little, but it is meaningful for a single
thread only.

Medians in milliseconds, without a gradient and with forward + backward; the last column is the largest
difference of the outputs. `--kernel` forces an implementation, to check the default choice.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, get_args

import torch
from command_line import console, options, positive, write
from rich.table import Table
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import statewise.nn
from statewise.kernels.choice import Wish
from statewise.specs import UserError


class Case(NamedTuple):
    width: int
    batch: int
    time: int
    layers: int = 1
    bidirectional: bool = False
    packed: bool = False

    def __str__(self) -> str:
        more = [f"{self.layers} layers"] if self.layers > 1 else []
        more += ["both ways"] if self.bidirectional else []
        more += ["packed"] if self.packed else []
        return ", ".join([f"{self.width} x {self.batch} x {self.time}", *more])


CASES = (
    Case(64, 1, 1),
    Case(64, 16, 1),
    Case(64, 1, 4),
    Case(64, 16, 4),
    Case(256, 32, 4),
    Case(64, 1, 20),
    Case(64, 16, 35),
    Case(64, 64, 35),
    Case(64, 16, 128),
    Case(128, 1, 128),
    Case(128, 16, 64),
    Case(128, 32, 50),
    Case(128, 64, 64),
    Case(256, 1, 100),
    Case(256, 16, 64),
    Case(256, 32, 50),
    Case(256, 64, 64),
    Case(256, 128, 20),
    Case(512, 1, 64),
    Case(512, 8, 64),
    Case(512, 16, 35),
    Case(512, 64, 20),
    Case(1024, 8, 20),
    Case(1024, 64, 10),
    Case(128, 16, 35, layers=2),
    Case(128, 16, 35, layers=2, bidirectional=True),
    Case(64, 16, 30, packed=True),
    Case(256, 32, 50, packed=True),
    Case(128, 16, 30, layers=2, bidirectional=True, packed=True),
)


def outputs(result: Any) -> Tensor:
    y = result[0]
    return y.data if isinstance(y, PackedSequence) else y


KINDS = ("RNN", "GRU", "LSTM")
CLOCKS = {"wall": time.perf_counter, "cpu": time.thread_time}


def race(
    runs: dict[str, Callable[[], None]], seconds: float, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["theirs"]) < 5:
        for name, run in runs.items():
            began = clock()
            run()
            times[name].append(1e3 * (clock() - began))
    return {name: statistics.median(some) for name, some in times.items()}


def refused(kind: str, kernel: Wish) -> str | None:
    """Why this module has no such implementation here."""
    module = getattr(statewise.nn, kind)(1, 1)
    module.kernel = kernel
    try:
        module.choice(torch.zeros(1, 1, 1))
    except UserError as error:
        return str(error).partition("\n")[0]
    return None


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--threads", type=positive, default=torch.get_num_threads())
    parser.add_argument("--kernel", choices=get_args(Wish), default="auto")
    parser.add_argument("--seconds", type=float, default=0.4, help="for each case, at least")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if asked.clock == "cpu" and asked.threads != 1:
        parser.error("--clock cpu counts one thread: say --threads 1")
    torch.set_num_threads(asked.threads)
    table = Table(
        title=f"statewise.nn, {asked.threads} threads, kernel {asked.kernel}, {asked.clock} clock",
        title_justify="left",
    )
    headings = ("module", "width x batch x time", "theirs", "ours", "ratio", "trained: theirs", "ours", "ratio", "by")
    for number, heading in enumerate((*headings, "difference")):
        table.add_column(heading, justify="left" if number < 2 else "right")
    for kind in asked.kinds:
        if (why := refused(kind, asked.kernel)) is not None:
            print(f"{kind} left out: {why}")
            continue
        for case in CASES:
            torch.manual_seed(0)
            shape = (case.width, case.width, case.layers)
            theirs = getattr(nn, kind)(*shape, bidirectional=case.bidirectional)
            ours = getattr(statewise.nn, kind)(*shape, bidirectional=case.bidirectional)
            ours.load_state_dict(theirs.state_dict())
            ours.kernel = asked.kernel
            x: Any = torch.randn(case.time, case.batch, case.width)
            if case.packed:
                x = pack_padded_sequence(x, torch.randint(1, case.time + 1, (case.batch,)), enforce_sorted=False)
            difference = (outputs(ours(x)) - outputs(theirs(x))).abs().max().item()

            def infer(module: nn.Module, x: Any = x) -> None:
                with torch.no_grad():
                    module(x)

            def learn(module: nn.Module, x: Any = x) -> None:
                outputs(module(x)).sum().backward()

            cells, figures = [], {}
            for job in (infer, learn):
                runs = {"theirs": partial(job, theirs), "ours": partial(job, ours)}
                medians = race(runs, asked.seconds, CLOCKS[asked.clock])
                figures |= {f"{job.__name__}_{side}_ms": ms for side, ms in medians.items()}
                ratio = medians["theirs"] / medians["ours"]
                cells += [f"{medians['theirs']:.2f}", f"{medians['ours']:.2f}", f"{ratio:.2f}x"]
            by = ours.choice(x).implementation
            table.add_row(kind, str(case), *cells, by, f"{difference:.0e}")
            rows.append({"module": kind, **case._asdict(), **figures, "by": by, "difference": difference})
    console().print(table)
    write(asked.json, rows, kernel=asked.kernel, clock=asked.clock)


if __name__ == "__main__":
    main()
