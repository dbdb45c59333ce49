"""Is a series stationary? The same model on the same windows, with and without the time t as an input.

python examples/stationarity.py [--steps N] [--seeds N] [--length N]
"""

import argparse
import sys
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from statewise.data.embedded.series import switching
from statewise.data.series import Series, make_series
from statewise.specs import UserError
from statewise.tasks.forecasting.stationarity import SMALL, Stationarity, stationarity


def cases(length: int) -> dict[str, Series]:
    """Two laws that hold for ever, and two that do not."""
    t = np.arange(length)
    noise = np.random.Generator(np.random.Philox(key=np.array([1, 0], dtype=np.uint64))).standard_normal(length)
    return {
        "x' = 0.9 x + noise": switching(length, coefficients=(0.9,), every=length),
        "x' = -0.9 x + noise": switching(length, coefficients=(-0.9,), every=length),
        "0.9 becomes -0.9 halfway": switching(length, coefficients=(0.9, -0.9), every=length // 2),
        "noise around a rising level": make_series(noise + 3 * t / length),
    }


def tested(series: Series, *, steps: int, seeds: int) -> Stationarity:
    spec = SMALL.model_copy(update={"train": SMALL.train.model_copy(update={"steps": steps})})
    return stationarity(spec, series=series, seeds=range(seeds))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=400, help="optimiser steps for each model")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--length", type=int, default=2400)
    chosen = options.parse_args()
    began = time.monotonic()
    table = Table(title=f"held-out squared error, {chosen.seeds} seeds; the interval is of the gain")
    for name in ("series", "without t", "with t", "gain", "95 % interval", "t helps"):
        table.add_column(name, justify="left" if name == "series" else "right")
    for name, series in cases(chosen.length).items():
        found = tested(series, steps=chosen.steps, seeds=chosen.seeds)
        table.add_row(
            name,
            f"{found.without:.3f}",
            f"{found.with_time:.3f}",
            f"{found.gain:+.3f}",
            f"{found.low:+.3f} to {found.high:+.3f}",
            "no" if found.stationary else "yes: not stationary",
        )
    console = Console()
    console.print(table)
    console.print(f"Done in {time.monotonic() - began:.0f} s.", highlight=False)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
