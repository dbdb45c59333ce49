"""The lens `gradient` against what is known in closed form: linear recurrences, powers of a matrix, the softmax."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from statewise.display import SilentProgress as Silent
from statewise.inspection import chosen_variance, gradient_norms
from statewise.inspection.gradient.context import Gain, gain, jacobian_norm, saturation
from statewise.inspection.gradient.flow import Decay, by_part, follow
from statewise.inspection.gradient.jacobian import eigenvalues, jacobian, size_of, stretch
from statewise.mixers import GRU, LSTM, Elman, ElmanState
from statewise.models import build, build_sample
from statewise.specs import MarkovSpec, TransformerSpec, UserError

QUIET = Silent()
EVEN, ODD = 0.9, 0.3  # eigenvalues of the recurrence below, of (1, 1) and of (1, -1)


def linear() -> Elman:
    """`h' = x + U h`, U symmetric with two known eigenvalues: numbers stay above 0, where relu is the identity."""
    mixer = Elman(2, input_width=2, activation="relu").double().eval()
    with torch.no_grad():
        mixer.w_DI.copy_(torch.eye(2))
        half, other = (EVEN + ODD) / 2, (EVEN - ODD) / 2
        mixer.u_DD.copy_(torch.tensor([[half, other], [other, half]], dtype=torch.float64))
        mixer.b_D.zero_()
    return mixer


def positive(time: int, rows: int = 3) -> Tensor:
    return torch.rand(rows, time, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5


@pytest.mark.parametrize(("direction", "eigenvalue"), [((1.0, 1.0), EVEN), ((1.0, -1.0), ODD)])
def test_a_linear_recurrence_forgets_by_its_eigenvalue(direction: tuple[float, float], eigenvalue: float) -> None:
    towards = torch.tensor(direction, dtype=torch.float64)
    found = follow(linear(), positive(20), lambda y_BD, t: y_BD @ towards, [9, 19], QUIET)
    assert len(found) == 3
    for flow in found:
        assert flow.state_QT is not None
        assert flow.input_QT is not None
        for row, query in enumerate(flow.queries):
            expected = [math.sqrt(2) * eigenvalue ** (query - t) for t in range(query)]
            assert flow.state_QT[row, :query].tolist() == pytest.approx(expected, rel=1e-12, abs=0)
            assert flow.input_QT[row, :query].tolist() == pytest.approx(expected, rel=1e-12, abs=0)
            assert np.isnan(flow.state_QT[row, query + 1 :]).all()
    fall = by_part(found, reached_by=0.5)["input"].before
    assert fall is not None
    assert fall.distance == tuple(range(20))  # the most distant half of the queries have
    assert fall.mean == pytest.approx([math.sqrt(2) * eigenvalue**d for d in fall.distance], rel=1e-12)
    # The first distance at which λ^d is below the threshold.
    assert fall.length(eigenvalue**5 * 1.001) == 5


def test_a_memory_that_never_fades_has_no_length() -> None:
    assert Decay((0, 1, 2), (1.0, 1.0, 1.0), (), ()).length(0.01) is None
    assert Decay((0, 1, 2, 3), (1.0, 0.001, 0.5, 0.001), (), ()).length(0.01) == 3  # what comes again is not gone


def test_tokens_have_the_gradient_of_their_vectors() -> None:
    """No layer is asked for by its name; the answer is that of the embedding."""
    model = build(TransformerSpec(width=8, heads=2, depth=1, dropout=0.0), vocab=7).double().eval()
    tokens_BT = torch.randint(7, (2, 6), generator=torch.Generator().manual_seed(1))
    found = follow(model, tokens_BT, lambda y_BV, t: y_BV[:, 3], [5], QUIET)
    seen: list[Tensor] = []
    hook = model.embedding.register_forward_hook(lambda part, given, answer: seen.append(answer))
    y_BTV, _ = model(tokens_BT)
    hook.remove()
    (gradient,) = torch.autograd.grad(y_BTV[:, 5, 3].sum(), seen[0])
    for flow, norm_T in zip(found, gradient.norm(dim=-1), strict=True):
        assert flow.input_QT is not None
        np.testing.assert_allclose(flow.input_QT[0], norm_T, rtol=1e-9)


def test_what_learns_by_counting_has_no_gradient() -> None:
    model = build_sample(MarkovSpec(order=2), vocab=5)
    (flow,) = follow(model, torch.randint(5, (1, 6)), lambda y_BV, t: y_BV[:, 0], [5], QUIET)
    assert flow.state_QT is None
    assert flow.input_QT is None
    assert by_part([flow]) == {}


def test_products_of_jacobians_are_powers_of_the_matrix() -> None:
    mixer, x_TD = linear(), positive(8, rows=1)[0]
    state = ElmanState(torch.ones(1, 2, dtype=torch.float64))
    u_DD = mixer.u_DD.detach()
    for steps in (1, 2, 8):
        power_DD = torch.linalg.matrix_power(u_DD, steps)
        assert torch.allclose(jacobian(mixer, x_TD[:steps], state), power_DD, atol=1e-14)
        found = stretch(mixer, x_TD[:steps], state, largest=2, generator=torch.Generator())
        assert found.singular == pytest.approx([EVEN**steps, ODD**steps], rel=1e-12)
        assert found.rms == pytest.approx(math.sqrt((EVEN ** (2 * steps) + ODD ** (2 * steps)) / 2), rel=1e-12)
    values = eigenvalues(mixer, x_TD[:1], state)
    assert values is not None
    assert sorted(values.real.tolist()) == pytest.approx([ODD, EVEN], rel=1e-12)
    assert values.imag.abs().max() < 1e-12


def test_a_jacobian_is_that_of_torch() -> None:
    """Rows of copies against `torch.autograd.functional.jacobian`."""
    mixer = LSTM(3).double().eval()
    x_TD = torch.randn(2, 3, dtype=torch.float64)
    _, state = mixer(torch.randn(1, 4, 3, dtype=torch.float64))
    state = type(state)(*(leaf.detach() for leaf in state))

    def after(h_BD: Tensor, c_BD: Tensor) -> tuple[Tensor, ...]:
        return tuple(mixer(x_TD[None], type(state)(h_BD, c_BD))[1])

    blocks = torch.autograd.functional.jacobian(after, tuple(state))
    expected = torch.cat([torch.cat([b.reshape(3, 3) for b in row], dim=1) for row in blocks])
    assert torch.allclose(jacobian(mixer, x_TD, state), expected, rtol=1e-9, atol=1e-13)


def test_a_large_state_is_probed() -> None:
    """The root mean square by random directions comes near that of all singular values."""
    mixer = GRU(24).double().eval()
    x_TD = torch.randn(3, 24, dtype=torch.float64)
    state = mixer.init_state(1)
    exact = stretch(mixer, x_TD, state, largest=24, generator=torch.Generator())
    probed = [
        stretch(mixer, x_TD, state, largest=23, generator=torch.Generator().manual_seed(seed)) for seed in range(8)
    ]
    assert all(not one.singular for one in probed)
    assert np.mean([one.rms for one in probed]) == pytest.approx(exact.rms, rel=0.1)


def test_a_state_that_grows_has_no_eigenvalues_and_keeps_what_it_has() -> None:
    model = build(TransformerSpec(width=8, heads=2, depth=1, dropout=0.0), vocab=7).double().eval()
    tokens_T = torch.tensor([1, 2])
    with torch.no_grad():
        state = model.absorb(torch.tensor([[3, 4]]))
    assert eigenvalues(model, tokens_T, state) is None
    found = stretch(model, tokens_T, state, largest=1000, generator=torch.Generator())
    assert len(found.singular) == size_of(state)
    assert min(found.singular) >= 1 - 1e-12


def test_a_softmax_is_as_steep_as_its_jacobian() -> None:
    scores_S = torch.randn(6, dtype=torch.float64)
    jacobian_SS = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), scores_S)
    assert float(jacobian_norm(scores_S.softmax(-1)[None])[0]) == pytest.approx(float(jacobian_SS.norm()), rel=1e-12)


def test_without_the_root_wide_heads_saturate() -> None:
    scaled, bare = (saturation(scaled=scaled, keys=32, draws=200) for scaled in (True, False))
    assert max(scaled.largest) < 0.3  # whatever the width
    assert max(scaled.gradient) / min(scaled.gradient) < 1.2
    assert bare.largest[-1] > 0.9
    assert bare.gradient[-1] < bare.gradient[0] / 3


def test_context_is_worth_what_a_markov_source_says() -> None:
    """A model that looks one symbol back gains nothing from more of them."""
    model = build_sample(MarkovSpec(order=1), vocab=5, tokens=4000)
    window_BT = torch.randint(5, (40, 17), generator=torch.Generator().manual_seed(0))
    found = gain(model, window_BT, QUIET)
    assert found.contexts == (1, 2, 4, 8, 16)
    assert found.nats == pytest.approx([found.nats[0]] * 5, abs=1e-6)
    assert found.length(0.01) == 1
    assert Gain((1, 2, 4, 8), (2.0, 1.5, 1.001, 1.0), (0.0,) * 4, 9).length(0.01) == 4
    assert Gain((1, 2, 4), (2.0, 1.5, 1.0), (0.0,) * 3, 9).length(0.01) is None
    unsure = Gain((1, 2, 4, 8, 16), (2.0, 1.5, 1.02, 1.001, 1.0), (0.1, 0.1, 0.05, 0.02, 0.0), 9)
    assert unsure.length(0.01) == 8
    assert unsure.lengths(0.01) == (4, None), "from 4 tokens on nothing is sure to be had; at 8 something may be"


# Shared and unshared weights.


@pytest.mark.parametrize("product", [0.25, 1.0, 4.0])
def test_row_c6_unshared_weights_of_a_chosen_variance_keep_the_mean_square_of_a_gradient(product: float) -> None:
    """After k linear steps of variance v it is `v^k` exactly; one matrix of the same variance is far from it."""
    steps, draws = 40, 200
    v = chosen_variance(steps, product=product)
    square_RT = gradient_norms(width=32, steps=steps, draws=draws, variance=v, shared=False, seed=1).square()
    for k in (0, 1, 10, steps):
        spread = ((1 + 2 / 32) ** k - 1) ** 0.5 * v**k / draws**0.5  # one standard error of the mean over the draws
        assert abs(float(square_RT[:, k].mean()) - v**k) <= 4 * spread + 1e-12, k
    shared_RT = gradient_norms(width=32, steps=steps, draws=draws, variance=v, shared=True, seed=1).square()
    assert float(shared_RT[:, steps].mean()) > 1e3 * product


def test_row_c6_the_gradients_are_products_of_the_transposed_weights() -> None:
    """One draw, by hand: at distance k the shared matrix has been applied k times."""
    norms_1T = gradient_norms(width=5, steps=6, draws=1, variance=2.0, shared=True, seed=3)
    generator = torch.Generator().manual_seed(3)
    w_DD = (2.0 / 5) ** 0.5 * torch.randn(1, 5, 5, dtype=torch.float64, generator=generator)[0]
    for _ in range(7):  # the initial state and the inputs
        torch.randn(1, 5, dtype=torch.float64, generator=generator)
    u_D = torch.nn.functional.normalize(torch.randn(1, 5, dtype=torch.float64, generator=generator))[0]
    expected = [float((torch.linalg.matrix_power(w_DD.T, k) @ u_D).norm()) for k in range(7)]
    assert norms_1T[0].tolist() == pytest.approx(expected, rel=1e-12)


def test_row_c6_tanh_needs_more_variance_to_keep_its_gradients() -> None:
    steps, k = 20, 15  # the first states have not settled yet
    v = chosen_variance(steps, activation="tanh", input_variance=0.25)
    assert v > 1.5
    options = {"width": 128, "steps": steps, "draws": 40, "activation": "tanh", "input_variance": 0.25}
    kept_RT, lost_RT = (gradient_norms(variance=some, shared=False, **options) for some in (v, 1.0))
    assert 0.5 < float(kept_RT[:, k].square().mean()) < 2
    assert float(lost_RT[:, k].square().mean()) < 1e-3


def test_a_variance_that_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="steps = 0"):
        chosen_variance(0)
