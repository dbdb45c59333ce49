"""a^n b^n: an LSTM counts in its cell. Whoever gets another's cell gets its count, and nothing else carries it."""

import pytest
import torch
from torch.nn import functional as F

from statewise.decoding import Sampling
from statewise.inspection.intervene.address import Address, put, zeroed
from statewise.inspection.intervene.effect import continued, state_after
from statewise.models import TokenMachine, build

A, B, END = 0, 1, 2
MOST = 10
COUNTS = range(2, MOST)


@pytest.fixture(scope="module")
def counter() -> TokenMachine:
    """Learns from the first b on, where everything is settled by n."""
    model = build("lstm", vocab=3, width=8, seed=0)
    rows = [[END] + [A] * n + [B] * n + [END] * (2 * (MOST - n) + 1) for n in range(1, MOST + 1)]
    tokens_NT = torch.tensor(rows)
    asked_NT = torch.stack([torch.arange(tokens_NT.shape[1] - 1).sub(n).clamp(min=0) for n in range(1, MOST + 1)])
    asked_NT = (asked_NT > 0) & (asked_NT <= torch.arange(1, MOST + 1)[:, None])
    steps = 500
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    rate = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=steps)
    for _ in range(steps):
        logits_NTV, _ = model(tokens_NT[:, :-1])
        loss = F.cross_entropy(logits_NTV[asked_NT], tokens_NT[:, 1:][asked_NT])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
    assert loss < 0.02
    return model.eval()


@pytest.fixture(scope="module")
def states(counter: TokenMachine) -> dict:
    return {n: state_after(counter, torch.tensor([END] + [A] * n)) for n in COUNTS}


def written(model: TokenMachine, state: object) -> int:
    """How many b it writes, the first being given."""
    ids = continued(model, state, B, vocab=3, tokens=2 * MOST, sampling=Sampling(temperature=0.0))
    return 1 + ids.index(END)


def test_it_has_learned_to_count(counter: TokenMachine, states: dict) -> None:
    assert [written(counter, states[n]) for n in COUNTS] == list(COUNTS)


def test_the_cell_carries_the_count(counter: TokenMachine, states: dict) -> None:
    cell = Address("layers.0.c_BD")
    for mine in COUNTS:
        assert [written(counter, put(states[mine], states[n], cell)) for n in COUNTS] == list(COUNTS), mine


def test_what_it_shows_does_not(counter: TokenMachine, states: dict) -> None:
    shown = Address("layers.0.h_BP")
    for n in COUNTS:
        assert {written(counter, put(states[n], states[other], shown)) for other in COUNTS} == {n}


def test_without_its_cell_it_knows_no_number(counter: TokenMachine, states: dict) -> None:
    cell = Address("layers.0.c_BD")
    assert len({written(counter, zeroed(states[n], cell)) for n in COUNTS}) == 1
