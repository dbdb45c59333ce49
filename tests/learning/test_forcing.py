"""What forcing decides: behind noise, one step ahead and many steps ahead want different weights.

Truth decays by 0.95 a step and is seen through noise. One step ahead, the best weight on a noisy value is smaller
(errors in variables); a model that only ever read the truth takes that weight, and alone it dies out too soon.
"""

import pytest
import torch
from torch import Tensor, nn

from statewise.core import Machine, unroll
from statewise.specs.train import ForcingSpec, FreeRunning, ScheduledSampling, TeacherForcing
from statewise.training.forcing import exposure_gap, feed_values, forced_forward, truth_probability

STEPS, DECAY, NOISE = 150, 0.95, 0.5
OWN = feed_values(lambda y_BC, uniform_B: y_BC, through=True)


class Decay(Machine[Tensor]):
    """`x̂_{t+1} = a x_t`."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        return torch.randn(batch, time, 1, dtype=torch.float64, generator=generator)

    def init_state(self, batch: int) -> Tensor:
        return torch.zeros(batch, 1)

    def forward(self, x: Tensor, state: Tensor | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return unroll(self.step, x, self.init_state(len(x)) if state is None else state, lengths_B)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.a * x, state


def rows(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    start_B = torch.randn(256, 1, dtype=torch.float64, generator=generator)
    noise_BT = NOISE * torch.randn(256, 13, dtype=torch.float64, generator=generator)
    x_BTC = (start_B * DECAY ** torch.arange(13) + noise_BT)[:, :, None]
    return x_BTC[:, :-1], x_BTC[:, 1:]


def error(y_BTC: Tensor, x_BTC: Tensor) -> Tensor:
    return (y_BTC - x_BTC).square()[:, :, 0]


def trained(policy: ForcingSpec) -> Decay:
    model = Decay()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(STEPS):
        inputs, targets = rows(step)
        probability = truth_probability(policy, step)
        y, _ = forced_forward(model, inputs, truth_probability=probability, key=(0, step), feedback=OWN)
        optimizer.zero_grad()
        error(y, targets).mean().backward()
        optimizer.step()
    return model


def test_row_d7_who_read_itself_errs_less_alone() -> None:
    inputs, targets = rows(10_000)
    best = (inputs * targets).sum() / inputs.square().sum()  # one step ahead, by least squares
    policies: dict[str, ForcingSpec] = {
        "teacher": TeacherForcing(),
        "scheduled": ScheduledSampling(schedule="linear", steps=STEPS // 2),
        "free": FreeRunning(),
    }
    models = {name: trained(policy) for name, policy in policies.items()}
    assert models["teacher"].a.item() == pytest.approx(best.item(), abs=0.03)
    assert best < 0.8
    gaps = {n: exposure_gap(m, inputs, targets, feedback=OWN, score=error) for n, m in models.items()}
    for name in ("scheduled", "free"):
        assert 0.85 < models[name].a.item() < DECAY + 0.02
        assert gaps[name].own_T.mean() < 0.9 * gaps["teacher"].own_T.mean()
        assert gaps[name].gap_T.mean() < 0.5 * gaps["teacher"].gap_T.mean()
    # And what it costs: one step ahead, who was forced is better.
    assert gaps["teacher"].teacher_T.mean() < gaps["free"].teacher_T.mean()
