"""Beam search against greedy choice and against the list of everything that could be written."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from statewise.core import concat, lens, rows
from statewise.decoding import Hypothesis, Sampling, beam_search, greedy, sample
from statewise.models import ConditionalMachine, TokenMachine, build, build_seq2seq
from statewise.specs import AttentionSpec, GRUSpec, LSTMSpec, Seq2SeqSpec, TransformerSpec, UserError

SOURCE, TARGET = 7, 4
START, END = 0, 1
LENGTHS = torch.tensor([5, 2, 4, 1, 3])
SIDE = TransformerSpec(width=8, heads=2, depth=2)
SPECS = {
    "initial": Seq2SeqSpec(encoder=GRUSpec(width=8), decoder=LSTMSpec(width=8), context="initial"),
    "deep": Seq2SeqSpec(encoder=GRUSpec(width=8), decoder=GRUSpec(width=8), context="both", output="deep"),
    "bahdanau": Seq2SeqSpec(encoder=GRUSpec(width=8), decoder=GRUSpec(width=8), bidirectional=True),
    "luong": Seq2SeqSpec(
        encoder=GRUSpec(width=8), decoder=GRUSpec(width=8), attention=AttentionSpec(style="luong", heads=2, hops=2)
    ),
    "transformer": Seq2SeqSpec(encoder=SIDE, decoder=SIDE, bidirectional=True),
}
each_model = pytest.mark.parametrize("name", SPECS)


def made(name: str) -> ConditionalMachine[Any]:
    model = build_seq2seq(SPECS[name], source_vocab=SOURCE, target_vocab=TARGET).double().eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.8 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
    return model


def sources() -> Tensor:
    return torch.randint(SOURCE, (5, 5), generator=torch.Generator().manual_seed(1))


def conditioned(model: ConditionalMachine[Any]) -> Any:
    with torch.no_grad():
        return model.condition(sources(), LENGTHS)


@torch.no_grad()
def everything(
    model: TokenMachine[Any], state: Any, *, longest: int, shortest: int = 0
) -> dict[tuple[int, ...], float]:
    """Every sequence that can be written from one row, with its log probability, end symbol included."""
    found = {}
    others = [token for token in range(TARGET) if token != END]
    for length in range(shortest, longest + 1):
        for tokens in itertools.product(others, repeat=length):
            log_p, at, before = 0.0, state, START
            for token in (*tokens, END):
                logits_BV, at = model.step(torch.tensor([before]), at)
                log_p += float(logits_BV.log_softmax(-1)[0, token])
                before = token
            found[tokens] = log_p
    return found


def same(got: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.tokens for h in got] == [h.tokens for h in expected]
    for a, b in zip(got, expected, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-10)
        assert a.log_probability == pytest.approx(b.log_probability, abs=1e-10)


@each_model
@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.7])
def test_one_slot_is_greedy(name: str, alpha: float) -> None:
    model = made(name)
    options: Any = {"start_id": START, "end_id": END, "max_length": 6}
    chosen = greedy(model, conditioned(model), **options)
    found = beam_search(model, conditioned(model), beam=1, length_penalty=alpha, **options)
    assert [h.tokens for (h,) in found] == [h.tokens for h in chosen]
    for (h,), other in zip(found, chosen, strict=True):
        assert h.log_probability == pytest.approx(other.log_probability, abs=1e-10)
    assert len({h.tokens for h in chosen}) > 1


@each_model
@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.7])
def test_a_beam_that_holds_everything_finds_the_best_of_all(name: str, alpha: float) -> None:
    model, longest, n_best = made(name), 3, 7
    state = rows(conditioned(model), slice(0, 2))
    options: Any = {"start_id": START, "end_id": END, "max_length": longest, "beam": TARGET**longest}
    found = beam_search(model, state, length_penalty=alpha, n_best=n_best, **options)
    for row in range(2):
        listed = everything(model, rows(state, slice(row, row + 1)), longest=longest)
        ranked = sorted(
            (Hypothesis(t, log_p / ((5 + len(t) + 1) / 6) ** alpha, log_p) for t, log_p in listed.items()),
            key=lambda h: -h.score,
        )
        same(found[row], ranked[:n_best])


def test_lengths_are_limited_row_by_row() -> None:
    model = made("bahdanau")
    state, most = rows(conditioned(model), slice(0, 3)), torch.tensor([2, 3, 1])
    found = beam_search(
        model, state, start_id=START, end_id=END, max_length=most, min_length=1, beam=TARGET**3, n_best=3
    )
    for row, longest in enumerate(most.tolist()):
        listed = everything(model, rows(state, slice(row, row + 1)), longest=longest, shortest=1)
        ranked = sorted(listed, key=lambda tokens: -listed[tokens])
        assert [h.tokens for h in found[row]] == ranked[:3]


@each_model
def test_a_row_does_not_feel_the_others(name: str) -> None:
    model = made(name)
    looks = model.looks is not None
    options: Any = {"start_id": START, "end_id": END, "max_length": 7, "beam": 3, "n_best": 3, "align": looks}
    options |= {"length_penalty": 0.8, "coverage_penalty": 0.3 if looks else 0.0}
    together = beam_search(model, conditioned(model), source_lengths_B=LENGTHS, **options)
    for row, length in enumerate(LENGTHS.tolist()):
        with torch.no_grad():
            state = model.condition(sources()[row : row + 1, :length])
        (alone,) = beam_search(model, state, **options)
        same(together[row], alone)
        for a, b in zip(together[row], alone, strict=True):
            if a.alignment is not None and b.alignment is not None:
                torch.testing.assert_close(a.alignment, b.alignment, rtol=0, atol=1e-10)
                assert a.alignment.shape == (len(a.tokens), length)


@pytest.mark.parametrize("name", ["bahdanau", "luong", "transformer"])
def test_alignments_are_where_the_model_looked(name: str) -> None:
    """The best hypothesis, read again, looks at the same places; and its score is the published one."""
    model = made(name)
    assert model.looks is not None
    (found,) = beam_search(
        model,
        rows(conditioned(model), slice(0, 1)),
        start_id=START,
        end_id=END,
        max_length=6,
        min_length=3,
        beam=4,
        length_penalty=0.6,
        coverage_penalty=0.2,
        align=True,
    )
    best = found[0]
    seen, state = [], rows(conditioned(model), slice(0, 1))
    for token in (START, *best.tokens):
        with torch.no_grad(), lens(model.looks) as look:
            _, state = model.step(torch.tensor([token]), state)
        seen.append(torch.cat(look.seen[model.looks], dim=1).mean(1)[0])
    weights = torch.stack(seen)  # the end symbol looked, too
    assert best.alignment is not None
    torch.testing.assert_close(best.alignment, weights[:-1], rtol=0, atol=1e-12)
    torch.testing.assert_close(weights.sum(1), torch.ones(len(weights), dtype=torch.float64))
    coverage = weights.sum(0).clamp(max=1).log().sum()
    expected = best.log_probability / ((5 + len(weights)) / 6) ** 0.6 + 0.2 * float(coverage)
    assert best.score == pytest.approx(expected, abs=1e-10)


def test_stopping_early_loses_nothing() -> None:
    """However far the search may go, the best of a beam that never stops early is the same."""
    model = made("initial")

    for alpha in (0.0, 0.7, 2.0):
        options: Any = {"start_id": START, "end_id": END, "max_length": 12, "length_penalty": alpha}
        best = beam_search(model, conditioned(model), beam=4, n_best=1, **options)
        # With n_best = beam a row is done only when every slot has ended.
        all_of_it = beam_search(model, conditioned(model), beam=4, n_best=4, **options)
        for (first,), listed in zip(best, all_of_it, strict=True):
            same([first], listed[:1])


def test_what_is_forbidden_never_comes() -> None:
    model = made("luong")
    found = beam_search(
        model,
        conditioned(model),
        start_id=START,
        end_id=END,
        max_length=5,
        min_length=2,
        beam=6,
        n_best=4,
        never=(0, 3),
    )
    assert all(set(h.tokens) == {2} for row in found for h in row)
    assert all(len(row) == 4 for row in found)
    assert all(2 <= len(h.tokens) <= 5 for row in found for h in row)


def test_a_language_model_goes_on_from_its_prompt() -> None:
    """Without an end symbol all hypotheses have one length; each row begins with its own last token."""
    model = build("lstm", vocab=TARGET, width=8).double().eval()
    prompt_BT = torch.tensor([[2, 3, 1], [0, 0, 2]])
    with torch.no_grad():
        _, state = model(prompt_BT[:, :-1])
        found = beam_search(
            model, state, start_id=prompt_BT[:, -1], end_id=None, max_length=3, beam=TARGET**3, n_best=2
        )
        for row, hypotheses in enumerate(found):
            scores = {}
            for tokens in itertools.product(range(TARGET), repeat=3):
                inputs = torch.tensor([[int(prompt_BT[row, -1]), *tokens[:-1]]])
                logits, _ = model(inputs, rows(state, slice(row, row + 1)))
                scores[tokens] = float(logits.log_softmax(-1)[0, torch.arange(3), torch.tensor(tokens)].sum())
            ranked = sorted(scores, key=lambda tokens: -scores[tokens])
            assert [h.tokens for h in hypotheses] == ranked[:2]
            assert hypotheses[0].score == pytest.approx(scores[ranked[0]], abs=1e-10)


def test_samples_follow_the_distribution_and_the_seed() -> None:
    model = made("bahdanau")
    one = rows(conditioned(model), slice(0, 1))
    options: Any = {"start_id": START, "end_id": END, "max_length": 2}
    drawn = [sample(model, one, Sampling(seed=seed), **options)[0] for seed in range(400)]
    assert drawn[:5] == [sample(model, one, Sampling(seed=seed), **options)[0] for seed in range(5)]
    listed = everything(model, one, longest=2)
    with torch.no_grad():
        expected = model.step(torch.tensor([START]), one)[0].softmax(-1)[0].tolist()
    for token, p in enumerate(expected):
        wanted = () if token == END else (token,)
        share = sum(h.tokens[:1] == wanted for h in drawn) / len(drawn)
        assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / len(drawn))
    assert all(h.log_probability == pytest.approx(listed[h.tokens], abs=1e-10) for h in drawn[:20])


def test_rows_that_ended_left_the_batch() -> None:
    model = made("transformer")
    together = greedy(model, conditioned(model), start_id=START, end_id=END, max_length=9, align=True)
    parts = [
        greedy(model, rows(conditioned(model), slice(i, i + 1)), start_id=START, end_id=END, max_length=9, align=True)
        for i in range(5)
    ]
    assert [h.tokens for h in together] == [h.tokens for (h,) in parts]
    assert len({len(h.tokens) for h in together}) > 1


REFUSALS = {
    "beam": ({"beam": 0}, "beam = 0"),
    "n_best": ({"n_best": 6}, "n_best = 6, expected between 1 and beam = 5"),
    "end": ({"end_id": 4}, "end_id names token 4"),
    "never": ({"never": (9,)}, "never names token 9"),
    "never the end": ({"never": (END,)}, "cannot be in `never`"),
    "lengths": ({"min_length": 4}, "min_length = 4 and max_length = 3"),
    "rows": ({"max_length": torch.tensor([3, 3])}, "or 5 of them"),
    "penalty": ({"coverage_penalty": -1.0}, "coverage_penalty = -1.0"),
    "no look": ({"align": True}, "looks at no source"),
    "nothing": ({"never": (0, 2, 3), "min_length": 1}, "nothing can be written"),
}


@pytest.mark.parametrize(("options", "message"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    model = made("initial")
    with pytest.raises(UserError, match=message):
        beam_search(model, conditioned(model), **{"start_id": START, "end_id": END, "max_length": 3, **options})


def test_states_that_were_put_together_search_as_apart() -> None:
    """Sources read one by one and served as one batch."""
    model = made("transformer")
    with torch.no_grad():
        parts = [model.condition(sources()[i : i + 1, :n]) for i, n in enumerate(LENGTHS.tolist())]
    options: Any = {"start_id": START, "end_id": END, "max_length": 5, "beam": 3}
    for a, b in zip(
        beam_search(model, concat(parts), **options), beam_search(model, conditioned(model), **options), strict=True
    ):
        same(a, b)
