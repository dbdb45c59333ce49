"""Gradients through time, for every row of the lineage: followed step by step, they are those of the whole forward.

So the lens `gradient` needs no more of a machine than the contract. In float64.
"""

from typing import Any

import numpy as np
import pytest
import torch
from listed import PLAIN, Listed, each
from torch import Tensor

from statewise.core import Machine, leaves, map_state
from statewise.display import SilentProgress as Silent
from statewise.inspection.gradient.flow import follow

TIME, CUT, QUERIES = 7, 2, (4, 6)


def looked_at(machine: Machine[Any]) -> Tensor:
    return machine.sample_input(2, TIME, generator=torch.Generator().manual_seed(3))


def loss_at(y_BD: Tensor, t: int) -> Tensor:
    return (y_BD * torch.linspace(-1, 2, y_BD.shape[-1], dtype=y_BD.dtype)).sum(-1)


@each(PLAIN)
def test_by_the_state(machine: Listed) -> None:
    made = machine()
    x_BT = looked_at(made)
    found = follow(made, x_BT, loss_at, QUERIES, Silent())
    with torch.no_grad():
        _, before = made(x_BT[:, : CUT + 1])
    start = map_state(lambda leaf: leaf.clone().requires_grad_() if leaf.is_floating_point() else leaf, before)
    asked = [leaf for _, leaf in leaves(start) if leaf.requires_grad]
    for row, query in enumerate(QUERIES):
        y_BTD, _ = made(x_BT[:, CUT + 1 : query + 1], start)
        loss = loss_at(y_BTD[:, -1], query).sum()
        if not loss.requires_grad:  # it learns by counting
            assert all(flow.state_QT is None for flow in found)
            continue
        parts = torch.autograd.grad(loss, asked, allow_unused=True)
        squares = [part.flatten(1).square().sum(1) for part in parts if part is not None]
        total_B = sum(squares, torch.zeros(len(x_BT), dtype=torch.float64))  # 0 where the state is never read
        for flow, norm in zip(found, total_B.sqrt().tolist(), strict=True):
            assert flow.state_QT is not None
            assert flow.state_QT[row, CUT] == pytest.approx(norm, rel=1e-8, abs=1e-12)


@each([one for one in PLAIN if one.name.endswith("-mixer")])
def test_by_what_was_read(machine: Listed) -> None:
    made = machine()
    x_BT = looked_at(made).requires_grad_()
    found = follow(made, x_BT.detach(), loss_at, QUERIES, Silent())
    for row, query in enumerate(QUERIES):
        y_BTD, _ = made(x_BT)
        (gradient,) = torch.autograd.grad(loss_at(y_BTD[:, query], query).sum(), x_BT)
        for flow, norm_T in zip(found, gradient.norm(dim=-1), strict=True):
            assert flow.input_QT is not None
            np.testing.assert_allclose(flow.input_QT[row, : query + 1], norm_T[: query + 1], rtol=1e-8, atol=1e-12)
            assert np.isnan(flow.input_QT[row, query + 1 :]).all()
