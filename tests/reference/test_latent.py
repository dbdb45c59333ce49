"""The latent autoregressive model against torch.nn: each choice of g that PyTorch has too."""

import numpy as np
import torch
from agreement import assert_same, fill, noise, run_with_gradients
from torch import Tensor, nn

from statewise.mixers import GRU, Elman, ElmanState, GRUState, Latent, LatentState

BATCH, TIME, INPUT, WIDTH = 3, 8, 4, 5
X, H = noise(BATCH, TIME, INPUT, seed=1), noise(BATCH, WIDTH, seed=2)


def run(mixer: Latent):
    return run_with_gradients(lambda x, state: mixer(x, LatentState(*state)), mixer, X, [H])


def test_elman_is_the_special_case() -> None:
    ours = Latent(WIDTH, input_width=INPUT, transition="elman").double()
    fill(ours)
    elman = Elman(WIDTH, input_width=INPUT).double()
    elman.load_state_dict({name.removeprefix("g."): value for name, value in ours.state_dict().items()})
    theirs = nn.RNN(INPUT, WIDTH, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for name, value in zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"), ours.parameters()):
            getattr(theirs, name).copy_(value)
        theirs.bias_hh_l0.zero_()

    def torchs(x: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        y, h = theirs(x, state[0][None])
        return y, [h[0]]

    got = run(ours)
    by_torch = run_with_gradients(torchs, theirs, X, [H])
    by_elman = run_with_gradients(lambda x, state: elman(x, ElmanState(*state)), elman, X, [H])
    for other in (by_torch, by_elman):
        assert_same(got.y, other.y)
        assert_same(got.after[0], other.after[0])
        assert_same(got.x_gradient, other.x_gradient)
        assert_same(got.state_gradients[0], other.state_gradients[0])
        for mine, other_one in zip(got.weight_gradients.values(), other.weight_gradients.values()):
            assert_same(mine, other_one)


def test_gated_is_the_gru_of_2014() -> None:
    ours = Latent(WIDTH, input_width=INPUT, transition="gated").double()
    fill(ours)
    gru = GRU(WIDTH, input_width=INPUT, reset="before").double()
    gru.load_state_dict({name.removeprefix("g."): value for name, value in ours.state_dict().items()})
    got, expected = run(ours), run_with_gradients(lambda x, state: gru(x, GRUState(*state)), gru, X, [H])
    assert_same(got.y, expected.y)
    assert_same(got.state_gradients[0], expected.state_gradients[0])
    for name, gradient in expected.weight_gradients.items():
        assert_same(got.weight_gradients[f"g.{name}"], gradient)


def test_the_mlp_transition_as_equations() -> None:
    ours = Latent(WIDTH, input_width=INPUT, transition="mlp", hidden=7).double()
    fill(ours)
    w, u, b, v, c = (parameter.detach().numpy() for parameter in ours.parameters())
    h, expected = H.numpy(), []
    for t in range(TIME):
        h = np.tanh(np.tanh(X.numpy()[:, t] @ w.T + h @ u.T + b) @ v.T + c)
        expected.append(h)
    assert_same(ours(X, LatentState(H))[0], np.stack(expected, axis=1))


class FromCell(nn.Module):
    """Somebody else's g."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(INPUT, WIDTH, dtype=torch.float64)

    def forward(self, h_BD: Tensor, x_BI: Tensor) -> Tensor:
        return self.cell(x_BI, h_BD)


def test_any_module_may_be_the_transition() -> None:
    ours = Latent(WIDTH, input_width=INPUT, transition=FromCell()).double()
    fill(ours)
    theirs = nn.GRU(INPUT, WIDTH, batch_first=True, dtype=torch.float64)
    theirs.load_state_dict({name.replace("g.cell.", "") + "_l0": value for name, value in ours.state_dict().items()})
    y, h = theirs(X, H[None])
    got, state = ours(X, LatentState(H))
    assert_same(got, y)
    assert_same(state.h_BD, h[0])


class Innovations(nn.Module):
    """The Kalman filter's prediction once its gain has settled: `h' = A (h + K (x - C h))`."""

    def __init__(self, a: np.ndarray, c: np.ndarray, gain: np.ndarray) -> None:
        super().__init__()
        self.a, self.c, self.gain = (nn.Parameter(torch.from_numpy(part)) for part in (a, c, gain))

    def forward(self, h_BD: Tensor, x_BI: Tensor) -> Tensor:
        return (h_BD + (x_BI - h_BD @ self.c.mT) @ self.gain.mT) @ self.a.mT


def test_a_linear_g_is_kalmans_filter() -> None:
    """Against the filter with its covariances, after they have settled."""
    generator = np.random.default_rng(0)
    a, c = np.array([[0.9, 0.2], [-0.1, 0.7]]), np.array([[1.0, 0.5]])
    q, r = 0.3 * np.eye(2), np.array([[0.8]])
    p = np.eye(2)
    for _ in range(300):
        gain = p @ c.T @ np.linalg.inv(c @ p @ c.T + r)
        p = a @ (p - gain @ c @ p) @ a.T + q
    x_T = generator.standard_normal((50, 1))
    m, expected = np.zeros(2), []
    for x in x_T:
        gain = p @ c.T @ np.linalg.inv(c @ p @ c.T + r)
        filtered = m + gain @ (x - c @ m)
        m = a @ filtered
        p = a @ (p - gain @ c @ p) @ a.T + q
        expected.append(m)
    ours = Latent(2, input_width=1, transition=Innovations(a, c, gain)).double()
    assert_same(ours(torch.from_numpy(x_T)[None])[0][0], np.array(expected), tolerance=1e-10)
