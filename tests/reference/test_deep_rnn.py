"""The deep recurrent network: Elman's at depth one, and the equations in NumPy beyond it."""

import numpy as np
import pytest
import torch
from agreement import assert_same, fill, noise, run_with_gradients

from statewise.core import laws
from statewise.mixers import DeepRNN, DeepRNNState, Elman, ElmanState
from statewise.models import build
from statewise.specs import DeepRNNSpec, UserError

BATCH, TIME, INPUT, WIDTH = 3, 8, 4, 6


@pytest.mark.parametrize("lengths", [None, [8, 3, 0]], ids=["full", "ragged"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_at_depth_one_it_is_elman(activation: str, lengths: list[int] | None) -> None:
    options = {"input_width": INPUT, "activation": activation}
    elman = Elman(WIDTH, **options).double()
    fill(elman)
    deep = DeepRNN(WIDTH, input_depth=1, transition_depth=1, output_depth=1, **options).double()
    names = {"w_DI": "last_input.weight", "b_D": "last_input.bias", "u_DD": "u_LDD"}
    ours = dict(deep.named_parameters())
    assert set(ours) == set(names.values())
    with torch.no_grad():
        for theirs, name in names.items():
            ours[name].copy_(getattr(elman, theirs).view_as(ours[name]))
    lengths_B = None if lengths is None else torch.tensor(lengths)
    x, state = noise(BATCH, TIME, INPUT, seed=1), [noise(BATCH, WIDTH, seed=2)]
    got = run_with_gradients(lambda x, s: deep(x, DeepRNNState(*s), lengths_B), deep, x, state)
    expected = run_with_gradients(lambda x, s: elman(x, ElmanState(*s), lengths_B), elman, x, state)
    assert_same(got.y, expected.y)
    assert_same(got.after[0], expected.after[0])
    assert_same(got.x_gradient, expected.x_gradient)
    assert_same(got.state_gradients[0], expected.state_gradients[0])
    for theirs, name in names.items():
        gradient = expected.weight_gradients[theirs]
        assert_same(got.weight_gradients[name].view_as(gradient), gradient)


@pytest.mark.parametrize("skip", [True, False])
def test_the_equations_in_numpy(skip: bool) -> None:
    mixer = DeepRNN(WIDTH, input_width=INPUT, input_depth=3, transition_depth=3, output_depth=2, skip=skip).double()
    fill(mixer)
    x, h0 = noise(BATCH, TIME, INPUT, seed=1), noise(BATCH, WIDTH, seed=2)
    y, after = mixer(x, DeepRNNState(h0))
    p = {name: value.detach().numpy() for name, value in mixer.named_parameters()}
    h = h0.numpy()
    for t in range(TIME):
        z = x[:, t].numpy()
        for layer in ("inputs.0", "inputs.1"):
            z = np.tanh(z @ p[f"{layer}.weight"].T + p[f"{layer}.bias"])
        a = z @ p["last_input.weight"].T + p["last_input.bias"]
        z = np.tanh(a + h @ p["u_LDD"][0].T)
        z = np.tanh(z @ p["u_LDD"][1].T + p["b_KD"][0])
        h = np.tanh(z @ p["u_LDD"][2].T + p["b_KD"][1] + (h @ p["skip_DD"].T if skip else 0))
        assert_same(y[:, t].detach(), np.tanh(h @ p["outputs.0.weight"].T + p["outputs.0.bias"]))
    assert_same(after.h_BD.detach(), h)


@pytest.mark.parametrize("depths", [(1, 1, 1), (2, 2, 2), (3, 1, 2), (1, 4, 1)])
@pytest.mark.parametrize("skip", [True, False])
def test_parameters_are_counted_by_hand(depths: tuple[int, int, int], skip: bool) -> None:
    names = dict(zip(("input_depth", "transition_depth", "output_depth"), depths, strict=True))
    spec = DeepRNNSpec(width=5, embedding=3, depth=2, skip=skip, **names)
    squares = depths[0] - 1 + depths[1] + depths[2] - 1 + (skip and depths[1] > 1)
    biases = depths[0] + depths[1] - 1 + depths[2] - 1
    layers = sum(5 * width + 25 * squares + 5 * biases for width in (3, 5))
    assert sum(p.numel() for p in build(spec, vocab=11).parameters()) == 11 * 3 + layers + 11 * 6


def test_a_depth_of_nothing_is_refused() -> None:
    with pytest.raises(UserError):
        DeepRNN(4, transition_depth=0)


def test_the_laws_with_rectified_units() -> None:
    """Not in the lineage's variants: a kink crossed by rounding, twice a step, is no matter of a bound."""
    mixer = DeepRNN(WIDTH, input_width=INPUT, transition_depth=3, activation="relu").double()
    fill(mixer)
    for name, error_of in laws.EXACT.items():
        assert error_of(mixer, laws.make_case(mixer)) <= 1e-10, name
