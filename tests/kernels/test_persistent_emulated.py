"""The persistent kernels against the equation, on a CPU that plays the GPU (`emulated_gpu.py`).

Compared with autograd over the equation in float64: the error is that of rounding to bfloat16.
"""

import pytest
import torch
from emulated_gpu import Launch, emulator
from torch import Tensor

from statewise.kernels.elman import ElmanWeights, elman_step
from statewise.kernels.gpu import H200, KNOWN
from statewise.kernels.gru import GRUWeights, gru_step
from statewise.kernels.lstm import LSTMWeights, lstm_step
from statewise.kernels.persistent.driver import Run, pointer
from statewise.kernels.persistent.plan import GATES, Direction, Plan
from statewise.kernels.persistent.table import clustered, polled

# Forward and backward of each cell by each kind of kernel; part of the weights outside registers, odd numbers of
# warps, several tiles of rows, one buffer or two, values fetched in pieces.
PAIRS = {
    "lstm-cluster": (
        Plan("cluster", "lstm", "forward", 128, 4, 128, 1, 8, 6),
        Plan("cluster", "lstm", "backward", 128, 2, 128, 2, 8, 12),
    ),
    "gru-cluster": (
        Plan("cluster", "gru", "forward", 128, 2, 128, 2, 4, 8),
        Plan("cluster", "gru", "backward", 128, 8, 128, 1, 4, 4),
    ),
    "tanh-cluster": (
        Plan("cluster", "tanh", "forward", 128, 1, 128, 1, 4, 8),
        Plan("cluster", "tanh", "backward", 128, 2, 128, 1, 8, 4),
    ),
    "lstm-polled": (
        Plan("polled", "lstm", "forward", 128, 2, 32, 1, 2, 1),
        Plan("polled", "lstm", "backward", 128, 4, 64, 1, 4, 1, 1, 1),
    ),
    "gru-polled": (
        Plan("polled", "gru", "forward", 128, 1, 16, 2, 4, 2, 1, 1),
        Plan("polled", "gru", "backward", 128, 1, 16, 1, 6, 3, 2, 2),
    ),
    "tanh-polled": (
        Plan("polled", "tanh", "forward", 128, 1, 32, 2, 4, 1),
        Plan("polled", "tanh", "backward", 128, 2, 32, 1, 2, 1),
    ),
    "lstm-wide": (
        Plan("wide", "lstm", "forward", 128, 2, 32, 1, 12, 0, 2),
        Plan("wide", "lstm", "backward", 128, 4, 128, 2, 12, 4, 6),
    ),
    "gru-wide": (
        Plan("wide", "gru", "forward", 128, 1, 32, 2, 12, 4, 2),
        Plan("wide", "gru", "backward", 128, 2, 128, 1, 12, 8, 4),
    ),
    "tanh-wide": (
        Plan("wide", "tanh", "forward", 128, 1, 128, 1, 12, 4, 2),
        Plan("wide", "tanh", "backward", 128, 2, 128, 2, 12, 0, 2),
    ),
    "lstm-wide-parts": (  # that take turns, several chunks a copy
        Plan("wide", "lstm", "forward", 128, 1, 32, 1, 12, 4, 8, 2),
        Plan("wide", "lstm", "backward", 128, 4, 128, 1, 12, 4, 8, 3),
    ),
    "gru-wide-parts": (
        Plan("wide", "gru", "forward", 128, 2, 32, 1, 12, 4, 4, 2),
        Plan("wide", "gru", "backward", 128, 2, 128, 1, 12, 4, 12, 2),
    ),
}
BATCH, TIME = 11, 4
# What a GPU of capability 8.0 is given, by the model of costs alone: a block alone, and blocks that ask each other.
AMPERE = KNOWN["8.0"]._replace(multiprocessors=8)  # a small one: every thread is a coroutine here
directions: tuple[Direction, Direction] = ("forward", "backward")
for name, cell, width, make in (("tanh-ampere", "tanh", 128, clustered), ("gru-ampere", "gru", 256, polled)):
    best = [
        min(make(cell, direction, width, BATCH, AMPERE), key=lambda proposal: proposal[0])[1]
        for direction in directions
    ]
    PAIRS[name] = (best[0], best[1])
LENGTHS = [4, 0, 1, 2, 3, 4, 4, 1, 4, 0, 3]


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    plans = dict.fromkeys(plan for pair in PAIRS.values() for plan in pair)
    return emulator([*plans], tmp_path_factory.mktemp("emulated"))


def draw(plan: Plan) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    gates, width = GATES[plan.cell], plan.width

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "a": normal(TIME, BATCH, gates * width).bfloat16(),
        "u": (normal(gates * width, width) / width**0.5).bfloat16(),
        "b_u": normal(width),
        "h": (0.5 * normal(BATCH, width)).bfloat16(),
        "c": normal(BATCH, width),
        "dy": normal(TIME, BATCH, width).bfloat16(),
        "dh": normal(BATCH, width),
        "dc": normal(BATCH, width),
    }


def equation(plan: Plan, data: dict[str, Tensor], lengths: list[int]) -> dict[str, Tensor]:
    """Outputs, last states and gradients by autograd, in float64."""
    leaves = {name: data[name].double().requires_grad_() for name in ("a", "u", "b_u", "h", "c")}
    h, c = leaves["h"], leaves["c"]
    outputs = []
    for t, a in enumerate(leaves["a"]):
        new_c = c
        if plan.cell == "lstm":
            new_h, new_c = lstm_step(a, h, c, LSTMWeights(leaves["u"], leaves["u"], a[0]))
        elif plan.cell == "gru":
            new_h = gru_step(a, h, GRUWeights(leaves["u"], leaves["u"], a[0], leaves["b_u"]))
        else:
            new_h = elman_step(a, h, ElmanWeights(leaves["u"], leaves["u"], a[0]))
        active = (t < torch.tensor(lengths))[:, None]
        outputs.append(torch.where(active, new_h, 0.0))
        h, c = torch.where(active, new_h, h), torch.where(active, new_c, c)
    y = torch.stack(outputs)
    total = (y * data["dy"]).sum() + (h * data["dh"]).sum() + (c * data["dc"]).sum()
    gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True, materialize_grads=True)
    found = {"y": y, "last h": h, "last c": c} | {f"d {n}": g for n, g in zip(leaves, gradients, strict=True)}
    return {name: value.detach() for name, value in found.items()}


def emulated(
    launch: Launch,
    pair: tuple[Plan, Plan],
    data: dict[str, Tensor],
    lengths: list[int] | None,
    seed: int,
    *,
    bare: bool = False,
) -> dict[str, Tensor]:
    """The same by the kernels; everything they should write is filled with NaN before.

    `bare`: no gradient of the last state is given and none of the first is asked for; the last state is of 16 bits.
    """
    forward, backward = pair
    gates, width = GATES[forward.cell], forward.width
    nan = float("nan")
    marks = {"y": (TIME + 1, BATCH, width), "saved": (TIME, BATCH, width, 4), "d": (TIME, BATCH, gates * width)}
    bits = {name: torch.full(shape, -1, dtype=torch.int16) for name, shape in marks.items()}
    candidate = torch.full((TIME, BATCH, width), -1, dtype=torch.int16)
    cells, alarm = torch.full((TIME, BATCH, width), nan), torch.zeros(1, dtype=torch.int32)
    passed, dc0 = (torch.full((BATCH, width), nan) for _ in range(2))
    last_h, last_c = (
        torch.full((BATCH, width), nan, dtype=torch.bfloat16 if bare else torch.float32) for _ in range(2)
    )
    bits["y"][0] = data["h"].view(torch.int16)
    ends = None if lengths is None else torch.tensor(lengths, dtype=torch.int32)
    u_T = data["u"].mT.contiguous()
    same = {
        "c0": pointer(data["c"]),
        "lengths": pointer(ends),
        "y": pointer(bits["y"]),
        "saved": pointer(bits["saved"]),
    }
    same |= {"cells": pointer(cells), "alarm": pointer(alarm), "patience": 10**9, "T": TIME, "B": BATCH}
    ahead = {"x": pointer(data["a"]), "w": pointer(data["u"]), "b_u": pointer(data["b_u"])}
    ahead |= {"h_out": pointer(last_h), "c_out": pointer(last_c), "short_last": bare}
    back = {"x": pointer(data["dy"]), "w": pointer(u_T), "exchange": pointer(bits["d"])}
    back |= {"candidate": pointer(candidate)}
    if not bare:
        back |= {"dh": pointer(data["dh"]), "dc": pointer(data["dc"])}
        back |= {"h_out": pointer(passed), "c_out": pointer(dc0)}
    for plan, own in ((forward, ahead), (backward, back)):
        launch(plan, Run(**same, **own), seed)
    assert alarm.item() == 0

    y, d = bits["y"].view(torch.bfloat16).double(), bits["d"].view(torch.bfloat16).double()
    da = d.clone()
    found = {"y": y[1:], "last h": last_h}
    if forward.cell == "lstm":
        found |= {"last c": last_c} if bare else {"last c": last_c, "d c": dc0}
    if forward.cell == "gru":
        da[:, :, 2 * width :] = candidate.view(torch.bfloat16).double()
        found["d b_u"] = d[:, :, 2 * width :].sum((0, 1))
    found |= {"d a": da, "d u": d.flatten(0, 1).mT @ y[:-1].flatten(0, 1)}
    return found if bare else found | {"d h": d[0] @ data["u"].double() + passed}


CASES = [(name, "ragged") for name in PAIRS] + [(name, "full") for name in PAIRS if name.startswith("gru")]


@pytest.mark.parametrize(("name", "rows"), CASES)
def test_the_kernels_are_the_equation(launch: Launch, name: str, rows: str) -> None:
    pair = PAIRS[name]
    assert all(plan.fits(H200) for plan in pair)
    lengths = LENGTHS if rows == "ragged" else None
    data = draw(pair[0])
    right = equation(pair[0], data, lengths or [TIME] * BATCH)
    found = emulated(launch, pair, data, lengths, seed=1)
    for key, value in found.items():
        error = (value.double() - right[key]).norm() / right[key].norm()
        assert error < 5e-3, (key, error)
    if lengths is not None:
        past_TB = torch.arange(TIME)[:, None] >= torch.tensor(lengths)
        assert (found["y"][past_TB] == 0).all()
        assert (found["d a"][past_TB] == 0).all()


@pytest.mark.parametrize("name", PAIRS)
def test_what_nobody_gives_is_zero_and_what_nobody_wants_is_not_written(launch: Launch, name: str) -> None:
    data = draw(PAIRS[name][0])
    right = equation(PAIRS[name][0], data | {part: torch.zeros_like(data[part]) for part in ("dh", "dc")}, LENGTHS)
    found = emulated(launch, PAIRS[name], data, LENGTHS, seed=2, bare=True)
    for key, value in found.items():
        error = (value.double() - right[key]).norm() / right[key].norm()
        assert error < 5e-3, (key, error)


@pytest.mark.parametrize(
    "name", ["lstm-polled", *(pytest.param(name, marks=pytest.mark.slow) for name in ("lstm-wide", "lstm-wide-parts"))]
)
def test_a_wait_in_vain_ends_with_an_alarm(launch: Launch, name: str) -> None:
    """One cluster never comes. What the others leave cannot be taken for a state."""
    plan, data = PAIRS[name][0], draw(PAIRS[name][0])
    y, alarm = torch.full((TIME + 1, BATCH, plan.width), -1, dtype=torch.int16), torch.zeros(1, dtype=torch.int32)
    y[0] = data["h"].view(torch.int16)
    last_h, last_c = (torch.zeros(BATCH, plan.width) for _ in range(2))
    run = Run(x=pointer(data["a"]), w=pointer(data["u"]), b_u=pointer(data["b_u"]), c0=pointer(data["c"]))
    run.y, run.h_out, run.c_out, run.alarm = (pointer(value) for value in (y, last_h, last_c, alarm))
    run.T, run.B, run.patience = TIME, BATCH, 5
    launch(plan, run, 4, missing=1)
    assert alarm.item() == 1
    present = plan.width - plan.units
    assert last_h[:, :present].isnan().all(dim=0).any()


def test_no_order_of_threads_changes_a_bit(launch: Launch) -> None:
    for name in ("gru-polled", "tanh-wide"):
        data = draw(PAIRS[name][0])
        first, second = (emulated(launch, PAIRS[name], data, LENGTHS, seed=seed) for seed in (5, 6))
        assert all(torch.equal(first[key], second[key]) for key in first)
