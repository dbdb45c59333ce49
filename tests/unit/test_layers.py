"""Dropout in its four places, and where weights start."""

import math

import pytest
import torch
from torch import Tensor

from statewise.kernels.zoneout import zoneout
from statewise.layers import Dropout, Embedding, Filler, make_norm
from statewise.mixers import GRU, LSTM, Elman


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    torch.manual_seed(0)


def close_to(share: float, expected: float, *, count: int) -> bool:
    """Within five deviations of a share counted `count` times."""
    return abs(share - expected) <= 5 * math.sqrt(expected * (1 - expected) / count)


# Dropout.


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_variational_dropout_draws_one_mask_a_row_for_all_time(rate: float) -> None:
    dropped = Dropout(rate, variational=True)(torch.ones(40, 6, 50))
    assert torch.equal(dropped, dropped[:, :1].expand(-1, 6, -1)), "constant over time"
    kept = dropped[:, 0] != 0
    torch.testing.assert_close(dropped[:, 0][kept], torch.full((int(kept.sum()),), 1 / (1 - rate)), rtol=1e-6, atol=0)
    assert close_to(1 - kept.double().mean().item(), rate, count=kept.numel())
    assert len({tuple(row) for row in kept.tolist()}) > 1, "rows differ"


def test_plain_dropout_is_fresh_at_every_step() -> None:
    dropped = Dropout(0.5)(torch.ones(40, 6, 50))
    assert not torch.equal(dropped[:, 0], dropped[:, 1])
    assert set(dropped.unique().tolist()) == {0.0, 2.0}
    assert close_to((dropped == 0).double().mean().item(), 0.5, count=dropped.numel())


@pytest.mark.parametrize("layer", [Dropout(0.5), Dropout(0.5, variational=True), Dropout(0.0, variational=True)])
def test_dropout_evaluating_is_the_identity(layer: Dropout) -> None:
    x = torch.randn(2, 3, 4)
    assert torch.equal(layer.eval()(x), x)
    assert (layer.rate > 0) != torch.equal(layer.train()(x), x)


def test_row_dropout_drops_whole_tokens_everywhere() -> None:
    layer = Embedding(1000, 8, row_dropout=0.3)
    tokens = torch.arange(1000).repeat(2, 2)
    out = layer(tokens)
    assert torch.equal(out[0], out[1])
    assert torch.equal(out[:, :1000], out[:, 1000:]), "a token is absent at each of its places"
    seen = out[0, :1000]
    dropped = (seen == 0).all(dim=1)
    assert close_to(dropped.double().mean().item(), 0.3, count=1000)
    torch.testing.assert_close(seen[~dropped], layer.weight[~dropped] / 0.7)
    assert torch.equal(layer.eval()(tokens), layer.weight[tokens])


def test_embedding_starts_at_the_scale_asked_for() -> None:
    weight = Embedding(2000, 50, scale=0.2, generator=torch.Generator().manual_seed(0)).weight
    assert weight.std().item() == pytest.approx(0.2, rel=0.02)
    assert abs(weight.mean().item()) < 0.003


@pytest.mark.parametrize("make", [Elman, LSTM, GRU], ids=lambda make: make.__name__)
def test_weight_drop_scales_and_leaves_the_parameter_alone(make: type[Elman] | type[LSTM] | type[GRU]) -> None:
    mixer = make(40, weight_drop=0.4)
    name = {Elman: "u_DD", LSTM: "u_GP", GRU: "u_GD"}[make]
    parameter = getattr(mixer, name)
    before = parameter.detach().clone()
    used = getattr(mixer.weights(), name)
    kept = used != 0
    assert close_to(1 - kept.double().mean().item(), 0.4, count=used.numel())
    torch.testing.assert_close(used[kept], parameter[kept] / 0.6)
    assert not torch.equal(getattr(mixer.weights(), name), used), "a mask is drawn for every sequence"
    mixer(torch.randn(2, 3, 40))[0].sum().backward()
    assert torch.equal(parameter.detach(), before)
    assert getattr(mixer.eval().weights(), name) is not None
    assert torch.equal(getattr(mixer.weights(), name), parameter)
    others = [field for field in mixer.weights()._fields if field[:2] in ("w_", "b_")]
    assert all(getattr(mixer.train().weights(), field) is getattr(mixer, field) for field in others)


def test_weight_drop_holds_for_the_whole_sequence() -> None:
    """One draw a call, so a forward equals steps that share its mask: dropped weights get no gradient at all."""
    mixer = Elman(12, weight_drop=0.5)
    mixer(torch.randn(2, 9, 12))[0].sum().backward()
    assert close_to((mixer.u_DD.grad == 0).double().mean().item(), 0.5, count=144)


# Zoneout.


def test_zoneout_keeps_its_share_of_old_values_while_training() -> None:
    old, new = torch.zeros(200, 50), torch.ones(200, 50)
    mixed = zoneout(old, new, rate=0.3, training=True)
    assert set(mixed.unique().tolist()) == {0.0, 1.0}
    assert close_to((mixed == 0).double().mean().item(), 0.3, count=10_000)


def test_zoneout_evaluating_is_the_expectation() -> None:
    old, new = torch.randn(4, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    expected = 0.3 * old + 0.7 * new
    torch.testing.assert_close(zoneout(old, new, rate=0.3, training=False), expected, rtol=0, atol=1e-14)
    assert zoneout(old, new, rate=0.0, training=True) is new


@pytest.mark.parametrize("make", [Elman, LSTM, GRU], ids=lambda make: make.__name__)
def test_every_leaf_of_a_state_zones_out(make: type[Elman] | type[LSTM] | type[GRU]) -> None:
    mixer = make(100, zoneout=0.25)
    state = type(mixer.init_state(1))(*(torch.randn_like(leaf) for leaf in mixer.init_state(30)))
    _, after = mixer(torch.randn(30, 1, 100), state)
    for old, new in zip(state, after, strict=True):
        assert close_to((old == new).double().mean().item(), 0.25, count=3000)


# Where weights start.


def assert_orthogonal(block: Tensor) -> None:
    """Rows or columns, whichever are fewer, are of unit length and at right angles."""
    block = block.double()
    gram = block @ block.T if block.shape[0] <= block.shape[1] else block.T @ block
    torch.testing.assert_close(gram, torch.eye(len(gram), dtype=torch.float64), rtol=0, atol=1e-5)


def test_recurrent_blocks_are_orthogonal_each() -> None:
    assert_orthogonal(Elman(12).u_DD)
    for mixer, gates in ((LSTM(12), 4), (LSTM(12, coupled=True), 3), (LSTM(12, projection=5), 4)):
        for block in mixer.u_GP.chunk(gates):
            assert_orthogonal(block)
    for block in GRU(12).u_GD.chunk(3):
        assert_orthogonal(block)
    assert_orthogonal(LSTM(12, projection=5).projection_PD)


def test_inputs_start_by_glorot_each_gate_for_itself() -> None:
    weight = torch.empty(4 * 100, 60)
    Filler("orthogonal", None).input(weight, gates=4)
    bound = math.sqrt(6 / (100 + 60))
    assert 0.98 * bound < weight.abs().max().item() <= bound


def test_torch_scheme_is_uniform_by_width() -> None:
    filler = Filler("torch", None)
    for fill in (filler.input, filler.recurrent):
        weight = torch.empty(3 * 100, 40)
        fill(weight, gates=3)
        assert 0.098 < weight.abs().max().item() <= 0.1
        assert weight.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.02)


def test_torch_scheme_has_the_bounds_of_torch_nn() -> None:
    """torch.nn takes every bound from the hidden width, that of the projection too."""
    ours = LSTM(100, input_width=30, projection=25, init="torch")
    theirs = torch.nn.LSTM(30, 100, proj_size=25)
    pairs = [
        (ours.w_GI, theirs.weight_ih_l0),
        (ours.u_GP, theirs.weight_hh_l0),
        (ours.projection_PD, theirs.weight_hr_l0),
    ]
    for mine, torchs in pairs:
        assert mine.shape == torchs.shape
        assert mine.abs().max().item() == pytest.approx(torchs.abs().max().item(), rel=0.02)


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("forget_bias", [1.0, 0.0, 2.5])
def test_forget_bias_is_on_the_forget_gate_alone(coupled: bool, forget_bias: float) -> None:
    mixer = LSTM(6, coupled=coupled, forget_bias=forget_bias)
    gates = dict(zip("fgo" if coupled else "ifgo", mixer.b_G.view(-1, 6)))
    assert (gates.pop("f") == forget_bias).all()
    assert all((bias == 0).all() for bias in gates.values())


def test_the_forget_bias_opens_the_gate_that_forgets() -> None:
    """By behaviour: a large one keeps the cell."""
    mixer = LSTM(6, forget_bias=40.0)
    with torch.no_grad():
        mixer.w_GI.zero_()
        mixer.u_GP.zero_()
    c_BD = torch.randn(2, 6)
    _, after = mixer(torch.randn(2, 9, 6), type(mixer.init_state(1))(torch.zeros(2, 6), c_BD))
    torch.testing.assert_close(after.c_BD, c_BD)


def test_published_schemes() -> None:
    assert torch.equal(Elman(9, activation="relu", init="published").u_DD, torch.eye(9))
    assert_orthogonal(Elman(9, init="published").u_DD)
    lstm = LSTM(40, projection=20, init="published")
    for weight in (lstm.w_GI, lstm.u_GP, lstm.projection_PD):
        assert 0.076 < weight.abs().max().item() <= 0.08
    gru = GRU(40, init="published")
    assert gru.w_GI.std().item() == pytest.approx(0.01, rel=0.05)
    for block in gru.u_GD.chunk(3):
        assert_orthogonal(block)


# Norms.


def test_norms_by_name() -> None:
    x = torch.randn(3, 8, dtype=torch.float64)
    centred = x - x.mean(-1, keepdim=True)
    layer = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    rms = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    for kind, expected in (("none", x), ("layer", layer), ("rms", rms)):
        got = make_norm(kind, 8).double()(x)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
