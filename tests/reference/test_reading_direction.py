"""A text read from its start and from its end: both factorisations of its probability are exact."""

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from statewise.comparison.study import load_study, spec_of
from statewise.data import open_corpus
from statewise.models import CountingMachine, build
from statewise.specs import DataSpec

ALPHABET, LENGTH, COUNT = "abc", 5, 200
DIRECTIONS = ("forward", "reverse")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """Texts of a chain that is not reversible: after a mostly comes b, after b mostly c, after c mostly a."""
    generator = np.random.default_rng(0)
    drawn = []
    for _ in range(COUNT):
        symbols = [int(generator.integers(3))]
        for _ in range(int(generator.integers(1, LENGTH))):
            symbols.append(int((symbols[-1] + generator.choice(3, p=(0.2, 0.7, 0.1))) % 3))
        drawn.append("".join(ALPHABET[symbol] for symbol in symbols))
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("|".join(drawn))
    return drawn, path


def log_probabilities(path: Path, direction: str, order: int) -> list[float]:
    """Of each text, with its end, by a count model of the same texts; k is too small to change a number."""
    corpus = open_corpus(
        DataSpec.model_validate({"text": str(path), "validation": str(path), "separator": "|", "direction": direction})
    )
    end_id = corpus.tokenizer.end_id
    model = build("markov", vocab=corpus.tokenizer.vocab, order=order, smoothing="add-k", add=1e-200)
    assert isinstance(model, CountingMachine)
    model.count(corpus.train.tokens, end_id=end_id)
    model.double()
    tokens = torch.from_numpy(corpus.validation.tokens.astype(np.int64))
    ends = np.flatnonzero(corpus.validation.tokens == end_id)
    return [float(chosen(model(tokens[None, a:b])[0][0], tokens[a + 1 : b + 1]).sum()) for a, b in pairwise(ends)]


def chosen(logits_TV: Tensor, targets_T: Tensor) -> Tensor:
    return logits_TV.log_softmax(-1).gather(1, targets_T[:, None])


@pytest.mark.parametrize("order", [1, 2, LENGTH + 1])
def test_row_b2_both_factorisations_give_each_text_the_same_probability(
    texts: tuple[list[str], Path], order: int
) -> None:
    forward, reverse = (log_probabilities(texts[1], direction, order) for direction in DIRECTIONS)
    assert len(forward) == COUNT
    assert np.abs(np.subtract(forward, reverse)).max() < 1e-10
    assert np.ptp(forward) > 1, "texts of one probability would agree in any order"


def test_row_b2_with_all_of_the_past_it_is_the_share_of_the_text(texts: tuple[list[str], Path]) -> None:
    drawn, path = texts
    counts = Counter(drawn)
    shares = [math.log(counts[text] / COUNT) for text in drawn]
    for direction in DIRECTIONS:
        assert np.abs(np.subtract(log_probabilities(path, direction, LENGTH + 1), shares)).max() < 1e-10


def test_row_b2_one_reading_in_the_other_direction_is_another_model(texts: tuple[list[str], Path]) -> None:
    """The chain is not reversible, so the test above could fail: forward probabilities of reversed texts differ."""
    drawn, path = texts
    turned = path.with_name("turned.txt")
    turned.write_text("|".join(text[::-1] for text in drawn))
    corpus = open_corpus(DataSpec.model_validate({"text": str(turned), "validation": str(path), "separator": "|"}))
    model = build("markov", vocab=corpus.tokenizer.vocab, order=1, smoothing="add-k", add=1e-200)
    assert isinstance(model, CountingMachine)
    model.count(corpus.train.tokens, end_id=corpus.tokenizer.end_id)
    first = torch.tensor([[corpus.tokenizer.end_id, *corpus.tokenizer.encode(drawn[0])]])
    wrong = float(chosen(model.double()(first[:, :-1])[0][0], first[0, 1:]).sum())
    assert abs(wrong - log_probabilities(path, "forward", 1)[0]) > 0.1


def test_row_b2_the_study_differs_in_direction_alone() -> None:
    study = load_study("factorisation")
    specs = {entry.name: spec_of(study, entry) for entry in study.entry}
    names = [name.removesuffix(", forward") for name in specs if name.endswith(", forward")]
    assert len(specs) == 2 * len(names)
    for name in names:
        forward, reverse = (specs[f"{name}, {direction}"].model_dump() for direction in DIRECTIONS)
        assert [one["data"].pop("direction") for one in (forward, reverse)] == list(DIRECTIONS)
        assert forward == reverse
