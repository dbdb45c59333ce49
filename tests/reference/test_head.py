"""Heads against torch.distributions and scipy.stats, in float64."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from statewise.kernels import student_t
from statewise.models.head import BernoulliHead, CategoricalHead, RealHead
from statewise.models.real_head import Gaussian, GaussianHead, PointHead, QuantileHead, Student, StudentHead
from statewise.specs import UserError

KINDS = (PointHead, GaussianHead, StudentHead, QuantileHead)
LEVELS = (1e-6, 0.01, 0.3, 0.5, 0.8, 0.999)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def close(actual: Tensor, expected: Any, *, tolerance: float = 1e-11) -> None:
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual.detach().double(), expected.detach(), rtol=tolerance, atol=tolerance)


@pytest.fixture
def gaussian() -> tuple[GaussianHead, Gaussian, Tensor]:
    head = GaussianHead(5, 3, generator=generator()).double()
    return head, head(noise(4, 7, 5)), 3 * noise(4, 7, 3, seed=1)


@pytest.fixture
def student() -> tuple[StudentHead, Student, Tensor]:
    head = StudentHead(5, 3, generator=generator()).double()
    return head, head(3 * noise(4, 7, 5)), 3 * noise(4, 7, 3, seed=1)


def test_gaussian(gaussian: tuple[GaussianHead, Gaussian, Tensor]) -> None:
    head, params, target = gaussian
    theirs = torch.distributions.Normal(*params)
    mean, scale = (p.detach().numpy() for p in params)
    close(head.nats(params, target), -theirs.log_prob(target))
    close(head.cdf(params, target), stats.norm.cdf(target.numpy(), mean, scale))
    close(head.mean(params), theirs.mean)
    for q in LEVELS:
        close(head.quantile(params, q), stats.norm.ppf(q, mean, scale))
    low, high = head.interval(params, 0.9)
    close(low, stats.norm.ppf(0.05, mean, scale))
    close(high, stats.norm.ppf(0.95, mean, scale))


def test_student(student: tuple[StudentHead, Student, Tensor]) -> None:
    head, params, target = student
    params = Student(*(p.detach().requires_grad_() for p in params))
    assert (params.freedom > 2).all()
    theirs = torch.distributions.StudentT(params.freedom, params.location, params.scale)
    location, scale, freedom = (p.detach().numpy() for p in params)
    mine, reference = head.nats(params, target), -theirs.log_prob(target)
    close(mine, reference)
    for a, b in zip(torch.autograd.grad(mine.sum(), params), torch.autograd.grad(reference.sum(), params)):
        close(a, b, tolerance=1e-9)
    close(head.cdf(params, target), stats.t.cdf(target.numpy(), freedom, location, scale))
    close(head.mean(params), theirs.mean)
    for q in LEVELS:
        close(head.quantile(params, q), stats.t.ppf(q, freedom, location, scale))


FREEDOM = torch.tensor([0.5, 2.0001, 3, 4.5, 10, 30, 99, 101, 1e3, 1e5], dtype=torch.float64)[:, None]


def test_student_distribution_function_far_into_the_tails() -> None:
    t = torch.tensor([-1e8, -1e4, -50, -5, -1, -1e-9, 0, 0.3, 2, 40, 1e5], dtype=torch.float64)
    close(student_t.cdf(t, FREEDOM), stats.t.cdf(t.numpy(), FREEDOM.numpy()), tolerance=1e-13)
    near = t.clamp(-30, 30)
    ratio = student_t.cdf(near, FREEDOM).numpy() / np.maximum(stats.t.cdf(near.numpy(), FREEDOM.numpy()), 1e-300)
    assert np.abs(ratio - 1).max() < 1e-10, "relative, where the tail is tiny"
    close(student_t.log_density(t, FREEDOM), stats.t.logpdf(t.numpy(), FREEDOM.numpy()), tolerance=1e-11)


def test_student_quantiles_at_all_levels() -> None:
    q = torch.tensor([1e-12, 1e-6, 0.001, 0.1, 0.4999, 0.5, 0.6, 0.975, 1 - 1e-6], dtype=torch.float64)
    close(student_t.quantile(q, FREEDOM), stats.t.ppf(q.numpy(), FREEDOM.numpy()), tolerance=1e-11)


def test_the_step_of_the_gamma_function_at_any_size() -> None:
    """`scipy.special.poch` is Γ(x + ½) / Γ(x)."""
    from scipy.special import poch

    x = np.array([0.25, 1, 10, 49.999, 50, 50.001, 500, 1e6])
    close(student_t.half_step(torch.tensor(x)), np.log(poch(x, 0.5)), tolerance=1e-13)


def test_quantile_loss_is_pinball_and_levels_do_not_cross() -> None:
    sklearn = pytest.importorskip("sklearn.metrics", reason="the oracle is of the extra `tasks`")
    head = QuantileHead(5, 2, levels=[0.1, 0.5, 0.9], generator=generator()).double()
    params, target = head(20 * noise(30, 5)), noise(30, 2, seed=3)
    assert (params.diff(dim=-1) >= 0).all()
    expected = [
        np.mean([sklearn.mean_pinball_loss(target[:, c], params[:, c, i].detach(), alpha=a) for c in range(2)])
        for i, a in enumerate(head.levels)
    ]
    close(head.nats(params, target).mean(), np.mean(expected))


def test_quantiles_between_levels_and_their_mean() -> None:
    head = QuantileHead(5, 2, levels=[0.05, 0.3, 0.5, 0.9], generator=generator()).double()
    params = head(noise(6, 5))
    for q in (0.05, 0.2, 0.3, 0.7, 0.9, (1 - 0.9) / 2):
        expected = [[np.interp(q, head.levels, values) for values in row] for row in params.detach().tolist()]
        close(head.quantile(params, q), expected)
    row = params[0, 0].tolist()
    area, _ = integrate.quad(lambda u: np.interp(u, head.levels, row), 0, 1, points=head.levels)
    close(head.mean(params)[0, 0], area, tolerance=1e-9)
    draws = head.sample(params[:1].expand(200_000, -1, -1), generator())
    assert abs(draws[:, 0].mean().item() - area) < 5 * draws[:, 0].std().item() / math.sqrt(len(draws))
    only = QuantileHead(5, 1, levels=[0.5]).double()
    assert torch.equal(only.quantile(only(noise(2, 5)), 0.5), only.mean(only(noise(2, 5))))


@pytest.mark.parametrize(("q", "levels"), [(0.99, [0.1, 0.9]), (0.05, [0.1, 0.9])])
def test_no_quantile_is_made_up_beyond_the_levels(q: float, levels: list[float]) -> None:
    head = QuantileHead(2, 1, levels=levels)
    with pytest.raises(UserError, match=r"outside of the levels.*0\.1 to 0\.9"):
        head.quantile(head(torch.zeros(1, 2)), q)


def test_bernoulli_and_categorical() -> None:
    bits = BernoulliHead(5, 4, generator=generator()).double()
    logits = bits(noise(3, 6, 5))
    target = (noise(3, 6, 4, seed=2) > 0).double()
    theirs = torch.distributions.Bernoulli(logits=logits)
    close(bits.nats(logits, target), -theirs.log_prob(target).sum(-1))
    close(bits.mean(logits), theirs.mean)
    words = CategoricalHead(5, 4, generator=generator()).double()
    logits = words(noise(3, 6, 5))
    ids = torch.randint(0, 4, (3, 6), generator=generator())
    close(words.nats(logits, ids), -torch.distributions.Categorical(logits=logits).log_prob(ids))


def test_point_is_squared_error() -> None:
    head = PointHead(5, 2, generator=generator()).double()
    params, target = head(noise(3, 5)), noise(3, 2, seed=1)
    close(head.nats(params, target), torch.nn.functional.mse_loss(params, target, reduction="none"))
    assert torch.equal(head.sample(params), head.mean(params))
    with pytest.raises(UserError, match="no quantiles"):
        head.interval(params, 0.9)


def test_draws_follow_the_distribution(
    gaussian: tuple[GaussianHead, Gaussian, Tensor], student: tuple[StudentHead, Student, Tensor]
) -> None:
    """Kolmogorov and Smirnov's test of the draws against scipy's distribution function."""
    for head, params, law in [(gaussian[0], gaussian[1], "norm"), (student[0], student[1], "t")]:
        one = type(params)(*(p.detach()[0, 0, :1].expand(20_000) for p in params))
        draws = head.sample(one, generator(3))
        first = [p[0].item() for p in one]
        arguments = first if law == "norm" else [first[2], *first[:2]]
        assert stats.kstest(draws.numpy(), law, args=tuple(arguments)).pvalue > 1e-3
        assert torch.equal(draws, head.sample(one, generator(3)))


def test_draws_of_bits_and_tokens_have_their_shares() -> None:
    logits = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
    many = logits.expand(50_000, 3)
    share = BernoulliHead(1, 3).sample(many, generator()).mean(0)
    torch.testing.assert_close(share, logits.sigmoid(), atol=0.012, rtol=0)
    ids = CategoricalHead(1, 3).sample(many, generator())
    share = torch.bincount(ids, minlength=3) / len(ids)
    torch.testing.assert_close(share.double(), logits.softmax(0), atol=0.012, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e4, 1e8])
def test_gradients_stay_finite_at_extremes(kind: Callable[..., RealHead[Any]], size: float) -> None:
    """In float32, with features and targets far from anything seen."""
    head = kind(4, 2, generator=generator())
    for sign, aim in [(1, 1), (1, -1), (-1, 1), (-1, -1)]:
        y = torch.full((3, 4), sign * min(size, 1e4), requires_grad=True)
        target = torch.full((3, 2), aim * size)
        nats = head.nats(head(y), target)
        gradients = torch.autograd.grad(nats.sum(), [y, *head.parameters()])
        assert torch.isfinite(nats).all()
        assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("kind", KINDS)
def test_shapes_and_channels_of_their_own(kind: Callable[..., RealHead[Any]]) -> None:
    head = kind(4, 3, generator=generator())
    params = head(torch.randn(2, 5, 4, generator=generator()))
    assert head.nats(params, torch.zeros(2, 5, 3)).shape == (2, 5, 3)
    assert head.mean(params).shape == head.sample(params, generator()).shape == (2, 5, 3)
    if kind is not PointHead:
        low, high = head.interval(params, 0.8)
        assert low.shape == (2, 5, 3)
        assert (low < high).all()


def test_half_precision_features_give_wide_parameters() -> None:
    head = StudentHead(4, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        params = head(torch.zeros(3, 4))
    assert all(p.dtype == torch.float32 for p in params)


def test_mistakes_are_named() -> None:
    with pytest.raises(UserError, match="do not rise"):
        QuantileHead(2, 1, levels=[0.5, 0.1])
    with pytest.raises(UserError, match="at least one level"):
        QuantileHead(2, 1, levels=[])
    with pytest.raises(UserError, match=r"1\.5 is not a probability"):
        QuantileHead(2, 1, levels=[0.5, 1.5])
    with pytest.raises(UserError, match="channels = 0"):
        GaussianHead(2, 0)
