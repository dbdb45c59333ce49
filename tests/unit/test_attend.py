"""Scores, alignments and contexts against their formulas, written out in NumPy."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from statewise.core import lens
from statewise.layers.alignment import (
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Soft,
    Sparsemax,
    log_probability,
    make_alignment,
    score_function_loss,
    sparsemax,
)
from statewise.layers.attend import Attend, Looks
from statewise.layers.score import Additive, General, Location, make_score
from statewise.specs import UserError

B, T, S, Q = 2, 3, 5, 4
LENGTHS = torch.tensor([5, 3])


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def scores(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, object]:
    score = make_score(kind, query_width=Q, key_width=Q, hidden=6, longest=9).double()
    query, keys = tensor(B, T, Q), tensor(B, S, Q, seed=1)
    with torch.no_grad():
        for parameter in score.parameters():
            parameter.copy_(tensor(*parameter.shape, seed=7))
        found = score(query, score.prepare(keys))
    return found.numpy(), query.numpy(), keys.numpy(), score


def each_pair(query: np.ndarray, keys: np.ndarray, formula: object) -> np.ndarray:
    out = np.empty((B, T, S))
    for b, t, s in itertools.product(range(B), range(T), range(S)):
        out[b, t, s] = formula(query[b, t], keys[b, s])
    return out


def by_formula(kind: str, score: object) -> object:
    def n(value: Tensor | None) -> np.ndarray:
        assert value is not None
        return value.detach().numpy()

    if isinstance(score, Additive):
        bias = 0 if score.b_A is None else n(score.b_A)
        both = np.concatenate([n(score.w_AQ), n(score.u_AK)], axis=1)  # Luong's single matrix
        return lambda q, k: n(score.v_A) @ np.tanh(both @ np.concatenate([q, k]) + bias)
    if isinstance(score, General):
        return lambda q, k: q @ n(score.w_QK) @ k
    sharpness = next((n(p) for p in score.parameters()), None)
    return {
        "dot": lambda q, k: q @ k,
        "scaled_dot": lambda q, k: q @ k / np.sqrt(len(k)),
        "cosine": lambda q, k: sharpness * (q @ k) / (np.linalg.norm(q) * np.linalg.norm(k)),
    }[kind]


@pytest.mark.parametrize("kind", ["dot", "scaled_dot", "cosine", "general", "additive", "concat"])
def test_each_score_is_its_formula(kind: str) -> None:
    found, query, keys, score = scores(kind)
    np.testing.assert_allclose(found, each_pair(query, keys, by_formula(kind, score)), rtol=0, atol=1e-12)


def test_location_looks_at_the_query_alone() -> None:
    found, query, _, score = scores("location")
    assert isinstance(score, Location)
    expected = np.einsum("btq,sq->bts", query, score.w_LQ.detach().numpy()[:S])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    with pytest.raises(UserError, match="10 positions, a location score was built for 9"):
        score(tensor(1, 1, Q), tensor(1, 10, Q))


@pytest.mark.parametrize("kind", ["dot", "scaled_dot", "cosine"])
def test_products_need_equal_widths(kind: str) -> None:
    with pytest.raises(UserError, match=f"a {kind} score needs queries and keys of one width, not 3 and 4"):
        make_score(kind, query_width=3, key_width=4)


ALIGNMENTS = ["soft", "sparsemax", "local_monotonic", "hard"]


@pytest.mark.parametrize("kind", ALIGNMENTS)
def test_weights_are_a_distribution_over_what_exists(kind: str) -> None:
    alignment = make_alignment(kind, query_width=Q, reach=1).double()
    position = torch.arange(T).expand(B, T)
    weights = alignment(tensor(B, T, S), tensor(B, T, Q), position, LENGTHS)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, T, dtype=torch.float64), rtol=0, atol=1e-12)
    assert (weights >= 0).all()
    assert (weights[1, :, 3:] == 0).all()
    empty = alignment(tensor(B, T, S), tensor(B, T, Q), position, torch.tensor([0, 2]))
    assert (empty[0] == 0).all(), "an empty source gets no weight at all"


def test_soft_is_softmax() -> None:
    weights = Soft()(s := tensor(B, T, S), s, torch.zeros(B, T), LENGTHS)
    torch.testing.assert_close(weights[1, :, :3], s[1, :, :3].softmax(-1), rtol=0, atol=1e-14)


def test_local_monotonic_is_softmax_near_the_position() -> None:
    s = tensor(1, 4, 6)
    position = torch.tensor([[0, 2, 5, 9]])  # the last one is past the end: it looks at the end
    weights = LocalMonotonic(reach=1)(s, s, position, torch.tensor([6]))
    for t, places in enumerate([[0, 1], [1, 2, 3], [4, 5], [4, 5]]):
        expected = torch.zeros(6, dtype=torch.float64)
        expected[places] = s[0, t, places].softmax(-1)
        torch.testing.assert_close(weights[0, t], expected, rtol=0, atol=1e-14)


def test_local_predictive_is_its_formula() -> None:
    alignment = LocalPredictive(Q, reach=2).double()
    s, q = tensor(B, T, S), tensor(B, T, Q, seed=3)
    weights = alignment(s, q, torch.zeros(B, T), LENGTHS).detach().numpy()
    w, v = alignment.w_QQ.detach().numpy(), alignment.v_Q.detach().numpy()
    for b, t in itertools.product(range(B), range(T)):
        length = int(LENGTHS[b])
        centre = (length - 1) / (1 + np.exp(-(v @ np.tanh(w @ q[b, t].numpy()))))
        near = [i for i in range(length) if abs(i - centre) <= 2]
        e = np.exp(s[b, t].numpy()[near])
        expected = np.zeros(S)
        expected[near] = e / e.sum() * np.exp(-((np.array(near) - centre) ** 2) / (2 * (2 / 2) ** 2))
        np.testing.assert_allclose(weights[b, t], expected, rtol=0, atol=1e-12)


@settings(deadline=None, max_examples=60)
@given(values=st.lists(st.floats(-8, 8), min_size=1, max_size=7))
def test_sparsemax_is_the_nearest_point_of_the_simplex(values: list[float]) -> None:
    """Its optimality conditions: on the support all excesses over τ are equal, off it none is larger."""
    z = torch.tensor(values, dtype=torch.float64)
    p = sparsemax(z, torch.ones(len(z), dtype=torch.bool))
    assert p.sum().item() == pytest.approx(1, abs=1e-12)
    tau = (z - p)[p > 0]
    torch.testing.assert_close(tau, tau[:1].expand_as(tau), rtol=0, atol=1e-12)
    assert (z[p == 0] <= tau[0] + 1e-12).all()


def test_sparsemax_gradient() -> None:
    z = torch.tensor([0.9, 0.4, -2.0, 0.6], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: sparsemax(z, torch.tensor([True, True, True, True])), z)
    assert Sparsemax()(z.detach()[None, None], z[None, None], torch.zeros(1, 1), torch.tensor([2]))[0, 0, 3] == 0


def test_hard_chooses_the_likeliest_and_lends_its_gradient() -> None:
    alignment = Hard().eval()
    s = tensor(B, T, S).requires_grad_()
    weights = alignment(s, s, torch.zeros(B, T), LENGTHS)
    assert ((weights == 0) | ((weights - 1).abs() < 1e-12)).all()
    assert torch.equal(weights[0].argmax(-1), s[0].argmax(-1))
    direction = tensor(B, T, S, seed=5)
    (through,) = torch.autograd.grad((weights * direction).sum(), s)
    soft = Soft()(s, s, torch.zeros(B, T), LENGTHS)
    (as_soft,) = torch.autograd.grad((soft * direction).sum(), s)
    torch.testing.assert_close(through, as_soft, rtol=0, atol=1e-14)


def test_the_score_function_estimator_is_unbiased() -> None:
    """The expectation over all choices, weighted by their probability, is the gradient of the expected cost."""
    s = tensor(1, 1, 3).requires_grad_()
    cost = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)
    expected_cost = (s.softmax(-1)[0, 0] * cost).sum()
    (exact,) = torch.autograd.grad(expected_cost, s)
    total = torch.zeros_like(s)
    for choice in range(3):
        picked = torch.zeros(1, 1, 3, dtype=torch.float64)
        picked[..., choice] = 1
        log_p = log_probability(s, picked, torch.tensor([3]))
        loss = score_function_loss(log_p, cost[choice].view(1, 1), baseline=0.7)
        (one,) = torch.autograd.grad(loss, s)
        total += s.detach().softmax(-1)[0, 0, choice] * one
    torch.testing.assert_close(total, exact, rtol=0, atol=1e-12)


def test_context_is_the_weighted_sum_and_hops_ask_again() -> None:
    keys, query = tensor(B, S, Q), tensor(B, T, Q, seed=2)
    position = torch.zeros(B, T, dtype=torch.int64)
    score = make_score("dot", query_width=Q, key_width=Q)
    once, twice = Attend(score, Soft()), Attend(score, Soft(), hops=2)
    memory = once.remember(keys, keys, LENGTHS)
    with lens("attend.weights") as seen:
        first = once(query, memory, position)
    weights = seen.seen["attend.weights"][0]
    torch.testing.assert_close(first, torch.einsum("bts,bsv->btv", weights, keys), rtol=0, atol=1e-12)
    again = once(query + first, memory, position)
    torch.testing.assert_close(twice(query, memory, position), again, rtol=0, atol=1e-12)


def test_heads_are_looks_in_narrower_spaces() -> None:
    looks = [Attend(make_score("scaled_dot", query_width=2, key_width=2), Soft()) for _ in range(2)]
    heads = Looks(looks, query_width=Q, key_width=Q, value_width=Q, width=2).double()
    keys, query, position = tensor(B, S, Q), tensor(B, T, Q, seed=2), torch.zeros(B, T, dtype=torch.int64)
    found = heads(query, heads.remember(keys, keys, LENGTHS), position)
    oracle = torch.nn.MultiheadAttention(Q, 2, bias=False, batch_first=True).double()
    with torch.no_grad():
        oracle.in_proj_weight.copy_(torch.cat([heads.query.weight, heads.key.weight, heads.value.weight]))
        oracle.out_proj.weight.copy_(heads.out.weight)
    past = torch.arange(S) >= LENGTHS[:, None]
    expected, _ = oracle(query, keys, keys, key_padding_mask=past)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
