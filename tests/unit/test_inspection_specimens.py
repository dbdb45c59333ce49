"""Rows under a lens: what they say is what the task itself says, of every task and every way to read."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from task_runs import RUNS, opened
from torch import Tensor

from statewise.core import lens
from statewise.inspection.attention.weights import describe, see_row
from statewise.inspection.gradient.flow import by_part, follow_long_row, follow_row
from statewise.inspection.intervene.address import Address, Intervention
from statewise.inspection.intervene.effect import row_cuts, row_effects
from statewise.inspection.surprise.choices import buckets
from statewise.inspection.surprise.measure import Tally
from statewise.tasks.specimen import Choices, Courses, Specimen, Specimens

CLASSES = [name for name, (recipe, _, _) in RUNS.items() if recipe != "forecasting"]
SERIES = [name for name in RUNS if name not in CLASSES]


def rows_of(specimens: Specimens, count: int = 3) -> list[Specimen]:
    return [specimens.at(at) for at in np.linspace(0, len(specimens) - 1, count).astype(int)]


# -------------------------------------------------------------------- the same as the task


@pytest.mark.parametrize("name", CLASSES)
def test_costs_are_those_of_the_answers(name: str, tasks: Path) -> None:
    _, specimens = opened(tasks, name)
    found = specimens.answers(lambda: None)
    assert isinstance(found, Choices)
    precise = specimens.precise()
    for number in (0, len(specimens) - 1):
        one = precise.at(number)
        own_Q = one.costs(one.x_TE[None])[0].detach().numpy()
        told_Q = found.nats_N[found.row_N == number]
        assert own_Q.shape == told_Q.shape
        np.testing.assert_allclose(own_Q, told_Q, rtol=2e-4, atol=2e-5)  # the answers are in single precision


@pytest.mark.parametrize("name", CLASSES)
def test_answers_are_those_of_an_evaluation(name: str, tasks: Path) -> None:
    run, specimens = opened(tasks, name)
    found = specimens.answers(lambda: None)
    assert isinstance(found, Choices)
    evaluation = run.evaluate()
    wanted = getattr(evaluation, "nats", None)
    right = float((found.guess_N == found.truth_N).mean())
    if name == "tree":  # it is evaluated on its roots; all nodes are looked at
        roots = found.place_N == 0
        assert evaluation.node_accuracy == pytest.approx(right)
        assert wanted == pytest.approx(float(found.nats_N[roots].mean()), rel=1e-6)
        return
    if name.startswith("translator"):  # a translation is not judged token by token, but its truth costs as much
        assert wanted * evaluation.tokens == pytest.approx(float(found.nats_N.sum()), rel=1e-5)
        return
    accuracy = getattr(evaluation, "accuracy", None) or getattr(evaluation, "root_accuracy", None)
    assert accuracy == pytest.approx(right)
    assert wanted == pytest.approx(float(np.nanmean(found.nats_N)), rel=1e-6)


@pytest.mark.parametrize("name", SERIES)
def test_errors_are_those_of_an_evaluation(name: str, tasks: Path) -> None:
    run, specimens = opened(tasks, name)
    found = specimens.answers(lambda: None)
    assert isinstance(found, Courses)
    evaluation = run.evaluate()
    own = evaluation.one_step_mse if name == "whole-series" else evaluation.mse
    assert float(np.nanmean(found.loss_WH)) == pytest.approx(own, rel=1e-5)
    assert found.naive_WH is not None
    naive = evaluation.baselines["repeat last"]["mse"]
    if name != "whole-series":
        assert float(np.nanmean(found.naive_WH)) == pytest.approx(naive, rel=1e-5)


def test_a_direct_forecast_costs_what_training_says(tasks: Path) -> None:
    run, specimens = opened(tasks, "direct")
    with torch.no_grad():
        costs = [float(one.costs(one.x_TE[None]).mean()) for one in map(specimens.at, range(len(specimens)))]
    assert float(np.mean(costs)) == pytest.approx(run.evaluate().nats, rel=1e-5)


@pytest.mark.parametrize("name", RUNS)
def test_a_machine_reads_what_is_read(name: str, tasks: Path) -> None:
    _, specimens = opened(tasks, name)
    for one in rows_of(specimens.precise()):
        if one.machine is not None:
            z_1TI = one.enter(one.x_TE[None])
            torch.testing.assert_close(one.machine(z_1TI[:, one.first :], one.begun(z_1TI))[0], one.read(z_1TI))
        assert len(one.pieces) == len(one.x_TE)
        assert all(len(values_T) == len(one) for values_T in one.signals.values())


# -------------------------------------------------------------------- gradients


@pytest.mark.parametrize("name", RUNS)
def test_gradients_are_those_of_small_changes(name: str, tasks: Path) -> None:
    """Against central differences, in the direction of the gradient itself, at the place where it is largest."""
    _, specimens = opened(tasks, name)
    one = specimens.precise().at(0)
    question = len(one.questions) - 1
    flow = follow_row(one, [question], states=False)
    place = int(flow.input_QT[0].argmax())
    x_1TE = one.x_TE[None].detach().clone().requires_grad_()
    direction_E = torch.autograd.grad(one.costs(x_1TE)[0, question], x_1TE)[0][0, place]
    unit_E = direction_E / direction_E.norm()

    def cost(step: float) -> float:
        moved = one.x_TE[None].detach().clone()
        moved[0, place] += step * unit_E
        return float(one.costs(moved)[0, question].detach())

    slope = (cost(1e-5) - cost(-1e-5)) / 2e-5
    assert flow.input_QT[0, place] == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("name", [name for name in RUNS if name != "grids"])  # cells have none, and all have a say
def test_what_has_no_distance_has_no_say(name: str, tasks: Path) -> None:
    _, specimens = opened(tasks, name)
    for one in rows_of(specimens.precise()):
        flow = follow_row(one, range(len(one.questions)), states=False)
        assert not flow.input_QT[np.isnan(flow.distance_QT)].any()


@pytest.mark.parametrize(
    "name",
    [
        *("classifier-one-way", "tagger-one-way", "direct", "recursive", "recursive-transformer", "whole-series"),
        *("translator-prompted", "translator-prompted-length", "translator-prompted-transformer"),
    ],
)
def test_a_long_row_is_followed_in_parts(name: str, tasks: Path) -> None:
    _, specimens = opened(tasks, name)
    one = specimens.precise().at(0)
    queries = [0, len(one.questions) - 1]
    whole, parts = follow_row(one, queries, states=False), follow_long_row(one, queries, chunk=3)
    np.testing.assert_allclose(parts.input_QT, whole.input_QT, rtol=1e-9, atol=1e-14)


def test_a_tagger_that_reads_both_ways_leans_on_both_sides(tasks: Path) -> None:
    for name, both in (("tagger", True), ("tagger-one-way", False)):
        _, specimens = opened(tasks, name)
        rows = rows_of(specimens.precise())
        sides = by_part([follow_row(one, range(len(one.questions)), states=True) for one in rows])
        assert (sides["input"].after is not None) == both
        assert ("state" in sides) == (not both)  # from both ends there is no one state


def test_states_on_the_way_have_gradients_up_to_the_question_alone(tasks: Path) -> None:
    _, specimens = opened(tasks, "tagger-one-way")
    one = specimens.precise().at(0)
    flow = follow_row(one, range(len(one)), states=True)
    assert flow.state_QT is not None
    later = np.triu(np.ones_like(flow.state_QT), 1).astype(bool)
    assert not flow.state_QT[later].any()
    assert (np.diag(flow.state_QT, -1) > 0).all()  # what is said at a place is said before its state is left


# -------------------------------------------------------------------- where things are observed


def _seen(one: Specimen, x_TE: Tensor) -> dict[str, Tensor]:
    """Each observed name in the order of the row's places."""
    z_1TI = one.enter(x_TE[None])
    with lens() as opened_, torch.no_grad():
        one.read(z_1TI)
    found = {}
    for name, moments in opened_.seen.items():
        if len(moments) == len(one) and len({moment.shape for moment in moments}) == 1:
            order = torch.from_numpy(np.ascontiguousarray(one.seen_order(name, len(one))))
            stacked = torch.stack([moment[0].flatten() for moment in moments])
            found[name] = torch.empty_like(stacked).index_copy(0, order, stacked)
    return found


def test_what_is_read_backwards_is_put_in_its_place(tasks: Path) -> None:
    _, specimens = opened(tasks, "tagger")
    one = specimens.precise().at(0)
    changed = one.x_TE.clone()
    changed[1] += 1
    before, now = _seen(one, one.x_TE), _seen(one, changed)
    ahead, back = (
        next(name for name in before if f".{way}." in name and name.endswith(".h")) for way in ("ahead", "back")
    )
    moved = {name: (before[name] - now[name]).abs().sum(1) > 0 for name in (ahead, back)}
    assert moved[ahead].tolist() == [at >= 1 for at in range(len(one))]
    assert moved[back].tolist() == [at <= 1 for at in range(len(one))]


@pytest.mark.parametrize("name", ["tree", "tree-balanced"])
def test_nodes_are_put_in_their_places(name: str, tasks: Path) -> None:
    """A leaf that changes moves what is above it, and nothing else."""
    _, specimens = opened(tasks, name)
    one = specimens.precise().at(int(np.argmax([specimens.length(at) for at in range(len(specimens))])))
    leaf = next(at for at in range(len(one) - 1, -1, -1) if not one.pieces[at].startswith("("))
    changed = one.x_TE.clone()
    changed[leaf] += 1
    before, now = _seen(one, one.x_TE), _seen(one, changed)
    shown = next(key for key in before if key.endswith("tree.h"))
    moved = ((before[shown] - now[shown]).abs().sum(1) > 0).numpy()
    x_1TE = one.x_TE[None].clone().requires_grad_()
    y_TC = one.read(one.enter(x_1TE))[0]
    above = [
        bool(torch.autograd.grad(y_TC[at].sum(), x_1TE, retain_graph=True)[0][0, leaf].any()) for at in range(len(one))
    ]
    assert 1 < moved.sum() < len(one)
    assert moved.tolist() == above


def test_cells_are_put_in_their_places(tasks: Path) -> None:
    _, specimens = opened(tasks, "grids")
    one = specimens.precise().at(0)
    down, across = one.signals["row"], one.signals["column"]
    middle = int(np.flatnonzero((down == 2) & (across == 1))[0])
    changed = one.x_TE.clone()
    changed[middle] += 1
    before, now = _seen(one, one.x_TE), _seen(one, changed)
    for name, after_it in {
        "upper_left": (down >= 2) & (across >= 1),
        "upper_right": (down >= 2) & (across <= 1),
        "lower_left": (down <= 2) & (across >= 1),
        "lower_right": (down <= 2) & (across <= 1),
    }.items():
        key = next(key for key in before if name in key)
        assert ((before[key] - now[key]).abs().sum(1) > 0).tolist() == after_it.tolist()


@pytest.mark.parametrize("name", ["classifier-transformer", "recursive-transformer"])
def test_weights_of_a_row(name: str, tasks: Path) -> None:
    _, specimens = opened(tasks, name)
    one = specimens.at(0)
    seen = see_row(one)
    assert seen.weights
    assert seen.apart < 1e-5
    for weights_THS in seen.weights.values():
        torch.testing.assert_close(weights_THS.sum(-1), torch.ones_like(weights_THS[..., 0]))
    causal = not any(
        weights_THS.triu(1).any() for weights_THS in seen.weights.values() for weights_THS in weights_THS.unbind(1)
    )
    assert causal == (name == "recursive-transformer")


def test_a_head_is_described_by_what_it_does() -> None:
    before_TS = torch.diag(torch.ones(5), -1)[:6, :6]
    before_TS[0, 0] = 1
    even_TS = torch.full((6, 6), 1 / 6)
    heads = describe(0, [torch.stack([before_TS, even_TS], dim=1)])
    assert heads[0].previous == pytest.approx(5 / 6)
    assert heads[0].entropy == pytest.approx(0)
    assert heads[1].share == pytest.approx(1)
    assert heads[1].entropy == pytest.approx(math.log2(6))


# -------------------------------------------------------------------- acts


def test_to_forget_is_to_begin_afresh(tasks: Path) -> None:
    """Words after the act are tagged as if the sentence began with them."""
    _, specimens = opened(tasks, "tagger-one-way")
    one = specimens.precise().at(0)
    assert one.machine is not None
    z_1TI = one.enter(one.x_TE[None])
    for cut in row_cuts(one, one.machine):
        deed = Intervention(Address(""), "forget")
        found = row_effects(cut, one.machine, [deed], cut.state)[deed]
        afresh = one.machine(z_1TI[:, cut.at :])[0]
        whole = torch.cat([cut.read_1TC, afresh], dim=1)
        wanted_Q = one.judge(whole, one.x_TE[None])[0] - one.costs(one.x_TE[None])[0]
        assert cut.asked == tuple(range(cut.at, len(one)))
        torch.testing.assert_close(found.added_Q, wanted_Q[cut.at :].detach(), rtol=1e-6, atol=1e-9)
        assert cut.gap_Q.tolist() == list(range(1, len(one) - cut.at + 1))


def test_a_state_from_the_same_moment_changes_nothing(tasks: Path) -> None:
    for name in ("classifier-one-way", "recursive", "direct", "recursive-transformer", "translator"):
        _, specimens = opened(tasks, name)
        one = specimens.precise().at(0)
        assert one.machine is not None
        cut = row_cuts(one, one.machine)[0]
        deed = Intervention(Address(""), "swap")
        assert not row_effects(cut, one.machine, [deed], cut.state)[deed].added_Q.any()


# -------------------------------------------------------------------- figures of quality


def test_calibration_counts() -> None:
    tally = Tally()
    tally.add(torch.tensor([0.92, 0.98, 0.55, 0.51]).double(), torch.tensor([1.0, 0.0, 1.0, 1.0]).double())
    assert tally.accuracy == 0.75
    assert [one.tokens for one in tally.bins()] == [2, 2]
    assert tally.error() == pytest.approx((2 * abs(1 - 0.53) + 2 * abs(0.5 - 0.95)) / 4)


def test_groups_hold_every_answer_once() -> None:
    along = np.array([1.0, 1, 1, 1, 2, 3, 4, 4, 9])
    found = buckets(along, along, most=4)
    assert sum(one.answers for one in found) == len(along)
    assert all(a.middle < b.middle for a, b in pairwise(found))
    assert sum(one.mean * one.answers for one in found) == pytest.approx(along.sum())
