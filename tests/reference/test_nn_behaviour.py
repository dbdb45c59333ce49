"""How torch.nn's recurrent modules behave around the numbers, restated for the twins after PyTorch's own tests."""

import copy
import inspect
import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from twins import CELLS, FORMS, SEQUENCES, assert_same, pair, tensors

import statewise.nn
from statewise.core import lens
from statewise.kernels.choice import force

OPTIONS: list[dict[str, Any]] = [
    {},
    {"num_layers": 3, "dropout": 0.25, "bidirectional": True},
    {"bias": False, "batch_first": True},
]


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def state_for(kind: str, *shape: int) -> Any:
    return (numbers(*shape), numbers(*shape) / 2) if kind.startswith("LSTM") else numbers(*shape)


# The object: constructor, parameters, what it prints.


@pytest.mark.parametrize("kind", SEQUENCES)
@pytest.mark.parametrize("options", OPTIONS)
def test_the_same_seed_gives_the_same_parameters(kind: str, options: dict[str, Any]) -> None:
    made = []
    for home in (nn, statewise.nn):
        torch.manual_seed(5)
        made.append(getattr(home, kind)(3, 4, **options))
    theirs, ours = made
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)
    assert repr(ours) == repr(theirs)
    assert [[tuple(w.shape) for w in layer] for layer in ours.all_weights] == [
        [tuple(w.shape) for w in layer] for layer in theirs.all_weights
    ]
    assert isinstance(ours, getattr(nn, kind))
    assert ours.flatten_parameters() is None


@pytest.mark.parametrize("kind", CELLS)
def test_cells_too(kind: str) -> None:
    made = []
    for home in (nn, statewise.nn):
        torch.manual_seed(5)
        made.append(getattr(home, kind)(3, 4, bias=False))
    theirs, ours = made
    assert repr(ours) == repr(theirs)
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("kind", [*SEQUENCES, *CELLS])
def test_signatures_are_the_same(kind: str) -> None:
    mine, other = getattr(statewise.nn, kind), getattr(nn, kind)
    assert inspect.signature(mine.__init__) == inspect.signature(other.__init__)
    assert list(inspect.signature(mine.forward).parameters) == list(inspect.signature(other.forward).parameters)


def test_positional_order() -> None:
    theirs, ours = pair("RNN", 3, 4, 2, "relu", False, True, 0.5, True)
    assert repr(ours) == repr(theirs)
    assert ours.nonlinearity == "relu"
    theirs, ours = pair("LSTM", 3, 4, 2, False, True, 0.5, True, 2)
    assert repr(ours) == repr(theirs)
    assert ours.weight_hr_l1_reverse.shape == (2, 4)


def test_projections_belong_to_the_lstm() -> None:
    for kind in ("RNN", "GRU"):
        with pytest.raises(ValueError, match="proj_size argument is only supported for LSTM"):
            getattr(statewise.nn, kind)(3, 4, proj_size=2)
    with pytest.raises(ValueError, match="smaller than hidden_size"):
        statewise.nn.LSTM(3, 4, proj_size=4)


def test_dropout_in_one_layer_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last"):
        statewise.nn.GRU(3, 4, dropout=0.5)


# The call.


@pytest.mark.parametrize(("kind", "kernel"), FORMS)
def test_packed_rows_in_any_order(kind: str, kernel: str) -> None:
    theirs, ours = pair(kind, 3, 4, 2, bidirectional=True, kernel=kernel)
    x_TBI, lengths_B = numbers(7, 5, 3), torch.tensor([2, 7, 1, 7, 4])
    hx = state_for(kind, 4, 5, 4)
    packed = pack_padded_sequence(x_TBI, lengths_B, enforce_sorted=False)
    assert_same(ours(packed, hx), theirs(packed, hx))
    # Each row as if it were alone.
    y_TBD, _ = pad_packed_sequence(ours(packed, hx)[0])
    for row, length in enumerate(lengths_B.tolist()):
        alone = tuple(part[:, row] for part in hx) if kind == "LSTM" else hx[:, row]
        assert_same(y_TBD[:length, row], ours(x_TBI[:length, row], alone)[0])
        assert y_TBD[length:, row].eq(0).all()


@pytest.mark.parametrize(("kind", "kernel"), FORMS)
def test_views_and_strides(kind: str, kernel: str) -> None:
    theirs, ours = pair(kind, 3, 4, kernel=kernel, batch_first=True)
    x = numbers(6, 8, 2).transpose(0, 2)[:, ::2, :3]
    hx = state_for(kind, 4, 2, 1)
    hx = tuple(part.transpose(0, 2) for part in hx) if kind == "LSTM" else hx.transpose(0, 2)
    assert_same(ours(x, hx), theirs(x, hx))


@pytest.mark.parametrize(("kind", "kernel"), FORMS)
def test_dropout_of_everything_leaves_what_biases_give(kind: str, kernel: str) -> None:
    theirs, ours = pair(kind, 3, 4, 2, dropout=1.0, kernel=kernel)
    x = numbers(5, 2, 3)
    assert_same(ours(x)[0], ours(2 * x)[0])
    assert_same(ours(x), theirs(x))
    assert not torch.equal(ours.eval()(x)[0], ours(2 * x)[0])


@pytest.mark.parametrize(("kind", "kernel"), FORMS)
def test_nothing_given_is_written_to(kind: str, kernel: str) -> None:
    _, ours = pair(kind, 3, 4, 2, kernel=kernel)
    x, hx = numbers(5, 2, 3), state_for(kind, 2, 2, 4)
    kept = [tensor.clone() for tensor in (x, *tensors(hx))]
    ours(x, hx)[0].sum().backward()
    for before, after in zip(kept, (x, *tensors(hx)), strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "batch_first": True}, {"bidirectional": True}])
@pytest.mark.parametrize("kind", ["RNN", "GRU"])  # of the LSTM's, oneDNN keeps the outputs for its backward
def test_what_comes_out_may_be_written_over(kind: str, options: dict[str, Any], packed: bool) -> None:
    x: Any = numbers(4, 40, 3) if options.get("batch_first") else numbers(40, 4, 3)
    if packed:
        lengths = torch.tensor([40, 7, 39, 20])
        x = pack_padded_sequence(x, lengths, bool(options.get("batch_first")), enforce_sorted=False)
    found = []
    for module in pair(kind, 3, 4, **options):
        y, state = module(x)
        (y.data if packed else y).mul_(2).relu_()
        state.sub_(1)
        ((y.data if packed else y).sum() + state.square().sum()).backward()
        found.append([y.data if packed else y, state, *(weight.grad for weight in module.parameters())])
    assert module.choice(x).implementation == "batched"
    assert_same(*found)


@pytest.mark.parametrize(("kind", "kernel"), FORMS)
def test_changed_weights_are_seen(kind: str, kernel: str) -> None:
    theirs, ours = pair(kind, 3, 4, kernel=kernel)
    x = numbers(5, 2, 3)
    ours(x)
    for module in (theirs, ours):
        with torch.no_grad():
            module.weight_hh_l0.mul_(2)
        module.weight_ih_l0 = nn.Parameter(0.5 * module.weight_ih_l0.detach())
        module.bias_ih_l0.data = module.bias_ih_l0.data + 1
    assert_same(ours(x), theirs(x))


@pytest.mark.parametrize("kind", SEQUENCES)
def test_a_weight_changed_between_forward_and_backward_is_noticed(kind: str) -> None:
    kernel = "auto" if kind == "LSTM" else "batched"
    _, ours = pair(kind, 3, 4, kernel=kernel)
    loss = ours(numbers(5, 2, 3))[0].sum()
    with torch.no_grad():
        ours.weight_hh_l0.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("kind", SEQUENCES)
def test_long_training_takes_our_backward(kind: str) -> None:
    theirs, ours = pair(kind, 3, 4)
    x = numbers(40, 2, 3)
    if kind != "LSTM":
        assert ours.choice(x).implementation == "batched"
    assert_same(ours(x), theirs(x))
    with torch.no_grad():
        assert ours.choice(x).implementation == "fused"
        assert "without a gradient" in ours.choice(x).reason or kind == "LSTM"
    assert ours.choice(x[:2]).implementation == "fused"


# Looking inside, which torch.nn does not have.


def test_a_lens_sees_gates_of_every_layer_and_direction() -> None:
    theirs, ours = pair("LSTM", 3, 4, 2, bidirectional=True, proj_size=2)
    packed = pack_padded_sequence(numbers(5, 2, 3), torch.tensor([5, 3]))
    with lens("*forget_gate") as seen:
        found = ours(packed)
    assert seen.names == [f"{layer}.lstm.forget_gate" for layer in ("l0", "l0_reverse", "l1", "l1_reverse")]
    assert seen["l1_reverse.lstm.forget_gate"].shape == (2, 5, 4)
    assert_same(found, theirs(packed))


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("batch", [None, 3])
def test_cells_by_the_equation(kind: str, batch: int | None) -> None:
    theirs, ours = pair(kind, 3, 4)
    shape = () if batch is None else (batch,)
    x, hx = numbers(*shape, 3), state_for(kind, *shape, 4)
    with force("naive"):
        assert ours.choice(x, hx).implementation == "naive"
        assert_same(ours(x, hx), theirs(x, hx))
        assert_same(ours(x), theirs(x))
    with lens() as seen:
        ours(x)
    assert seen.names
    assert ours.choice(x).implementation == "fused"


# What else a torch.nn.Module is used for.


@pytest.mark.parametrize(("kind", "kernel"), FORMS)
def test_copies_and_pickles(kind: str, kernel: str) -> None:
    _, ours = pair(kind, 3, 4, 2, kernel=kernel)
    x = numbers(5, 2, 3)
    expected = ours(x)
    for twin in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), copy.copy(ours)):
        assert type(twin) is type(ours)
        assert_same(twin(x), expected)


@pytest.mark.parametrize(("kind", "kernel"), FORMS)
def test_reparametrised_weights(kind: str, kernel: str) -> None:
    x = numbers(6, 2, 3)
    for reparametrise in (
        lambda module: parametrizations.weight_norm(module, "weight_hh_l0"),
        lambda module: parametrizations.spectral_norm(module, "weight_hh_l0"),
        lambda module: prune.l1_unstructured(module, "weight_hh_l0", amount=0.4),
    ):
        theirs, ours = pair(kind, 3, 4, 2, kernel=kernel)
        for module in (theirs, ours):
            torch.manual_seed(3)
            reparametrise(module)
        for _ in range(2):
            expected, found = theirs(x), ours(x)
            assert_same(found, expected)
            for module, result in ((theirs, expected), (ours, found)):
                module.zero_grad()
                result[0].square().sum().backward()
            for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
                assert mine.grad is not None, name
                assert_same(mine.grad, other.grad)


@pytest.mark.parametrize("kind", SEQUENCES)
def test_replicas(kind: str) -> None:
    _, ours = pair(kind, 3, 4, kernel="naive")
    replica = ours._replicate_for_data_parallel()
    for name, parameter in ours.named_parameters():
        setattr(replica, name, parameter.detach() * 2)
    x = numbers(5, 2, 3)
    doubled = copy.deepcopy(ours)
    with torch.no_grad():
        for parameter in doubled.parameters():
            parameter.mul_(2)
    assert_same(replica(x), doubled(x))


def test_moved_and_cast() -> None:
    ours = statewise.nn.GRU(3, 4).to(torch.float64)
    assert ours(numbers(40, 2, 3))[0].dtype == torch.float64
    ours = ours.float().to(torch.bfloat16)
    assert ours(numbers(40, 2, 3).bfloat16())[0].dtype == torch.bfloat16


@pytest.mark.parametrize("kind", SEQUENCES)
def test_low_precision_stays_near(kind: str) -> None:
    theirs, ours = pair(kind, 8, 16, 2)
    x = numbers(40, 3, 8)
    expected = theirs(x)[0]
    for dtype, bound in ((torch.float32, 1e-5), (torch.bfloat16, 5e-2)):
        found = ours.to(dtype)(x.to(dtype))[0]
        assert found.dtype == dtype
        assert (found.double() - expected).abs().max() < bound


def test_importing_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        statewise.nn.LSTM(3, 4)(torch.zeros(2, 1, 3))
