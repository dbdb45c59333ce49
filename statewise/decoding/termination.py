"""Decode with any machine that models its own end, and compare the lengths it draws with the true ones.

B batch, P prompt time, T time, N cases, M draws for each.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import hold, uniforms
from statewise.decoding.sampling import has_best
from statewise.decoding.search import broken_outputs, check_never
from statewise.models import Terminating
from statewise.specs import UserError


class Decoded(NamedTuple):
    """Content, padded with the edge symbol; `ended_B` is False where `longest` cut it off."""

    tokens_BT: Tensor
    lengths_B: Tensor
    ended_B: Tensor


@torch.no_grad()
def decode_until_end(
    model: Terminating[Any],
    prompt_BP: Tensor,
    prompt_length_B: Tensor | None = None,
    *,
    longest: int | Tensor,
    shortest: int = 0,
    never: Sequence[int] = (),
    seed: int | None = 0,
    first_row: int = 0,
) -> Decoded:
    """Content for each prompt, until its end or `longest` symbols. `seed=None`: always the most likely symbol.

    The content of row b is a function of (seed, first_row + b), its prompt and its `longest` (one for all, or one
    a row) alone. Nothing ends before `shortest` symbols, and symbols in `never` are not chosen.
    """
    check_never(never, vocab=model.vocab)
    batch = len(prompt_BP)
    longest_B = torch.as_tensor(longest, device=prompt_BP.device).expand(batch)
    most = int(longest_B.max())
    if int(longest_B.min()) < 0:
        raise UserError(f"longest is {int(longest_B.min())}, expected at least 0")
    if not 0 <= shortest <= int(longest_B.min()):
        raise UserError(f"shortest is {shortest}, expected between 0 and longest = {int(longest_B.min())}")
    uniform = None
    if seed is not None:
        # A row's draw for its length comes first, so that it does not depend on the limits of other rows.
        uniform = uniforms((seed,), rows=batch, times=most + 2, kinds=2, first_row=first_row).to(prompt_BP.device)
    summary_BD, state = model.condition(prompt_BP, prompt_length_B)
    state = model.begin(summary_BD, state, uniform_B=None if uniform is None else uniform[:, 0, 0])
    token_B = torch.full_like(prompt_BP[:, 0], model.edge)
    going_B = torch.ones_like(token_B, dtype=torch.bool)
    lengths_B = torch.zeros_like(token_B)
    written = []
    ended_B = torch.zeros_like(going_B)
    for t in range(most + 1):
        outputs_BV, after = model.step(token_B, state)
        state = hold(going_B, new=after, old=state)
        if never:
            outputs_BV = outputs_BV.index_fill(1, torch.tensor(list(never), device=outputs_BV.device), -torch.inf)
        if t >= shortest:
            stops_B = model.stops(outputs_BV, state, uniform_B=None if uniform is None else uniform[:, t + 1, 0])
            ended_B = ended_B | (going_B & stops_B)
            going_B = going_B & ~stops_B & (t < longest_B)
        if not bool(going_B.any()):
            break
        if not has_best(outputs_BV[going_B, :-1]):
            raise broken_outputs()
        token_B = _chosen(outputs_BV[:, :-1], None if uniform is None else uniform[:, t + 1, 1])
        written.append(token_B.masked_fill(~going_B, model.edge))
        lengths_B = lengths_B + going_B
    empty_BT = prompt_BP.new_empty(batch, 0)
    return Decoded(torch.stack(written, dim=1) if written else empty_BT, lengths_B, ended_B)


def _chosen(logits_BV: Tensor, uniform_B: Tensor | None) -> Tensor:
    if uniform_B is None:
        return logits_BV.argmax(-1)
    cumulative_BV = logits_BV.double().softmax(-1).cumsum(-1)
    below_BV = cumulative_BV <= uniform_B[:, None] * cumulative_BV[:, -1:]
    return below_BV.sum(-1).clamp(max=logits_BV.shape[-1] - 1)


class LengthCalibration(NamedTuple):
    """How drawn lengths compare to true ones. With a calibrated model the PIT is uniform."""

    cases: int
    true_mean: float
    drawn_mean: float
    absolute_error: float  # of the median of a case's draws
    exact: float  # share of cases whose median is the true length
    pit: tuple[float, ...]  # share of cases in each tenth of the probability integral transform
    pit_distance: float  # largest distance of the PIT's distribution from the uniform (Kolmogorov-Smirnov)
    covered: dict[float, float]  # share of true lengths inside the central interval of each probability
    reliability: tuple[tuple[float, float, int], ...]  # by drawn mean: its mean, the true mean, cases


def calibrate_lengths(
    true_N: NDArray[np.int64], drawn_NM: NDArray[np.int64], *, bins: int = 5, seed: int = 0
) -> LengthCalibration:
    """Of each case the true length, and lengths drawn from the model for it.

    The PIT of a whole number is drawn between `P(n' < n)` and `P(n' <= n)` (Czado, Gneiting and Held 2009).
    """
    cases = len(drawn_NM)
    assert true_N.shape == (cases,)
    assert cases
    below_N = (drawn_NM < true_N[:, None]).mean(1)
    equal_N = (drawn_NM == true_N[:, None]).mean(1)
    mixed_N = np.sort(below_N + np.random.default_rng(seed).random(cases) * equal_N)
    steps = np.arange(cases + 1) / cases
    distance = float(np.maximum(np.abs(mixed_N - steps[:-1]), np.abs(mixed_N - steps[1:])).max())
    median_N = np.median(drawn_NM, axis=1)
    mean_N = drawn_NM.mean(1)
    covered = {}
    for share in (0.5, 0.8, 0.95):
        low_N, high_N = np.quantile(drawn_NM, [(1 - share) / 2, (1 + share) / 2], axis=1, method="inverted_cdf")
        covered[share] = float(((low_N <= true_N) & (true_N <= high_N)).mean())
    groups = np.array_split(np.argsort(mean_N, kind="stable"), min(bins, cases))
    return LengthCalibration(
        cases,
        float(true_N.mean()),
        float(drawn_NM.mean()),
        float(np.abs(median_N - true_N).mean()),
        float((median_N == true_N).mean()),
        tuple((np.histogram(mixed_N, bins=10, range=(0, 1))[0] / cases).tolist()),
        distance,
        covered,
        tuple((float(mean_N[g].mean()), float(true_N[g].mean()), len(g)) for g in groups),
    )
