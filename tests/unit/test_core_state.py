"""Operations on states: `map_state` and what stands on it, whatever the state is made of."""

import gc
import json
import pickle
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from statewise.core import (
    concat,
    detach,
    fork,
    hold,
    leaves,
    load_state,
    map_state,
    pack_state,
    reset_rows,
    rows,
    save_state,
    state_bytes,
    to,
    where,
)
from statewise.mixers import ElmanState, GRUState, LSTMState
from statewise.models import StackState
from statewise.specs import UserError


class Attention(NamedTuple):
    """The kind of state that is to come: a cache with more axes, and positions that are whole numbers."""

    keys_BHTK: Tensor
    position_B: Tensor


class Nested(NamedTuple):
    layers: tuple[LSTMState, Attention]
    h_BD: Tensor


def example(batch: int = 3, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> Nested:
    generator = torch.Generator().manual_seed(seed)

    def noise(*shape: int) -> Tensor:
        return torch.randn(batch, *shape, dtype=dtype, generator=generator)

    position_B = torch.randint(50, (batch,), generator=generator)
    return Nested((LSTMState(noise(2), noise(4)), Attention(noise(2, 3, 5), position_B)), noise(6))


def equal(a: object, b: object) -> bool:
    """Same types all the way down, same leaves bit by bit."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))


STATES = {
    "tensor": torch.arange(6.0).view(3, 2),
    "named": ElmanState(torch.arange(6.0).view(3, 2)),
    "tuple": (torch.ones(3, 1), torch.arange(3)),
    "nested": example(),
}
any_state = pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())


@any_state
def test_the_identity_keeps_types_and_leaves(state: object) -> None:
    assert equal(map_state(lambda leaf: leaf, state), state)


def test_map_reaches_every_leaf_once_and_in_order() -> None:
    seen: list[Tensor] = []
    map_state(lambda leaf: seen.append(leaf) or leaf, state := example())
    assert [id(leaf) for leaf in seen] == [id(leaf) for _, leaf in leaves(state)]


def test_map_takes_leaves_of_several_states_from_the_same_place() -> None:
    a, b = example(seed=1), example(seed=2)
    total = map_state(torch.add, a, b)
    assert type(total.layers[1]) is Attention
    assert torch.equal(total.layers[0].c_BD, a.layers[0].c_BD + b.layers[0].c_BD)
    assert torch.equal(total.layers[1].position_B, a.layers[1].position_B + b.layers[1].position_B)


def test_map_refuses_states_of_different_shape() -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        map_state(torch.add, (torch.ones(1), torch.ones(1)), (torch.ones(1),))


def test_leaves_are_named_by_their_path() -> None:
    names = [name for name, _ in leaves(example())]
    expected = ["layers.0.h_BP", "layers.0.c_BD", "layers.1.keys_BHTK", "layers.1.position_B", "h_BD"]
    assert names == expected
    assert [name for name, _ in leaves(torch.ones(1))] == [""]


@settings(deadline=None, max_examples=30)
@given(order=st.lists(st.integers(0, 2), min_size=1, max_size=6))
def test_rows_chooses_repeats_and_reorders(order: list[int]) -> None:
    state = example()
    chosen = rows(state, torch.tensor(order))
    for (_, got), (_, leaf) in zip(leaves(chosen), leaves(state), strict=True):
        assert torch.equal(got, torch.stack([leaf[i] for i in order]))


def test_rows_by_slice_and_concat_are_inverse() -> None:
    state = example()
    assert equal(concat([rows(state, slice(i, i + 1)) for i in range(3)]), state)
    assert equal(concat([rows(state, slice(0, 2)), rows(state, slice(2, 3))]), state)


@pytest.mark.parametrize("mask", [[True, False, True], [False] * 3, [True] * 3])
def test_where_decides_row_by_row(mask: list[bool]) -> None:
    yes, no = example(seed=1), example(seed=2)
    chosen = where(torch.tensor(mask), yes, no)
    expected = concat([rows(yes if take else no, slice(i, i + 1)) for i, take in enumerate(mask)])
    assert equal(chosen, expected)
    assert equal(hold(torch.tensor(mask), new=yes, old=no), expected)
    assert equal(reset_rows(no, torch.tensor(mask), initial=yes), expected)


def test_reset_from_an_initial_state_of_one_row() -> None:
    state, initial = example(), example(batch=1, seed=9)
    reset = reset_rows(state, torch.tensor([False, True, False]), initial=initial)
    assert equal(rows(reset, slice(1, 2)), initial)
    assert equal(rows(reset, torch.tensor([0, 2])), rows(state, torch.tensor([0, 2])))


def test_detach_cuts_the_graph_and_keeps_the_values() -> None:
    h_BD = torch.ones(2, 3, requires_grad=True)
    state = ElmanState(h_BD * 2)
    cut = detach(state)
    assert equal(cut, ElmanState(torch.full((2, 3), 2.0)))
    assert not cut.h_BD.requires_grad
    assert state.h_BD.requires_grad


def test_forks_do_not_feel_each_other() -> None:
    state = example()
    copy, kept = fork(state), fork(state)
    map_state(lambda leaf: leaf.zero_(), copy)
    assert equal(state, kept)
    map_state(lambda leaf: leaf.fill_(7), state)
    assert all((leaf == 0).all() for _, leaf in leaves(copy))


def test_a_fork_stays_in_the_graph() -> None:
    h_BD = torch.ones(2, 3, requires_grad=True)
    fork(ElmanState(h_BD)).h_BD.sum().backward()
    assert torch.equal(h_BD.grad, torch.ones(2, 3))


def test_to_a_dtype_leaves_whole_numbers_alone() -> None:
    state = example()
    narrow = to(state, torch.bfloat16)
    assert narrow.layers[1].position_B.dtype == torch.int64
    assert torch.equal(narrow.layers[1].position_B, state.layers[1].position_B)
    floating = [leaf for _, leaf in leaves(narrow) if leaf.is_floating_point()]
    assert {leaf.dtype for leaf in floating} == {torch.bfloat16}
    assert torch.equal(narrow.h_BD, state.h_BD.bfloat16())


def test_to_a_device() -> None:
    assert equal(to(example(), "cpu"), example())
    assert {leaf.device.type for _, leaf in leaves(to(example(), torch.device("meta")))} == {"meta"}


@settings(deadline=None, max_examples=20)
@given(batch=st.integers(0, 9))
def test_state_bytes_is_exact(batch: int) -> None:
    # h_BP 2, c_BD 4, keys 2 x 3 x 5, h_BD 6, and one whole number of eight bytes.
    assert state_bytes(example(batch)) == batch * ((2 + 4 + 30 + 6) * 8 + 8)
    assert state_bytes(example(batch, dtype=torch.float32)) == batch * ((2 + 4 + 30 + 6) * 4 + 8)
    assert state_bytes(example(batch, dtype=torch.bfloat16)) == batch * ((2 + 4 + 30 + 6) * 2 + 8)


# Saving and loading.


@any_state
def test_what_is_saved_is_loaded(state: object, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save_state(state, path)
    like = rows(state, slice(0, 1))
    assert equal(load_state(path, like=like), state)
    assert equal(load_state(str(path), like=like), state)


def test_views_of_one_memory_are_saved(tmp_path: Path) -> None:
    """Two leaves may be parts of one tensor, or the very same one."""
    both_BE, path = torch.randn(3, 8), tmp_path / "state"
    for state in (
        LSTMState(*both_BE.chunk(2, dim=1)),
        LSTMState(both_BE, both_BE),
        LSTMState(both_BE[:2], both_BE[1:]),
    ):
        save_state(state, path)
        assert equal(load_state(path, like=state), state)


def test_a_state_with_a_graph_is_saved_without_it(tmp_path: Path) -> None:
    state = ElmanState(torch.ones(1, 2, requires_grad=True) * 3)
    save_state(state, tmp_path / "state")
    loaded = load_state(tmp_path / "state", like=ElmanState(torch.zeros(1, 2)))
    assert equal(loaded, ElmanState(torch.full((1, 2), 3.0)))
    assert not loaded.h_BD.requires_grad


@pytest.mark.parametrize("name", [*("float64", "float32", "float16", "bfloat16", "int64", "int32"), "bool"])
def test_the_library_of_the_format_reads_what_is_saved(name: str, tmp_path: Path) -> None:
    dtype = getattr(torch, name)
    state = (torch.arange(6).reshape(2, 3).to(dtype).mT, torch.zeros(3, 0, 4, dtype=dtype), torch.arange(3))
    save_state(state, path := tmp_path / "state.safetensors", weights="abc")
    read = load_file(path)
    assert read.keys() == dict(leaves(state)).keys()
    assert all(read[key].dtype == leaf.dtype and torch.equal(read[key], leaf) for key, leaf in leaves(state))


def test_lengths_that_were_saved_leave_nothing_behind() -> None:
    """The format's own library leaves two types of ctypes behind for each length, for as long as the process lives."""

    def objects() -> int:
        gc.collect()
        return len(gc.get_objects())

    pack_state(torch.zeros(1, 1))
    before = objects()
    for length in range(1, 200):
        pack_state(torch.zeros(1, length, 3))
    assert objects() - before < 20


def refused(path: Path, like: object, match: str) -> None:
    with pytest.raises(UserError, match=match):
        load_state(path, like=like)


def test_a_state_of_another_type_is_refused(tmp_path: Path) -> None:
    save_state(GRUState(torch.zeros(1, 2)), path := tmp_path / "state")
    refused(path, ElmanState(torch.zeros(1, 2)), r"holds GRUState\(2\), but this model's state is ElmanState\(2\)")
    refused(path, StackState((GRUState(torch.zeros(1, 2)),)), "StackState")
    refused(path, torch.zeros(1, 2), "GRUState")
    refused(path, GRUState(torch.zeros(1, 2, 2)), r"GRUState\(3\)")


def test_another_depth_is_refused(tmp_path: Path) -> None:
    layer = GRUState(torch.zeros(1, 2))
    save_state(StackState((layer, layer)), path := tmp_path / "state")
    refused(path, StackState((layer,)), "StackState")


def test_another_dtype_is_refused(tmp_path: Path) -> None:
    save_state(GRUState(torch.zeros(1, 2, dtype=torch.float64)), path := tmp_path / "state")
    refused(path, GRUState(torch.zeros(1, 2)), "'h_BD' is missing, or is not torch.float32")


def test_another_width_is_refused_but_an_axis_that_grows_may_have_grown(tmp_path: Path) -> None:
    save_state(GRUState(torch.ones(1, 3)), path := tmp_path / "state")
    refused(path, GRUState(torch.zeros(1, 2)), r"of the shape \[2\]")
    assert equal(load_state(path, like=GRUState(torch.zeros(1, 0))), GRUState(torch.ones(1, 3)))


def write(path: Path, tensors: dict[str, Tensor], *, signature: str | None) -> Path:
    metadata = None if signature is None else {"state": signature}
    save_file(tensors, path, metadata=metadata)
    return path


LSTM_LIKE = LSTMState(torch.zeros(1, 2), torch.zeros(1, 2))


def test_a_missing_leaf_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "state", {"h_BP": torch.zeros(1, 2)}, signature=json.dumps("LSTMState(2, 2)"))
    refused(path, LSTM_LIKE, "'c_BD' is missing")


def test_leaves_that_disagree_on_the_batch_are_refused(tmp_path: Path) -> None:
    tensors = {"h_BP": torch.zeros(1, 2), "c_BD": torch.zeros(3, 2)}
    path = write(tmp_path / "state", tensors, signature=json.dumps("LSTMState(2, 2)"))
    refused(path, LSTM_LIKE, r"disagree on the batch: \[1, 3\]")


def test_a_leaf_too_many_is_refused(tmp_path: Path) -> None:
    tensors = {"h_BP": torch.zeros(1, 2), "c_BD": torch.zeros(1, 2), "extra": torch.zeros(())}
    path = write(tmp_path / "state", tensors, signature=json.dumps("LSTMState(2, 2)"))
    refused(path, LSTM_LIKE, "extra")


@pytest.mark.parametrize("signature", [None, "not json", json.dumps(7)])
def test_tensors_that_are_no_state_are_refused(signature: str | None, tmp_path: Path) -> None:
    refused(write(tmp_path / "state", {"h_BP": torch.zeros(1, 2)}, signature=signature), LSTM_LIKE, "state")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    save_state(example(), path := tmp_path / "state")
    whole = path.read_bytes()
    for kept in (0, 4, 8, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        refused(path, example(1), "is not a saved state")


class Harm:
    """Unpickling this would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_posing_as_safetensors_is_refused_unread(tmp_path: Path) -> None:
    mark, path = tmp_path / "harm", tmp_path / "state.safetensors"
    path.write_bytes(pickle.dumps(Harm(mark)))
    refused(path, LSTM_LIKE, "is not a saved state")
    torch.save(Harm(mark), path)
    refused(path, LSTM_LIKE, "is not a saved state")
    assert not mark.exists()


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", LSTM_LIKE, "there is no state file")
    refused(tmp_path, LSTM_LIKE, "is not a saved state")
