"""The Markov machine: before it counted, what it never crosses, what a lens sees, what survives a copy."""

import copy

import numpy as np
import pytest
import torch

from statewise.core import lens, state_bytes
from statewise.kernels.ngram import naive
from statewise.models import Markov, build, build_sample
from statewise.specs import MarkovSpec, UserError

END, A, B, C, D = range(5)


@pytest.mark.parametrize("smoothing", ["kneser-ney", "modified", "add-k"])
def test_before_it_counted_it_knows_nothing(smoothing: str) -> None:
    model = build("markov", vocab=7, order=3, smoothing=smoothing)
    logits, state = model(torch.tensor([[1, 2, 3, 4]]))
    torch.testing.assert_close(logits.exp(), torch.full((1, 4, 7), 1 / 7))
    assert state.last_BK.tolist() == [[2, 3, 4]]
    assert model.init_state(2).last_BK.tolist() == [[7, 7, 7]] * 2
    assert state_bytes(state) == 3 * 8
    assert not list(model.parameters())


def test_a_context_never_reaches_into_another_document() -> None:
    model = Markov(5, order=2)
    model.count(np.array([END, A, B, END, C, D, END]), end_id=END)

    def seen(*context: int) -> bool:
        return naive.find(context, model.tables(), vocab=5) is not None

    assert seen(A, B)
    assert seen(5, END)  # a document's beginning
    assert seen(END, C)
    assert not seen(B, END), "what stood before the end is not part of the next document's past"
    model.count(np.array([END, A, B, END, C, D, END]))
    assert seen(B, END), "without an end symbol it is all one document"


def test_counting_again_starts_afresh() -> None:
    once, twice = Markov(5, order=2), Markov(5, order=2)
    text = np.random.default_rng(0).integers(5, size=60)
    once.count(text)
    twice.count(np.arange(5))
    twice.count(text)
    assert all(torch.equal(a, b) for a, b in zip(once.tables(), twice.tables(), strict=True))


def test_a_lens_sees_how_much_was_known() -> None:
    model = build_sample(MarkovSpec(order=3), vocab=6).double()
    tokens_BT = torch.randint(6, (2, 9), generator=torch.Generator().manual_seed(1))
    plain, after = model(tokens_BT)
    with lens() as seen:
        looked_at, same = model(tokens_BT)
    torch.testing.assert_close(looked_at, plain, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(seen["markov.probabilities"], plain.exp(), rtol=1e-12, atol=1e-12)
    assert torch.equal(after.last_BK, same.last_BK)
    assert seen["markov.known"].shape == (2, 9)
    assert set(seen["markov.known"].unique().tolist()) <= {0, 1, 2, 3}


def test_precision_touches_no_count() -> None:
    model = build_sample(MarkovSpec(order=2, smoothing="modified"), vocab=6)
    low = copy.deepcopy(model).to(torch.bfloat16)
    assert all(torch.equal(a, b) for a, b in zip(low.tables(), model.tables(), strict=True))
    assert low.discounts == model.discounts
    assert low(torch.tensor([[1, 2]]))[0].dtype == torch.bfloat16


def test_what_one_counted_another_can_take_over() -> None:
    model = build_sample(MarkovSpec(order=2, smoothing="modified"), vocab=6)
    other = build(MarkovSpec(order=2, smoothing="modified"), vocab=6)
    other.adopt(model.state_dict())
    tokens_BT = torch.tensor([[1, 2, 3, 0, 5]])
    assert torch.equal(other(tokens_BT)[0], model(tokens_BT)[0])
    assert other.discounts == model.discounts
    with pytest.raises(UserError, match="vocabulary of 5"):
        build(MarkovSpec(order=2), vocab=5).adopt(model.state_dict())


@pytest.mark.parametrize("tokens", [[], [1]])
def test_too_little_to_count(tokens: list[int]) -> None:
    with pytest.raises(UserError, match="cannot be counted"):
        Markov(5).count(np.array(tokens, dtype=np.int64))


@pytest.mark.parametrize("token", [-1, 7, 8])
def test_what_is_no_token_is_refused(token: int) -> None:
    model = build_sample(MarkovSpec(order=2), vocab=7)
    with pytest.raises(UserError, match="from 0 to 6"):
        model(torch.tensor([[1, token]]))
    with pytest.raises(UserError, match="from 0 to 6"):
        model.step(torch.tensor([token]), model.init_state(1))
    with pytest.raises(UserError, match="from 0 to 6"):
        model.count(np.array([1, token, 2]))


def test_fractions_are_not_counted() -> None:
    with pytest.raises(UserError, match="float64, expected whole numbers"):
        Markov(5).count(np.array([1.0, 2.0, 3.0]))  # type: ignore[arg-type]  # that is the mistake
