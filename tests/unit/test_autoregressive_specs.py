"""The models before recurrence: what is built uses every parameter."""

from functools import partial

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from statewise.models import build, num_parameters
from statewise.specs import LatentSpec, WindowSpec

sizes = st.integers(1, 7)
stacked = {"width": sizes, "depth": st.integers(1, 3), "embedding": st.none() | sizes, "hidden": st.none() | sizes}
windows = st.builds(WindowSpec, order=sizes, activation=st.sampled_from(["tanh", "relu", "gelu", "linear"]), **stacked)
latents = st.builds(LatentSpec, transition=st.sampled_from(["elman", "mlp", "gated"]), **stacked)


@settings(deadline=None, max_examples=80)
@given(spec=windows | latents, vocab=st.integers(1, 12))
def test_every_parameter_is_used(spec: WindowSpec | LatentSpec, vocab: int) -> None:
    model = build(spec, vocab=vocab)
    assert num_parameters(partial(build, spec, vocab=vocab)) == sum(p.numel() for p in model.parameters())
    model(torch.zeros(1, 2, dtype=torch.int64))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
