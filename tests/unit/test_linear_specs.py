"""The linear recurrences and test-time training as specs: built, refused with a reason."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statewise.models import build, build_mixer
from statewise.specs import (
    GatedDeltaSpec,
    LinearAttentionSpec,
    Mamba2Spec,
    MinGRUSpec,
    MinLSTMSpec,
    TTTLinearSpec,
    TTTMLPSpec,
    UserError,
)

KINDS = [MinGRUSpec, MinLSTMSpec, LinearAttentionSpec, GatedDeltaSpec, Mamba2Spec, TTTLinearSpec, TTTMLPSpec]
CHOICES: dict[str, list[Any]] = {
    "heads": [1, 2, 3],
    "conv": [0, 2, 4],
    "gate": [True, False],
    "decay": [True, False],
    "state": [1, 5],
    "expand": [1, 2],
    "inner_norm": [True, False],
    "mini_batch": [1, 3],
    "ratio": [1, 4],
    "share": [True, False],
    "mlp": ["none", "swiglu"],
    "depth": [1, 2],
    "tie": [True, False],
    "init": ["orthogonal", "published", "torch"],
}


@settings(deadline=None, max_examples=60)
@given(data=st.data(), kind=st.sampled_from(KINDS), vocab=st.integers(1, 9))
def test_every_parameter_is_used(data: st.DataObject, kind: type[Any], vocab: int) -> None:
    options = {
        name: data.draw(st.sampled_from(values)) for name, values in CHOICES.items() if name in kind.model_fields
    }
    spec = kind(width=6, **options)
    model = build(spec, vocab=vocab)
    logits_BTV, _ = model(torch.randint(vocab, (2, 4)))
    logits_BTV.square().sum().backward()
    unused = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not unused
    assert logits_BTV.isfinite().all()


@settings(deadline=None, max_examples=30)
@given(data=st.data(), kind=st.sampled_from(KINDS), width=st.integers(1, 9))
def test_a_mixer_of_any_input_width(data: st.DataObject, kind: type[Any], width: int) -> None:
    options = {
        name: data.draw(st.sampled_from(values)) for name, values in CHOICES.items() if name in kind.model_fields
    }
    spec = kind(width=6, **options)
    mixer = build_mixer(spec, input_width=width)
    y_BTD, _ = mixer(torch.zeros(2, 3, width))
    assert y_BTD.shape == (2, 3, spec.mixer_output())


REFUSALS = {
    "heads": ("linear_attention", {"width": 10, "heads": 4}, "width 10 is not a multiple of heads 4"),
    "inner heads": ("mamba2", {"width": 5, "heads": 4}, "inner width 10 is not a multiple of heads 4"),
    "one tap": ("gated_delta", {"conv": 1}, "conv 1 sees the present time step alone"),
    "no mini-batch": ("ttt_linear", {"mini_batch": 0}, "mini_batch"),
    "no such kernel": ("mingru", {"kernel": "quick"}, "kernel"),
}


@pytest.mark.parametrize(("kind", "options", "message"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_mistake_is_explained(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(kind, vocab=5, **options)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_wish_that_cannot_be_met_is_an_error(kind: type[Any]) -> None:
    mixer = build_mixer(kind(width=6, kernel="fused"))
    with pytest.raises(UserError, match=r"asks for the fused .* but there is none"):
        mixer(torch.zeros(1, 2, 6))
    assert build_mixer(kind(width=6)).choice().implementation == "batched"
