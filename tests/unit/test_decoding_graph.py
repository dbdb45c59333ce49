"""Writing by replaying one step gives what step after step gives. Without a GPU the step is run, not replayed."""

import gc
import importlib
import weakref
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch

from statewise.core import concat, leaves, lens, state_bytes
from statewise.decoding import Continuation, Sampling, begin, extend, generate, graph
from statewise.models import LINEAGE, build_sample
from statewise.specs import ModelSpec, TransformerSpec, UserError

VOCAB = 11
SPECS: dict[str, ModelSpec] = {
    **{row.name: row.spec.small() for row in LINEAGE},
    "learned": TransformerSpec(width=12, heads=2, position="learned", context=128),
    "alibi, grouped": TransformerSpec(width=12, heads=4, kv_heads=2, position="alibi"),
    "window": TransformerSpec(width=12, heads=2, window=5),
}
SAMPLINGS = {
    "greedy": Sampling(temperature=0, repetition=1.7),
    "drawn": Sampling(temperature=1.3, repetition=1.2, top_k=9, top_p=0.97, min_p=0.01, seed=3),
}


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that room has to be made several times."""
    monkeypatch.setattr(importlib.import_module("statewise.decoding.generate"), "_ROOM", 4)


@pytest.fixture
def looped(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[graph.Loop]]:
    """On a CPU too, and every loop that was made."""
    made = []
    real = graph.Loop.__init__

    def noted(self: graph.Loop, *args: Any) -> None:
        made.append(self)
        real(self, *args)

    monkeypatch.setattr(graph.Loop, "__init__", noted)
    monkeypatch.setattr(graph, "obstacle", lambda model, device: None)
    yield made
    graph._idle.clear()


def model_and_start(spec: ModelSpec, device: str = "cpu") -> tuple[Any, Continuation]:
    """Two rows, of different age."""
    model = build_sample(spec, vocab=VOCAB).double().eval().to(device)
    starts = [
        begin(
            model,
            torch.randint(VOCAB, (1, time), generator=torch.Generator().manual_seed(time)).to(device),
            vocab=VOCAB,
        )
        for time in (7, 4)
    ]
    return model, concat(starts)


def assert_same(found: Continuation, expected: Continuation) -> None:
    for name in ("token_B", "position_B", "seen_BV", "tail_BK"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert state_bytes(found.state) == state_bytes(expected.state), "no free room is handed out"


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_loop_writes_what_steps_write(
    spec: ModelSpec, sampling: Sampling, monkeypatch: pytest.MonkeyPatch, looped: list[graph.Loop]
) -> None:
    model, start = model_and_start(spec)
    with monkeypatch.context() as steps:
        steps.setattr(graph, "obstacle", lambda model, device: "not now")
        expected_BT, expected = extend(model, start, sampling, tokens=11, never=[4])
    assert not looped
    tokens_BT, after = extend(model, start, sampling, tokens=11, never=[4])
    assert looped, "a loop wrote it"
    assert tokens_BT.tolist() == expected_BT.tolist()
    assert_same(after, expected)
    more_BT, _ = extend(model, after, sampling, tokens=5)
    again_BT, _ = extend(model, expected, sampling, tokens=5)
    assert more_BT.tolist() == again_BT.tolist(), "and goes on the same"


def test_an_idle_loop_serves_the_next_text_and_another_seed(looped: list[graph.Loop]) -> None:
    model, start = model_and_start(SPECS["gru"])
    first = [extend(model, start, Sampling(seed=seed), tokens=4)[0] for seed in (1, 2, 1)]
    assert len(looped) == 1
    assert torch.equal(first[0], first[2])
    assert not torch.equal(first[0], first[1])
    extend(model, start, Sampling(seed=1, top_k=3), tokens=4)
    assert len(looped) == 2, "other filters are another step"


def test_two_writers_do_not_meet_in_one_loop(looped: list[graph.Loop]) -> None:
    model, start = model_and_start(SPECS["transformer"])
    alone = [extend(model, start, Sampling(seed=seed), tokens=9)[0] for seed in (1, 2)]
    writers = [generate(model, start, Sampling(seed=seed)) for seed in (1, 2)]
    turns = [[next(writer) for writer in writers] for _ in range(9)]
    for number, expected in enumerate(alone):
        assert torch.stack([turn[number][0] for turn in turns], dim=1).tolist() == expected.tolist()
    for after in (2, 5):  # what was handed out on the way is not written to by what came later
        again, _ = extend(model, turns[after - 1][0][1], Sampling(seed=1), tokens=9 - after)
        assert again.tolist() == alone[0][:, after:].tolist()


def test_loops_go_with_their_model_and_few_are_kept(looped: list[graph.Loop]) -> None:
    model, start = model_and_start(SPECS["transformer"])
    for k in range(2, 10):
        extend(model, start, Sampling(), tokens=2, never=[k])
    assert len(graph._idle[model]) == graph._IDLE
    watched = weakref.ref(looped[-1].state[0][0].keys_BSGK)
    for loop in looped:
        loop.run = lambda: None  # as a captured one, which does not hold the model
    looped.clear()
    assert watched() is not None
    del model, start, loop
    gc.collect()
    assert watched() is None


def test_where_learned_positions_end_it_says_so(looped: list[graph.Loop]) -> None:
    model, start = model_and_start(TransformerSpec(width=12, heads=2, position="learned", context=9))
    source = generate(model, start, Sampling())
    assert len(list(islice(source, 3))) == 3, "the older row has read 6 of 9"
    with pytest.raises(UserError, match=r"position 9 is past the 9 positions"):
        next(source)


def test_why_not() -> None:
    model, _ = model_and_start(SPECS["gru"])
    assert "on cpu" in str(graph.obstacle(model, torch.device("cpu")))
    there = torch.device("cuda")
    assert "training mode" in str(graph.obstacle(model.train(), there))
    model.eval()
    with lens("*"):
        assert "a lens is open" in str(graph.obstacle(model, there))


def test_a_step_that_cannot_be_captured_is_remembered(
    monkeypatch: pytest.MonkeyPatch, looped: list[graph.Loop]
) -> None:
    model, start = model_and_start(SPECS["gru"])
    expected = extend(model, start, Sampling(temperature=0), tokens=6)[0]
    graph._idle.clear()

    def refuse(*args: object) -> None:
        raise RuntimeError("called a synchronizing CUDA operation\nand more")

    monkeypatch.setattr(graph.Loop, "_step", refuse)
    monkeypatch.setattr(graph.Loop, "__init__", refuse)
    assert torch.equal(extend(model, start, Sampling(temperature=0), tokens=6)[0], expected)
    assert graph._failed[model] == "LanguageModel.step_ cannot be captured: called a synchronizing CUDA operation"


@pytest.mark.gpu
@pytest.mark.parametrize("sampling", [Sampling(temperature=0), *SAMPLINGS.values()], ids=["plain", *SAMPLINGS])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_captured_graph_writes_what_steps_write(
    spec: ModelSpec, sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("statewise.decoding.generate"), "_ROOM", 64)
    model, start = model_and_start(spec, "cuda")
    with monkeypatch.context() as steps:
        steps.setattr(graph, "obstacle", lambda model, device: "not now")
        expected_BT, expected = extend(model, start, sampling, tokens=100, never=[4])
    tokens_BT, after = extend(model, start, sampling, tokens=100, never=[4])
    assert tokens_BT.tolist() == expected_BT.tolist()
    assert_same(after, expected)
    # A captured list has more free slots, and cuBLAS may cut a longer product elsewhere.
    for (name, a), (_, b) in zip(leaves(after.state), leaves(expected.state), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}")


BROKEN = {"nan": torch.nan, "inf": torch.inf}


@pytest.mark.parametrize("captured", [False, True], ids=["step by step", "looped"])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS.keys())
@pytest.mark.parametrize("value", BROKEN.values(), ids=BROKEN.keys())
def test_broken_outputs_are_refused(
    captured: bool, sampling: Sampling, value: float, request: pytest.FixtureRequest
) -> None:
    """They wrote token 0, on and on."""
    if captured:
        request.getfixturevalue("looped")
    model, at = model_and_start(SPECS["gru"])
    with torch.no_grad():
        model.head.bias_V[3] = value
    with pytest.raises(UserError, match="outputs are not numbers"):
        extend(model, at, sampling, tokens=6)
    with pytest.raises(UserError, match="outputs are not numbers"):
        next(generate(model, at, sampling))
    with torch.no_grad():
        model.head.bias_V[3] = 0.0
    extend(model, at, sampling, tokens=6)  # nothing of it is left behind


@pytest.mark.parametrize(
    ("never", "message"), [(range(VOCAB), "every token is forbidden"), ([-1], "token -1"), ([VOCAB], f"token {VOCAB}")]
)
def test_what_cannot_be_forbidden(never: Any, message: str) -> None:
    model, at = model_and_start(SPECS["gru"])
    with pytest.raises(UserError, match=message):
        extend(model, at, Sampling(), tokens=2, never=never)
    with pytest.raises(UserError, match=message):
        next(generate(model, at, Sampling(), never=never))


@pytest.mark.parametrize("captured", [False, True], ids=["step by step", "looped"])
def test_samples_of_one_prompt_differ_and_are_each_what_they_are_alone(
    captured: bool, request: pytest.FixtureRequest
) -> None:
    if captured:
        request.getfixturevalue("looped")
    model = build_sample(SPECS["transformer"], vocab=VOCAB).double().eval()
    prompt, other = torch.tensor([1, 2, 3]), torch.tensor([3, 2, 1])
    together = torch.stack([prompt, other, prompt, prompt])
    at = begin(model, together, vocab=VOCAB)
    written_BT, _ = extend(model, at, Sampling(seed=5), tokens=12)
    assert len({tuple(row) for row in written_BT.tolist()}) == 4
    first_BT, half = extend(model, at, Sampling(seed=5), tokens=7)
    second_BT, _ = extend(model, half, Sampling(seed=5), tokens=5)
    assert torch.equal(torch.cat([first_BT, second_BT], dim=1), written_BT)
    for row, seed in enumerate([5, 5, 6, 7]):
        alone_BT, _ = extend(model, begin(model, together[row : row + 1], vocab=VOCAB), Sampling(seed=seed), tokens=12)
        assert torch.equal(alone_BT[0], written_BT[row])
