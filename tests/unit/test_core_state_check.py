"""A state that is not the machine's own is refused in words that name the part, what it has and what was expected."""

import copy
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest
import torch

import statewise as sw
from statewise.core import rows, state_check, to
from statewise.core.state_check import unchecked
from statewise.models import LINEAGE, CountingMachine, LanguageModel, build
from statewise.models.lineage import Ancestor


def lstm_state(batch: int) -> Any:
    return sw.LSTM(16)(torch.randn(batch, 7, 16))[1]


@pytest.mark.parametrize(
    ("model", "before", "after"),
    [
        ("sw.LSTM(16)", 2, 5),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("sw.LSTM(16)", 3, 2), ("sw.GRU(16)", 1, 3))),
    ],
)
def test_another_batch_no_longer_ends_the_process(model: str, before: int, after: int) -> None:
    """In a process of its own: this was a segmentation fault."""
    script = (
        f"import torch, statewise as sw; m = {model}; _, s = m(torch.randn({before}, 7, 16)); "
        f"m(torch.randn({after}, 7, 16), s)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    expected = f"has shape [{before}, 16], expected [{after}, 16]: the input has {after} rows, the state {before}"
    assert expected in ended.stderr


def test_the_path_of_the_leaf_is_named() -> None:
    model = build("lstm", vocab=11, width=8, depth=2)
    _, state = model(torch.randint(11, (2, 4)))
    wide = state._replace(
        layers=(state.layers[0], state.layers[1]._replace(c_BD=torch.zeros(2, 9))),
    )
    with pytest.raises(sw.UserError, match=r"state\.layers\.1\.c_BD has shape \[2, 9\], expected \[2, 8\]"):
        model.step(torch.tensor([1, 2]), wide)


def test_another_models_state() -> None:
    with pytest.raises(sw.UserError, match="state is a LSTMState, expected a GRUState"):
        sw.GRU(16)(torch.randn(2, 3, 16), lstm_state(2))
    shallow, deep = (build("gru", vocab=11, width=8, depth=depth) for depth in (1, 2))
    _, state = shallow(torch.randint(11, (2, 4)))
    with pytest.raises(sw.UserError, match=r"state\.layers has 1 parts, expected 2"):
        deep(torch.randint(11, (2, 4)), state)


def test_types_and_devices() -> None:
    state = lstm_state(2)
    with pytest.raises(sw.UserError, match=r"state\.h_BP has type torch.int64, expected a floating-point type"):
        sw.LSTM(16).step(torch.randn(2, 16), sw.map_state(torch.Tensor.long, state))
    with pytest.raises(sw.UserError, match=r"state\.h_BP is on meta, expected cpu"):
        sw.LSTM(16).step(torch.randn(2, 16), to(state, "meta"))


def test_a_list_may_have_any_length_but_keys_and_values_the_same() -> None:
    model = build("transformer", vocab=11, width=8, depth=1)
    _, state = model(torch.randint(11, (2, 4)))
    model(torch.randint(11, (2, 3)), state)
    (layer,) = state.layers
    torn = state._replace(layers=(layer._replace(keys_BSGK=layer.keys_BSGK[:, :3]),))
    with pytest.raises(sw.UserError, match="lists of different lengths"):
        model(torch.randint(11, (2, 3)), torn)


def test_another_floating_type_is_the_kernels_affair() -> None:
    state = to(sw.GRU(8)(torch.randn(2, 3, 8))[1], torch.float64)
    y_BD, _ = sw.GRU(8).double().step(torch.randn(2, 8, dtype=torch.float64), state)
    assert y_BD.dtype == torch.float64


def test_after_an_error_the_next_call_is_checked_too() -> None:
    gru = sw.GRU(8)
    state = gru(torch.randn(2, 3, 8))[1]
    with pytest.raises(sw.UserError, match="width 7"):
        gru(torch.randn(2, 3, 7), state)
    with pytest.raises(sw.UserError, match="the input has 3 rows, the state 2"):
        gru(torch.randn(3, 3, 8), state)


def test_threads_check_for_themselves() -> None:
    """A machine that is inside a call in one thread is not inside one in another."""
    gru = sw.GRU(8)
    state = gru(torch.randn(2, 3, 8))[1]
    caught: list[sw.UserError] = []

    def other() -> None:
        try:
            gru.step(torch.randn(3, 8), state)
        except sw.UserError as error:
            caught.append(error)

    with unchecked():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert len(caught) == 1


def test_rows_of_a_state_go_with_rows_of_an_input() -> None:
    model = build("mamba2", vocab=11, width=8)
    tokens_BT = torch.randint(11, (5, 4))
    _, state = model(tokens_BT)
    whole, _ = model(tokens_BT, state)
    some, _ = model(tokens_BT[3:], rows(state, slice(3, None)))  # a short last batch, done right
    torch.testing.assert_close(some, whole[3:])


def test_a_machine_that_has_checked_can_be_pickled_and_copied() -> None:
    gru = sw.GRU(8)
    gru.step(torch.randn(2, 8), gru.init_state(2))
    for other in (pickle.loads(pickle.dumps(gru)), copy.deepcopy(gru)):
        with pytest.raises(sw.UserError, match="the input has 3 rows, the state 2"):
            other.step(torch.randn(3, 8), gru.init_state(2))


def test_a_returned_state_is_known_and_any_other_is_checked() -> None:
    gru = sw.GRU(8)
    with torch.no_grad():
        _, state = gru.step(torch.randn(2, 8), gru.init_state(2))
        gru.step(torch.randn(2, 8), state)
        with pytest.raises(sw.UserError, match="the input has 3 rows, the state 2"):
            gru.step(torch.randn(3, 8), state)
        with pytest.raises(sw.UserError, match="the input has 2 rows, the state 1"):
            gru.step(torch.randn(2, 8), rows(state, slice(1)))


def test_no_state_with_a_graph_is_held() -> None:
    gru = sw.GRU(8)
    gru.step(torch.randn(2, 8), gru.init_state(2))
    assert gru._state_check is not None
    assert gru._state_check.known is state_check._NOTHING


def test_a_list_is_held_while_it_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_check, "_HELD_BYTES", 2000)
    attention = build("transformer", vocab=11, width=8).eval()
    token_B, state, held = torch.tensor([1]), attention.init_state(1), []
    with torch.no_grad():
        for _ in range(40):
            _, state = attention.step(token_B, state)
            assert attention._state_check is not None
            held.append(attention._state_check.known[0] is state)
        assert held[0]
        assert not held[-1], "a large list would stay in memory after the last step"
        with pytest.raises(sw.UserError, match="the input has 2 rows, the state 1"):
            attention.step(torch.tensor([1, 1]), state)


def test_no_state_at_all_is_refused_at_the_first_step() -> None:
    with pytest.raises(sw.UserError, match="state is a NoneType, expected a GRUState"):
        sw.GRU(8).step(torch.randn(2, 8), None)  # type: ignore[arg-type]
    with pytest.raises(sw.UserError, match=r"input of a step has shape \[\], expected \[batch, width\]"):
        sw.GRU(8).step(torch.tensor(1.0), None)  # type: ignore[arg-type]  # 0 axes, and nothing was returned yet


@pytest.mark.parametrize("entry", LINEAGE, ids=lambda entry: entry.name)
def test_a_time_axis_is_no_input_of_a_step(entry: Ancestor) -> None:
    """It was broadcast against the rows of the state: tokens [2, 1] gave outputs [2, 2], with rows mixed."""
    model = build(entry.spec.small(), vocab=7)
    if isinstance(model, CountingMachine):
        model.count(torch.arange(7).numpy())
    for wrong in (torch.tensor([[1], [2]]), torch.tensor([[1, 2], [2, 3]])):
        with pytest.raises(sw.UserError, match=r"input of a step has shape \[2, \d\], expected \[batch\]"):
            model.step(wrong, model.init_state(2))
    if isinstance(model, LanguageModel):
        mixer = model.stack.blocks[0].mixer
        with pytest.raises(sw.UserError, match=r"has shape \[2, 1, \d+\], expected \[batch, width\]"):
            mixer.step(torch.randn(2, 1, mixer.input_width), mixer.init_state(2))


def test_a_list_is_no_input() -> None:
    gru = sw.GRU(2)
    for call in (
        lambda: gru([[[1.0, 2.0]]]),  # type: ignore[arg-type]
        lambda: gru([[[1.0, 2.0]]], None, torch.tensor([1])),  # type: ignore[arg-type]
        lambda: gru.step([[1.0, 2.0]], gru.init_state(1)),  # type: ignore[arg-type]
    ):
        with pytest.raises(sw.UserError, match="input is a list, expected a tensor"):
            call()
