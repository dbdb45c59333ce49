"""What a row of any task is said to cost is what PyTorch's counter counts on whole rows of a real model.

Rows are counted alone, and by `step` where a model has one: a parallel form that masks does more than it needs.
"""

from functools import partial
from typing import Any

import pytest
import torch
from covering import covered
from torch.utils.flop_counter import FlopCounterMode

from statewise.core import state_bytes
from statewise.kernels.choice import force
from statewise.kernels.tree import balanced, chain
from statewise.models import (
    build_seq2seq,
    measured,
    pair_flops,
    row_bytes,
    row_flops,
    source_bytes,
    spelling_flops,
)
from statewise.models.build_forecaster import build_forecaster
from statewise.models.build_seq2seq import build_terminating
from statewise.models.classifier import build_classifier
from statewise.models.forecaster import DirectForecaster, Past, RecursiveForecaster
from statewise.models.reader import OneWay, Reader
from statewise.models.tagger import Words, build_tagger
from statewise.models.tree_classifier import build_node_classifier
from statewise.specs import parse_spec

LENGTHS = (1, 2, 7)
READERS: list[dict[str, Any]] = [
    {"kind": "elman", "width": 6},
    {"kind": "gru", "width": 6, "depth": 2, "embedding": 5, "mlp": "swiglu"},
    {"kind": "lstm", "width": 6, "depth": 2, "residual": True, "norm": "layer"},
    {"kind": "lstm", "width": 6, "projection": 4},
    {"kind": "window", "width": 6, "order": 3, "depth": 2},
    {"kind": "mingru", "width": 6, "mlp": "gelu"},
    {"kind": "transformer", "width": 8, "heads": 2, "depth": 2},
    {"kind": "transformer", "width": 8, "heads": 2, "kv_heads": 1, "position": "learned", "context": 16, "mlp": "none"},
]
NAMED = {"-".join(map(str, reader.values())): reader for reader in READERS}


def spec_of(task: str, **parts: Any) -> Any:
    return parse_spec({"task": task, **parts})


class Counted:
    """`with Counted() as counted: …`, then `counted.flops`."""

    def __enter__(self) -> "Counted":
        self._held = (torch.no_grad(), force("naive"), FlopCounterMode(display=False))
        for one in self._held:
            one.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for one in reversed(self._held):
            one.__exit__(*error)
        self.flops = self._held[2].get_total_flops()


def along(reader: Reader, source: Any) -> tuple[torch.Tensor, Any]:
    """A reader from the first position to the last, step by step: its last output and its state."""
    assert isinstance(reader.layers, OneWay)
    x_BSE = reader.entry(source)
    x_BSE = x_BSE if reader.enter is None else reader.enter(x_BSE)
    state = reader.layers.stack.init_state(len(x_BSE))
    for x_BE in x_BSE.unbind(1):
        y_BC, state = reader.layers.stack.step(x_BE, state)
    return y_BC, state


@covered("model, both, values", NAMED, [False, True], [None, 3], strength=1)
def test_a_classifier(model: dict[str, Any], both: bool, values: int | None) -> None:
    spec = spec_of("classification", model=model, reader={"bidirectional": both})
    enters = {"vocab": 11} if values is None else {"values": values}
    make = partial(build_classifier, spec.model, spec.reader, num_classes=5, **enters)
    made = make().eval()
    for length in LENGTHS:
        source = torch.zeros(1, length, dtype=torch.int64) if values is None else torch.zeros(1, length, values)
        with Counted() as counted:
            made(source) if both else made.head(along(made.reader, source)[0])
        assert measured(make, row_flops)(length) == counted.flops
        if not both:
            assert row_bytes(made, length) == state_bytes(along(made.reader, source)[1])
    assert (row_bytes(made, 7) is None) == both


@pytest.mark.parametrize("depth", [1, 2])
def test_a_grid(depth: int) -> None:
    spec = spec_of("classification", model={"kind": "grid", "width": 3, "depth": depth}, data={"kind": "grid"})
    make = partial(build_classifier, spec.model, spec.reader, num_classes=5, values=2)
    made = make().eval()
    with Counted() as counted:
        made(torch.zeros(1, 4, 6, 2))
    assert measured(make, row_flops)(4 * 6) == counted.flops
    assert row_bytes(made, 9) is None


@pytest.mark.parametrize("characters", [0, 4])
@pytest.mark.parametrize("both", [False, True])
def test_a_tagger(both: bool, characters: int) -> None:
    words = {"characters": characters, "width": 5, "character_width": 3, "character_kind": "lstm"}
    spec = spec_of("tagging", model={"kind": "gru", "width": 6}, reader={"bidirectional": both}, words=words)
    make = partial(
        build_tagger,
        spec.model,
        spec.reader,
        spec.words,
        spec.objective,
        names=["A", "B", "C"],
        vocab=11,
        unknown_id=0,
        num_characters=7,
    )
    made = make().eval()
    at_BT = torch.zeros(1, 4, dtype=torch.int64)
    source = Words(at_BT, at_BT, torch.zeros(2, 6, dtype=torch.int64), torch.tensor([6, 6]))  # two that differ
    with Counted() as counted:
        made(source, torch.tensor([4]))
    assert measured(make, row_flops)(4) + 2 * measured(make, spelling_flops)(6) == counted.flops


SEQ2SEQ: list[dict[str, Any]] = [
    {"context": "initial"},
    {"context": "both", "bidirectional": True},
    {"context": "each_step", "decoder": {"kind": "lstm", "width": 6, "residual": True}},
    {"attention": {"score": "additive", "hidden": 7}},
    {"attention": {"score": "concat"}, "bidirectional": True},
    {"attention": {"score": "general", "style": "luong"}},
    {"attention": {"score": "dot", "style": "luong", "input_feeding": False}},
    {"attention": {"score": "cosine", "alignment": "local_predictive"}},
    {"attention": {"score": "location"}},
    {"attention": {"score": "scaled_dot", "heads": 2}, "decoder": {"kind": "gru", "width": 10}},
    {"attention": {"score": "dot", "hops": 3}},
    {"attention": {"begin": False}, "decoder": {"kind": "gru", "width": 6, "tie": True, "embedding": 4}},
    {"encoder": {"kind": "transformer", "width": 8, "heads": 2}, "decoder": {"kind": "transformer", "width": 8}},
    {
        "bidirectional": True,
        "encoder": {"kind": "gru", "width": 5},
        "decoder": {"kind": "transformer", "width": 8, "heads": 4, "kv_heads": 2, "position": "sinusoidal"},
    },
]


@pytest.mark.parametrize("more", SEQ2SEQ, ids=lambda one: ",".join(map(str, one.values())))
def test_an_encoder_decoder(more: dict[str, Any]) -> None:
    spec = spec_of(
        "translation",
        model={"encoder": {"kind": "gru", "width": 6}, "decoder": {"kind": "gru", "width": 6}, **more},
    )
    make = partial(build_seq2seq, spec.model, source_vocab=9, target_vocab=11)
    made, flops = make().eval(), measured(make, pair_flops)
    for source, target in ((1, 1), (3, 4), (6, 2)):
        source_BS = torch.zeros(1, source, dtype=torch.int64)
        with Counted() as counted:
            if isinstance(made.reader.layers, OneWay):  # read by steps, and given on as it was read
                along(made.reader, source_BS)
            else:
                made.reader(source_BS)
        read = counted.flops
        encoded = made.reader(source_BS)
        with Counted() as counted:
            state = made.begin(encoded)
            for _ in range(target):
                _, state = made.step(torch.zeros(1, dtype=torch.int64), state)
        assert flops(source, target) == read + counted.flops
        assert source_bytes(made, source) == state_bytes(made.begin(encoded))


@pytest.mark.parametrize("scheme", ["end", "bernoulli", "remaining"])
def test_one_machine_that_translates(scheme: str) -> None:
    model = {"kind": "transformer", "width": 8, "heads": 2, "tie": scheme == "end"}
    spec = spec_of("translation", model=model, data={"shared_vocab": True}, termination={"kind": scheme})
    make = partial(build_terminating, spec.model, scheme=spec.termination.kind, vocab=11)
    made = make().eval()
    token_B1 = torch.zeros(1, 1, dtype=torch.int64)
    with Counted() as counted:
        state = made.init_state(1)
        for _ in range(3):
            _, state = made.features(token_B1, state, None)
        for _ in range(4):
            _, state = made(token_B1, state)
    told = 7 * 2 * made.enter.numel() if scheme == "remaining" else 0  # which is said to be left out
    assert measured(make, pair_flops)(3, 4) == counted.flops - told
    assert row_bytes(made, 7) == state_bytes(state)


@pytest.mark.parametrize(
    "model",
    [
        {"kind": "child_sum", "width": 4, "embedding": 3},
        {"kind": "nary", "width": 4, "embedding": 3},
        {"kind": "composition", "width": 4},
    ],
    ids=lambda one: one["kind"],
)
def test_a_tree(model: dict[str, Any]) -> None:
    spec = spec_of("tree", model=model)
    make = partial(build_node_classifier, spec.model, spec.reader, num_classes=5, vocab=11)
    made: Any = make().eval()
    forest = chain([6])  # a child each, but for the first
    with Counted() as counted:
        made(torch.zeros(6, dtype=torch.int64), forest)
    absent = 2 * 4 * 4 * (model["kind"] == "child_sum")  # naive asks the gate of nobody, too
    assert measured(make, row_flops)(6) == counted.flops - absent
    assert row_bytes(made, 3) is None


@pytest.mark.parametrize("shape", ["balanced", "chain"])
def test_a_tree_that_is_built_over_a_span(shape: str) -> None:
    spec = spec_of("tree", model={"kind": "nary", "width": 4, "shape": shape})
    make = partial(build_node_classifier, spec.model, spec.reader, num_classes=5, vocab=11)
    made: Any = make().eval()
    with Counted() as counted:
        made(torch.zeros(1, 5, dtype=torch.int64))
    assert measured(make, row_flops)(5) == counted.flops
    assert len((balanced if shape == "balanced" else chain)([5]).children_NK) == (9 if shape == "balanced" else 5)


def test_a_span_that_any_model_reads() -> None:
    spec = spec_of("tree", model={"kind": "gru", "width": 4})
    make = partial(build_node_classifier, spec.model, spec.reader, num_classes=5, vocab=11)
    made: Any = make().eval()
    with Counted() as counted:
        made(torch.zeros(1, 5, dtype=torch.int64))
    assert measured(make, row_flops)(5) == counted.flops
    assert row_bytes(made, 3) == 4 * 4


@covered("model, objective", NAMED, ["squared", "gaussian", "student", "quantile"], strength=1)
def test_a_forecast_all_at_once(model: dict[str, Any], objective: str) -> None:
    summaries = [{"reader": {"summary": one}} for one in ("mean", "attention")]
    for more in ({}, {"reader": {"bidirectional": True}}, *summaries):
        forecast = {"context": 6, "horizon": 3, "skip": not more}
        spec = spec_of("forecasting", model=model, forecast=forecast, objective={"kind": objective}, **more)
        make = partial(build_forecaster, spec, channels=2, covariates=1, gaps=True)
        made = make()
        assert isinstance(made.eval(), DirectForecaster)
        past = Past(torch.zeros(1, 6, 2), torch.ones(1, 6, 2, dtype=torch.bool), torch.zeros(1, 9, 1))
        with Counted() as counted:
            made(past)
        masked = 0
        if model["kind"] == "transformer" and not more.get("reader", {}).get("bidirectional"):
            masked = 1  # its parallel form scores what it then masks
        found = measured(make, row_flops)(8)
        assert found <= counted.flops if masked else found == counted.flops


@pytest.mark.parametrize("objective", ["squared", "bernoulli"])
def test_a_forecast_moment_by_moment(objective: str) -> None:
    bits = {"data": {"scaling": "none"}} if objective == "bernoulli" else {}
    forecast = {"context": "all", "mode": "recursive"}
    model = {"kind": "lstm", "width": 6, "embedding": 4}
    spec = spec_of("forecasting", model=model, forecast=forecast, objective={"kind": objective}, **bits)
    make = partial(build_forecaster, spec, channels=2)
    made = make()
    assert isinstance(made.eval(), RecursiveForecaster)
    with Counted() as counted:
        y_BTD, state = made.machine(torch.zeros(1, 7, 2))
        made.distribution(y_BTD)
    assert measured(make, row_flops)(7) == counted.flops
    assert row_bytes(made, 7) == state_bytes(state)
