"""Counting against dictionaries, many contexts at once against one at a time, and distributions that sum to 1."""

import time
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statewise.kernels.ngram import Counts, Tables, batched, count, counting, naive, tables
from statewise.specs import UserError

quickly = settings(deadline=None, max_examples=40)


@st.composite
def texts(draw: st.DrawFn) -> tuple[np.ndarray, int, int]:
    """A stream, its vocabulary, an order."""
    vocab = draw(st.integers(1, 6))
    size = draw(st.integers(2, 60))
    tokens = draw(st.lists(st.integers(0, vocab - 1), min_size=size, max_size=size))
    return np.array(tokens, dtype=np.uint16), vocab, draw(st.integers(1, 4))


def as_tables(counted: Counts) -> Tables:
    return tables.complete({name: torch.from_numpy(array) for name, array in counted._asdict().items()})


def by_dictionary(tokens: np.ndarray, vocab: int, order: int, end_id: int | None) -> dict[int, Counter]:
    """Counts of (context, symbol) for each length of context: continuation counts below the longest."""
    found = {order: Counter()}
    last = (vocab,) * order
    for here, following in zip(tokens.tolist(), tokens[1:].tolist()):
        last = (*((vocab,) * order if here == end_id else last)[1:], here)
        found[order][(*last, following)] += 1
    for k in range(order - 1, -1, -1):
        found[k] = Counter(gram[1:] for gram in found[k + 1])
    return found


def assert_counts(counted: Counts, tokens: np.ndarray, vocab: int, order: int, end_id: int | None) -> None:
    expected = by_dictionary(tokens, vocab, order, end_id)
    made = as_tables(counted)
    tables.check({name: torch.from_numpy(array) for name, array in counted._asdict().items()}, vocab=vocab, order=order)
    assert len(counted.symbol_G) == sum(map(len, expected.values()))
    assert len(counted.key_C) == sum(len({gram[:-1] for gram in grams}) for grams in expected.values())
    for grams in expected.values():
        for (*context, symbol), number in grams.items():
            node = naive.find(context, made, vocab=vocab)
            assert node is not None
            assert naive.followers(node, made, vocab=vocab)[symbol] == number


@quickly
@given(text=texts(), documents=st.booleans())
def test_counts_are_those_of_dictionaries(text: tuple[np.ndarray, int, int], documents: bool) -> None:
    tokens, vocab, order = text
    end_id = 0 if documents else None
    assert_counts(count(tokens, vocab=vocab, order=order, end_id=end_id), tokens, vocab, order, end_id)


@quickly
@given(text=texts())
def test_keys_that_would_not_fit_are_ranked_first(text: tuple[np.ndarray, int, int]) -> None:
    tokens, vocab, order = text
    plain = count(tokens, vocab=vocab, order=order, end_id=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_LARGEST_KEY", (vocab + 1) ** 2)
        ranked = count(tokens, vocab=vocab, order=order, end_id=0)
    for a, b in zip(plain, ranked, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_large_vocabulary_and_a_long_context() -> None:
    """50000 symbols and 8 of them in a context would be 140 bits."""
    tokens = np.random.default_rng(0).integers(50_000, size=3000)
    tokens[1000:2000] = tokens[:1000]
    assert_counts(count(tokens, vocab=50_000, order=8), tokens, 50_000, 8, None)


@quickly
@given(text=texts(), discount=st.floats(0.05, 0.95), seed=st.integers(0, 99))
def test_every_context_has_a_distribution(text: tuple[np.ndarray, int, int], discount: float, seed: int) -> None:
    tokens, vocab, order = text
    made = as_tables(count(tokens, vocab=vocab, order=order, end_id=0))
    context_NK = torch.randint(vocab + 1, (12, order), generator=torch.Generator().manual_seed(seed))
    options = {"vocab": vocab}
    for discounts in (
        tables.one_discount(discount, order=order),
        tables.estimated(made, vocab=vocab, order=order, otherwise=discount),
    ):
        p_NV = batched.kneser_ney(context_NK, made, discounts, dtype=torch.float64, **options)
        one_by_one = [naive.kneser_ney(context, made, discounts, **options) for context in context_NK.tolist()]
        torch.testing.assert_close(p_NV, torch.stack(one_by_one), rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(p_NV.sum(1), torch.ones(12, dtype=torch.float64), rtol=1e-12, atol=0)
        assert (p_NV > 0).all()
    p_NV = batched.add_k(context_NK, made, discount, dtype=torch.float64, **options)
    one_by_one = [naive.add_k(context, made, discount, **options) for context in context_NK.tolist()]
    torch.testing.assert_close(p_NV, torch.stack(one_by_one), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(p_NV.sum(1), torch.ones(12, dtype=torch.float64), rtol=1e-12, atol=0)


def test_modified_discounts_by_hand() -> None:
    """Each word stands alone in as many documents as its number says; so it and the end follow each other so often."""
    numbers = [1] * 7 + [2] * 4 + [3] * 2 + [4]
    pairs = [np.repeat([0, 1 + w], [1, 1]) for w, number in enumerate(numbers) for _ in range(number)]
    tokens = np.concatenate(pairs)
    made = as_tables(count(tokens, vocab=15, order=1, end_id=0))
    # Twice seven counts of 1, four of 2, two of 3 and one of 4; but after the last word the text ends: 3 for 4.
    n1, n2, n3, n4 = 14, 8, 5, 1
    y = n1 / (n1 + 2 * n2)
    expected = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    assert tables.estimated(made, vocab=15, order=1, otherwise=0.7)[1] == pytest.approx(expected)


def test_two_hundred_thousand_characters_take_less_than_a_second() -> None:
    generator = np.random.default_rng(0)
    tokens = generator.choice(65, size=200_000, p=generator.dirichlet(np.full(65, 0.3))).astype(np.uint16)
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        count(tokens, vocab=65, order=5, end_id=0)
        best = min(best, time.process_time() - began)
    assert best < 1


DAMAGE = {
    "a missing array": lambda parts: parts.pop("count_G"),
    "another dtype": lambda parts: parts.update(count_G=parts["count_G"].long()),
    "an array of two axes": lambda parts: parts.update(key_C=parts["key_C"][None]),
    "keys out of order": lambda parts: parts.update(key_C=parts["key_C"].flip(0)),
    "a key without a parent": lambda parts: parts["key_C"][-1].fill_(2**62),
    "starts that end elsewhere": lambda parts: parts["start_C"][-1].add_(1),
    "starts that go back": lambda parts: parts["start_C"][1].fill_(10**9),
    "a symbol beyond the vocabulary": lambda parts: parts["symbol_G"][0].fill_(5),
    "a negative symbol": lambda parts: parts["symbol_G"][0].fill_(-1),
    "a count of 0": lambda parts: parts["count_G"][0].fill_(0),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_counts_are_refused(damage) -> None:
    counted = count(np.random.default_rng(0).integers(5, size=100), vocab=5, order=2, end_id=0)
    parts = {name: torch.from_numpy(array.copy()) for name, array in counted._asdict().items()}
    tables.check(parts, vocab=5, order=2)
    damage(parts)
    with pytest.raises(UserError, match="the counts"):
        tables.check(parts, vocab=5, order=2)


def test_counts_of_another_order_are_refused() -> None:
    counted = count(np.random.default_rng(0).integers(5, size=100), vocab=5, order=3, end_id=0)
    parts = {name: torch.from_numpy(array) for name, array in counted._asdict().items()}
    with pytest.raises(UserError, match="order of 2"):
        tables.check(parts, vocab=5, order=2)
