"""Autograd through our Elman network and language model, against the textbook's gradients by hand."""

import numpy as np
import pytest
import torch
from agreement import assert_same, fill, noise
from closed_form import Network, of_batch
from torch.nn import functional as F

from statewise.core import map_state
from statewise.mixers import Elman, ElmanState
from statewise.models import build

TIME, INPUT, WIDTH, VOCAB = 7, 4, 6, 5


def labels(batch: int) -> torch.Tensor:
    return torch.randint(VOCAB, (batch, TIME), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("kernel", ["naive", "fused"])
@pytest.mark.parametrize("batch", [1, 4])
def test_elman_with_a_linear_head(batch: int, kernel: str) -> None:
    mixer = Elman(WIDTH, input_width=INPUT, kernel=kernel).double()
    head = torch.nn.Linear(WIDTH, VOCAB, dtype=torch.float64)
    fill(mixer)
    fill(head, seed=1)
    x = noise(batch, TIME, INPUT, seed=1).requires_grad_()
    h0 = noise(batch, WIDTH, seed=2).requires_grad_()
    y = labels(batch)

    hidden, _ = mixer(x, ElmanState(h0))
    loss = F.cross_entropy(head(hidden).flatten(0, 1), y.flatten(), reduction="sum")
    loss.backward()

    net = Network(*(p.detach().numpy() for p in (mixer.w_DI, mixer.u_DD, mixer.b_D, head.weight, head.bias)))
    expected_loss, expected = of_batch(net, x.detach().numpy(), y.numpy(), h0.detach().numpy())
    assert_same(loss.item(), expected_loss)
    got = (mixer.w_DI, mixer.u_DD, mixer.b_D, head.weight, head.bias, h0, x)
    for name, leaf, gradient in zip(expected._fields, got, expected, strict=True):
        assert np.abs(gradient).max() > 1e-3, f"the gradient of {name} is too small to say anything"
        assert_same(leaf.grad, gradient)


def test_the_oracle_agrees_with_differences() -> None:
    """The oracle itself, against slopes measured by moving each weight a little."""
    net = Network(*(noise(*shape, seed=n, scale=0.4).numpy() for n, shape in enumerate(_shapes())))
    x, h0, y = noise(2, TIME, INPUT, seed=7).numpy(), noise(2, WIDTH, seed=8).numpy(), labels(2).numpy()
    _, gradients = of_batch(net, x, y, h0)
    everything = (*net, h0, x)
    for place, name in enumerate(gradients._fields):
        direction = noise(*everything[place].shape, seed=20 + place).numpy()

        def loss_at(distance: float, place: int = place, direction: np.ndarray = direction) -> float:
            moved = [part + distance * direction if n == place else part for n, part in enumerate(everything)]
            return of_batch(Network(*moved[:5]), moved[6], y, moved[5])[0]

        slope = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5
        assert abs(slope - (gradients[place] * direction).sum()) < 1e-7 * max(1.0, abs(slope)), name


def _shapes() -> list[tuple[int, ...]]:
    return [(WIDTH, INPUT), (WIDTH, WIDTH), (WIDTH,), (VOCAB, WIDTH), (VOCAB,)]


def test_the_elman_language_model() -> None:
    """Tokens in: the oracle's x is the embedding, and its gradient is gathered by token."""
    model = build("elman", vocab=VOCAB, width=WIDTH, embedding=INPUT).double()
    fill(model)
    tokens, y = labels(3).flip(1), labels(3)
    state = map_state(lambda leaf: noise(*leaf.shape, seed=3).requires_grad_(), model.init_state(3))

    logits, _ = model(tokens, state)
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum")
    loss.backward()

    mixer, head = model.stack.blocks[0].mixer, model.head
    weights = (mixer.w_DI, mixer.u_DD, mixer.b_D, head.weight_VE, head.bias_V)
    h0 = state.layers[0].h_BD
    x = model.embedding.weight.detach().numpy()[tokens.numpy()]
    expected_loss, expected = of_batch(
        Network(*(w.detach().numpy() for w in weights)), x, y.numpy(), h0.detach().numpy()
    )
    by_token = np.zeros((VOCAB, INPUT))
    np.add.at(by_token, tokens.numpy(), expected.x)

    assert_same(loss.item(), expected_loss)
    for leaf, gradient in zip((*weights, h0, model.embedding.weight), (*expected[:6], by_token), strict=True):
        assert_same(leaf.grad, gradient)
