"""Models whose state is a list, on what a list is for: looking up, at any distance; and on what it lacks: order."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.models import build, build_seq2seq
from statewise.specs import Seq2SeqSpec, TransformerSpec

KEYS, VALUES = 5, 4
NOISE, QUERY = KEYS * VALUES, KEYS * VALUES + 4  # pairs come first, then four kinds of noise, then a question a key
SYMBOLS = 6

Task = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]


def look_up(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Each key is shown once with its value, somewhere in a long noise; at the end one key is asked for."""
    time = 40
    tokens_BT = NOISE + torch.randint(4, (batch, time), generator=generator)
    value_BK = torch.randint(VALUES, (batch, KEYS), generator=generator)
    place_BK = torch.rand(batch, time, generator=generator).argsort(1)[:, :KEYS]
    tokens_BT.scatter_(1, place_BK, torch.arange(KEYS) * VALUES + value_BK)
    asked_B = torch.randint(KEYS, (batch,), generator=generator)
    return torch.cat([tokens_BT, (QUERY + asked_B)[:, None]], dim=1), value_BK.gather(1, asked_B[:, None])


def reverse(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Six different symbols in some order, then six questions: the last, the last but one, …, the first."""
    order_BT = torch.rand(batch, SYMBOLS, generator=generator).argsort(1)
    questions_BT = (SYMBOLS + torch.arange(SYMBOLS)).expand(batch, -1)
    return torch.cat([order_BT, questions_BT], dim=1), order_BT.flip(1)


def newest(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Six different symbols in some order: which came last?"""
    order_BT = torch.rand(batch, SYMBOLS, generator=generator).argsort(1)
    return torch.cat([order_BT, torch.full((batch, 1), SYMBOLS)], dim=1), order_BT[:, -1:]


def recall(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One of four symbols, sixty moments of noise, then the question."""
    answer_B1 = torch.randint(4, (batch, 1), generator=generator)
    noise_BT = 4 + torch.randint(4, (batch, 60), generator=generator)
    return torch.cat([answer_B1, noise_BT, torch.full((batch, 1), 8)], dim=1), answer_B1


def accuracy_after(
    kind: str, task: Task, *, steps: int, lr: float = 1e-2, seed: int = 0, vocab: int, **options: Any
) -> float:
    """The last logits of a sequence are the answers; scored on fresh sequences."""
    model = build(kind, vocab=vocab, width=32, seed=seed, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        tokens_BT, answer_BA = task(32, generator)
        logits_BAV = model(tokens_BT)[0][:, -answer_BA.shape[1] :]
        loss = F.cross_entropy(logits_BAV.flatten(0, 1), answer_BA.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    tokens_BT, answer_BA = task(500, torch.Generator().manual_seed(99))
    with torch.no_grad():
        logits_BAV = model.eval()(tokens_BT)[0][:, -answer_BA.shape[1] :]
    return float((logits_BAV.argmax(-1) == answer_BA).float().mean())


def test_one_layer_looks_up_what_elman_cannot_hold() -> None:
    vocab = QUERY + KEYS
    options = {"depth": 1, "heads": 4, "position": "none", "tie": True}
    assert accuracy_after("transformer", look_up, vocab=vocab, steps=300, lr=5e-3, seed=1, **options) > 0.95
    assert accuracy_after("elman", look_up, vocab=vocab, steps=400) < 0.4  # a guess is right in 1 of 4


@pytest.mark.parametrize(
    "position", ["rotary", *(pytest.param(p, marks=pytest.mark.slow) for p in ("learned", "sinusoidal"))]
)
def test_with_positions_it_tells_the_order(position: str) -> None:
    options = {"vocab": 2 * SYMBOLS, "depth": 1, "heads": 4, "position": position}
    assert accuracy_after("transformer", reverse, steps=200, **options) > 0.98


@pytest.mark.slow
def test_slopes_tell_near_from_far() -> None:
    """ALiBi gives no place a name, so reversal is not for it; which symbol came last is."""
    options = {"vocab": 2 * SYMBOLS, "depth": 1, "heads": 4, "position": "alibi"}
    assert accuracy_after("transformer", newest, steps=200, **options) > 0.98


@pytest.mark.parametrize("task", [reverse, pytest.param(newest, marks=pytest.mark.slow)])
def test_without_positions_it_cannot(task: Task) -> None:
    """The set is always the same, so a layer without positions can do no better than to guess: 1 of 6."""
    options = {"vocab": 2 * SYMBOLS, "depth": 1, "heads": 4, "position": "none"}
    assert accuracy_after("transformer", task, steps=200, **options) < 0.25


def test_likeness_alone_reaches_any_distance() -> None:
    """No parameter between embedding and head, and still the question finds its answer sixty moments back.

    Tied, token vectors start at unit length; longer ones are so like themselves that they see nothing else.
    """
    assert accuracy_after("basic_attention", recall, vocab=9, steps=200, tie=True) > 0.99


@pytest.mark.slow
def test_an_encoder_and_a_decoder_reverse_a_text() -> None:
    """Written greedily, symbol by symbol, from ragged sources it has never seen."""
    begin, end = 8, 9
    generator = torch.Generator().manual_seed(0)
    side = TransformerSpec(width=32, depth=1, heads=4, position="sinusoidal")
    model = build_seq2seq(Seq2SeqSpec(encoder=side, decoder=side, bidirectional=True), source_vocab=10, target_vocab=10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)

    def batch(size: int) -> tuple[Tensor, Tensor, Tensor]:
        lengths_B = torch.randint(3, 7, (size,), generator=generator)
        source_BS = torch.randint(8, (size, 6), generator=generator)
        back_BS = (lengths_B[:, None] - 1 - torch.arange(6)).clamp(min=0)
        target_BT = source_BS.gather(1, back_BS).masked_fill(torch.arange(6) >= lengths_B[:, None], end)
        return source_BS, lengths_B, target_BT

    steps = 400
    rate = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=steps)
    for _ in range(steps):
        source_BS, lengths_B, target_BT = batch(32)
        inputs_BT = F.pad(target_BT, (1, 0), value=begin)[:, :-1]
        logits_BTV, _ = model(inputs_BT, model.condition(source_BS, lengths_B))
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), target_BT.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()

    source_BS, lengths_B, target_BT = batch(200)
    with torch.no_grad():
        state, token_B, written = model.eval().condition(source_BS, lengths_B), torch.full((200,), begin), []
        for _ in range(6):
            logits_BV, state = model.step(token_B, state)
            token_B = logits_BV.argmax(-1)
            written.append(token_B)
    assert (torch.stack(written, dim=1) == target_BT).all(1).float().mean() > 0.95
