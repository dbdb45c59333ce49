"""A prompt read by the replay of a captured pass leaves what reading it leaves. Without a GPU it is run."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from statewise.core import leaves
from statewise.decoding import Sampling, begin, extend, graph
from statewise.decoding.generate import read
from statewise.models import LINEAGE, build_sample
from statewise.specs import ModelSpec, TransformerSpec

VOCAB = 11
SPECS: dict[str, ModelSpec] = {
    **{row.name: row.spec.small() for row in LINEAGE},
    "learned": TransformerSpec(width=12, heads=2, position="learned", context=128),
    "window": TransformerSpec(width=12, heads=2, window=5),
}


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[graph.Prefill]]:
    """On a CPU too, and every pass that was made."""
    made = []
    real = graph.Prefill.__init__

    def noted(self: graph.Prefill, *args: Any) -> None:
        made.append(self)
        real(self, *args)

    monkeypatch.setattr(graph.Prefill, "__init__", noted)
    monkeypatch.setattr(graph, "obstacle", lambda model, device: None)
    yield made
    graph._prefills.clear()
    graph._shapes.clear()
    graph._idle.clear()


def model_of(spec: ModelSpec, device: str = "cpu") -> Any:
    return build_sample(spec, vocab=VOCAB).double().eval().to(device)


def prompt(seed: int, time: int = 7, device: str = "cpu") -> Tensor:
    return torch.randint(VOCAB, (2, time), generator=torch.Generator().manual_seed(seed)).to(device)


def assert_same(found: Any, expected: Any) -> None:
    for (name, a), (_, b) in zip(leaves(found), leaves(expected), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_pass_leaves_what_reading_leaves(spec: ModelSpec, passed: list[graph.Prefill]) -> None:
    model = model_of(spec)
    states = [begin(model, prompt(seed), vocab=VOCAB).state for seed in (1, 2, 3)]
    assert len(passed) == 1, "from the second prompt of a shape on, and once for all of them"
    for seed, state in zip((1, 2, 3), states):
        assert_same(state, model.absorb(prompt(seed)[:, :-1]))  # also: a later prompt left this one alone


def test_it_goes_on_from_any_state(passed: list[graph.Prefill]) -> None:
    model = model_of(SPECS["transformer"])
    starts = [begin(model, prompt(seed, time=5), vocab=VOCAB) for seed in (1, 2)]
    passed.clear()
    afters = [read(model, start, prompt(9)) for start in starts]
    assert len(passed) == 1
    for start, after in zip(starts, afters):
        inputs_BT = torch.cat([start.token_B[:, None], prompt(9)[:, :-1]], dim=1)
        assert_same(after.state, model.absorb(inputs_BT, start.state))


def test_few_are_kept_and_long_ones_never(passed: list[graph.Prefill], monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(SPECS["gru"])
    for time in range(2, 10):
        for seed in (1, 2):
            begin(model, prompt(seed, time=time), vocab=VOCAB)
    assert len(passed) == 8
    assert len(graph._prefills[model]) == graph._PREFILLS
    passed.clear()
    monkeypatch.setattr(graph, "_PREFILL_TOKENS", 10)
    for seed in (1, 2, 3):
        begin(model, prompt(seed, time=20), vocab=VOCAB)
    assert not passed


def test_weights_that_moved_are_another_pass(passed: list[graph.Prefill]) -> None:
    model = model_of(SPECS["gru"])
    for seed in (1, 2):
        begin(model, prompt(seed), vocab=VOCAB)
    with torch.no_grad():
        for weight in model.parameters():
            weight.data = weight * 2
    for seed in (1, 2):
        assert_same(begin(model, prompt(seed), vocab=VOCAB).state, model.absorb(prompt(seed)[:, :-1]))
    assert len(passed) == 2


def test_what_cannot_be_captured_is_remembered_by_its_shape(
    passed: list[graph.Prefill], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(SPECS["gru"])

    def refuse(*args: object) -> None:
        passed.append(None)  # type: ignore[arg-type]  # only counted
        raise RuntimeError("called a synchronizing CUDA operation\nand more")

    monkeypatch.setattr(graph.Prefill, "__init__", refuse)
    for seed in (1, 2, 3):
        assert_same(begin(model, prompt(seed), vocab=VOCAB).state, model.absorb(prompt(seed)[:, :-1]))
    assert len(passed) == 1
    assert [*graph._shapes[model].values()] == [
        "LanguageModel.absorb cannot be captured: called a synchronizing CUDA operation"
    ]


@pytest.mark.gpu
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_captured_pass_leaves_what_reading_leaves(spec: ModelSpec) -> None:
    model = model_of(spec, "cuda")
    states = [begin(model, prompt(seed, device="cuda"), vocab=VOCAB).state for seed in (1, 2, 3)]
    if spec.kind == "markov":  # looks its counts up on the host
        assert "cannot be captured" in str(next(iter(graph._shapes[model].values())))
    else:
        assert [*graph._shapes[model].values()] == [None], "it was captured"
        assert len(graph._prefills[model]) == 1
    for seed, state in zip((1, 2, 3), states):
        assert_same(state, model.absorb(prompt(seed, device="cuda")[:, :-1]))
    tokens_BT, _ = extend(model, begin(model, prompt(4, device="cuda"), vocab=VOCAB), Sampling(temperature=0), tokens=5)
    assert tokens_BT.shape == (2, 5)
