"""Law `company`: a row writes what it would write alone, whoever joins and leaves beside it; every model."""

import gc
import random
from typing import Any

import numpy as np
import pytest
import torch

from statewise.core import leaves, state_bytes
from statewise.decoding import Sampling, begin, extend
from statewise.models import LINEAGE, CountingMachine, build_sample
from statewise.serving import captured
from statewise.serving.pool import NewRow, Pool
from statewise.specs import ModelSpec, UserError

VOCAB, TOKENS = 11, 24
WAYS = [
    Sampling(temperature=0.0),
    Sampling(seed=1),
    Sampling(temperature=0.7, top_k=4, seed=2),
    Sampling(repetition=1.3, seed=3),
    Sampling(presence=0.7, frequency=0.2, seed=4),
    Sampling(top_p=0.8, min_p=0.05, seed=5),
    Sampling(bias=((3, 2.0), (4, -50.0)), seed=6),
]


def made(spec: ModelSpec) -> Any:
    model = build_sample(spec, vocab=VOCAB)
    if isinstance(model, CountingMachine):
        return model
    return model.double().eval()


def models(day: tuple[str, ...] = tuple(row.name for row in LINEAGE)) -> list[Any]:
    """Variants, and rows not named as `day`, are slow."""
    listed = []
    for row in LINEAGE:
        listed.append(pytest.param(row.spec, id=row.name, marks=() if row.name in day else pytest.mark.slow))
        for number, spec in enumerate(row.variants):
            listed.append(pytest.param(spec, id=f"{row.name}-{number}", marks=pytest.mark.slow))
    return listed


def alone(model: Any, prompt_1T: torch.Tensor, sampling: Sampling) -> list[int]:
    tokens_1T, _ = extend(model, begin(model, prompt_1T, vocab=VOCAB), sampling, tokens=TOKENS)
    return [int(token) for token in tokens_1T[0]]


@pytest.mark.parametrize("spec", models())
def test_company_changes_no_text(spec: ModelSpec) -> None:
    check_company(made(spec), graphs=False)


@pytest.mark.parametrize("spec", models(day=("markov", "lstm", "transformer", "ttt_linear")))
def test_replays_change_no_text(spec: ModelSpec) -> None:
    """Without a GPU a replay runs the step again: the same memory, padding and settings as on one."""
    check_company(made(spec), graphs=True)


@pytest.mark.gpu
@pytest.mark.parametrize("spec", models())
def test_company_changes_no_text_on_a_gpu(spec: ModelSpec) -> None:
    check_company(made(spec).cuda(), graphs=True)


def check_company(model: Any, *, graphs: bool) -> None:
    rng, device = random.Random(0), model.like.device
    generator = torch.Generator().manual_seed(0)
    prompts = [torch.randint(VOCAB, (1, rng.randint(1, 8)), generator=generator).to(device) for _ in WAYS]
    pool = Pool(model, graphs=graphs)
    waiting, live, written = list(range(len(WAYS))), [], {i: [] for i in range(len(WAYS))}
    while waiting or live:
        if waiting and (not live or rng.random() < 0.3):
            i = waiting.pop()
            at = begin(model, prompts[i], vocab=VOCAB)
            row = NewRow(int(at.token_B), int(at.position_B), WAYS[i], prompts[i][0].cpu().numpy())
            pool.join([row], at.state)
            live.append(i)
        step = pool.step()
        assert step.broken == []
        for i, token in zip(live, step.tokens, strict=True):
            written[i].append(token)
        if over := {place for place, i in enumerate(live) if len(written[i]) == TOKENS}:
            for into, last in pool.leave(over):
                live[into] = live[last]
            del live[pool.count :]
        if not live:
            pool.give_back()
            assert graphs or pool.state_bytes == 0
    counting = isinstance(model, CountingMachine)  # on a GPU it waits for the host, and says so to nobody
    assert pool._graphs or not graphs or counting, "nothing was captured"
    assert written == {i: alone(model, prompts[i], WAYS[i]) for i in range(len(WAYS))}


def test_nobody_holds_what_was_given_back() -> None:
    pool = Pool(made(next(row.spec for row in LINEAGE if row.name == "transformer")), graphs=False)
    with torch.no_grad():
        for seed in range(3):
            pool.join([NewRow(1, 0, Sampling(seed=seed))], pool.model.init_state(1))
        pool.step()
        held = {leaf.untyped_storage().data_ptr() for _, leaf in leaves(pool._memory) if leaf.numel() > 1000}
        pool.leave({0, 2})
        pool.leave({0})
        pool.give_back()
    tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor and each.numel()]
    assert held
    assert not [tuple(each.shape) for each in tensors if each.untyped_storage().data_ptr() in held]


@pytest.mark.parametrize("name", ["lstm", "transformer", "ttt_linear", "markov"])
def test_a_row_that_was_taken_out_goes_on_elsewhere(name: str) -> None:
    """Bit for bit: a copy of the row joins another pool, and the first pool does not notice."""
    model = made(next(row.spec for row in LINEAGE if row.name == name))
    prompts = [torch.randint(VOCAB, (1, n), generator=torch.Generator().manual_seed(n)) for n in (3, 9, 14)]
    first, texts = Pool(model), [[], [], []]
    for prompt, sampling in zip(prompts, WAYS[1:]):
        at = begin(model, prompt, vocab=VOCAB)
        first.join([NewRow(int(at.token_B), int(at.position_B), sampling)], at.state)
    for _ in range(10):
        for text, token in zip(texts, first.step().tokens):
            text.append(token)
    second = Pool(model)
    second.join([NewRow(texts[1][-1], first.position(1), WAYS[2])], first.row(1))
    moved = [second.step().tokens[0] for _ in range(10)]
    stayed = [first.step().tokens[1] for _ in range(10)]
    assert moved == stayed


def test_learned_positions_end_with_a_message() -> None:
    spec = next(spec for row in LINEAGE for spec in row.variants if getattr(spec, "position", "") == "learned")
    model = made(spec)
    pool = Pool(model, context=spec.context)
    pool.join([NewRow(0, 0, Sampling())], model.init_state(1))
    for _ in range(spec.context):
        pool.step()
    with pytest.raises(UserError, match=f"more than {spec.context} tokens"):
        pool.step()


def test_a_step_that_cannot_be_captured_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(next(row.spec for row in LINEAGE if row.name == "lstm"))
    prompt = torch.tensor([[1, 2, 3]])
    at = begin(model, prompt, vocab=VOCAB)

    class Failing:
        def __init__(self, work: Any, *_: Any, **__: Any) -> None:
            work()
            raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(captured, "Replay", Failing)
    pool = Pool(model, graphs=True)
    pool.join([NewRow(3, 2, Sampling(seed=1))], at.state)
    assert [pool.step().tokens[0] for _ in range(TOKENS)] == alone(model, prompt, Sampling(seed=1))
    assert pool._graphs is None


def test_lists_grow_beyond_what_was_reserved() -> None:
    model = made(next(row.spec for row in LINEAGE if row.name == "basic_attention"))
    prompt = torch.zeros(1, 1, dtype=torch.int64)
    wanted, _ = extend(model, begin(model, prompt, vocab=VOCAB), Sampling(seed=3), tokens=600)
    pool = Pool(model)
    pool.join([NewRow(0, 0, Sampling(seed=3))], model.init_state(1))
    assert [pool.step().tokens[0] for _ in range(600)] == wanted[0].tolist()


def test_what_is_forbidden_scored_and_broken_is_a_matter_of_its_row() -> None:
    model = made(next(row.spec for row in LINEAGE if row.name == "lstm"))
    pool = Pool(model, never=[0])
    for seed in range(3):
        pool.join([NewRow(seed, 0, Sampling(seed=seed, temperature=5.0))], model.init_state(1))
    others = [(1, token) for token in range(1, VOCAB) if token != 7]
    for _ in range(20):
        step = pool.step(forbid=others, scored=[(0, 3), (2, 0)])
        assert 0 not in step.tokens
        assert step.tokens[1] == 7
        assert set(step.chosen) == {0, 2}
        assert [len(step.top.get(row, ())) for row in range(3)] == [3, 0, 0]
        assert all(value <= 0 for value in step.chosen.values())
        best = step.top[0]
        assert best == sorted(best, key=lambda pair: -pair[1])
    state = pool.row(1)
    for leaf in state.layers[0]:
        leaf.fill_(float("nan"))
    pool.join([NewRow(1, 5, Sampling())], state)
    step = pool.step()
    assert step.broken == [3]
    pool.leave({3})
    assert pool.step().broken == []


def test_memory_is_counted_and_reused() -> None:
    model = made(next(row.spec for row in LINEAGE if row.name == "lstm"))
    pool = Pool(model)
    assert pool.state_bytes == 0
    for _ in range(5):
        pool.join([NewRow(0, 0, Sampling())], model.init_state(1))
    held = pool.state_bytes
    assert held == 8 * state_bytes(model.init_state(1))  # five rows in memory for eight
    pool.leave(range(5))
    for _ in range(5):
        pool.join([NewRow(0, 0, Sampling())], model.init_state(1))
    assert pool.state_bytes == held
    assert np.all(pool._position[:5] == 0)
