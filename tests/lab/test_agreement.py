"""The page's interpreter computes what PyTorch computes: outputs, states, observed values, edits and gradients."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from node import answered
from torch import Tensor

from statewise.core import leaves, lens, state_bytes
from statewise.kernels.ngram import naive
from statewise.lab.bundle import machine_record
from statewise.layers import Embedding
from statewise.models import LINEAGE, Markov, TokenMachine, build, longest_context
from statewise.models.lineage import Ancestor
from statewise.specs import ModelSpec

VOCAB, STEPS, LOOKED, EDITED = 13, 200, 24, 6
BOUND, GRADIENT_BOUND = 2e-6, 1e-5
AMPLIFIED = 8  # times as far as PyTorch in float32 is from float64


def made(spec: ModelSpec) -> TokenMachine[Any]:
    machine = build(spec, vocab=VOCAB, seed=3).eval()
    if isinstance(machine, Markov):
        machine.count(np.random.default_rng(0).integers(0, VOCAB, 400), end_id=0)
    return machine


@torch.no_grad()
def read(machine: TokenMachine[Any], tokens: Tensor) -> tuple[list[list[float]], Any]:
    state, logits = machine.init_state(1), []
    for token_B in tokens[:, None]:
        logits_BV, state = machine.step(token_B, state)
        logits.append(logits_BV[0].tolist())
    return logits, state


@torch.no_grad()
def looked(machine: TokenMachine[Any], tokens: Tensor) -> list[dict[str, list[float]]]:
    state, every = machine.init_state(1), []
    for token_B in tokens[:, None]:
        with lens() as seen:
            _, state = machine.step(token_B, state)
        every.append({name: values[-1].double().flatten().tolist() for name, values in seen.seen.items()})
    return every


@torch.no_grad()
def with_edit(machine: TokenMachine[Any], tokens: Tensor, name: str, factor: float) -> list[float]:
    """The last logits, where an observed value is multiplied at every step."""
    state = machine.init_state(1)
    for token_B in tokens[:, None]:
        with lens(name, edit=lambda _, value: value * factor):
            logits_BV, state = machine.step(token_B, state)
    return logits_BV[0].tolist()


def gradient(machine: TokenMachine[Any], tokens: Tensor, target: int) -> list[float]:
    """By autograd: of the loss after the last token, by the vector of each."""
    read: list[Tensor] = []

    def keep(_: Any, __: Any, y: Tensor) -> None:
        y.retain_grad()
        read.append(y)

    tables = [part for part in machine.modules() if isinstance(part, Embedding)]
    hooks = [table.register_forward_hook(keep) for table in tables]
    state = machine.init_state(1)
    for token_B in tokens[:, None]:
        logits_BV, state = machine.step(token_B, state)
    for hook in hooks:
        hook.remove()
    torch.nn.functional.cross_entropy(logits_BV, torch.tensor([target])).backward()
    assert len(read) == len(tokens)
    return [0.0 if y.grad is None else float(y.grad.double().norm()) for y in read]


def counted_influence(machine: Markov, tokens: Tensor, target: int) -> list[float]:
    """A table has no gradient: what each older symbol changes, by models of lower order."""
    norms = [0.0] * len(tokens)
    context, before = tokens[-machine.order :].tolist(), None
    for k in range(machine.order + 1):
        if machine.smoothing == "add-k":
            p_V = naive.add_k(context[len(context) - k :], machine.tables(), machine.add, vocab=VOCAB)
        else:
            p_V = naive.kneser_ney(context[len(context) - k :], machine.tables(), machine.discounts, vocab=VOCAB)
        now = float(p_V[target].log())
        if before is not None:
            norms[len(tokens) - k] = abs(now - before)
        before = now
    return norms


def compared(machine: TokenMachine[Any], folder: Path) -> tuple[dict[str, Any], float, float, int]:
    """The interpreter's differences; those of float32 from float64 in logits and gradient; bytes of the last state."""
    generator = torch.Generator().manual_seed(5)
    # A model with one vector for each position reads no further than they go.
    tokens = torch.randint(VOCAB, (min(STEPS, longest_context(machine) or STEPS),), generator=generator)
    logits, state = read(machine, tokens)
    asked, target = tokens[:LOOKED], 2
    markov = isinstance(machine, Markov)
    norms = counted_influence(machine, asked, target) if markov else gradient(machine, asked, target)
    record = machine_record(machine, machine.init_state(1), exact=True)
    names = [] if markov else record["lens"]
    case = {
        "record": record,
        "tokens": tokens.tolist(),
        "logits": logits,
        "seen": looked(machine, asked),
        "state": {name: leaf.double().flatten().tolist() for name, leaf in leaves(state)},
        "gradient": {"tokens": asked.tolist(), "t": LOOKED - 1, "target": target, "norms": norms},
        "edits": [
            {"name": name, "factor": 0.5, "logits": with_edit(machine, asked[:EDITED], name, 0.5)} for name in names
        ],
    }
    found = answered("agreement.js", case, folder)
    exact = copy.deepcopy(machine).double()
    precise = np.array(read(exact, tokens)[0])
    own = float((np.abs(np.array(logits) - precise) / np.maximum(1, np.abs(precise))).max())
    exact_norms = norms if markov else gradient(exact, asked, target)
    own_gradient = float(np.abs(np.array(norms) - exact_norms).max() / max(exact_norms))
    return found, own, own_gradient, state_bytes(state)


def check(machine: TokenMachine[Any], folder: Path) -> None:
    found, own, own_gradient, held = compared(machine, folder)
    bound = max(BOUND, AMPLIFIED * own)
    assert found["logits"] <= bound, found
    assert found["state"] <= 10 * bound, found
    assert found["seen"] <= 10 * bound, found
    assert found["edited"] <= 10 * BOUND, found
    assert found["gradient"] <= max(GRADIENT_BOUND, AMPLIFIED * own_gradient), found
    assert found["forked"] == 0, found
    assert found["bytes"] == held
    assert found["names"] > 0


@pytest.mark.parametrize("row", LINEAGE, ids=[row.name for row in LINEAGE])
def test_every_model_agrees_over_200_steps(row: Ancestor, tmp_path: Path) -> None:
    check(made(row.variants[0]), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("row", LINEAGE, ids=[row.name for row in LINEAGE])
def test_every_variant_agrees(row: Ancestor, tmp_path: Path) -> None:
    for spec in row.variants[1:]:
        check(made(spec), tmp_path)
