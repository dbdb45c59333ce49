"""What came before recurrence, on the tasks it was made for, and where it ends."""

import math

import pytest
import torch
from test_recurrent import LETTERS, WORDS, best_bigram_loss, letters, recall, stream_loss
from torch import Tensor
from torch.nn import functional as F

from statewise.core import detach
from statewise.mixers import Window
from statewise.models import build


def pendulum(count: int, *, noise: float, seed: int) -> Tensor:
    """Yule's example: x_t = 1.8 x_{t-1} - 0.95 x_{t-2} + noise, a swing that chance keeps going."""
    generator = torch.Generator().manual_seed(seed)
    shocks = (noise * torch.randn(count, generator=generator, dtype=torch.float64)).tolist()
    values = [0.0, 0.0]
    for shock in shocks:
        values.append(1.8 * values[-1] - 0.95 * values[-2] + shock)
    return torch.tensor(values[102:])


@pytest.mark.parametrize(("activation", "order"), [("linear", 2), ("tanh", 4)])
def test_a_window_predicts_a_noisy_swing_to_its_noise(activation: str, order: int) -> None:
    noise = 0.1
    mixer = Window(
        1,
        order=order,
        hidden=16,
        activation=activation,
        generator=torch.Generator().manual_seed(0),
    )
    x_T, held_out_T = pendulum(4000, noise=noise, seed=1), pendulum(2000, noise=noise, seed=2)
    optimizer = torch.optim.AdamW(mixer.parameters(), lr=1e-2, weight_decay=0)
    for _ in range(400):
        y_BTD, _ = mixer(x_T[None, :-1, None])
        loss = F.mse_loss(y_BTD[0, :, 0], x_T[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        y_BTD, _ = mixer(held_out_T[None, :-1, None])
    error = F.mse_loss(y_BTD[0, order:, 0], held_out_T[order + 1 :]).item()
    as_before = F.mse_loss(held_out_T[:-1], held_out_T[1:]).item()
    assert error < 1.1 * noise**2
    assert as_before > 5 * noise**2


def recall_accuracy(order: int) -> float:
    model = build("window", vocab=9, width=32, order=order)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(120):
        tokens_BT, answer_B = recall(64, 5, generator)
        loss = F.cross_entropy(model(tokens_BT)[0][:, -1], answer_B)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tokens_BT, answer_B = recall(1000, 5, torch.Generator().manual_seed(99))
    with torch.no_grad():
        logits_BTV, _ = model.eval()(tokens_BT)
    return float((logits_BTV[:, -1, :4].argmax(-1) == answer_B).float().mean())


def test_a_window_knows_what_is_inside_it_and_nothing_else() -> None:
    """The symbol stands 6 steps back: an order of 7 still sees it, one of 6 is left to chance, 1 in 4."""
    assert recall_accuracy(7) > 0.99
    assert recall_accuracy(6) < 0.32


@pytest.mark.parametrize("transition", ["elman", "mlp", "gated"])
def test_a_latent_model_finds_the_structure_in_time(transition: str) -> None:
    """Elman's letters, with each choice of g."""
    model = build("latent", vocab=len(LETTERS), width=20, transition=transition, seed=1)
    rows_BT = letters(3000, seed=2)[:8000].view(8, 1000)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    state = model.init_state(8)
    for step in range(160):
        start = step * 20 % 960
        logits_BTV, state = model(rows_BT[:, start : start + 20], detach(state))
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), rows_BT[:, start + 1 : start + 21].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    held_out = letters(500, seed=3)
    chance_alone = math.log(3) / (sum(map(len, WORDS)) / 3)  # one free choice a word
    reached = stream_loss(model, held_out)
    assert reached < chance_alone + 0.04
    assert reached < best_bigram_loss(held_out) - 0.1
