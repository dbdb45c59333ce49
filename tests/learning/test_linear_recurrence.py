"""The recurrences that are linear in their state, each on what it was invented for, in a fixed small budget."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.models import LanguageModel, build

Task = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]  # tokens, and targets with -100 where nothing is asked


def trained(model: LanguageModel, task: Task, *, steps: int, lr: float = 1e-2, batch: int = 32) -> float:
    """Train on fresh sequences; the share of right answers on others."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        tokens_BT, targets_BT = task(batch, generator)
        logits_BTV, _ = model(tokens_BT)
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    tokens_BT, targets_BT = task(500, torch.Generator().manual_seed(99))
    with torch.no_grad():
        logits_BTV, _ = model.eval()(tokens_BT)
    asked_BT = targets_BT != -100
    return float((logits_BTV.argmax(-1) == targets_BT)[asked_BT].float().mean())


def last_marked(batch: int, generator: torch.Generator, *, length: int = 30) -> tuple[Tensor, Tensor]:
    """Keep the newest of several marked symbols through the noise behind it."""
    symbols_BT = torch.randint(4, (batch, length), generator=generator)
    marked_BT = torch.rand(batch, length, generator=generator) < 0.15
    marked_BT[:, 0] = True
    at_B = (marked_BT * torch.arange(length)).argmax(1)
    tokens_BT = torch.cat([torch.where(marked_BT, symbols_BT, symbols_BT + 4), torch.full((batch, 1), 8)], dim=1)
    targets_BT = torch.full_like(tokens_BT, -100)
    targets_BT[:, -1] = symbols_BT.gather(1, at_B[:, None])[:, 0]
    return tokens_BT, targets_BT


@pytest.mark.parametrize("kind", ["mingru", "minlstm"])
def test_minimal_units_keep_what_matters_and_drop_what_does_not(kind: str) -> None:
    """The gate sees the input alone, which is all this selection needs."""
    assert trained(build(kind, vocab=9, width=32), last_marked, steps=150) > 0.98


KEYS, VALUES = 6, 4


def pairs(batch: int, generator: torch.Generator, *, writes: int) -> tuple[Tensor, Tensor]:
    """Tokens that each say "key is value", then each key as a question: which value was the last one written?"""
    keys_BT = torch.cat([torch.rand(batch, KEYS, generator=generator).argsort(1) for _ in range(writes)], dim=1)
    values_BT = torch.randint(VALUES, keys_BT.shape, generator=generator)
    asked_BK = torch.rand(batch, KEYS, generator=generator).argsort(1)
    newest_BK = torch.zeros(batch, KEYS, dtype=torch.int64).scatter(1, keys_BT[:, -KEYS:], values_BT[:, -KEYS:])
    tokens_BT = torch.cat([keys_BT * VALUES + values_BT, KEYS * VALUES + asked_BK], dim=1)
    return tokens_BT, torch.cat([torch.full_like(keys_BT, -100), newest_BK.gather(1, asked_BK)], dim=1)


def written_once(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return pairs(batch, generator, writes=1)


def overwritten(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return pairs(batch, generator, writes=3)


def memory(kind: str, **options: object) -> LanguageModel:
    return build(kind, vocab=KEYS * VALUES + KEYS, width=32, heads=1, **options)


@pytest.mark.parametrize("feature", ["elu", "identity"])
def test_linear_attention_recalls_what_a_key_stands_for(feature: str) -> None:
    assert trained(memory("linear_attention", feature=feature), written_once, steps=250) > 0.95


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="gated"),
        pytest.param({"decay": False, "conv": 0, "gate": False}, id="delta alone", marks=pytest.mark.slow),
    ],
)
def test_the_delta_rule_replaces(options: dict[str, object]) -> None:
    """Each key is written three times, and asked for its last value."""
    assert trained(memory("gated_delta", **options), overwritten, steps=250) > 0.95


def test_linear_attention_can_only_add() -> None:
    """The same budget. A sum of all values of a key does not tell which one was the last."""
    assert trained(memory("linear_attention"), overwritten, steps=250) < 0.65


SYMBOLS, CARGO = 4, 3


def selective_copy(batch: int, generator: torch.Generator, *, length: int = 16) -> tuple[Tensor, Tensor]:
    """Gu and Dao 2023: a few symbols among noise at random places, to be repeated in order when asked to."""
    places_BC = torch.rand(batch, length, generator=generator).argsort(1)[:, :CARGO].sort(1).values
    cargo_BC = torch.randint(SYMBOLS, (batch, CARGO), generator=generator)
    noise_BT = torch.full((batch, length), SYMBOLS).scatter(1, places_BC, cargo_BC)
    ask_BC = SYMBOLS + 1 + torch.arange(CARGO).expand(batch, CARGO)
    tokens_BT = torch.cat([noise_BT, ask_BC], dim=1)
    return tokens_BT, torch.cat([torch.full_like(noise_BT, -100), cargo_BC], dim=1)


@pytest.mark.slow
def test_mamba2_copies_what_matters() -> None:
    model = build("mamba2", vocab=SYMBOLS + 1 + CARGO, width=32, depth=2, heads=4)
    assert trained(model, selective_copy, steps=450) > 0.95
