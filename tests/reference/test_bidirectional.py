"""Reading from both ends against torch.nn's own bidirectional networks on packed rows, by copied weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from agreement import assert_same, fill, noise
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from statewise.core import Mixer
from statewise.encoders import Bidirectional, reverse_rows
from statewise.mixers import GRU, LSTM, Elman
from statewise.specs import UserError

BATCH, TIME, INPUT, WIDTH = 4, 9, 5, 6
PAIRS: dict[str, tuple[Callable[..., Mixer[Any]], Callable[..., nn.Module]]] = {
    "elman": (Elman, nn.RNN),
    "lstm": (LSTM, nn.LSTM),
    "gru": (GRU, nn.GRU),
}


def theirs_of(kind: str, ours: Bidirectional) -> nn.Module:
    """torch.nn's network with our weights; its second bias is 0, but for the GRU's candidate."""
    theirs = PAIRS[kind][1](INPUT, WIDTH, bidirectional=True, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for mixer, suffix in ((ours.ahead, ""), (ours.back, "_reverse")):
            for parameter, name in torch_names(kind, suffix).items():
                getattr(theirs, name).copy_(getattr(mixer, parameter))
            getattr(theirs, f"bias_hh_l0{suffix}").zero_()
            if kind == "gru":
                getattr(theirs, f"bias_hh_l0{suffix}")[2 * WIDTH :] = mixer.b_u_D
    return theirs


def torch_names(kind: str, suffix: str) -> dict[str, str]:
    w, u, b = {"elman": ("w_DI", "u_DD", "b_D"), "lstm": ("w_GI", "u_GP", "b_G"), "gru": ("w_GI", "u_GD", "b_G")}[kind]
    return {w: f"weight_ih_l0{suffix}", u: f"weight_hh_l0{suffix}", b: f"bias_ih_l0{suffix}"}


def encoder(kind: str, *, kernel: str = "auto", **options: Any) -> Bidirectional:
    make = PAIRS[kind][0]
    made = Bidirectional(
        forward=make(WIDTH, input_width=INPUT, kernel=kernel),
        backward=make(WIDTH, input_width=INPUT, kernel=kernel),
        **options,
    ).double()
    fill(made)
    return made


@pytest.mark.parametrize("lengths", [[9, 9, 9, 9], [9, 4, 1, 6]], ids=["full", "ragged"])
@pytest.mark.parametrize("kernel", ["naive", "fused"])
@pytest.mark.parametrize("kind", PAIRS)
def test_torch_nn_on_packed_rows(kind: str, kernel: str, lengths: list[int]) -> None:
    ours = encoder(kind, kernel=kernel)
    theirs = theirs_of(kind, ours)
    lengths_B = torch.tensor(lengths)
    weight = noise(BATCH, TIME, 2 * WIDTH, seed=9)

    x = noise(BATCH, TIME, INPUT, seed=1).requires_grad_()
    got = ours(x, lengths_B)
    (got * weight).sum().backward()

    their_x = x.detach().clone().requires_grad_()
    packed, _ = theirs(pack_padded_sequence(their_x, lengths_B, batch_first=True, enforce_sorted=False))
    expected, _ = pad_packed_sequence(packed, batch_first=True, total_length=TIME)
    (expected * weight).sum().backward()

    assert_same(got.detach(), expected.detach())
    assert_same(x.grad, their_x.grad)
    for mixer, suffix in ((ours.ahead, ""), (ours.back, "_reverse")):
        for parameter, name in torch_names(kind, suffix).items():
            assert_same(getattr(mixer, parameter).grad, getattr(theirs, name).grad)


@pytest.mark.parametrize("kind", PAIRS)
def test_padding_changes_nothing(kind: str) -> None:
    ours = encoder(kind)
    lengths_B = torch.tensor([9, 1, 0, 5])
    x = noise(BATCH, TIME, INPUT, seed=1)
    spoiled = x.clone()
    for row, length in enumerate(lengths_B.tolist()):
        spoiled[row, length:] = 1e3
    y = ours(x, lengths_B)
    assert torch.equal(y, ours(spoiled, lengths_B))
    for row, length in enumerate(lengths_B.tolist()):
        assert not y[row, length:].any()
        if length:
            assert_same(y[row : row + 1, :length].detach(), ours(x[row : row + 1, :length]).detach())


def test_every_moment_sees_every_other() -> None:
    ours = encoder("lstm")
    x = noise(1, TIME, INPUT, seed=1).requires_grad_()
    for t in range(TIME):
        (gradient,) = torch.autograd.grad(ours(x)[:, t].sum(), x)
        assert (gradient.abs().sum(-1) > 0).all()


def test_two_kinds_and_a_sum() -> None:
    mixed = Bidirectional(forward=LSTM(6, input_width=5), backward=GRU(3, input_width=5))
    assert mixed(torch.randn(2, 4, 5)).shape == (2, 4, 9)
    assert mixed.output_width == 9
    apart, added = encoder("gru"), encoder("gru", merge="sum")
    x, lengths_B = noise(BATCH, TIME, INPUT, seed=1), torch.tensor([9, 0, 3, 5])
    both = apart(x, lengths_B)
    assert_same(added(x, lengths_B).detach(), (both[..., :WIDTH] + both[..., WIDTH:]).detach())
    with pytest.raises(UserError, match="cannot be added"):
        Bidirectional(forward=LSTM(6, input_width=5), backward=GRU(3, input_width=5), merge="sum")
    with pytest.raises(UserError, match="widths 6 and 3"):
        Bidirectional(forward=LSTM(6), backward=GRU(3))


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 2)])
def test_reversing_rows(shape: tuple[int, ...]) -> None:
    x: Tensor = torch.arange(torch.Size(shape).numel()).view(shape)
    lengths_B = torch.tensor([5, 2, 0])
    reversed_ = reverse_rows(x, lengths_B)
    assert torch.equal(reversed_[0], x[0].flip(0))
    assert torch.equal(reversed_[1], torch.cat([x[1, :2].flip(0), x[1, 2:]]))
    assert torch.equal(reversed_[2], x[2])
    assert torch.equal(reverse_rows(reversed_, lengths_B), x)
    assert torch.equal(reverse_rows(x), x.flip(1))


def test_where_the_two_are_joined_padding_is_zero() -> None:
    """The join has a bias, which must not show past a row's end."""
    both = Bidirectional(
        forward=Elman(WIDTH, input_width=INPUT), backward=Elman(WIDTH, input_width=INPUT), merge="join"
    ).double()
    fill(both)
    lengths_B = torch.tensor([9, 1, 4, 6])
    x_BTI = noise(BATCH, TIME, INPUT, seed=1)
    y_BTP = both(x_BTI, lengths_B)
    for row, length in enumerate(lengths_B.tolist()):
        assert not y_BTP[row, length:].any()
        torch.testing.assert_close(y_BTP[row, :length], both(x_BTI[row : row + 1, :length])[0], rtol=0, atol=1e-12)
