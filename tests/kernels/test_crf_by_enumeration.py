"""The recursions of the CRF against the sum over all paths, one after another."""

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from statewise.kernels.crf import CRFWeights, best_path, log_partition, marginals, path_score

CASES = [(1, 1), (1, 4), (4, 1), (2, 3), (5, 3), (6, 2)]  # time, tags
each_case = pytest.mark.parametrize(("time", "tags"), CASES)


def case(time: int, tags: int, *, batch: int = 3, scale: float = 2.0) -> tuple[Tensor, CRFWeights]:
    generator = torch.Generator().manual_seed(time * 10 + tags)

    def noise(*shape: int) -> Tensor:
        return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).requires_grad_()

    return noise(batch, time, tags), CRFWeights(noise(tags, tags), noise(tags), noise(tags))


def all_scores(emissions_TK: Tensor, weights: CRFWeights) -> tuple[list[tuple[int, ...]], Tensor]:
    """Every path of one row, and its score by the definition."""
    time, tags = emissions_TK.shape
    paths = list(product(range(tags), repeat=time))
    scores = []
    for path in paths:
        score = weights.start_K[path[0]] + weights.end_K[path[-1]]
        for t, tag in enumerate(path):
            score = score + emissions_TK[t, tag]
        for before, after in pairwise(path):
            score = score + weights.transition_KK[before, after]
        scores.append(score)
    return paths, torch.stack(scores)


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@each_case
def test_the_sum_over_all_paths_and_its_gradients(time: int, tags: int) -> None:
    emissions_BTK, weights = case(time, tags)
    expected_B = torch.stack([all_scores(row, weights)[1].logsumexp(0) for row in emissions_BTK])
    actual_B = log_partition(emissions_BTK, weights)
    close(actual_B, expected_B)
    share_B = torch.linspace(-1, 2, len(actual_B), dtype=torch.float64)
    of = [emissions_BTK, *weights]
    for mine, theirs in zip(
        torch.autograd.grad((share_B * actual_B).sum(), of, materialize_grads=True),
        torch.autograd.grad((share_B * expected_B).sum(), of, materialize_grads=True),
    ):
        close(mine, theirs)


@each_case
def test_the_best_path(time: int, tags: int) -> None:
    emissions_BTK, weights = case(time, tags)
    tags_BT, score_B = best_path(emissions_BTK, weights)
    for row, emissions_TK in enumerate(emissions_BTK):
        paths, scores = all_scores(emissions_TK, weights)
        assert tuple(tags_BT[row].tolist()) == paths[int(scores.argmax())]
        close(score_B[row], scores.max().detach())
    close(path_score(emissions_BTK, tags_BT, weights), score_B.clone())


@each_case
def test_the_score_of_any_path(time: int, tags: int) -> None:
    emissions_BTK, weights = case(time, tags, batch=1)
    paths, scores = all_scores(emissions_BTK[0], weights)
    many = emissions_BTK.expand(len(paths), -1, -1)
    close(path_score(many, torch.tensor(paths), weights), scores)


@each_case
def test_marginals_by_counting_and_by_the_gradient_of_the_sum(time: int, tags: int) -> None:
    emissions_BTK, weights = case(time, tags)
    p_BTK = marginals(emissions_BTK, weights)
    for row, emissions_TK in enumerate(emissions_BTK):
        paths, scores = all_scores(emissions_TK, weights)
        by_path = scores.softmax(0)
        counted_TK = torch.zeros(time, tags, dtype=torch.float64)
        for path, p in zip(paths, by_path):
            for t, tag in enumerate(path):
                counted_TK[t, tag] += p.detach()
        close(p_BTK[row].detach(), counted_TK)
    (gradient_BTK,) = torch.autograd.grad(log_partition(emissions_BTK, weights).sum(), emissions_BTK)
    close(p_BTK.detach(), gradient_BTK)


def test_padded_is_alone_and_padding_is_not_read() -> None:
    emissions_BTK, weights = case(6, 4, batch=5)
    lengths_B = torch.tensor([6, 1, 3, 0, 5])
    tags_BT = torch.randint(0, 4, (5, 6), generator=torch.Generator().manual_seed(0))
    past_BT = torch.arange(6) >= lengths_B[:, None]
    dirty_BTK = emissions_BTK.detach().masked_fill(past_BT[:, :, None], float("nan")).requires_grad_()
    dirty_tags_BT = tags_BT.masked_fill(past_BT, -100)
    total_B = log_partition(dirty_BTK, weights, lengths_B)
    score_B = path_score(dirty_BTK, dirty_tags_BT, weights, lengths_B)
    p_BTK = marginals(dirty_BTK, weights, lengths_B)
    best_BT, best_B = best_path(dirty_BTK, weights, lengths_B)
    for row, length in enumerate(lengths_B.tolist()):
        assert (p_BTK[row, length:] == 0).all()
        assert (best_BT[row, length:] == 0).all()
        if length == 0:
            assert total_B[row] == score_B[row] == best_B[row] == 0
            continue
        alone = emissions_BTK[row : row + 1, :length]
        close(total_B[row], log_partition(alone, weights)[0])
        close(score_B[row], path_score(alone, tags_BT[row : row + 1, :length], weights)[0])
        close(p_BTK[row, :length], marginals(alone, weights)[0])
        path_1T, best_1 = best_path(alone, weights)
        assert torch.equal(best_BT[row, :length], path_1T[0])
        close(best_B[row], best_1[0])
    gradients = torch.autograd.grad((total_B - score_B).sum() + p_BTK.square().sum(), [dirty_BTK, *weights])
    assert (gradients[0][past_BT] == 0).all()
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_what_is_forbidden_has_no_share_and_no_gradient() -> None:
    emissions_BTK, weights = case(5, 3)
    banned_KK = torch.tensor([[False, True, False], [True, True, False], [False, False, False]])
    banned_K = torch.tensor([True, False, False])
    barred = CRFWeights(
        weights.transition_KK.masked_fill(banned_KK, -torch.inf),
        weights.start_K.masked_fill(banned_K, -torch.inf),
        weights.end_K,
    )
    for row, emissions_TK in enumerate(emissions_BTK):
        paths, scores = all_scores(emissions_TK, weights)
        allowed = torch.tensor([path[0] != 0 and not any(banned_KK[a, b] for a, b in pairwise(path)) for path in paths])
        close(log_partition(emissions_BTK, barred)[row], scores[allowed].logsumexp(0))
        best_BT, score_B = best_path(emissions_BTK, barred)
        close(score_B[row], scores[allowed].max().detach())
        assert allowed[paths.index(tuple(best_BT[row].tolist()))]
    assert (marginals(emissions_BTK, barred)[:, 0, 0] == 0).all()
    gradients = torch.autograd.grad(log_partition(emissions_BTK, barred).sum(), [emissions_BTK, *weights])
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert (gradients[1][banned_KK] == 0).all()


@pytest.mark.parametrize("scale", [1e3, 1e30])
def test_extreme_scores_stay_numbers(scale: float) -> None:
    emissions_BTK, weights = case(6, 3, scale=scale)
    narrow_BTK = emissions_BTK.detach().float().requires_grad_()
    narrow = CRFWeights(*(w.detach().float().requires_grad_() for w in weights))
    total_B = log_partition(narrow_BTK, narrow)
    torch.testing.assert_close(total_B.double(), log_partition(emissions_BTK, weights), rtol=1e-5, atol=0)
    p_BTK = marginals(narrow_BTK, narrow)
    gradients = torch.autograd.grad(total_B.sum(), [narrow_BTK, *narrow])
    assert all(torch.isfinite(value).all() for value in (total_B, p_BTK, *gradients))
    torch.testing.assert_close(gradients[0].sum(2), torch.ones(3, 6))


def test_it_can_be_differentiated_twice() -> None:
    emissions_BTK, weights = case(3, 2, batch=2, scale=1.0)
    lengths_B = torch.tensor([3, 2])

    def total(emissions: Tensor, *parts: Tensor) -> Tensor:
        return log_partition(emissions, CRFWeights(*parts), lengths_B)

    inputs = (emissions_BTK, *weights)
    assert torch.autograd.gradcheck(total, inputs)
    assert torch.autograd.gradgradcheck(total, inputs)


def test_half_precision_is_wide_inside() -> None:
    emissions_BTK, weights = case(40, 5)
    half = CRFWeights(*(w.detach().bfloat16() for w in weights))
    emissions = emissions_BTK.detach().bfloat16()
    exact_B = log_partition(emissions.double(), CRFWeights(*(w.double() for w in half)))
    torch.testing.assert_close(log_partition(emissions, half).double(), exact_B, rtol=1e-6, atol=0)
