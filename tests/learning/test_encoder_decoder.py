"""Encoder-decoders on what they were invented for: writing a sequence that depends on all of another."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.models import ENCODER_DECODERS, ConditionalMachine, build_seq2seq
from statewise.specs import GRUSpec, Seq2SeqSpec

SYMBOLS, BEGIN = 6, 6


def pairs(batch: int, length: int, generator: torch.Generator, *, reverse: bool) -> tuple[Tensor, Tensor]:
    source_BS = torch.randint(SYMBOLS, (batch, length), generator=generator)
    return source_BS, source_BS.flip(1) if reverse else source_BS


def taught(spec: Seq2SeqSpec, *, length: int, reverse: bool, steps: int) -> ConditionalMachine[Any]:
    model = build_seq2seq(spec, source_vocab=SYMBOLS, target_vocab=SYMBOLS + 1, seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    rate = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=steps)
    for _ in range(steps):
        source_BS, target_BT = pairs(32, length, generator, reverse=reverse)
        shifted_BT = F.pad(target_BT[:, :-1], (1, 0), value=BEGIN)
        logits_BTV, _ = model(shifted_BT, model.condition(source_BS))
        loss = F.cross_entropy(logits_BTV.flatten(0, 1), target_BT.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
    return model.eval()


@torch.no_grad()
def exact(model: ConditionalMachine[Any], *, length: int, reverse: bool) -> float:
    """Share of whole sequences written without a mistake, free-running and greedy."""
    source_BS, target_BT = pairs(200, length, torch.Generator().manual_seed(99), reverse=reverse)
    state = model.condition(source_BS)
    token_B = torch.full((200,), BEGIN)
    written = []
    for _ in range(length):
        logits_BV, state = model.step(token_B, state)
        token_B = logits_BV.argmax(-1)
        written.append(token_B)
    return float((torch.stack(written, dim=1) == target_BT).all(1).float().mean())


def small(name: str, **options: Any) -> Seq2SeqSpec:
    """A row of the table at a width that learns in seconds."""
    spec = next(row.spec for row in ENCODER_DECODERS if row.name == name)
    sides = {side: {**getattr(spec, side).model_dump(), "width": 48} for side in ("encoder", "decoder")}
    return Seq2SeqSpec.model_validate({**spec.model_dump(), **sides, **options})


@pytest.mark.parametrize("name", ["encoder_decoder", pytest.param("contextual_decoder", marks=pytest.mark.slow)])
def test_a_fixed_context_learns_to_reverse(name: str) -> None:
    model = taught(small(name), length=4, reverse=True, steps=300)
    assert exact(model, length=4, reverse=True) > 0.95


@pytest.mark.slow
def test_a_transformer_learns_to_reverse() -> None:
    model = taught(small("transformer_seq2seq"), length=6, reverse=True, steps=200)
    assert exact(model, length=6, reverse=True) > 0.95


@pytest.mark.slow
def test_row_d1_looking_back_is_what_a_long_source_needs() -> None:
    """The seeds' argument: a vector of fixed size forgets what a list keeps."""
    length = 12
    side = GRUSpec(width=48)
    vector = taught(small("encoder_decoder", encoder=side, decoder=side), length=length, reverse=False, steps=150)
    listed = taught(small("general_attention", encoder=side, decoder=side), length=length, reverse=False, steps=150)
    assert exact(listed, length=length, reverse=False) > exact(vector, length=length, reverse=False) + 0.3
