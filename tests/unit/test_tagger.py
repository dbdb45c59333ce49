"""Taggers: heads against their definitions, rows that know nothing of each other, any model of the lineage."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.models import LINEAGE
from statewise.models.tagger import Tagger, Words, build_tagger, is_bio
from statewise.specs import TaggingSpec, make_spec

KINDS = [row.spec.kind for row in LINEAGE if row.spec.learns == "gradient"]
NAMES = ("B-x", "I-x", "O")


def spec_of(**settings: Any) -> TaggingSpec:
    table = {"model": {"width": 8}, "words": {"characters": 4, "word_dropout": 0}, **settings}
    spec = make_spec({"task": "tagging", **table})
    assert isinstance(spec, TaggingSpec)
    return spec


def tagger(spec: TaggingSpec, *, names: tuple[str, ...] = NAMES, weight_K: Tensor | None = None) -> Tagger:
    made = build_tagger(
        spec.model,
        spec.reader,
        spec.words,
        spec.objective,
        names=names,
        vocab=20,
        unknown_id=1,
        num_characters=9,
        weight_K=weight_K,
        seed=4,
    )
    return made.double().eval()


def words_of(rows: list[list[int]]) -> tuple[Words, Tensor]:
    """Word w is spelled by w % 9, w % 5 ... so many times."""
    lengths_B = torch.tensor([len(row) for row in rows])
    padded = torch.tensor([row + [0] * (int(lengths_B.max()) - len(row)) for row in rows])
    char_UC = torch.tensor([[(w * k) % 9 for k in range(1, 4)] for w in range(20)])
    return Words(padded, padded, char_UC, torch.tensor([1 + w % 3 for w in range(20)])), lengths_B


ROWS = [[3, 5, 7, 11], [4], [19, 2]]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_model_of_the_lineage_tags_rows_apart(kind: str, bidirectional: bool) -> None:
    model = tagger(spec_of(model={"kind": kind, "width": 8}, reader={"bidirectional": bidirectional}))
    words, lengths_B = words_of(ROWS)
    together = model(words, lengths_B)
    assert together.p_BTK.shape == (3, 4, 3)
    for row, ids in enumerate(ROWS):
        alone = model(*words_of([ids]))
        torch.testing.assert_close(together.p_BTK[row, : len(ids)], alone.p_BTK[0], rtol=0, atol=1e-9)
        assert not together.p_BTK[row, len(ids) :].any()
    model.loss(words, lengths_B, torch.zeros(3, 4, dtype=torch.long)).backward()
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("objective", ["categorical", "crf"])
def test_a_word_sees_both_its_sides_only_when_read_both_ways(objective: str) -> None:
    for both in (False, True):
        model = tagger(
            spec_of(
                reader={"bidirectional": both},
                objective={"kind": objective, "constraint": "none"} if objective == "crf" else {},
            )
        )
        one, other = (model.reader(*words_of([[3, 5, last]])).outputs_BSC[0, 0] for last in (7, 8))
        assert torch.equal(one, other) != both


def test_the_softmax_loss_is_the_cross_entropy_of_real_words() -> None:
    weight_K = torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64)
    model = tagger(spec_of(objective={"smoothing": 0.2}), weight_K=weight_K)
    words, lengths_B = words_of(ROWS)
    tags_BT = torch.tensor([[0, 1, 2, 1], [2, 0, 0, 0], [1, 0, 0, 0]])
    total = torch.zeros((), dtype=torch.float64)
    for row, length in enumerate(lengths_B.tolist()):
        y_TC = model.reader(words, lengths_B).outputs_BSC[row, :length]
        log_TK = model.head.scores(y_TC).log_softmax(-1)
        target_TK = 0.8 * F.one_hot(tags_BT[row, :length], 3).double() + 0.2 / 3
        total = total - (target_TK * weight_K * log_TK).sum()
    torch.testing.assert_close(model.loss(words, lengths_B, tags_BT), total, rtol=1e-12, atol=0)


def test_the_chain_is_a_distribution_over_lawful_paths() -> None:
    """All paths by enumeration: probabilities sum to 1, I never follows O, marginals and best path are theirs."""
    model = tagger(spec_of(objective={"kind": "crf"}))
    words, lengths_B = words_of([[3, 5, 7]])
    p: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(3), repeat=3):
        if NAMES[path[0]] == "I-x" or any(NAMES[a] == "O" and NAMES[b] == "I-x" for a, b in itertools.pairwise(path)):
            continue
        p[path] = float((-model.loss(words, lengths_B, torch.tensor([path]))).exp().detach())
    assert sum(p.values()) == pytest.approx(1, abs=1e-12)
    found = model(words, lengths_B)
    assert tuple(found.best_BT[0].tolist()) == max(p, key=lambda path: p[path])
    marginal_TK = np.zeros((3, 3))
    for path, share in p.items():
        marginal_TK[np.arange(3), path] += share
    np.testing.assert_allclose(found.p_BTK[0].detach().numpy(), marginal_TK, atol=1e-12)


@pytest.mark.parametrize(
    ("names", "expected"),
    [(("O", "B-a", "I-a"), True), (("B-a",), True), (("O",), False), (("NOUN", "O"), False), (("B-", "O"), False)],
)
def test_tags_that_mark_spans(names: tuple[str, ...], expected: bool) -> None:
    assert is_bio(names) == expected


def test_unconstrained_where_asked_and_where_tags_mark_nothing() -> None:
    for objective, names, constrained in (
        ({"kind": "crf"}, NAMES, True),
        ({"kind": "crf", "constraint": "none"}, NAMES, False),
        ({"kind": "crf"}, ("ADJ", "NOUN"), False),
    ):
        made = tagger(spec_of(objective=objective), names=names)
        assert made.head.crf.constrained == constrained
