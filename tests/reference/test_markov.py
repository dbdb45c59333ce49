"""The Markov model against NLTK on the same text: Kneser-Ney and Lidstone, seen contexts and unseen ones."""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
import torch
from nltk.lm import KneserNeyInterpolated, Lidstone

from statewise.core import forward_with_resets
from statewise.models import Markov

END = 0
ALPHABET = "ab cde"  # token 0 is the end of a document
VOCAB = 1 + len(ALPHABET)
DOCUMENTS = ("abacab", "bead", "cab bad dad", "a", "decade ace abba", "bed bead beaded")


def stream() -> np.ndarray:
    return np.array([END, *(t for text in DOCUMENTS for t in [*(1 + ALPHABET.index(c) for c in text), END])])


def word(symbol: int) -> str:
    return "<before>" if symbol == VOCAB else str(symbol)


def events(tokens: np.ndarray, order: int) -> Iterator[tuple[str, ...]]:
    """For every prediction all grams that end there, of one symbol up to the full context and what followed it."""
    last = [VOCAB] * order
    for here, following in zip(tokens.tolist(), tokens[1:].tolist()):
        last = [*([VOCAB] * order if here == END else last), here][-order:]
        gram = tuple(map(word, [*last, following]))
        yield from (gram[k:] for k in range(order + 1))


def ours(order: int, **options: object) -> Markov:
    model = Markov(VOCAB, order=order, **options).double()
    model.count(stream(), end_id=END)
    return model


def predictions(model: Markov, contexts: list[tuple[int, ...]]) -> np.ndarray:
    """Probabilities after each context, `[contexts, V]`: the context is the state and its last symbol the input."""
    rows = torch.tensor(contexts)
    before = torch.cat([torch.full((len(rows), 1), VOCAB), rows[:, :-1]], dim=1)
    logits, _ = model.step(rows[:, -1], model.init_state(len(rows))._replace(last_BK=before))
    return logits.exp().numpy()


def all_contexts(order: int) -> list[tuple[int, ...]]:
    """Every context there could be, the mark before beginnings included; of longer ones a part."""
    if order <= 2:
        return [context for context in product(range(VOCAB + 1), repeat=order) if context[-1] < VOCAB]
    generator = np.random.default_rng(0)
    seen = [tuple(stream()[i : i + order].tolist()) for i in range(0, len(stream()) - order, 3)]
    begun = [(VOCAB,) * (order - n) + tuple(stream()[:n].tolist()) for n in range(1, order)]
    return seen + begun + [tuple(row) for row in generator.integers(VOCAB, size=(40, order)).tolist()]


@pytest.mark.parametrize("discount", [0.1, 0.75])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_kneser_ney_is_nltks(order: int, discount: float) -> None:
    theirs = KneserNeyInterpolated(order + 1, discount=discount)
    theirs.fit([list(events(stream(), order))], vocabulary_text=map(word, range(VOCAB + 1)))
    contexts = all_contexts(order)
    expected = [
        [theirs.unmasked_score(word(symbol), tuple(map(word, context))) for symbol in range(VOCAB)]
        for context in contexts
    ]
    got = predictions(ours(order, discount=discount, lowest="counts"), contexts)
    np.testing.assert_allclose(got, np.array(expected), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_add_k_is_nltks_lidstone(order: int) -> None:
    theirs = Lidstone(0.3, order + 1)
    theirs.fit([list(events(stream(), order))], vocabulary_text=map(word, range(VOCAB + 1)))
    contexts = all_contexts(order)
    size = len(theirs.vocab)  # NLTK has two more symbols to add k for: its own unknown word, and the mark
    assert size == VOCAB + 2
    got = predictions(ours(order, smoothing="add-k", add=0.3), contexts)
    for context, row in zip(contexts, got):
        seen = theirs.counts[tuple(map(word, context))].N()
        expected = np.array([theirs.unmasked_score(word(s), tuple(map(word, context))) for s in range(VOCAB)])
        np.testing.assert_allclose(row * (seen + 0.3 * VOCAB), expected * (seen + 0.3 * size), rtol=1e-9)


def test_perplexity_is_the_exponential_of_mean_surprise() -> None:
    """Of a whole stream with document ends in it, against NLTK's probabilities one by one."""
    order = 3
    theirs = KneserNeyInterpolated(order + 1, discount=0.6)
    theirs.fit([list(events(stream(), order))], vocabulary_text=map(word, range(VOCAB + 1)))
    full = [gram for gram in events(stream(), order) if len(gram) == order + 1]
    nats = [-math.log(theirs.unmasked_score(gram[-1], gram[:-1])) for gram in full]
    model = ours(order, discount=0.6, lowest="counts")
    tokens = torch.from_numpy(stream())
    inputs, targets = tokens[None, :-1], tokens[None, 1:]
    logits, _ = forward_with_resets(model, inputs, model.init_state(1), inputs == END, initial=model.init_state(1))
    mine = torch.nn.functional.cross_entropy(logits[0], targets[0])
    assert math.exp(mine) == pytest.approx(math.exp(sum(nats) / len(nats)), rel=1e-9)
