"""Any constructor, any form of input: ours and torch.nn's agree on outputs, states and gradients, or both refuse."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence
from twins import FORMS, assert_same, gradients, pair, tensors


def draw_input(data: Any, options: dict[str, Any], generator: torch.Generator) -> tuple[Any, int | None]:
    """One form of input, and its batch (None: there is none)."""

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    width = options["input_size"]
    form = data.draw(st.sampled_from(["plain", "single", "packed"]))
    if form == "single":
        return numbers(data.draw(st.integers(1, 6)), width), None
    if form == "plain":
        batch, time = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 6))
        return numbers(*((batch, time) if options["batch_first"] else (time, batch)), width), batch
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    ordered = data.draw(st.booleans())
    rows = [numbers(length, width).detach() for length in (sorted(lengths, reverse=True) if ordered else lengths)]
    packed = pack_sequence(rows, enforce_sorted=ordered)
    return packed._replace(data=packed.data.requires_grad_()), len(lengths)


def draw_state(data: Any, kind: str, options: dict[str, Any], batch: int | None, generator: torch.Generator) -> Any:
    if not data.draw(st.booleans()):
        return None
    layers = options["num_layers"] * (2 if options["bidirectional"] else 1)
    shape = (layers,) if batch is None else (layers, batch)
    widths = [options.get("proj_size") or options["hidden_size"], options["hidden_size"]]
    parts = [torch.randn(*shape, width, dtype=torch.float64, generator=generator).requires_grad_() for width in widths]
    return tuple(parts) if kind == "LSTM" else parts[1]


@pytest.mark.parametrize(("kind", "kernel"), FORMS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_agreement(kind: str, kernel: str, data: Any) -> None:
    flags = {name: data.draw(st.booleans(), name) for name in ("bias", "batch_first", "bidirectional")}
    options: dict[str, Any] = {
        "input_size": data.draw(st.integers(1, 3)),
        "hidden_size": data.draw(st.integers(2, 4)),
        "num_layers": data.draw(st.integers(1, 3)),
        **flags,
    }
    if options["num_layers"] > 1:
        options["dropout"] = data.draw(st.sampled_from([0.0, 0.4, 1.0]))
    if kind == "RNN":
        options["nonlinearity"] = data.draw(st.sampled_from(["tanh", "relu"]))
    if kind == "LSTM":
        options["proj_size"] = data.draw(st.integers(0, 1))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    torch.manual_seed(0)
    theirs, ours = pair(kind, kernel=kernel, **options)
    x, batch = draw_input(data, options, generator)
    hx = draw_state(data, kind, options, batch, generator)

    # One seed before each: dropout masks agree too.
    torch.manual_seed(1)
    expected = theirs(x, hx)
    torch.manual_seed(1)
    found = ours(x, hx)
    assert_same(found, expected)
    inputs = [*tensors(x), *([] if hx is None else tensors(hx))]
    assert_same(gradients(ours, found, inputs), gradients(theirs, expected, inputs))


def wrong_calls() -> list[tuple[str, Any, Any]]:
    """What, an input for width 3, and a state for two layers of width 4 and batch 2."""
    x, h = torch.zeros(5, 2, 3), torch.zeros(2, 2, 4)
    packed = pack_sequence([torch.zeros(3, 3), torch.zeros(2, 3)])
    return [
        ("input width", torch.zeros(5, 2, 4), None),
        ("four axes", torch.zeros(1, 5, 2, 3), None),
        ("one axis", torch.zeros(3), None),
        ("no time", torch.zeros(0, 2, 3), None),
        ("state batch", x, torch.zeros(2, 3, 4)),
        ("state width", x, torch.zeros(2, 2, 5)),
        ("state layers", x, torch.zeros(1, 2, 4)),
        ("state without batch", x, torch.zeros(2, 4)),
        ("state with batch", torch.zeros(5, 3), h),
        ("packed state batch", packed, torch.zeros(2, 1, 4)),
        ("packed input width", pack_sequence([torch.zeros(3, 4)]), None),
        ("integers", torch.zeros(5, 2, 3, dtype=torch.long), None),
        ("other precision", x.float(), None),
        ("not a tensor", [1.0], None),
        ("nothing", None, None),
    ]


def as_double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) else value._replace(data=value.data.double())


@pytest.mark.parametrize(("kind", "kernel"), FORMS)
def test_both_refuse_in_the_same_words(kind: str, kernel: str) -> None:
    for what, x, hx in wrong_calls():
        theirs, ours = pair(kind, 3, 4, 2, kernel=kernel)
        if what not in ("integers", "other precision", "not a tensor", "nothing"):
            x = as_double(x)
        state = None if hx is None else (hx.double(), hx.double()) if kind == "LSTM" else hx.double()
        with pytest.raises(Exception) as expected:  # noqa: PT011  # whichever torch.nn raises
            theirs(x, state)
        with pytest.raises(type(expected.value)) as found:
            ours(x, state)
        assert str(found.value) == str(expected.value), what


@pytest.mark.parametrize("kind", ["RNN", "GRU"])
def test_a_pair_is_no_state_of_one_part(kind: str) -> None:
    _, ours = pair(kind, 3, 4, kernel="naive")
    with pytest.raises(AttributeError):
        ours(torch.zeros(5, 2, 3, dtype=torch.float64), (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)))
