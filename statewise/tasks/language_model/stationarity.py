"""Do the statistics of a text change along it? Counts of tokens and of pairs in its segments, compared.

T tokens, S segments, B blocks, C classes that are counted, G groups of classes.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from statewise.data import Tokens
from statewise.specs import UserError
from statewise.tasks.report import Report, TimeWords, shows_report

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SEGMENTS, SHUFFLES = 8, 499
LONGEST_WHOLE = 1 << 24  # tokens of a text that are all read; of a longer one a part of each block
_MOST_BLOCKS, _SHORTEST_BLOCK = 128, 64
_LEAST_BLOCKS = 4  # in each segment, or shuffling them says little
_EXPECTED = 5  # occurrences in each segment, for the chi-squared distribution to be near
_MOST_CLASSES = 2000


class CountTest(NamedTuple):
    """Chi-squared of counts over segments, and two probabilities of one as large if nothing changes."""

    chi_squared: float
    freedom: int
    p_independent: float  # by the chi-squared distribution: as if occurrences were independent
    shuffled: float  # mean chi-squared of the same blocks in random order
    p: float  # share of such orders with a chi-squared as large: tokens may depend on those near them


@shows_report
class TokenStationarity(NamedTuple):
    """Whether tokens, pairs of them, and what follows a token are distributed alike in all segments."""

    tokens: CountTest
    pairs: CountTest
    transitions: CountTest
    segments: int
    blocks: int
    block: int  # tokens in each
    confidence: float

    @property
    def words(self) -> TimeWords:
        return TimeWords("the text", "is the text stationary?", "counted")

    def as_dict(self) -> dict[str, Any]:
        tests = {"tokens": self.tokens, "pairs": self.pairs, "transitions": self.transitions}
        return {**self._asdict(), **{name: test._asdict() for name, test in tests.items()}}

    @property
    def stationary(self) -> bool:
        """There is no sign of the opposite: no test is significant, corrected for their number."""
        return not self._significant()

    def _significant(self) -> list[str]:
        tests = {
            "tokens": self.tokens,
            "pairs of tokens": self.pairs,
            "the next token given the last": self.transitions,
        }
        return [name for name, test in tests.items() if test.p * len(tests) <= 1 - self.confidence]

    def report(self, name: str) -> Report:
        rows = tuple(
            (
                counted,
                f"{test.chi_squared:,.1f}",
                f"{test.freedom:,}",
                f"{test.p_independent:.3g}",
                f"{test.shuffled:,.1f}",
                f"{test.p:.3g}",
            )
            for counted, test in (
                ("tokens", self.tokens),
                ("pairs", self.pairs),
                ("transitions", self.transitions),
            )
        )
        changing = self._significant()
        verdict = f"not stationary: {', '.join(changing)}" if changing else "no sign that the distribution changes"
        return Report(
            ("chi²", "degrees of freedom", "p if independent", "chi² shuffled", "p shuffled"),
            rows,
            2,
            f"{verdict} · {self.segments} segments of {name}, {self.blocks} blocks of {self.block:,} tokens",
        )


def token_stationarity(
    tokens: Tokens,
    *,
    segments: int = SEGMENTS,
    block: int | None = None,
    shuffles: int = SHUFFLES,
    confidence: float = 0.95,
    seed: int = 0,
) -> TokenStationarity:
    """Chi-squared tests of homogeneity over equal segments of a text.

    Tokens of a text depend on those before them, so chi-squared is larger than for independent ones even where nothing
    changes. Hence the second probability: the text is cut into blocks of `block` tokens, and chi-squared is compared
    with that of the same blocks in random order. Dependence that reaches further than a block counts as change.
    """
    if segments < 2 or shuffles < 19:
        raise UserError(f"segments = {segments}, shuffles = {shuffles}", fix="give at least 2 and 19")
    if block is not None and block < 2:
        raise UserError(f"block = {block} has no pairs", fix="give at least 2")
    size = max(_SHORTEST_BLOCK, len(tokens) // _MOST_BLOCKS) if block is None else block
    blocks = min(len(tokens) // size, _MOST_BLOCKS * 16) // segments * segments
    if blocks < _LEAST_BLOCKS * segments:
        raise UserError(
            f"{len(tokens):,} tokens are {blocks} blocks of {size}, too few for {segments} segments",
            fix=f"give a text of at least {_LEAST_BLOCKS * segments * size:,} tokens, or fewer segments",
        )
    starts_B = np.arange(blocks, dtype=np.int64) * (len(tokens) // blocks)
    size = min(size, LONGEST_WHOLE // blocks)  # of a longer text, the beginning of each block
    text_BT = tokens[starts_B[:, None] + np.arange(size)].astype(np.int64)
    last_BT, next_BT = text_BT[:, :-1], text_BT[:, 1:]
    pair_BT = last_BT * (int(text_BT.max()) + 1) + next_BT
    draws = np.random.Generator(np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)))
    orders = [np.arange(blocks), *(draws.permutation(blocks) for _ in range(shuffles))]
    return TokenStationarity(
        tokens=_test(text_BT, np.zeros_like(text_BT), orders, segments),
        pairs=_test(pair_BT, np.zeros_like(pair_BT), orders, segments),
        transitions=_test(pair_BT, last_BT, orders, segments),
        segments=segments,
        blocks=blocks,
        block=size,
        confidence=confidence,
    )


def _test(key_BT: Ints, group_BT: Ints, orders: list[Ints], segments: int) -> CountTest:
    """Homogeneity within each group, summed; `orders` of blocks, the first as they are."""
    count_BC, group_C = block_counts(key_BT, group_BT, least=_EXPECTED * segments)
    if not count_BC.shape[1]:
        return CountTest(0.0, 0, 1.0, 0.0, 1.0)
    segment_B = np.repeat(np.arange(segments), len(count_BC) // segments)
    found = np.empty(len(orders))
    for number, order_B in enumerate(orders):
        inside_SB = np.zeros((segments, len(count_BC)))
        inside_SB[segment_B, order_B] = 1
        found[number] = chi_squared(inside_SB @ count_BC, group_C)
    freedom = (segments - 1) * (len(group_C) - len(np.unique(group_C)))
    half = torch.tensor([freedom / 2, found[0] / 2], dtype=torch.float64)
    return CountTest(
        chi_squared=float(found[0]),
        freedom=freedom,
        p_independent=float(torch.special.gammaincc(half[0], half[1])),
        shuffled=float(found[1:].mean()),
        p=float((found >= found[0] * (1 - 1e-12)).mean()),
    )


def block_counts(key_BT: Ints, group_BT: Ints, *, least: int) -> tuple[Floats, Ints]:
    """`[B, C]`: how often each class occurs in each block; `[C]`: its group.

    A class is a key that occurs at least `least` times; the rarer ones of a group are one class together. Groups with
    a single class have nothing to compare and are left out.
    """
    keys_K, first_K, key_N, total_K = np.unique(key_BT, return_index=True, return_inverse=True, return_counts=True)
    group_K = group_BT.ravel()[first_K]
    smallest = max(least, int(np.sort(total_K)[-_MOST_CLASSES]) if len(keys_K) > _MOST_CLASSES else 0)
    kept_K = total_K >= smallest
    # The rest of a group: a class of its own after all others.
    groups_G, group_of_K = np.unique(group_K, return_inverse=True)
    class_K = np.where(kept_K, np.cumsum(kept_K) - 1, kept_K.sum() + group_of_K)
    group_C = np.concatenate([group_K[kept_K], groups_G])
    blocks = len(key_BT)
    block_N = np.repeat(np.arange(blocks), key_BT[0].size)
    place_N = block_N * len(group_C) + class_K[key_N.ravel()]
    count_BC = np.bincount(place_N, minlength=blocks * len(group_C)).reshape(blocks, -1).astype(np.float64)
    often_C = count_BC.sum(0) >= least
    count_BC, group_C = count_BC[:, often_C], group_C[often_C]
    sizes = dict(zip(*np.unique(group_C, return_counts=True)))
    several_C = np.array([sizes[group] > 1 for group in group_C], dtype=bool)
    order_C = np.argsort(group_C[several_C], kind="stable")
    return count_BC[:, several_C][:, order_C], group_C[several_C][order_C]


def chi_squared(count_SC: Floats, group_C: Ints) -> float:
    """`Σ (O - E)² / E` with `E = row · column / total` inside each group, whose columns are neighbours."""
    begins_G = np.flatnonzero(np.diff(group_C, prepend=group_C[0] - 1))
    sizes_G = np.diff(begins_G, append=len(group_C))
    row_SC = np.repeat(np.add.reduceat(count_SC, begins_G, axis=1), sizes_G, axis=1)
    expected_SC = row_SC * count_SC.sum(0) / row_SC.sum(0)
    return float(((count_SC - expected_SC) ** 2 / np.where(expected_SC > 0, expected_SC, 1)).sum())
