"""Decoding in room of its own gives what pure steps give, and what it hands out stays what it was."""

import importlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from statewise.core import concat, fork, leaves, load_state, save_state, state_bytes
from statewise.decoding import Continuation, Sampling, begin, choose, extend, generate
from statewise.models import LINEAGE, build_sample
from statewise.specs import ModelSpec, TransformerSpec, UserError

VOCAB = 11
SPECS: dict[str, ModelSpec] = {
    **{row.name: row.spec.small() for row in LINEAGE},
    "learned": TransformerSpec(width=12, heads=2, position="learned", context=64),
    "alibi, grouped": TransformerSpec(width=12, heads=4, kv_heads=2, position="alibi"),
    "window": TransformerSpec(width=12, heads=2, window=5),
}
SAMPLINGS = {
    "greedy": Sampling(temperature=0),
    "greedy, no repetition": Sampling(temperature=0, repetition=1.7),
    "drawn": Sampling(temperature=1.3, repetition=1.2, top_k=9, top_p=0.97, min_p=0.01, seed=3),
}
each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that room has to be made several times."""
    module = importlib.import_module("statewise.decoding.generate")  # the package's attribute is the function
    monkeypatch.setattr(module, "_ROOM", 3)


def model_and_start(spec: ModelSpec) -> tuple[Any, Continuation]:
    """Two rows, of different age."""
    model = build_sample(spec, vocab=VOCAB).double().eval()
    starts = [
        begin(model, torch.randint(VOCAB, (1, time), generator=torch.Generator().manual_seed(time)), vocab=VOCAB)
        for time in (7, 4)
    ]
    return model, concat(starts)


@torch.no_grad()
def pure(model: Any, at: Continuation, sampling: Sampling, *, never: int) -> Iterator[tuple[Tensor, Continuation]]:
    """The definition: pure steps, and everything renewed at every one of them."""
    while True:
        logits_BV, state = model.step(at.token_B, at.state)
        logits_BV = logits_BV.clone()
        logits_BV[:, never] = -torch.inf
        token_B = choose(logits_BV, seen_BV=at.seen_BV, position_B=at.position_B, sampling=sampling)
        at = Continuation(
            state,
            token_B,
            at.position_B + 1,
            at.seen_BV.scatter(1, token_B[:, None], True),
            torch.cat([at.tail_BK[:, 1:], token_B[:, None]], dim=1),
        )
        yield token_B, at


@each_spec
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_tokens_and_continuations_are_those_of_pure_steps(spec: ModelSpec, sampling: Sampling) -> None:
    model, start = model_and_start(spec)
    kept = fork(start)
    expected = list(islice(pure(model, start, sampling, never=4), 10))
    found = list(islice(generate(model, start, sampling, never=[4]), 10))
    tokens_BT, last = extend(model, start, sampling, tokens=10, never=[4])
    assert tokens_BT.tolist() == torch.stack([token for token, _ in expected], dim=1).tolist()
    for (token, at), (its_token, its_at) in zip([*found, (tokens_BT[:, -1], last)], [*expected, expected[-1]]):
        assert token.tolist() == its_token.tolist()
        for name in ("token_B", "position_B", "seen_BV", "tail_BK"):
            assert torch.equal(getattr(at, name), getattr(its_at, name)), name
        assert state_bytes(at.state) == state_bytes(its_at.state), "no free room is handed out"
    for (_, a), (_, b) in zip(leaves(start), leaves(kept), strict=True):
        assert torch.equal(a, b), "what it started from is as it was"


@each_spec
def test_a_kept_continuation_goes_on_as_if_nothing_followed_it(spec: ModelSpec, tmp_path: Path) -> None:
    model, start = model_and_start(spec)
    sampling = Sampling(seed=8)
    path = list(islice(generate(model, start, sampling), 12))
    written = torch.stack([token for token, _ in path], dim=1)
    for after in (1, 3, 4, 9):
        at = path[after - 1][1]
        again, _ = extend(model, at, sampling, tokens=12 - after)
        assert again.tolist() == written[:, after:].tolist()
        other, _ = extend(model, at, Sampling(seed=9, temperature=3.0), tokens=12 - after)  # another way to go on
        save_state(at, tmp_path / "kept.safetensors")
        loaded = load_state(tmp_path / "kept.safetensors", like=begin(model, torch.zeros(1, 1).long(), vocab=VOCAB))
        again, _ = extend(model, loaded, sampling, tokens=12 - after)
        assert again.tolist() == written[:, after:].tolist()
        assert other.shape == again.shape


def test_two_writers_from_one_continuation_do_not_meet() -> None:
    model, start = model_and_start(SPECS["transformer"])
    alone = [extend(model, start, Sampling(seed=seed), tokens=9)[0] for seed in (1, 2)]
    writers = [generate(model, start, Sampling(seed=seed)) for seed in (1, 2)]
    turns = [[next(writer)[0] for writer in writers] for _ in range(9)]
    for number, expected in enumerate(alone):
        assert torch.stack([turn[number] for turn in turns], dim=1).tolist() == expected.tolist()


def test_where_learned_positions_end_it_says_so() -> None:
    model, start = model_and_start(TransformerSpec(width=12, heads=2, position="learned", context=9))
    source = generate(model, start, Sampling())
    assert len(list(islice(source, 3))) == 3, "the older row has read 6 of 9"
    with pytest.raises(UserError, match=r"position 9 is past the 9 positions[^$]*model\.context"):
        next(source)


def test_a_number_of_tokens_that_cannot_be() -> None:
    model, start = model_and_start(SPECS["gru"])
    with pytest.raises(UserError, match="tokens = 0 is not valid"):
        extend(model, start, Sampling(), tokens=0)
