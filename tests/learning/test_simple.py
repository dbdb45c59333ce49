"""The relatives of Elman's network, each on what it was invented for."""

import pytest
import torch
from test_recurrent import accuracy_after, best_bigram_loss, letters, loss_on_letters, recall
from torch import Tensor
from torch.nn import functional as F

from statewise.layers import fit_readout
from statewise.mixers import Jordan, JordanState, Reservoir
from statewise.models import build


def test_leaky_units_keep_what_elman_loses() -> None:
    """A symbol, forty moments of noise, then the question; the leak passes the gradient on, whatever U does."""
    assert accuracy_after("leaky", recall, 40, steps=150, alpha=0.98) > 0.98
    assert accuracy_after("elman", recall, 40, steps=150) < 0.6


def mackey_glass(count: int, *, delay: int = 17, substeps: int = 10) -> Tensor:
    """`x' = 0.2 x(t - delay) / (1 + x(t - delay)^10) - 0.1 x`, chaotic from a delay of 17 on; Runge-Kutta."""
    step, back = 1 / substeps, delay * substeps
    x = [1.2] * (back + 1)

    def slope(now: float, then: float) -> float:
        return 0.2 * then / (1 + then**10) - 0.1 * now

    for _ in range((count + 100) * substeps):
        now, then, later = x[-1], x[-1 - back], x[-back]
        first = slope(now, then)
        second = slope(now + step / 2 * first, (then + later) / 2)
        third = slope(now + step / 2 * second, (then + later) / 2)
        fourth = slope(now + step * third, later)
        x.append(now + step / 6 * (first + 2 * second + 2 * third + fourth))
    return torch.tensor(x[::substeps][-count:], dtype=torch.float64)


def test_a_reservoir_predicts_a_chaotic_series() -> None:
    """Fitted in one go on 2000 moments; on the next 1000 the error is below 1/500 of the series' spread."""
    series = mackey_glass(3001)
    x_1TI = (series - series.mean())[None, :, None]
    mixer = Reservoir(200, input_width=1, generator=torch.Generator().manual_seed(0)).double()
    states_1TD, _ = mixer(x_1TI[:, :-1])
    readout = fit_readout(states_1TD[:, :2000], x_1TI[:, 1:2001], ridge=1e-8, washout=100)
    spread = x_1TI.std()
    error = (readout(states_1TD[:, 2000:]) - x_1TI[:, 2001:]).square().mean().sqrt() / spread
    as_before = (x_1TI[:, 2000:-1] - x_1TI[:, 2001:]).square().mean().sqrt() / spread
    assert error < 2e-3
    assert error < as_before / 50


def test_a_deep_transition_carries_only_with_the_skip() -> None:
    """Four layers a step: ten steps are forty layers, through which a symbol is learnt to pass only by the skip."""
    options = {"input_depth": 1, "transition_depth": 4, "output_depth": 1}
    assert accuracy_after("deep_rnn", recall, 10, steps=150, **options) > 0.98
    assert accuracy_after("deep_rnn", recall, 10, steps=150, skip=False, **options) < 0.6


def test_jordan_learns_from_a_teacher_and_then_runs_alone() -> None:
    """Parity: the last output says all there is to know of the past. Forced on 20 moments, free on 200."""
    generator = torch.Generator().manual_seed(0)
    mixer = Jordan(16, input_width=1, output=1, generator=generator)
    optimizer = torch.optim.AdamW(mixer.parameters(), lr=1e-2)

    def parity(batch: int, time: int) -> tuple[Tensor, Tensor]:
        bits_BT = torch.randint(2, (batch, time), generator=generator)
        return 2.0 * bits_BT[..., None] - 1, 2.0 * (bits_BT.cumsum(1) % 2)[..., None] - 1

    start = JordanState(-torch.ones(32, 1))  # nothing was read, which is even
    for _ in range(400):
        x_BTI, odd_BTO = parity(32, 20)
        told_BTO = odd_BTO + 0.3 * torch.randn(odd_BTO.shape, generator=generator)  # its own word will not be exact
        y_BTO, _ = mixer.forced(x_BTI, told_BTO, start)
        loss = F.mse_loss(y_BTO, odd_BTO)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x_BTI, odd_BTO = parity(32, 200)
    with torch.no_grad():
        y_BTO, _ = mixer(x_BTI, start)
    assert float((y_BTO.sign() == odd_BTO).float().mean()) > 0.99


def test_row_a5_hidden_recurrence_recalls_what_the_last_output_does_not_say() -> None:
    """One of four symbols, five letters of noise, then the question: 0.25 is guessing. The sizes are equal."""
    sizes = {sum(p.numel() for p in build(kind, vocab=9, width=32).parameters()) for kind in ("jordan", "elman")}
    assert len(sizes) == 1
    assert accuracy_after("elman", recall, 5, steps=150) > 0.98
    assert accuracy_after("jordan", recall, 5, steps=150) < 0.4


@pytest.mark.slow
def test_row_a5_output_recurrence_is_weaker_than_hidden_recurrence() -> None:
    """What follows a letter depends on how many there were, which no last output says.

    At the same number of parameters: given the last output, Jordan's network is no better than the best bigram; fed its
    own distribution and trained through time, it hides some of the count in it; a hidden state holds all of it.
    """
    forced, size = loss_on_letters("jordan")
    own, own_size = loss_on_letters("jordan", feedback="output")
    hidden, hidden_size = loss_on_letters("elman")
    assert size == own_size == hidden_size
    bigram = best_bigram_loss(letters(500, seed=3))
    assert bigram < forced < bigram + 0.03
    assert hidden + 0.08 < own < forced - 0.1


@pytest.mark.slow
def test_a_distribution_carries_a_symbol_over_two_steps_and_not_over_five() -> None:
    assert accuracy_after("jordan", recall, 2, steps=150, feedback="output") > 0.98
    assert accuracy_after("jordan", recall, 5, steps=150, feedback="output") < 0.4
