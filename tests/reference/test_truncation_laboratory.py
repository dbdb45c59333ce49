"""The laboratory of truncation against exact expectations: every pattern of cuts, weighed by its chance."""

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from statewise.core import Machine, detach
from statewise.inspection.bptt.estimate import cost, estimate, gradient, row_gradient
from statewise.mixers import GRU
from statewise.models import build
from statewise.specs import (
    ElmanSpec,
    FixedTruncation,
    FullTruncation,
    LSTMSpec,
    RandomTruncation,
    TransformerSpec,
    TTTLinearSpec,
    UnbiasedTruncation,
    UserError,
)
from statewise.tasks import Specimen
from statewise.training import segments

MODELS = {
    "elman": ElmanSpec(width=6, dropout=0.0),
    "lstm": LSTMSpec(width=6, dropout=0.0),
    "transformer": TransformerSpec(width=8, heads=2, depth=1, dropout=0.0),
    "ttt": TTTLinearSpec(width=8, heads=2, dropout=0.0),
}


def made(name: str) -> tuple[Machine[Any], Tensor, Tensor]:
    tokens_BT = torch.randint(5, (2, 13), generator=torch.Generator().manual_seed(0))
    return build(MODELS[name], vocab=5).double().eval(), tokens_BT[:, :-1], tokens_BT[:, 1:]


def key_of(policy: UnbiasedTruncation, passed: Sequence[bool], time: int) -> tuple[int, ...]:
    """Chance whose cuts are these."""
    for number in count():
        cuts = segments(policy, time, key=(0, number))
        if [cut.flow > 0 for cut in cuts[1:]] == list(passed):
            return (0, number)
    raise AssertionError


@pytest.mark.parametrize("name", MODELS)
def test_row_d7_the_weighted_mean_over_all_cuts_is_the_full_gradient(name: str) -> None:
    """Two places to cut, four patterns: their expectation is exact, not sampled."""
    model, inputs_BT, targets_BT = made(name)
    policy = UnbiasedTruncation(length=4, keep=0.3)
    full_P = gradient(model, inputs_BT, targets_BT, FullTruncation(), key=(0,))
    expected_P = torch.zeros_like(full_P)
    for passed in ((False, False), (False, True), (True, False), (True, True)):
        chance = 1.0
        for one in passed:
            chance *= 0.3 if one else 0.7
        expected_P += chance * gradient(model, inputs_BT, targets_BT, policy, key=key_of(policy, passed, 12))
    assert torch.allclose(expected_P, full_P, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("name", MODELS)
def test_the_full_gradient_is_autograd_of_the_whole_window(name: str) -> None:
    model, inputs_BT, targets_BT = made(name)
    logits_BTV, _ = model(inputs_BT)
    loss = torch.nn.functional.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())
    expected = torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad], allow_unused=True)
    wanted = [p for p in model.parameters() if p.requires_grad]
    flat = torch.cat([(torch.zeros_like(p) if one is None else one).flatten() for one, p in zip(expected, wanted)])
    found_P = gradient(model, inputs_BT, targets_BT, FullTruncation(), key=(0,))
    assert torch.allclose(found_P, flat, rtol=1e-9, atol=1e-13)


def test_many_draws_come_nearer_when_they_are_weighted_and_stay_away_when_not() -> None:
    model, inputs_BT, targets_BT = made("elman")
    unbiased = estimate(
        partial(gradient, model, inputs_BT, targets_BT), UnbiasedTruncation(length=3, keep=0.5), draws=256
    )
    biased = estimate(partial(gradient, model, inputs_BT, targets_BT), RandomTruncation(length=3), draws=256)
    fixed = estimate(partial(gradient, model, inputs_BT, targets_BT), FixedTruncation(length=3), draws=1)
    assert unbiased.draws == 256
    assert unbiased.bias < 3 * unbiased.chance
    assert unbiased.off_by[0] > 4 * unbiased.off_by[-1]
    assert biased.bias > 5 * biased.chance
    assert fixed.spread == 0.0
    assert fixed.bias > 0.05
    assert fixed.cosine < 1


def test_nothing_cut_is_nothing_lost() -> None:
    model, inputs_BT, targets_BT = made("lstm")
    for policy in (FullTruncation(), FixedTruncation(length=12), UnbiasedTruncation(length=3, keep=1.0)):
        found = estimate(partial(gradient, model, inputs_BT, targets_BT), policy, draws=2)
        assert found.cosine == pytest.approx(1, abs=1e-12)
        assert found.projection == pytest.approx(1, abs=1e-12)
        assert found.bias < 1e-12


def test_memory_is_that_of_the_longest_way_back() -> None:
    """A product of T matrices holds T of them; cut in the middle, half."""
    weight = torch.randn(32, 32, requires_grad=True)

    def product(cuts: set[int]) -> None:
        h = torch.randn(32, 32)
        for t in range(16):
            if t in cuts:
                h.sum().backward()
                h = h.detach()
            h = torch.tanh(h @ weight)
        h.sum().backward()

    whole, halved = (cost(lambda cuts=cuts: product(cuts), known=[weight]).held_bytes for cuts in (set(), {8}))
    matrix = 32 * 32 * 4
    assert whole == pytest.approx(17 * matrix, abs=2 * matrix)
    assert halved == pytest.approx(9 * matrix, abs=2 * matrix)


# --------------------------------------------------------------- rows, which several machines may read


def two_readings() -> tuple[nn.Module, Specimen]:
    """A row that one network reads forwards and the next one backwards; the answer needs all of it."""
    generator = torch.Generator().manual_seed(0)
    first, second = (GRU(4, generator=generator).double() for _ in range(2))

    def read(z_NTI: Tensor) -> Tensor:
        lengths_N = torch.full((len(z_NTI),), z_NTI.shape[1])
        return second(first(z_NTI, None, lengths_N)[0].flip(1))[0]

    return nn.ModuleList([first, second]), Specimen(
        name="made",
        pieces=tuple("abcdefghi"),
        x_TE=torch.randn(9, 4, dtype=torch.float64, generator=generator),
        enter=lambda x_NTE: x_NTE,
        read=read,
        judge=lambda y_NTC, x_NTE: y_NTC.square().mean((1, 2))[:, None],
        answer=lambda y_NTC, x_NTE: y_NTC,
        questions=("all",),
        distance=lambda question: np.zeros(9),
        readers={"first": first, "second": second},
    )


def test_row_e3_cuts_of_several_machines_are_unbiased_together() -> None:
    model, row = two_readings()
    loss = row.costs(row.x_TE[None]).mean()
    expected_P = torch.cat([one.flatten() for one in torch.autograd.grad(loss, list(model.parameters()))])
    of_rows = partial(row_gradient, model, [row])
    assert torch.allclose(of_rows(FullTruncation(), key=(0,)), expected_P, rtol=1e-9, atol=1e-13)
    unbiased = estimate(of_rows, UnbiasedTruncation(length=3, keep=0.5), draws=256)
    assert unbiased.bias < 3 * unbiased.chance
    assert estimate(of_rows, FixedTruncation(length=3), draws=1).bias > 10 * unbiased.bias
    assert estimate(of_rows, FixedTruncation(length=9), draws=1).bias < 1e-12, "nothing is cut"


def test_row_e3_a_fixed_cut_detaches_the_state_and_nothing_else() -> None:
    model, row = two_readings()
    first, second = row.readers.values()
    z_1TI = row.x_TE[None]

    def in_two(machine: Machine[Any], x: Tensor) -> Tensor:
        before, state = machine(x[:, :5])
        after, _ = machine(x[:, 5:], detach(state))
        return torch.cat([before, after], dim=1)

    loss = row.judge(in_two(second, in_two(first, z_1TI).flip(1)), z_1TI).mean()
    expected_P = torch.cat([one.flatten() for one in torch.autograd.grad(loss, list(model.parameters()))])
    found_P = row_gradient(model, [row], FixedTruncation(length=5), key=(0,))
    assert torch.allclose(found_P, expected_P, rtol=1e-9, atol=1e-13)
    assert "forward" not in vars(first), "afterwards, it reads as before"


def test_row_e3_a_gradient_of_zero_is_refused() -> None:
    model, row = two_readings()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    with pytest.raises(UserError, match="norm 0"):
        estimate(partial(row_gradient, model, [row]), FixedTruncation(length=3), draws=1)
