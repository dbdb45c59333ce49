"""Leaky units and the reservoir: the leak in closed form, Elman at α = 0, eigenvalues, ridge by NumPy."""

import numpy as np
import pytest
import torch
from agreement import assert_same, fill, noise, run_with_gradients

from statewise.core import leaves
from statewise.layers import fit_readout
from statewise.mixers import Elman, ElmanState, Leaky, LeakyState, Reservoir, ReservoirState
from statewise.mixers.reservoir import spectral_radius
from statewise.models import build
from statewise.specs import LeakySpec, ReservoirSpec, UserError

BATCH, TIME, INPUT, WIDTH = 3, 9, 4, 6


def test_the_equation_in_numpy() -> None:
    mixer = Leaky(WIDTH, input_width=INPUT).double()
    fill(mixer)
    x, h = noise(BATCH, TIME, INPUT, seed=1), noise(BATCH, WIDTH, seed=2)
    y, after = mixer(x, LeakyState(h))
    w, u, b, logit = (p.detach().numpy() for p in (mixer.w_DI, mixer.u_DD, mixer.b_D, mixer.logit_D))
    alpha = 1 / (1 + np.exp(-logit))
    held = h.numpy()
    for t in range(TIME):
        held = alpha * held + (1 - alpha) * np.tanh(x[:, t].numpy() @ w.T + held @ u.T + b)
        assert_same(y[:, t].detach(), held)
    assert_same(after.h_BD.detach(), held)


@pytest.mark.parametrize("leak", ["learned", "fixed"])
def test_the_leak_in_closed_form(leak: str) -> None:
    """Without U the sum can be written down: h_T = α^T h_0 + (1 - α) Σ_t α^(T-1-t) tanh(W x_t + b)."""
    mixer = Leaky(WIDTH, input_width=INPUT, leak=leak).double()
    fill(mixer)
    with torch.no_grad():
        mixer.u_DD.zero_()
    x, h = noise(BATCH, TIME, INPUT, seed=1), noise(BATCH, WIDTH, seed=2)
    alpha = mixer.weights().alpha.detach().numpy()
    drive = np.tanh(x.numpy() @ mixer.w_DI.detach().numpy().T + mixer.b_D.detach().numpy())
    shares = (1 - alpha) * alpha ** np.arange(TIME - 1, -1, -1)[:, None]
    expected = alpha**TIME * h.numpy() + np.einsum("td,btd->bd", shares, drive)
    _, after = mixer(x, LeakyState(h))
    assert_same(after.h_BD.detach(), expected)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_without_a_leak_it_is_elman(activation: str) -> None:
    ours = Leaky(WIDTH, input_width=INPUT, leak="fixed", alpha=0.0, activation=activation).double()
    elman = Elman(WIDTH, input_width=INPUT, activation=activation).double()
    fill(elman)
    ours.load_state_dict(elman.state_dict())
    x, state = noise(BATCH, TIME, INPUT, seed=1), [noise(BATCH, WIDTH, seed=2)]
    got = run_with_gradients(lambda x, s: ours(x, LeakyState(*s)), ours, x, state)
    expected = run_with_gradients(lambda x, s: elman(x, ElmanState(*s)), elman, x, state)
    assert_same(got.y, expected.y)
    assert_same(got.x_gradient, expected.x_gradient)
    assert_same(got.state_gradients[0], expected.state_gradients[0])
    for name in ("w_DI", "u_DD", "b_D"):
        assert_same(got.weight_gradients[name], expected.weight_gradients[name])


def test_where_alpha_starts() -> None:
    torch.testing.assert_close(Leaky(5, alpha=0.7).weights().alpha, torch.full((5,), 0.7))
    spread = Leaky(5).weights().alpha
    assert spread[0] < 0.05
    assert spread[-1] > 0.95
    for bad in ({"alpha": 0.0}, {"alpha": 1.0}, {"alpha": -0.1, "leak": "fixed"}):
        with pytest.raises(UserError):
            Leaky(5, **bad)


# The reservoir.


@pytest.mark.parametrize("init", ["orthogonal", "published", "torch"])
@pytest.mark.parametrize(("radius", "density"), [(0.9, 0.2), (1.25, 1.0), (0.3, 0.05)])
def test_the_radius_is_the_one_asked_for(init: str, radius: float, density: float) -> None:
    generator = torch.Generator().manual_seed(0)
    mixer = Reservoir(40, radius=radius, density=density, init=init, generator=generator)
    found = np.abs(np.linalg.eigvals(mixer.u_DD.double().numpy())).max()
    assert abs(found / radius - 1) < 1e-6  # stored in float32
    assert mixer.radius() == pytest.approx(found, rel=1e-12)
    assert float((mixer.u_DD != 0).double().mean()) == pytest.approx(density, abs=0.05)


def test_a_recurrence_without_a_cycle_is_refused() -> None:
    with pytest.raises(UserError, match="larger density"):
        Reservoir(3, density=1e-9, generator=torch.Generator().manual_seed(0))


def test_a_rotation_has_its_radius() -> None:
    assert spectral_radius(torch.tensor([[0.0, 2.0], [-2.0, 0.0]])) == pytest.approx(2)


def test_two_beginnings_are_forgotten() -> None:
    """The echo-state property: under the same input, states that began apart meet; far above radius 1 they need not."""
    x = noise(1, 400, 3, seed=1, scale=0.1).expand(2, -1, -1)
    start = ReservoirState(noise(2, 50, seed=2))
    apart = {}
    for radius in (0.8, 3.0):
        generator = torch.Generator().manual_seed(0)
        mixer = Reservoir(50, input_width=3, radius=radius, generator=generator).double()
        _, after = mixer(x, start)
        apart[radius] = float((after.h_BD[0] - after.h_BD[1]).norm())
    assert apart[0.8] < 1e-10
    assert apart[3.0] > 1e-1


def test_the_recurrence_is_saved_and_has_no_gradient() -> None:
    model = build("reservoir", vocab=7, width=12)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    logits, _ = model(torch.randint(7, (2, 5), generator=torch.Generator().manual_seed(0)))
    logits.square().sum().backward()
    optimizer.step()
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == {"embedding.weight", "head.weight_VE", "head.bias_V"}
    assert {"w_DI", "u_DD", "b_D"} == {name.split(".")[-1] for name in before} - {n.split(".")[-1] for n in moved}


@pytest.mark.parametrize("washout", [0, 7])
@pytest.mark.parametrize("ridge", [1e-3, 0.5, 20.0])
def test_the_readout_solves_the_normal_equations(ridge: float, washout: int) -> None:
    states, targets = noise(3, 30, 8, seed=1) + 2, noise(3, 30, 2, seed=2) - 1
    readout = fit_readout(states, targets, ridge=ridge, washout=washout)
    h = states[:, washout:].reshape(-1, 8).numpy()
    h = np.concatenate([h, np.ones((len(h), 1))], axis=1)
    penalty = ridge * np.diag([1.0] * 8 + [0.0])  # the bias is free
    solved = np.linalg.solve(h.T @ h + penalty, h.T @ targets[:, washout:].reshape(-1, 2).numpy())
    assert_same(readout.weight_OD, solved[:8].T, tolerance=1e-10)
    assert_same(readout.bias_O, solved[8], tolerance=1e-10)
    assert_same(readout(states[:, 0]), states[:, 0].numpy() @ solved[:8] + solved[8], tolerance=1e-10)


def test_a_readout_refuses_what_does_not_fit() -> None:
    states, targets = noise(2, 5, 3, seed=0), noise(2, 5, 1, seed=1)
    for bad in ({"washout": 5}, {"ridge": -1.0}):
        with pytest.raises(UserError):
            fit_readout(states, targets, **bad)
    with pytest.raises(UserError):
        fit_readout(states, targets[:, 1:])


@pytest.mark.parametrize(
    "spec",
    [
        LeakySpec(width=5, embedding=3),
        LeakySpec(width=5, leak="fixed", depth=2),
        ReservoirSpec(width=5, embedding=3, depth=2),
    ],
)
def test_parameters_are_counted_by_hand(spec: LeakySpec | ReservoirSpec) -> None:
    model = build(spec, vocab=11)
    learned = 5 * (spec.kind == "leaky" and spec.leak == "learned")
    widths = [spec.embedding_width, 5][: spec.depth]
    layers = sum(5 * (width + 5 + 1) + learned for width in widths)
    assert sum(p.numel() for p in model.parameters()) == 11 * spec.embedding_width + layers + 11 * 6
    assert len(list(leaves(model.init_state(2)))) == spec.depth
