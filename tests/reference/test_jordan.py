"""The output-recurrent network: its equations in NumPy, and its two forms under teacher forcing."""

import numpy as np
import pytest
import torch
from agreement import assert_same, fill, noise, run_with_gradients
from torch import Tensor

from statewise.mixers import Jordan, JordanState
from statewise.models import build
from statewise.specs import JordanSpec, UserError

BATCH, TIME, INPUT, WIDTH, OUTPUT = 3, 8, 4, 6, 5


def mixer(activation: str = "tanh") -> Jordan:
    made = Jordan(WIDTH, input_width=INPUT, output=OUTPUT, activation=activation).double()
    fill(made)
    return made


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_the_equations_in_numpy(activation: str) -> None:
    made = mixer(activation)
    x, o = noise(BATCH, TIME, INPUT, seed=1), noise(BATCH, OUTPUT, seed=2)
    y, after = made(x, JordanState(o))
    w, r, b, v, c = (p.detach().numpy() for p in (made.w_DI, made.r_DO, made.b_D, made.v_OD, made.c_O))
    phi = np.tanh if activation == "tanh" else lambda a: np.maximum(a, 0)
    last = o.numpy()
    for t in range(TIME):
        last = phi(x[:, t].numpy() @ w.T + last @ r.T + b) @ v.T + c
        assert_same(y[:, t].detach(), last)
    assert_same(after.o_BO.detach(), last)


def test_forced_is_stepping_with_a_teacher() -> None:
    """Values and all gradients, those of the truth included, since it is read."""
    made = mixer()
    x, start, truth = (
        noise(BATCH, TIME, INPUT, seed=1),
        noise(BATCH, OUTPUT, seed=2),
        noise(BATCH, TIME, OUTPUT, seed=3),
    )

    def parallel(x: Tensor, given: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        y, after = made.forced(x, given[1], JordanState(given[0]))
        return y, [after.o_BO]

    def stepped(x: Tensor, given: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        state, ys = JordanState(given[0]), []
        for t in range(TIME):
            y, _ = made.step(x[:, t], state)
            ys.append(y)
            state = JordanState(given[1][:, t])
        return torch.stack(ys, dim=1), [state.o_BO]

    got = run_with_gradients(parallel, made, x, [start, truth])
    expected = run_with_gradients(stepped, made, x, [start, truth])
    assert_same(got.y, expected.y)
    assert_same(got.after[0], expected.after[0])
    assert_same(got.x_gradient, expected.x_gradient)
    for ours, theirs in zip(got.state_gradients, expected.state_gradients, strict=True):
        assert_same(ours, theirs)
    for name, gradient in expected.weight_gradients.items():
        assert_same(got.weight_gradients[name], gradient)


def test_forced_with_its_own_outputs_is_running_freely() -> None:
    made = mixer()
    x, start = noise(BATCH, TIME, INPUT, seed=1), JordanState(noise(BATCH, OUTPUT, seed=2))
    free, after = made(x, start)
    forced, forced_after = made.forced(x, free, start)
    assert_same(forced.detach(), free.detach())
    assert_same(forced_after.o_BO.detach(), after.o_BO.detach())


def test_forced_in_two_parts() -> None:
    made = mixer()
    x, truth = noise(BATCH, TIME, INPUT, seed=1), noise(BATCH, TIME, OUTPUT, seed=3)
    whole, _ = made.forced(x, truth)
    first, state = made.forced(x[:, :3], truth[:, :3])
    second, _ = made.forced(x[:, 3:], truth[:, 3:], state)
    assert_same(torch.cat([first, second], dim=1).detach(), whole.detach())


def test_forced_sees_the_past_alone() -> None:
    made = mixer()
    x, truth = noise(BATCH, TIME, INPUT, seed=1), noise(BATCH, TIME, OUTPUT, seed=3).requires_grad_()
    y, _ = made.forced(x, truth)
    (gradient,) = torch.autograd.grad(y[:, :4].sum(), truth)
    assert gradient[:, :3].abs().min() > 0
    assert not gradient[:, 3:].any()


def test_truth_of_another_shape_is_refused() -> None:
    with pytest.raises(UserError, match=r"expected \[3, 8, 5\]"):
        mixer().forced(noise(BATCH, TIME, INPUT, seed=1), noise(BATCH, TIME, INPUT, seed=1))


@pytest.mark.parametrize("spec", [JordanSpec(width=5, embedding=3, depth=2), JordanSpec(width=5, output=2, depth=2)])
def test_parameters_are_counted_by_hand(spec: JordanSpec) -> None:
    out = spec.output or 5
    layers = sum(5 * (width + out + 1) + out * 6 for width in (spec.embedding_width, out))
    counted = sum(p.numel() for p in build(spec, vocab=11).parameters())
    assert counted == 11 * spec.embedding_width + layers + 11 * (out + 1)
