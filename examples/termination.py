"""Three termination schemes in one table: does a model learn when to stop, is it calibrated, and does it still stop
correctly on sequences longer than in training?

python examples/termination.py [--steps N] [--cases N] [--model lstm]

N rows, P prompt time, T content time.
"""

import argparse
import math
import time
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor

from statewise.decoding.termination import LengthCalibration, calibrate_lengths, decode_until_end
from statewise.models import LINEAGE
from statewise.models.build_seq2seq import SCHEMES, Scheme, build_terminating
from statewise.models.termination import Terminating
from statewise.specs import UserError

BATCH, DRAWS, LONGEST = 32, 50, 100
LEARNED, BEYOND = (1, 12), (13, 24)
COLUMNS = ("lengths", "scheme", "nats", "mean true", "mean drawn", "error", "exact", "50/80/95 %", "PIT", "cut off")


# Means of the geometric lengths of `distributed`, by the prompt's symbol.
MEANS = (2.0, 6.0, 14.0)


class Terminated(NamedTuple):
    """Symbols are 0 … vocab - 1; past its length a row is padded with 0."""

    prompt_NP: Tensor
    prompt_length_N: Tensor
    content_NT: Tensor
    length_N: Tensor
    vocab: int


def terminated(
    kind: Literal["determined", "distributed"],
    rows: int,
    *,
    seed: int = 0,
    shortest: int = 1,
    longest: int = 12,
    width: int | None = None,
) -> Terminated:
    """Prompts and contents whose length is known given the prompt, to test ways of termination.

    determined: a prompt of n random symbols 0 or 1, n from `shortest` to `longest`; the content is n symbols 2. The
    length of the prompt determines that of the content.

    distributed: a prompt of one symbol, which gives the mean of a geometric length; content symbols are random.
    Only the distribution of the length is known. `shortest` and `longest` are not used.

    `width` pads prompts and contents to at least that many time steps.
    """
    if rows < 1 or not 0 < shortest <= longest:
        raise UserError(f"{rows} rows of lengths {shortest} to {longest}: expected at least 1 of each, in order")
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)))
    if kind == "determined":
        length_N = rng.integers(shortest, longest + 1, size=rows)
        wide = max(int(length_N.max()), width or 0)
        inside = np.arange(wide) < length_N[:, None]
        prompt = np.where(inside, rng.integers(0, 2, size=(rows, wide)), 0)
        return _terminated(prompt, length_N, np.where(inside, 2, 0), length_N, vocab=3)
    symbol_N = rng.integers(0, len(MEANS), size=rows)
    # Failures before the first success: P(n) = (1 - h)^n h, of mean (1 - h) / h.
    hazard_N = 1 / (1 + np.array(MEANS)[symbol_N])
    length_N = rng.geometric(hazard_N) - 1
    wide = max(int(length_N.max()), width or 0, 1)
    inside = np.arange(wide) < length_N[:, None]
    content = np.where(inside, rng.integers(0, len(MEANS), size=(rows, wide)), 0)
    ones_N = np.ones(rows, dtype=np.int64)
    return _terminated(symbol_N[:, None], ones_N, content, length_N, vocab=len(MEANS))


def _terminated(*arrays: NDArray[np.int64], vocab: int) -> Terminated:
    prompt_NP, prompt_length_N, content_NT, length_N = map(torch.from_numpy, arrays)
    return Terminated(prompt_NP, prompt_length_N, content_NT, length_N, vocab)


def least_nats(data: Terminated) -> Tensor:
    """Nats of rows of `distributed` under the generating distribution: the lower bound of the mean loss."""
    hazard_N = 1 / (1 + torch.tensor(MEANS, dtype=torch.float64)[data.prompt_NP[:, 0]])
    of_length_N: Tensor = -(hazard_N.log() + data.length_N * (-hazard_N).log1p())
    return of_length_N + data.length_N * math.log(len(MEANS))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=400, help="optimiser steps for each model")
    options.add_argument("--width", type=int, default=24)
    options.add_argument("--cases", type=int, default=300, help="prompts each model is measured on")
    options.add_argument("--model", default="lstm", choices=[r.name for r in LINEAGE if r.spec.learns == "gradient"])
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    began = time.monotonic()

    table = Table(title=f"{chosen.model}: nats and lengths by scheme ({chosen.cases} prompts, {DRAWS} draws each)")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("lengths", "scheme") else "right")
    reliability = Table(title="by predicted length: predicted → true, for the prompts that give a distribution")
    for scheme in SCHEMES:
        reliability.add_column(scheme)
    curves = []
    for kind in ("determined", "distributed"):
        for scheme in SCHEMES:
            model = trained(chosen, scheme, kind)
            for low, high in (LEARNED, BEYOND) if kind == "determined" else (LEARNED,):
                data = terminated(kind, chosen.cases, seed=1, shortest=low, longest=high)
                nats, found, cut = measured(model, data)
                if kind == "distributed":
                    curves.append(found.reliability)
                table.add_row(
                    f"{kind} {low}-{high}" if kind == "determined" else kind,
                    scheme,
                    f"{nats:.3f}",
                    f"{found.true_mean:.2f}",
                    f"{found.drawn_mean:.2f}",
                    f"{found.absolute_error:.2f}",
                    f"{found.exact:.0%}",
                    "/".join(f"{share:.0%}" for share in found.covered.values()),
                    f"{found.pit_distance:.2f}",
                    f"{cut:.1%}",
                )
        table.add_section()
    for row in zip(*curves, strict=True):
        reliability.add_row(*(f"{drawn:.1f} → {true:.1f}" for drawn, true, _ in row))
    console = Console()
    console.print(table)
    console.print(
        f"Least possible nats: determined 0, distributed {least_nats(data).mean():.3f} (of the same rows, under their "
        "own equations). error: of the median, in symbols. "
        "PIT: distance from uniform, where 0 is calibrated. cut off: still going after "
        f"{LONGEST} symbols.\nLengths of {BEYOND[0]} and more were never learned from.",
        highlight=False,
    )
    console.print(reliability)
    console.print(f"Done in {time.monotonic() - began:.0f} s.", highlight=False)


def trained(chosen: argparse.Namespace, scheme: Scheme, kind: str) -> Terminating:
    spec = next(row.spec for row in LINEAGE if row.name == chosen.model).model_copy(update={"width": chosen.width})
    vocab = terminated(kind, 1).vocab
    model = build_terminating(spec, scheme=scheme, vocab=vocab, seed=chosen.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(chosen.steps):
        optimizer.param_groups[0]["lr"] = 1e-2 * (1 - step / chosen.steps) + 1e-4
        # Seeds that the measured cases do not use.
        data = terminated(kind, BATCH, seed=10_000 * (chosen.seed + 1) + step, shortest=LEARNED[0], longest=LEARNED[1])
        nats = model.loss(data.prompt_NP, data.prompt_length_N, data.content_NT, data.length_N).sum() / BATCH
        optimizer.zero_grad()
        nats.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def measured(model: Terminating, data: Terminated) -> tuple[float, LengthCalibration, float]:
    with torch.no_grad():
        nats = model.loss(data.prompt_NP, data.prompt_length_N, data.content_NT, data.length_N).sum(1).mean().item()
    prompts, lengths = (part.repeat_interleave(DRAWS, 0) for part in (data.prompt_NP, data.prompt_length_N))
    written = decode_until_end(model, prompts, lengths, longest=LONGEST, seed=0)
    drawn_NM = written.lengths_B.view(-1, DRAWS).numpy()
    return nats, calibrate_lengths(data.length_N.numpy(), drawn_NM), (~written.ended_B).double().mean().item()


if __name__ == "__main__":
    main()
