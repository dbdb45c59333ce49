"""A stream that lies on the device reads what the host reads, and knows where documents begin."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from statewise.data import Batches
from statewise.data.batch import Place, ResidentTokens

CPU = torch.device("cpu")
END = 3


@pytest.mark.parametrize("order", ["sequential", "random"])
@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_it_reads_what_the_host_reads(order: str, dtype: type[np.unsignedinteger]) -> None:
    """The largest tokens too, which have no sign."""
    top = np.iinfo(dtype).max
    tokens: NDArray[np.unsignedinteger] = (
        np.random.default_rng(0).integers(top - 50, top, 207, endpoint=True).astype(dtype)
    )
    tokens[[0, 70, 71, 206]] = END
    batches = Batches(tokens, end_id=END, batch=4, window=7, order=order, seed=5)
    resident = ResidentTokens(tokens, end_id=END, device=CPU)
    met = set()
    for step in range(40):
        place, batch = batches.place(step), batches.at(step)
        inputs_BT, targets_BT = resident.read(resident.starts(place), slice(0, place.length))
        assert torch.equal(inputs_BT, batch.inputs_BT)
        assert torch.equal(targets_BT, batch.targets_BT)
        begins = resident.begins_documents(place)
        assert begins == (batch.resets_BT is not None)
        met.add(begins)
        assert batch.fresh == place.fresh
        assert place.ends == batches.place(step + 1).fresh, "nobody goes on where the next is fresh"
    assert met == {False, True}


@settings(deadline=None)
@given(
    st.lists(st.booleans(), min_size=2, max_size=40),
    st.lists(st.integers(0, 200), min_size=1, max_size=3),
    st.integers(1, 40),
)
def test_where_documents_begin_on_the_ring(ends: list[bool], starts: list[int], length: int) -> None:
    tokens = np.where(ends, END, 7).astype(np.uint16)
    positions = len(tokens) - 1
    place = Place(np.array(starts, dtype=np.int64), min(length, positions), fresh=False, ends=False)
    expected = any(tokens[(start + t) % positions] == END for start in starts for t in range(place.length))
    assert ResidentTokens(tokens, end_id=END, device=CPU).begins_documents(place) == expected


def test_it_is_a_copy() -> None:
    """A mapped file is let go of, and a read-only one is no reason to warn."""
    tokens = np.arange(9, dtype=np.uint16)
    tokens.flags.writeable = False
    resident = ResidentTokens(tokens, end_id=END, device=CPU)
    starts_B = resident.starts(Place(np.array([2], dtype=np.int64), 5, fresh=True, ends=True))
    inputs_BT, _ = resident.read(starts_B, slice(1, 4))
    assert inputs_BT.tolist() == [[3, 4, 5]]
