"""The mathematics of the views, in Node, against PyTorch, NumPy and the package."""

import copy
import math
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from node import run_node_tests
from torch import Tensor
from torch.nn import functional as F

import statewise as sw
from statewise.core import detach
from statewise.inspection import block_gradients
from statewise.inspection.bptt.estimate import cost, estimate, gradient
from statewise.lab.extra import phrase
from statewise.layers import make_alignment, make_score
from statewise.models import build
from statewise.specs import AlignmentKind, FixedTruncation, FullTruncation, ScoreKind
from statewise.training import pass_gradient


def by_autograd(loss: str, cut: int, seed: int) -> dict[str, Any]:
    """The package's Elman network, its state detached at each cut."""
    generator = torch.Generator().manual_seed(seed)
    width, inputs, outputs, steps, rows = 5, 3, 4 if loss == "classes" else 1, 13, 3
    mixer = sw.Elman(width, input_width=inputs).double()
    weights = {
        name: torch.randn(*shape, dtype=torch.float64, generator=generator) / 2
        for name, shape in {
            "U": (width, inputs),
            "W": (width, width),
            "b": (width,),
            "V": (outputs, width),
            "c": (outputs,),
        }.items()
    }
    with torch.no_grad():
        for parameter, name in ((mixer.w_DI, "U"), (mixer.u_DD, "W"), (mixer.b_D, "b")):
            parameter.copy_(weights[name])
    V, c = weights["V"].requires_grad_(), weights["c"].requires_grad_()
    x_BTI = torch.randn(rows, steps, inputs, dtype=torch.float64, generator=generator)
    y_BT = (
        torch.randint(outputs, (rows, steps), generator=generator)
        if loss == "classes"
        else torch.randn(rows, steps, dtype=torch.float64, generator=generator)
    )
    counts_BT = torch.rand(rows, steps, generator=generator) < 0.7
    state, parts = mixer.init_state(rows), []
    for start in range(0, steps, cut):
        h_BTD, state = mixer(x_BTI[:, start : start + cut], detach(state))
        parts.append(h_BTD @ V.T + c)
    o_BTO = torch.cat(parts, dim=1)[counts_BT]
    value = (
        F.cross_entropy(o_BTO, y_BT[counts_BT])
        if loss == "classes"
        else 0.5 * (o_BTO[:, 0] - y_BT[counts_BT]).square().mean()
    )
    found = torch.autograd.grad(value, (mixer.w_DI, mixer.u_DD, mixer.b_D, V, c))
    return {
        "name": f"{loss}, cut every {cut}",
        "inputs": inputs,
        "width": width,
        "outputs": outputs,
        "loss": loss,
        "cut": cut,
        "weights": {name: one.detach().flatten().tolist() for name, one in weights.items()},
        "batch": [
            {"x": x_TI.tolist(), "y": y_T.tolist(), "counts": counts_T.tolist()}
            for x_TI, y_T, counts_T in zip(x_BTI, y_BT, counts_BT, strict=True)
        ],
        "value": float(value.detach()),
        "gradient": {name: one.flatten().tolist() for name, one in zip("UWbVc", found, strict=True)},
    }


def test_closed_form_gradients_are_those_of_autograd(tmp_path: Path) -> None:
    both = product(("classes", "value"), (1, 3, 13))
    run_node_tests("elman", {"elman": [by_autograd(loss, cut, at) for at, (loss, cut) in enumerate(both)]}, tmp_path)


def scored(kind: ScoreKind, generator: torch.Generator) -> dict[str, Any]:
    score = make_score(kind, query_width=6, key_width=6, hidden=4, longest=5, generator=generator).double()
    with torch.no_grad():
        for parameter in score.parameters():
            parameter.add_(torch.randn(parameter.shape, dtype=torch.float64, generator=generator) / 4)
    query_BTQ, keys_BSK = (torch.randn(1, many, 6, dtype=torch.float64, generator=generator) for many in (4, 5))
    scores_BTS = score(query_BTQ, score.prepare(keys_BSK))
    weights = {name: one.tolist() for name, one in score.state_dict().items()}
    return {
        "kind": kind,
        "weights": weights,
        "query": query_BTQ[0].tolist(),
        "keys": keys_BSK[0].tolist(),
        "scores": scores_BTS[0].tolist(),
    }


def aligned(kind: AlignmentKind, places: int, generator: torch.Generator) -> dict[str, Any]:
    alignment = make_alignment(kind, query_width=6, reach=2, generator=generator).double().eval()
    query_BTQ = torch.randn(1, 6, 6, dtype=torch.float64, generator=generator)
    scores_BTS = 2 * torch.randn(1, 6, places, dtype=torch.float64, generator=generator)
    found_BTS = alignment(scores_BTS, query_BTQ, torch.arange(6)[None], torch.tensor([places]))
    weights = {name: one.tolist() for name, one in alignment.state_dict().items()}
    return {
        "kind": kind,
        "weights": weights,
        "reach": 2,
        "query": query_BTQ[0].tolist(),
        "scores": scores_BTS[0].tolist(),
        "found": found_BTS[0].tolist(),
    }


@torch.no_grad()
def test_scores_and_alignments_are_those_of_the_package(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    cases = {
        "scores": [scored(kind, generator) for kind in get_args(ScoreKind)],
        "alignments": [aligned(kind, places, generator) for kind in get_args(AlignmentKind) for places in (1, 2, 7)],
        "phrase": phrase(),
    }
    run_node_tests("attention", cases, tmp_path)


BLOCK, BLOCKS, KEEP = 3, 6, 0.4


@pytest.fixture(scope="module")
def reading() -> tuple[Any, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    machine = build("lstm", vocab=7, width=6, depth=2).double().eval()
    tokens_T = torch.randint(7, (BLOCK * BLOCKS + 1,), generator=generator)
    return machine, tokens_T[:-1], tokens_T[1:]


def flowing(machine: Any, inputs_T: Tensor, targets_T: Tensor, flows: tuple[float, ...]) -> Tensor:
    """The gradient where each boundary of a block lets so much of it pass."""
    state, loss = machine.init_state(1), torch.zeros((), dtype=torch.float64)
    for number, flow in enumerate((0.0, *flows)):
        times = slice(number * BLOCK, (number + 1) * BLOCK)
        logits_BTV, state = machine(inputs_T[None, times], pass_gradient(state, flow))
        loss = loss + F.cross_entropy(logits_BTV[0], targets_T[times], reduction="sum") / len(inputs_T)
    parts = torch.autograd.grad(loss, [p for p in machine.parameters() if p.requires_grad], materialize_grads=True)
    return torch.cat([one.flatten() for one in parts])


def test_truncation_is_that_of_the_laboratory(reading: tuple[Any, Tensor, Tensor], tmp_path: Path) -> None:
    machine, inputs_T, targets_T = reading
    found = block_gradients(machine, inputs_T, targets_T, block=BLOCK)
    of = partial(gradient, machine, inputs_T[None], targets_T[None])
    policies = []
    for length in (1, 2, 3, 6):
        measured = estimate(of, FixedTruncation(length=length * BLOCK), draws=1)
        few = partial(
            gradient,
            machine,
            inputs_T[None, : length * BLOCK],
            targets_T[None, : length * BLOCK],
            FullTruncation(),
            key=(0,),
        )
        held = cost(few, known=[*machine.parameters(), inputs_T, targets_T]).held_bytes
        policies.append(
            {"length": length, "cosine": measured.cosine, "norm": measured.norm, "bias": measured.bias, "bytes": held}
        )
    full_P = of(FullTruncation(), key=(0,))
    every_second = [at % 2 == 1 for at in range(BLOCKS - 1)]
    ways = []
    for kept in product((True, False), repeat=sum(every_second)):
        left = iter(kept)
        flows = tuple((1 / KEEP if next(left) else 0.0) if cut else 1.0 for cut in every_second)
        ways.append(
            (math.prod(KEEP if one else 1 - KEEP for one in kept), flowing(machine, inputs_T, targets_T, flows))
        )
    mean_P = sum(share * one_P for share, one_P in ways)
    torch.testing.assert_close(mean_P, full_P, rtol=0, atol=1e-12)  # unbiased
    size = float(full_P.norm())
    spread = math.sqrt(sum(share * float((one_P - full_P).square().sum()) for share, one_P in ways)) / size
    norm = sum(share * float(one_P.norm()) for share, one_P in ways) / size
    upper = [row[at:] for at, row in enumerate(found.products_NN.tolist())]
    cases = {
        "truncation": {"products": upper, "held": found.held_bytes, "policies": policies},
        "unbiased": {"keep": KEEP, "spread": spread, "norm": norm},
    }
    run_node_tests("truncation", cases, tmp_path)


def turned(first: complex, second: complex, shear: float, tanh: bool) -> dict[str, Any]:
    """By NumPy: a matrix with these eigenvalues, a trajectory, and norms of products of Jacobians."""
    a, b = first.real, first.imag
    middle = np.array([[a, -b], [b, a]]) if b else np.diag([a, second.real])
    sheared = np.array([[1, shear], [0, 1]])
    w = sheared @ middle @ np.linalg.inv(sheared)
    assert (
        np.allclose(
            sorted(np.linalg.eigvals(w), key=lambda one: one.imag), sorted((first, second), key=lambda one: one.imag)
        )
        or not b
    )
    states = [np.array([1, 0.5])]
    for _ in range(20):
        states.append(np.tanh(w @ states[-1]) if tanh else w @ states[-1])
    jacobians, norms = np.eye(2), [1.0]
    for state in reversed(states[1:]):
        jacobians = jacobians @ (np.diag(1 - state**2) @ w if tanh else w)
        norms.append(float(np.linalg.norm(jacobians, 2)))
    ends = [{"re": one.real, "im": one.imag} for one in (first, second)]
    return {
        "first": ends[0],
        "second": ends[1],
        "shear": shear,
        "tanh": tanh,
        "matrix": w.flatten().tolist(),
        "states": np.array(states).tolist(),
        "norms": norms,
    }


def test_trajectories_and_norms_are_those_of_numpy(tmp_path: Path) -> None:
    pairs = [(0.9 + 0.4j, 0.9 - 0.4j), (1.02 + 0j, -0.6 + 0j), (0.5 + 0j, 0.5 + 0j)]
    turns = [turned(*pair, shear, tanh) for pair, shear, tanh in product(pairs, (0.0, 1.5), (False, True))]
    width, rng = 4, np.random.default_rng(0)
    numbers = rng.standard_normal(width + 5 * width * width)
    norms = {}
    for shared in (True, False):
        left, one = numbers[:width] / np.linalg.norm(numbers[:width]), [1.0]
        for step in range(5):
            begin = width + (0 if shared else step * width * width)
            left = (numbers[begin : begin + width * width].reshape(width, width) / math.sqrt(width)).T @ left
            one.append(float(np.linalg.norm(left)))
        norms[str(shared).lower()] = one
    drawn = {"width": width, "numbers": numbers.tolist(), "norms": norms}
    run_node_tests("eigenvalues", {"eigenvalues": turns, "drawn": drawn}, tmp_path)


def test_block_gradients_do_not_touch_the_model(reading: tuple[Any, Tensor, Tensor]) -> None:
    machine, inputs_T, targets_T = reading
    before = copy.deepcopy(machine.state_dict())
    found = block_gradients(machine, inputs_T, targets_T, block=BLOCK)
    assert all(torch.equal(before[name], now) for name, now in machine.state_dict().items())
    assert all(p.grad is None for p in machine.parameters())
    assert float(found.products_NN.sum()) == pytest.approx(1, abs=1e-12)  # the full gradient, in units of itself


def test_units_that_follow_a_text_are_told_from_coincidence(tmp_path: Path) -> None:
    run_node_tests("follow", {}, tmp_path)
