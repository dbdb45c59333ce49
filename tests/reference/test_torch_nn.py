"""Against torch.nn by copied weights: outputs, final state, all gradients; both kernels, full and ragged rows."""

from collections.abc import Callable, Sequence

import pytest
import torch
from agreement import assert_same, fill, noise, run_with_gradients
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from statewise.core import Mixer
from statewise.mixers import GRU, LSTM, Elman, ElmanState, GRUState, LSTMState

BATCH, TIME, INPUT, WIDTH = 4, 9, 5, 6

# torch.nn has two biases where only the sum means something (and the GRU's candidate, where it does not),
# so each table says how our weight is made of theirs, and which of their gradients is ours.
Table = dict[str, tuple[Callable[[nn.Module], Tensor], Callable[[dict[str, Tensor]], Tensor]]]


def same(name: str) -> tuple[Callable[[nn.Module], Tensor], Callable[[dict[str, Tensor]], Tensor]]:
    return (lambda theirs: getattr(theirs, name)), (lambda gradients: gradients[name])


SUMMED_BIAS = (lambda theirs: theirs.bias_ih_l0 + theirs.bias_hh_l0), (lambda gradients: gradients["bias_ih_l0"])
GRU_BIAS = (
    lambda theirs: theirs.bias_ih_l0 + torch.cat([theirs.bias_hh_l0[: 2 * WIDTH], torch.zeros(WIDTH)]),
    lambda gradients: gradients["bias_ih_l0"],
)
GRU_CANDIDATE_BIAS = (
    lambda theirs: theirs.bias_hh_l0[2 * WIDTH :],
    lambda gradients: gradients["bias_hh_l0"][2 * WIDTH :],
)
ELMAN: Table = {"w_DI": same("weight_ih_l0"), "u_DD": same("weight_hh_l0"), "b_D": SUMMED_BIAS}
LSTM_: Table = {"w_GI": same("weight_ih_l0"), "u_GP": same("weight_hh_l0"), "b_G": SUMMED_BIAS}
GRU_: Table = {
    "w_GI": same("weight_ih_l0"),
    "u_GD": same("weight_hh_l0"),
    "b_G": GRU_BIAS,
    "b_u_D": GRU_CANDIDATE_BIAS,
}

like = {"batch_first": True, "dtype": torch.float64}
PAIRS = {
    "elman-tanh": (lambda **o: Elman(WIDTH, input_width=INPUT, **o), lambda: nn.RNN(INPUT, WIDTH, **like), ELMAN),
    "elman-relu": (
        lambda **o: Elman(WIDTH, input_width=INPUT, activation="relu", **o),
        lambda: nn.RNN(INPUT, WIDTH, nonlinearity="relu", **like),
        ELMAN,
    ),
    "lstm": (lambda **o: LSTM(WIDTH, input_width=INPUT, **o), lambda: nn.LSTM(INPUT, WIDTH, **like), LSTM_),
    "lstm-projection": (
        lambda **o: LSTM(WIDTH, input_width=INPUT, projection=3, **o),
        lambda: nn.LSTM(INPUT, WIDTH, proj_size=3, **like),
        {**LSTM_, "projection_PD": same("weight_hr_l0")},
    ),
    "gru": (lambda **o: GRU(WIDTH, input_width=INPUT, **o), lambda: nn.GRU(INPUT, WIDTH, **like), GRU_),
}
STATE_TYPES = {Elman: ElmanState, LSTM: LSTMState, GRU: GRUState}
CASES = [
    (name, kernel) for name in PAIRS for kernel in ("naive", "fused") if (name, kernel) != ("lstm-projection", "fused")
]


def run_theirs(
    theirs: nn.Module, x: Tensor, state: Sequence[Tensor], lengths_B: Tensor | None
) -> tuple[Tensor, list[Tensor]]:
    hx = tuple(part[None] for part in state)
    hx = hx if len(hx) > 1 else hx[0]
    if lengths_B is None:
        y, after = theirs(x, hx)
    else:
        packed = pack_padded_sequence(x, lengths_B, batch_first=True, enforce_sorted=False)
        y, after = theirs(packed, hx)
        y, _ = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
    return y, [part[0] for part in (after if isinstance(after, tuple) else (after,))]


def run_ours(ours: Mixer, x: Tensor, state: Sequence[Tensor], lengths_B: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    y, after = ours(x, STATE_TYPES[type(ours)](*state), lengths_B)
    return y, list(after)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("lengths", [None, [9, 4, 1, 6], [3, 3, 3, 3]], ids=["full", "ragged", "short"])
@pytest.mark.parametrize(("name", "kernel"), CASES)
def test_agrees_with_torch_nn(name: str, kernel: str, lengths: list[int] | None) -> None:
    make_ours, make_theirs, table = PAIRS[name]
    ours, theirs = make_ours(kernel=kernel).double(), make_theirs()
    fill(theirs)
    with torch.no_grad():
        for ours_name, (value, _) in table.items():
            getattr(ours, ours_name).copy_(value(theirs))
    assert set(table) == {name for name, _ in ours.named_parameters()}, "every weight of ours is copied"
    assert ours.choice().implementation == kernel

    x = noise(BATCH, TIME, INPUT, seed=1)
    state = [0.5 * noise(*part.shape, seed=2 + n) for n, part in enumerate(ours.init_state(BATCH))]
    lengths_B = None if lengths is None else torch.tensor(lengths)
    got = run_with_gradients(lambda x, s: run_ours(ours, x, s, lengths_B), ours, x, state)
    expected = run_with_gradients(lambda x, s: run_theirs(theirs, x, s, lengths_B), theirs, x, state)

    assert_same(got.y, expected.y)
    assert_same(got.x_gradient, expected.x_gradient)
    for ours_part, theirs_part in zip(got.after, expected.after, strict=True):
        assert_same(ours_part, theirs_part)
    for ours_part, theirs_part in zip(got.state_gradients, expected.state_gradients, strict=True):
        assert_same(ours_part, theirs_part)
    for ours_name, (_, gradient) in table.items():
        assert_same(got.weight_gradients[ours_name], gradient(expected.weight_gradients))


@pytest.mark.parametrize(("name", "kernel"), CASES)
def test_no_state_means_the_zero_state(name: str, kernel: str) -> None:
    ours = PAIRS[name][0](kernel=kernel).double()
    fill(ours)
    x = noise(BATCH, TIME, INPUT, seed=1)
    y, after = ours(x)
    y_zero, after_zero = ours(x, ours.init_state(BATCH))
    assert torch.equal(y, y_zero)
    assert all(torch.equal(a, b) for a, b in zip(after, after_zero, strict=True))
    assert all((part == 0).all() for part in ours.init_state(BATCH))
