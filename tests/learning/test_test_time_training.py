"""Layers that learn while they read: a relation that is new in every sequence, found inside it."""

import pytest
import torch
from torch import Tensor, nn

from statewise.core import lens
from statewise.mixers import TTT

INPUTS, OUTPUTS, TIME, WIDTH = 4, 4, 24, 16


def regression(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """`y = A x` with an A of the sequence's own. At t one is given x_t and the last pair, and asked for y_t."""
    a_BOI = torch.randn(batch, OUTPUTS, INPUTS, generator=generator) / INPUTS**0.5
    x_BTI = torch.randn(batch, TIME, INPUTS, generator=generator)
    y_BTO = x_BTI @ a_BOI.mT
    last_BTP = nn.functional.pad(torch.cat([x_BTI, y_BTO], dim=-1)[:, :-1], (0, 0, 1, 0))
    return torch.cat([x_BTI, last_BTP], dim=-1), y_BTO


class Static(nn.Module):
    """A linear map that is the same in every sequence, in the place of the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(2 * INPUTS + OUTPUTS, WIDTH)

    def forward(self, x_BTI: Tensor) -> tuple[Tensor, None]:
        return self.map(x_BTI), None


def errors_by_position(layer: nn.Module, *, steps: int) -> Tensor:
    """Mean squared error at each t on fresh sequences, after training; 1 is to know nothing."""
    torch.manual_seed(0)
    head = nn.Linear(WIDTH, OUTPUTS)
    parameters = [*layer.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x_BTI, y_BTO = regression(32, generator)
        loss = (head(layer(x_BTI)[0]) - y_BTO).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
    x_BTI, y_BTO = regression(500, torch.Generator().manual_seed(99))
    with torch.no_grad():
        return (head(layer(x_BTI)[0]) - y_BTO).square().mean((0, 2))


def made(inner: str, *, rate: float) -> TTT:
    generator = torch.Generator().manual_seed(0)
    sizes = {"input_width": 2 * INPUTS + OUTPUTS, "heads": 1, "mini_batch": 4}
    return TTT(WIDTH, inner=inner, rate=rate, generator=generator, **sizes)


@pytest.mark.parametrize(("inner", "rate"), [("linear", 2.0), pytest.param("mlp", 1.0, marks=pytest.mark.slow)])
def test_it_finds_the_relation_inside_the_sequence(inner: str, rate: float) -> None:
    error_T = errors_by_position(made(inner, rate=rate), steps=300)
    assert error_T[0] > 0.9, "nothing is known before the first pair"
    assert error_T[-4:].mean() < 0.25


def test_a_static_map_cannot() -> None:
    torch.manual_seed(0)
    assert errors_by_position(Static(), steps=300)[-4:].mean() > 0.9


@pytest.mark.parametrize(("inner", "rate"), [("linear", 2.0), pytest.param("mlp", 1.0, marks=pytest.mark.slow)])
def test_the_inner_loss_falls_along_the_sequence(inner: str, rate: float) -> None:
    """Even before any outer training, on tokens that come again: the inner model learns them."""
    layer = made(inner, rate=rate)
    x_BTI = torch.randn(4, 8, 2 * INPUTS + OUTPUTS, generator=torch.Generator().manual_seed(2)).repeat(1, 10, 1)
    with lens("ttt.inner_loss") as seen, torch.no_grad():
        layer(x_BTI)
    loss_R = seen["ttt.inner_loss"].mean((0, 2)).view(10, 8).mean(1)
    assert loss_R[-1] < 0.6 * loss_R[0]
    assert (loss_R[1:] < loss_R[0]).all()
