"""A word's vector is a matter of the word alone: not of its neighbours, nor of what a batch is filled up with."""

import pytest
import torch
from torch import Tensor

from statewise.models.tagger import WordEntry, Words, build_word_entry
from statewise.specs import WordsSpec

UNKNOWN = 1
# Words by their numbers, spelled: of lengths 1 to 4.
SPELLED = {2: [5, 6, 7, 8], 3: [5], 4: [9, 9, 6], 5: [7, 6, 5]}


def make(*, dtype: torch.dtype = torch.float64, **settings: object) -> WordEntry:
    spec = WordsSpec.model_validate({"width": 6, "characters": 5, "character_width": 4, "word_dropout": 0, **settings})
    generator = torch.Generator().manual_seed(3)
    return build_word_entry(spec, width=99, vocab=8, unknown_id=UNKNOWN, num_characters=10, generator=generator).to(
        dtype
    )


def batch(rows: list[list[int]], *, spare: int = 0) -> Words:
    """`spare` more columns of characters than there are, filled with one that matters elsewhere."""
    different = sorted({word for row in rows for word in row})
    longest = max(len(SPELLED[word]) for word in different) + spare
    return Words(
        torch.tensor(rows),
        torch.tensor([[different.index(word) for word in row] for row in rows]),
        torch.tensor([SPELLED[word] + [9] * (longest - len(SPELLED[word])) for word in different]),
        torch.tensor([len(SPELLED[word]) for word in different]),
    )


def alone(entry: WordEntry, word: int) -> Tensor:
    x_E: Tensor = entry(batch([[word]]))[0, 0]
    return x_E


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("spare", [0, 3])
def test_neighbours_and_padding_change_nothing(kind: str, spare: int) -> None:
    entry = make(character_kind=kind).eval()
    rows = [[2, 3, 4], [5, 3, 2], [4, 4, 4]]
    x_BTE = entry(batch(rows, spare=spare))
    assert x_BTE.shape == (3, 3, entry.width) == (3, 3, 6 + 2 * 5)
    for row, words in enumerate(rows):
        for place, word in enumerate(words):
            torch.testing.assert_close(x_BTE[row, place], alone(entry, word), rtol=0, atol=1e-14)


def test_gradients_reach_each_word_once_for_each_place() -> None:
    entry = make()
    entry(batch([[2, 3], [2, 2]])).sum().backward()
    assert entry.spelling is not None
    twice, once = (entry.words.weight.grad[word].mean() for word in (2, 3))
    assert (float(twice), float(once)) == (3.0, 1.0)
    together = [p.grad.clone() for p in entry.spelling.parameters() if p.grad is not None]
    entry.zero_grad()
    for word in (2, 3, 2, 2):
        alone(entry, word).sum().backward()
    apart = [p.grad for p in entry.spelling.parameters() if p.grad is not None]
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-12)


def test_spelling_tells_words_apart_that_are_both_unknown() -> None:
    entry = make().eval()
    words = batch([[4, 5]])._replace(word_BT=torch.tensor([[UNKNOWN, UNKNOWN]]))
    x_TE = entry(words)[0]
    assert torch.equal(x_TE[0, :6], x_TE[1, :6])
    assert not torch.allclose(x_TE[0, 6:], x_TE[1, 6:])
    without = make(characters=0).eval()
    assert without.width == 6
    y_TE = without(words)[0]
    assert torch.equal(y_TE[0], y_TE[1])


def test_dropped_words_are_unknown_and_keep_their_spelling() -> None:
    entry = make(word_dropout=0.5)
    whole = entry.eval()(batch([[2] * 400]))[0]
    torch.manual_seed(0)
    x_TE = entry.train()(batch([[2] * 400]))[0]
    unknown_E = entry.words.weight[UNKNOWN]
    gone_T = (x_TE[:, :6] == unknown_E).all(1)
    assert 150 < int(gone_T.sum()) < 250
    assert torch.equal(x_TE[~gone_T], whole[~gone_T])
    assert torch.equal(x_TE[:, 6:], whole[:, 6:])


def test_some_rows_of_a_batch() -> None:
    entry = make().eval()
    words = batch([[2, 3], [4, 5], [3, 3]])
    torch.testing.assert_close(entry(words.rows(slice(1, 3))), entry(words)[1:], rtol=0, atol=1e-14)
