"""Beside gradients: the value of context, clipping during training, and the saturation of a softmax.

B windows, C context, T time steps; N draws, S keys, K width of a head.
"""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Machine
from statewise.display import Progress, plain, share
from statewise.figures import Axis, Figure, Series
from statewise.training import read_metrics

_TOKENS = 1 << 14  # read at a time


class Gain(NamedTuple):
    contexts: tuple[int, ...]
    nats: tuple[float, ...]  # mean loss with each context
    half: tuple[float, ...]  # of the 95 % interval of the loss *above that of the longest*, target by target
    targets: int

    def length(self, threshold: float) -> int | None:
        """The context beyond which less than a share of the whole gain remains; None: only the longest."""
        return self._length(threshold, [nats - self.nats[-1] for nats in self.nats])

    def lengths(self, threshold: float) -> tuple[int | None, int | None]:
        """Lower and upper bound of it: with every loss at the low, or at the high end of its interval."""
        low, high = (
            [nats - self.nats[-1] + sign * half for nats, half in zip(self.nats, self.half)] for sign in (-1, 1)
        )
        return self._length(threshold, low), self._length(threshold, high)

    def _length(self, threshold: float, excess: Sequence[float]) -> int | None:
        whole = self.nats[0] - self.nats[-1]
        if whole <= 0:
            return self.contexts[0]
        short = [at for at, nats in enumerate(excess[:-1]) if nats >= threshold * whole]
        first = short[-1] + 1 if short else 0
        return self.contexts[first] if first < len(self.contexts) - 1 else None


def longest_context(tokens: int, *, wanted: int, targets: int) -> int:
    """The context that leaves enough of the text to measure it on many tokens."""
    return min(wanted, max((tokens - 1) // 2, tokens - 1 - targets, 2), tokens - 1)


@torch.no_grad()
def gain(machine: Machine[Any], window_BT: Tensor, progress: Progress) -> Gain:
    """Predict the last token of each window from 1, 2, 4, … tokens before it, each time from the initial state."""
    longest = window_BT.shape[1] - 1
    contexts = sorted({2**power for power in range(int(math.log2(longest)) + 1)} | {longest})
    by_context = []
    for context in progress.over(contexts, "reading with less context"):
        batch = max(1, _TOKENS // context)
        costs = []
        for some_BT in torch.split(window_BT, batch):
            y_BTV, _ = machine(some_BT[:, -1 - context : -1], None)
            costs.append(F.cross_entropy(y_BTV[:, -1].float(), some_BT[:, -1], reduction="none").double())
        by_context.append(torch.cat(costs))
    last_B = by_context[-1]
    root = math.sqrt(len(last_B))
    half = tuple(1.96 * float((loss_B - last_B).std()) / root if root > 1 else 0.0 for loss_B in by_context)
    return Gain(tuple(contexts), tuple(float(loss_B.mean()) for loss_B in by_context), half, len(last_B))


def length_words(length: int | None, longest: int) -> str:
    if length is None:
        return f"more than the {longest:,} tokens measured"
    return f"about {length:,} token{'' if length == 1 else 's'}"


def context_figure(worth: Gain, threshold: float) -> Figure:
    extra = [nats - worth.nats[-1] for nats in worth.nats]
    return Figure(
        "gradient-context",
        "Value of context",
        "line",
        Axis("tokens of context", "log", "whole", base=2),
        Axis("nats above the longest context"),
        (Series.with_band("mean over the same tokens", worth.contexts, extra, worth.half),),
        reading=f"The same {worth.targets:,} token{'' if worth.targets == 1 else 's'}, predicted from contexts of this "
        "length: their loss above that with the longest context. The band is a 95 % interval.",
        finding=_worth_sentence(worth, threshold),
    )


def _worth_sentence(worth: Gain, threshold: float) -> str:
    saved, longest = worth.nats[0] - worth.nats[-1], worth.contexts[-1]
    if saved <= 0:
        return f"With {longest:,} tokens of context the loss is {plain(-saved)} nats higher than with 1: no benefit."
    return (
        f"Going from 1 token of context to {longest:,} saves {plain(saved)} nats; all but {share(threshold)} of that "
        f"needs {length_words(worth.length(threshold), longest)}{unsure(worth, threshold)}."
    )


def unsure(worth: Gain, threshold: float) -> str:
    """The range of lengths that the interval of the losses allows, in brackets; empty where it is one."""
    if worth.targets == 1:
        return " (measured on a single token, so very uncertain)"
    least, most = worth.lengths(threshold)
    if least == most:
        return ""
    more = f"more than {worth.contexts[-1]:,}"
    return (
        f" (from {more if least is None else f'{least:,}'} to {more if most is None else f'{most:,}'}, 95 % interval)"
    )


# -------------------------------------------------------------------- clipping


class Clipping(NamedTuple):
    """By interval of the training log: its last step, the share of clipped steps, the largest norm."""

    steps: tuple[int, ...]
    share: tuple[float, ...]
    norm: tuple[float, ...]

    @property
    def total(self) -> float:
        """Of all steps, the share that was clipped."""
        spans = [b - a for a, b in zip((0, *self.steps), self.steps)]
        return sum(share * span for share, span in zip(self.share, spans)) / max(sum(spans), 1)


def clipping(run: Path) -> Clipping | None:
    """None where the run has no such log: it learned by counting."""
    lines = [line for line in read_metrics(run) if "clipped" in line and "gradient_norm" in line]
    if not lines:
        return None
    steps = tuple(int(line["step"]) for line in lines)
    spans = [max(b - a, 1) for a, b in zip((0, *steps), steps)]
    shares = tuple(min(line["clipped"] / span, 1.0) for line, span in zip(lines, spans))
    return Clipping(steps, shares, tuple(float(line["gradient_norm"]) for line in lines))


def clipping_data(clips: Clipping | None) -> dict[str, Any] | None:
    return None if clips is None else {**clips._asdict(), "total": clips.total}


def clipping_figures(clips: Clipping | None) -> list[Figure]:
    if clips is None:
        return []
    return [
        Figure(
            "gradient-clipping",
            "Clip events over training",
            "line",
            Axis("step", unit="whole"),
            Axis("share of steps, and norm"),
            (
                Series("share of steps that were clipped", tuple(map(float, clips.steps)), clips.share),
                Series("largest gradient norm", tuple(map(float, clips.steps)), clips.norm),
            ),
            reading="By interval of the training log: the share of steps whose gradient was clipped, and the largest "
            "gradient norm before clipping.",
            finding=f"{share(clips.total)} of all steps were clipped; the largest norm was {plain(max(clips.norm))}.",
        )
    ]


# -------------------------------------------------------------------- softmax


WIDTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Saturation(NamedTuple):
    """By width: the largest weight, and the norm of the softmax's Jacobian, in the mean over draws."""

    widths: tuple[int, ...]
    largest: tuple[float, ...]
    gradient: tuple[float, ...]


@cache  # depends on no model
def saturation(*, scaled: bool, keys: int, draws: int, seed: int = 0) -> Saturation:
    """Queries and keys of independent numbers with variance 1, as layers have them when training begins."""
    generator = torch.Generator().manual_seed(seed)
    largest, gradient = [], []
    for width in WIDTHS:
        q_NK = torch.randn(draws, width, dtype=torch.float64, generator=generator)
        k_NSK = torch.randn(draws, keys, width, dtype=torch.float64, generator=generator)
        scores_NS = (k_NSK @ q_NK[:, :, None])[..., 0] * (1 / math.sqrt(width) if scaled else 1.0)
        weights_NS = scores_NS.softmax(-1)
        largest.append(float(weights_NS.amax(-1).mean()))
        gradient.append(float(jacobian_norm(weights_NS).mean()))
    return Saturation(WIDTHS, tuple(largest), tuple(gradient))


def jacobian_norm(weights_NS: Tensor) -> Tensor:
    """Frobenius norm of `diag(a) - a aᵀ`, in closed form: `Σ a² - 2 Σ a³ + (Σ a²)²` under a root."""
    square_N = weights_NS.square().sum(-1)
    cube_N = weights_NS.pow(3).sum(-1)
    return (square_N - 2 * cube_N + square_N.square()).clamp(min=0).sqrt()


def saturation_figures(scaled: Saturation, unscaled: Saturation, *, keys: int) -> list[Figure]:
    widths = tuple(map(float, scaled.widths))
    width = Axis("width of a head, k", "log", "whole", base=2)
    cases: tuple[tuple[str, str, Axis, str, str], ...] = (
        (
            "gradient-saturation-weight",
            "Why attention divides by √k: saturation",
            Axis("largest weight"),
            "largest",
            f"A softmax over the dot products of a random query with {keys} random keys: its largest weight. At 1 it "
            "selects one key.",
        ),
        (
            "gradient-saturation-gradient",
            "Why attention divides by √k: its gradient",
            Axis("norm of the softmax's Jacobian", "log"),
            "gradient",
            "The same softmax: the sensitivity of its weights to its scores. Where it saturates, gradients vanish.",
        ),
    )
    last = scaled.widths[-1]
    figures = []
    for name, title, axis, field, how in cases:
        divided, bare = getattr(scaled, field), getattr(unscaled, field)
        figures.append(
            Figure(
                name,
                title,
                "line",
                width,
                axis,
                (Series("divided by √k", widths, divided), Series("not divided", widths, bare)),
                reading=how,
                finding=f"At k = {last:,} it is {plain(divided[-1])} with the division and {plain(bare[-1])} without; "
                f"at k = {scaled.widths[0]} the two are {plain(divided[0])} and {plain(bare[0])}.",
            )
        )
    return figures
