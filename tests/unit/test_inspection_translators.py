"""Pairs under a lens: what a source leaves, what its vectors weigh, what a prompted machine costs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from task_runs import RUNS, opened
from torch import Tensor
from torch.nn import functional as F

from statewise.core import State
from statewise.inspection.gradient.flow import by_part, follow_row
from statewise.inspection.intervene.address import Address, Intervention
from statewise.inspection.intervene.effect import row_cuts, row_effects
from statewise.models import ConditionalMachine
from statewise.models.termination import Terminating
from statewise.tasks.translation import TranslationRun
from statewise.tasks.translation.reading import read_split
from statewise.tasks.translation.specimens import TranslationSpecimens

ENCODER_DECODERS = ["translator", "translator-one-vector", "translator-transformer"]


def translator(tasks: Path, name: str) -> tuple[TranslationSpecimens, ConditionalMachine[Any], Any]:
    """Its held-out pairs as rows, the model behind them, and the pairs as tokens."""
    run, specimens = opened(tasks, name)
    assert isinstance(run, TranslationRun)
    rows = specimens.precise()
    assert isinstance(rows, TranslationSpecimens)
    model = rows.model
    assert isinstance(model, ConditionalMachine)
    held = run.languages.encode(read_split(run.spec.data, seed=run.spec.seed)[1])
    return rows, model, held


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_with_the_context_of_another_source_it_translates_that(name: str, tasks: Path) -> None:
    """What a source leaves is the state before a target: swapped, the target costs what it does after the other."""
    rows, model, held = translator(tasks, name)
    one, other = rows.at(0), rows.at(1)
    assert one.machine is not None
    cut, theirs = row_cuts(one, one.machine)[0], row_cuts(other, one.machine)[0]
    assert (cut.at, cut.read_1TC.shape[1]) == (one.first, 0)
    swap, forget = (Intervention(Address(""), act) for act in ("swap", "forget"))
    found = row_effects(cut, one.machine, [swap, forget], theirs.state)

    target_T = torch.from_numpy(held.targets[0])
    input_T = torch.cat([target_T[-1:], target_T[:-1]])
    source_S = torch.from_numpy(held.sources[1])

    def nats(state: State) -> Tensor:
        with torch.no_grad():
            return F.cross_entropy(model(input_T[None], state)[0][0], target_T, reduction="none")

    own_T = one.costs(one.x_TE[None])[0].detach()
    torch.testing.assert_close(own_T, nats(model.condition(torch.from_numpy(held.sources[0])[None])))
    torch.testing.assert_close(found[swap].added_Q, nats(model.condition(source_S[None])) - own_T)
    torch.testing.assert_close(found[forget].added_Q, nats(model.init_state(1)) - own_T)


@pytest.mark.parametrize("name", ENCODER_DECODERS)
def test_gradients_of_a_source_are_those_of_its_vectors(name: str, tasks: Path) -> None:
    """Against autograd through the whole model, at its own tables of vectors."""
    rows, model, held = translator(tasks, name)
    question, one = 1, rows.at(0)
    flow = follow_row(one, [question], states=True)
    source_S, target_T = torch.from_numpy(held.sources[0]), torch.from_numpy(held.targets[0])
    vectors: list[Tensor] = []
    handle = model.reader.entry.register_forward_hook(lambda module, given, made: vectors.append(made))
    logits_1TV, _ = model(torch.cat([target_T[-1:], target_T[:-1]])[None], model.condition(source_S[None]))
    handle.remove()
    (wanted_1SE,) = torch.autograd.grad(F.cross_entropy(logits_1TV[0, question], target_T[question]), vectors)
    np.testing.assert_allclose(flow.input_QT[0, : one.first], wanted_1SE[0].norm(dim=1).numpy(), rtol=1e-9, atol=1e-14)
    assert flow.state_QT is not None
    assert np.isnan(flow.state_QT[0, : one.first - 1]).all()
    assert flow.state_QT[0, one.first - 1] > 0  # what the source left
    sides = by_part([flow])
    assert {"source", "target", "state"} <= set(sides)
    assert sides["source"].before is not None
    assert min(sides["source"].before.distance) == question + 1


@pytest.mark.parametrize("name", [name for name in RUNS if name.startswith("translator-prompted")])
def test_a_prompted_machine_costs_what_its_contract_says(name: str, tasks: Path) -> None:
    """One pass over source and target together: the same nats as the two passes of training, and chances to match."""
    run, specimens = opened(tasks, name)
    assert isinstance(run, TranslationRun)
    rows = specimens.precise()
    assert isinstance(rows, TranslationSpecimens)
    model = rows.model
    assert isinstance(model, Terminating)
    held = run.languages.encode(read_split(run.spec.data, seed=run.spec.seed)[1])
    for number in range(3):
        one = rows.at(number)
        whole = held.whole[number]
        with torch.no_grad():
            told_1T = model.loss(
                torch.from_numpy(held.sources[number])[None],
                None,
                torch.from_numpy(held.targets[number][:whole])[None],
                torch.tensor([whole]),
            )
            own_1Q = one.costs(one.x_TE[None])
            p_QK = one.answer(one.read(one.enter(one.x_TE[None])), one.x_TE[None])[0]
        asked = len(one.questions)
        assert asked == (whole if "length" in name else whole + 1)
        torch.testing.assert_close(own_1Q, told_1T[:, :asked])
        assert not told_1T[:, asked:].any()
        torch.testing.assert_close(p_QK.sum(-1), torch.ones_like(p_QK[:, 0]))
        truth = [*held.targets[number][:whole].tolist(), model.edge][:asked]
        chosen_Q = -p_QK[torch.arange(asked), torch.tensor(truth)].log()
        first = 1 if "length" in name else 0  # the length was said with the first symbol
        torch.testing.assert_close(own_1Q[0, first:], chosen_Q[first:])
