"""Prompts and contents whose length is known given the prompt: what ways to end are tried on.

N rows, P prompt time, T content time.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.specs import UserError

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
    """Two probes.

    determined: a prompt of n symbols 0 or 1, drawn; the content is n symbols 2: how many there were is all
    that can be known, and it settles the length, however long (n is drawn from `shortest` … `longest`).

    distributed: a prompt of one symbol, which gives the mean of a geometric length; content symbols are
    drawn and say nothing. When to stop can only be known in distribution. `shortest` and `longest` play no part.

    `width` pads prompts and contents to at least so many steps.
    """
    if rows < 1 or not 0 < shortest <= longest:
        raise UserError(f"{rows} rows of lengths {shortest} to {longest}: expected at least 1 of each, in order")
    draw = np.random.Generator(np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)))
    if kind == "determined":
        length_N = draw.integers(shortest, longest + 1, size=rows)
        wide = max(int(length_N.max()), width or 0)
        inside = np.arange(wide) < length_N[:, None]
        prompt = np.where(inside, draw.integers(0, 2, size=(rows, wide)), 0)
        return _terminated(prompt, length_N, np.where(inside, 2, 0), length_N, vocab=3)
    symbol_N = draw.integers(0, len(MEANS), size=rows)
    # Failures before the first success: P(n) = (1 - h)^n h, of mean (1 - h) / h.
    hazard_N = 1 / (1 + np.array(MEANS)[symbol_N])
    length_N = draw.geometric(hazard_N) - 1
    wide = max(int(length_N.max()), width or 0, 1)
    inside = np.arange(wide) < length_N[:, None]
    content = np.where(inside, draw.integers(0, len(MEANS), size=(rows, wide)), 0)
    ones_N = np.ones(rows, dtype=np.int64)
    return _terminated(symbol_N[:, None], ones_N, content, length_N, vocab=len(MEANS))


def _terminated(*arrays: NDArray[np.int64], vocab: int) -> Terminated:
    prompt_NP, prompt_length_N, content_NT, length_N = map(torch.from_numpy, arrays)
    return Terminated(prompt_NP, prompt_length_N, content_NT, length_N, vocab)


def least_nats(data: Terminated) -> Tensor:
    """Of rows of `distributed`, the nats under their own equations: in the mean nothing does better."""
    hazard_N = 1 / (1 + torch.tensor(MEANS, dtype=torch.float64)[data.prompt_NP[:, 0]])
    of_length_N: Tensor = -(hazard_N.log() + data.length_N * (-hazard_N).log1p())
    return of_length_N + data.length_N * math.log(len(MEANS))
