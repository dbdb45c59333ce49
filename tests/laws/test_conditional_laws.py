"""Every listed encoder-decoder, in every variant, keeps the laws from the state that `condition` gives."""

from typing import Any

import pytest
import torch
from listed import shaken

from statewise.core import Machine, laws
from statewise.models import ENCODER_DECODERS, ConditionalMachine, build_seq2seq
from statewise.specs import Seq2SeqSpec

VOCAB = 11
LISTED: dict[str, Seq2SeqSpec] = {
    f"{row.name}-{number}": spec
    for row in ENCODER_DECODERS
    for number, spec in enumerate((row.spec.small(), *row.variants))
}
each = pytest.mark.parametrize("name", LISTED)


def made(name: str) -> Machine[Any]:
    return shaken(build_seq2seq(LISTED[name], source_vocab=VOCAB, target_vocab=VOCAB))


def conditioned(model: Machine[Any], batch: int) -> Any:
    assert isinstance(model, ConditionalMachine)
    source_BS = torch.randint(VOCAB, (batch, 5), generator=torch.Generator().manual_seed(0))
    return model.condition(source_BS, torch.tensor([5, 3, 0]))


@each
def test_every_law(name: str) -> None:
    model = made(name)
    case = laws.make_case(model, start=conditioned)
    broken = {law: error_of(model, case) for law, error_of in laws.EXACT.items()}
    assert max(broken.values()) <= laws.BOUNDS[torch.float64], broken


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_lower_precision_stays_near(name: str, dtype: torch.dtype) -> None:
    model = build_seq2seq(LISTED[name], source_vocab=VOCAB, target_vocab=VOCAB).eval()
    assert laws.precision(model, dtype, start=conditioned) <= laws.BOUNDS[dtype]


@each
def test_the_source_reaches_the_output_and_gradients_reach_the_source(name: str) -> None:
    model = made(name)
    assert isinstance(model, ConditionalMachine)
    source_BS, target_BT = torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5, 6]])
    logits_BTV, _ = model(target_BT, model.condition(source_BS))
    other_BTV, _ = model(target_BT, model.condition(source_BS + 1))
    assert not torch.allclose(logits_BTV, other_BTV)
    logits_BTV.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.reader.entry.parameters())
