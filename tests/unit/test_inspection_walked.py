"""States of who reads a row from its end, or a source before its target: gradients against small changes of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from task_runs import opened
from torch import Tensor, nn

from statewise.core import Machine, lens, map_state
from statewise.inspection.gradient.flow import by_part, follow_row
from statewise.inspection.gradient.picture import reach, row_drawings
from statewise.tasks.specimen import Specimen

WAYS = {
    "translator": {"state along the source", "state along the source, from its end"},
    "translator-one-vector": {"state along the source"},
    "translator-transformer": set(),
    "tagger": {"state from the front", "state from the end"},
    "classifier": {"state from the front", "state from the end"},
    "tagger-one-way": set(),  # its machine is asked itself
}


@contextmanager
def changed_after(machine: Machine[Any], moment: int) -> Iterator[list[Tensor]]:
    """The machine reads in two pieces; to the state between them something is added, which is 0."""
    added: list[Tensor] = []

    def change(leaf: Tensor) -> Tensor:
        if not leaf.is_floating_point():
            return leaf
        added.append(torch.zeros_like(leaf).requires_grad_())
        return leaf + added[-1]

    def in_two(module: nn.Module, given: tuple[Any, ...], answer: Any) -> Any:
        x_1TI = given[0]
        first_1TC, state = machine.forward(x_1TI[:, : moment + 1])
        second_1TC, state = machine.forward(x_1TI[:, moment + 1 :], map_state(change, state))
        return torch.cat([first_1TC, second_1TC], dim=1), state

    handle = machine.register_forward_hook(in_two)
    yield added
    handle.remove()


def norm_by_hand(one: Specimen, name: str, question: int, moment: int) -> float:
    with changed_after(one.readers[name], moment) as added:
        cost = one.costs(one.x_TE[None])[0, question]
    found = torch.autograd.grad(cost, added, allow_unused=True)
    return float(torch.cat([gradient.flatten() for gradient in found if gradient is not None]).norm())


@pytest.mark.parametrize("name", [name for name, ways in WAYS.items() if ways])
def test_a_state_on_the_way_weighs_what_a_change_of_it_would(name: str, tasks: Path) -> None:
    one = opened(tasks, name)[1].precise().at(0)
    question = len(one.questions) // 2
    flow = follow_row(one, [question], states=True)
    assert set(flow.reader_QT) == WAYS[name] == {_way(one, reader) for reader in one.readers}
    for reader in one.readers:
        part = one.stretch(reader)
        order = one.seen_at(reader, len(part))
        assert order is not None
        norm_T = flow.reader_QT[_way(one, reader)][0]
        for moment in range(len(part) - 1):
            wanted = norm_by_hand(one, reader, question, moment)
            np.testing.assert_allclose(norm_T[order[moment]], wanted, rtol=1e-9, atol=1e-14)
        assert np.isnan(norm_T[order[-1]])  # nobody reads the state after the last


def _way(one: Specimen, reader: str) -> str:
    back = ".back" in reader
    if one.parts:
        return f"state along the source{', from its end' if back else ''}"
    return f"state from the {'end' if back else 'front'}"


@pytest.mark.parametrize("name", list(WAYS))
def test_to_go_step_by_step_changes_nothing_and_leaves_nothing_behind(name: str, tasks: Path) -> None:
    one = opened(tasks, name)[1].precise().at(0)
    before_1Q = one.costs(one.x_TE[None])
    queries = range(len(one.questions))
    slow, fast = (follow_row(one, queries, states=states) for states in (True, False))
    np.testing.assert_allclose(slow.input_QT, fast.input_QT, rtol=1e-9, atol=1e-14)
    assert set(slow.reader_QT) == WAYS[name]
    assert not fast.reader_QT
    assert torch.equal(one.costs(one.x_TE[None]), before_1Q)
    assert all(not reader._forward_hooks for reader in one.readers.values())


def test_maps_join_what_goes_on_with_the_row(tasks: Path) -> None:
    """The source's states from its front, then the target's: one map; those from its end have their own."""
    specimens = opened(tasks, "translator")[1]
    one = specimens.precise().at(0)
    flow = follow_row(one, range(len(one.questions)), states=True)
    drawn = {figure.name: figure for figure in row_drawings(one, flow, specimens.words)}
    assert {"gradient-map", "gradient-map-state", "gradient-map-state-along-the-source-from-its-end"} <= set(drawn)
    grid = drawn["gradient-map-state"].grid
    assert grid is not None
    shown_QT = np.array([[value or 0.0 for value in row] for row in grid.values])
    source = one.parts[0]
    np.testing.assert_array_equal(
        shown_QT[:, : source.end - 1], flow.reader_QT["state along the source"][:, : source.end - 1]
    )
    assert flow.state_QT is not None
    np.testing.assert_array_equal(shown_QT[:, source.end - 1 :], flow.state_QT[:, source.end - 1 :])
    assert WAYS["translator"] < set(by_part([flow]))


def test_each_direction_reaches_its_own_way(tasks: Path) -> None:
    """What is read from the end has no say in what stands to its right, and is not said to reach there."""
    specimens = opened(tasks, "tagger")[1].precise()
    rows = [specimens.at(at) for at in range(3)]
    sides = by_part([follow_row(one, range(len(one.questions)), states=True) for one in rows])
    front, end = sides["state from the front"], sides["state from the end"]
    assert front.before is not None
    assert front.after is None
    assert end.before is None
    assert end.after is not None
    assert reach(end, 0.01, specimens.words).count(" ahead") == 1
    assert " back" not in reach(end, 0.01, specimens.words)


# Trees.


@pytest.mark.parametrize("name", ["tree", "tree-balanced"])
def test_a_node_weighs_what_a_change_of_its_state_would(name: str, tasks: Path) -> None:
    """Node by node, as a lens has them composed; the flow itself goes by depth."""
    one = max((opened(tasks, name)[1].precise().at(at) for at in range(6)), key=len)
    assert one.composed is not None
    composer, queries = one.composed.composer, range(min(len(one.questions), 3))
    flow = follow_row(one, queries, states=True)
    assert flow.state_QT is not None
    assert not composer._forward_hooks
    order = one.seen_order("", len(one))
    for call, place in enumerate(order):
        added: list[Tensor] = []
        calls = iter(range(len(one)))

        def change(module: nn.Module, given: Any, state: Any) -> Any:
            if next(calls) != call:  # noqa: B023 (used up before the next)
                return state
            return map_state(lambda leaf: leaf + _zero_like(leaf, added), state)  # noqa: B023 (likewise)

        handle = composer.register_forward_hook(change)
        with lens():
            cost_Q = one.costs(one.x_TE[None])[0]
        handle.remove()
        for row, query in enumerate(queries):
            found = torch.autograd.grad(cost_Q[query], added, retain_graph=True, allow_unused=True)
            parts = [gradient.flatten() for gradient in found if gradient is not None]
            wanted = float(torch.cat(parts).norm()) if parts else 0.0
            np.testing.assert_allclose(flow.state_QT[row, place], wanted, rtol=1e-9, atol=1e-14)
    beside = np.isnan(flow.distance_QT)
    assert not flow.state_QT[beside].any()  # what is not below a node has no say in it
    assert "state" in by_part([flow])


def _zero_like(leaf: Tensor, added: list[Tensor]) -> Tensor:
    added.append(torch.zeros_like(leaf).requires_grad_())
    return added[-1]
