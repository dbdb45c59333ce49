"""Forcing: the schedules, the coins, and the forward pass between teacher forcing and free running."""

import math
from typing import Any, NamedTuple

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from statewise.core import Machine, detach, rows, unroll
from statewise.decoding import Sampling, begin, generate
from statewise.models import LINEAGE, build_sample, build_seq2seq
from statewise.specs import GRUSpec, Seq2SeqSpec
from statewise.specs.train import ForcingSpec, FreeRunning, ScheduledSampling, TeacherForcing
from statewise.training.forcing import (
    exposure_gap,
    feed_tokens,
    feed_values,
    forced_forward,
    truth_probability,
)

VOCAB = 7
parse = TypeAdapter(ForcingSpec).validate_python


@pytest.mark.parametrize(
    ("given", "step", "expected"),
    [
        ("teacher", 10**6, 1.0),
        ("free", 0, 0.0),
        ("constant:0.7", 10**6, 0.7),
        ("linear:100", 0, 1.0),
        ("linear:100", 25, 0.75),
        ("linear:100", 1000, 0.0),
        ({"schedule": "linear", "start": 0.9, "end": 0.5, "steps": 10}, 5, 0.7),
        ("exponential:0.99", 100, 0.99**100),
        ({"schedule": "exponential", "k": 0.5, "end": 0.2}, 3, 0.2 + 0.8 / 8),
        ("inverse_sigmoid:20", 0, 20 / 21),
        ("inverse_sigmoid:20", 60, 20 / (20 + math.exp(3))),
        ("inverse_sigmoid:20", 90, 20 / (20 + math.exp(4.5))),
        ("inverse_sigmoid:20", 10**7, 0.0),
    ],
)
def test_schedules_are_those_of_the_paper(given: Any, step: int, expected: float) -> None:
    assert truth_probability(parse(given), step) == pytest.approx(expected, rel=1e-12, abs=1e-300)


def test_specs() -> None:
    assert parse("teacher") == TeacherForcing()
    assert parse({"kind": "free", "choice": "best"}) == FreeRunning(choice="best")
    assert parse("scheduled") == ScheduledSampling()
    for wrong in (
        "professor",
        "exponential:2",
        "inverse_sigmoid:0.5",
        "linear:0",
        {"start": 1.5},
        {"kind": "free", "k": 1},
    ):
        with pytest.raises(ValidationError):
            parse(wrong)


def made(kind: str = "gru") -> Machine[Any]:
    row = next(row for row in LINEAGE if row.name == kind)
    return build_sample(row.spec, vocab=VOCAB).double().eval()


def tokens(batch: int = 4, time: int = 9, *, seed: int = 0) -> Tensor:
    return torch.randint(VOCAB, (batch, time), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", [row.name for row in LINEAGE])
def test_any_machine_from_the_truth_to_itself(kind: str) -> None:
    """Probability 1 is the parallel call to the bit; probability 0, taking the best, is greedy generation."""
    model, tokens_BT = made(kind), tokens()
    with torch.no_grad():
        straight, after = model(tokens_BT)
        forced, state = forced_forward(model, tokens_BT, truth_probability=1.0, key=(0, 1))
        assert torch.equal(forced, straight)
        assert str(state) == str(after)
        free, _ = forced_forward(model, tokens_BT, truth_probability=0.0, key=(0, 1), feedback=feed_tokens("best"))
        greedy = generate(model, begin(model, tokens_BT[:, :1], vocab=VOCAB), Sampling(temperature=0))
        written_BT = torch.stack([next(greedy)[0] for _ in range(tokens_BT.shape[1])], dim=1)
    assert torch.equal(free.argmax(-1), written_BT)


def test_mixed_inputs_are_those_the_coins_say() -> None:
    """A machine that shows what it read; its own choice is a token that never comes in truth."""

    class Echo(nn.Module):
        def init_state(self, batch: int) -> Tensor:
            return torch.zeros(batch, 1)

        def step(self, token_B: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
            return torch.nn.functional.one_hot(token_B, 3).double(), state

    inputs_BT = torch.ones(2000, 10, dtype=torch.int64)
    model: Any = Echo()
    shown, _ = forced_forward(
        model, inputs_BT, truth_probability=0.3, key=(5, 6), feedback=lambda y, x, u: torch.full_like(x, 2)
    )
    true_BT = shown[:, :, 1] == 1
    assert true_BT[:, 0].all()
    share_T = true_BT[:, 1:].double().mean(0)
    assert (share_T - 0.3).abs().max() < 4 * math.sqrt(0.3 * 0.7 / 2000)
    pairs = (true_BT[:, 1:-1] & true_BT[:, 2:]).double().mean()
    assert abs(pairs - 0.09) < 4 * math.sqrt(0.09 * 0.91 / 16000)
    # The expected share of the truth falls as the probability does, coin by coin.
    fewer, _ = forced_forward(
        model, inputs_BT, truth_probability=0.1, key=(5, 6), feedback=lambda y, x, u: torch.full_like(x, 2)
    )
    assert ((fewer[:, :, 1] == 1) <= true_BT).all()


def test_samples_follow_the_distribution() -> None:
    logits_BV = torch.tensor([[0.0, 1.0, -2.0, 0.5]], dtype=torch.float64).expand(40000, 4)
    uniform_B = torch.rand(40000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    drawn_B = feed_tokens()(logits_BV, torch.zeros(40000), uniform_B)
    share_V = torch.bincount(drawn_B, minlength=4) / 40000
    assert (share_V - logits_BV[0].softmax(-1)).abs().max() < 0.01
    assert feed_tokens()(logits_BV[:1], torch.zeros(1), torch.ones(1, dtype=torch.float64)).item() == 3


@pytest.mark.parametrize("probability", [0.0, 0.5])
def test_the_same_key_the_same_pass_however_it_is_cut(probability: float) -> None:
    model, tokens_BT = made("lstm"), tokens()
    options: dict[str, Any] = {"truth_probability": probability, "key": (3, 14)}
    start = detach(model(tokens(seed=1), model.init_state(4))[1])
    whole, after = forced_forward(model, tokens_BT, start, **options)
    assert torch.equal(forced_forward(model, tokens_BT, start, **options)[0], whole)
    other, _ = forced_forward(model, tokens_BT, start, truth_probability=probability, key=(3, 15))
    assert not torch.equal(other, whole)
    for cut in range(1, 9):
        first, between = forced_forward(model, tokens_BT[:, :cut], start, **options)
        second, end = forced_forward(model, tokens_BT[:, cut:], between, before=first[:, -1], first_time=cut, **options)
        torch.testing.assert_close(torch.cat([first, second], dim=1), whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(end, after, rtol=0, atol=1e-12)
    for row in range(4):
        alone, _ = forced_forward(
            model, tokens_BT[row : row + 1], rows(start, slice(row, row + 1)), first_row=row, **options
        )
        torch.testing.assert_close(alone, whole[row : row + 1], rtol=0, atol=1e-12)


def test_ragged_rows_end_where_they_end() -> None:
    model, tokens_BT = made(), tokens()
    lengths_B = torch.tensor([9, 4, 1, 6])
    options: dict[str, Any] = {"truth_probability": 0.4, "key": (1,)}
    together, state = forced_forward(model, tokens_BT, lengths_B=lengths_B, **options)
    for row, length in enumerate(lengths_B.tolist()):
        alone, end = forced_forward(model, tokens_BT[row : row + 1, :length], first_row=row, **options)
        torch.testing.assert_close(together[row : row + 1, :length], alone, rtol=0, atol=1e-12)
        assert not together[row, length:].any()
        torch.testing.assert_close(rows(state, slice(row, row + 1)), end, rtol=0, atol=1e-12)


def test_a_decoder_of_a_source_is_forced_like_any_other() -> None:
    spec = Seq2SeqSpec(encoder=GRUSpec(width=5), decoder=GRUSpec(width=5))
    model = build_seq2seq(spec, source_vocab=VOCAB, target_vocab=VOCAB).double().eval()
    begins = model.condition(tokens(3, 5), torch.tensor([5, 2, 4]))
    target_BT = tokens(3, 6, seed=2)
    straight, _ = model(target_BT, begins)
    assert torch.equal(forced_forward(model, target_BT, begins, truth_probability=1.0, key=(0,))[0], straight)
    free, _ = forced_forward(model, target_BT, begins, truth_probability=0.0, key=(0,))
    torch.testing.assert_close(free[:, 0], straight[:, 0], rtol=0, atol=1e-12)
    assert not torch.allclose(free[:, 1:], straight[:, 1:])


class Tail(NamedTuple):
    x_B: Tensor


class Decay(Machine[Tail]):
    """`x̂_{t+1} = a x_t + b u_t` of the input (x, u): real values with a covariate, one weight each."""

    def __init__(self, a: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([a, 1.0], dtype=torch.float64))

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        return torch.randn(batch, time, 2, generator=generator, dtype=torch.float64)

    def init_state(self, batch: int) -> Tail:
        return Tail(torch.zeros(batch, dtype=torch.float64))

    def forward(self, x: Tensor, state: Tail | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, Tail]:
        return unroll(self.step, x, state or self.init_state(len(x)), lengths_B)

    def step(self, x: Tensor, state: Tail) -> tuple[Tensor, Tail]:
        return (x @ self.weight)[:, None], state


def test_real_values_roll_out_in_closed_form() -> None:
    """Truth decays by 0.5, the model by 0.8: alone it is off by 0.8^k - 0.5^k after k steps."""
    model = Decay(0.8)
    truth_T = 0.5 ** torch.arange(7, dtype=torch.float64)
    series_BTI = torch.stack([truth_T, torch.zeros(7, dtype=torch.float64)], dim=-1).expand(3, 7, 2)
    inputs, targets = series_BTI[:, :-1], series_BTI[:, 1:, :1]
    result = exposure_gap(
        model,
        inputs,
        targets,
        feedback=feed_values(lambda y, uniform: y),
        score=lambda y, x: (y - x).abs()[:, :, 0],
    )
    steps_T = torch.arange(1, 7, dtype=torch.float64)
    torch.testing.assert_close(result.own_T, 0.8**steps_T - 0.5**steps_T, rtol=0, atol=1e-12)
    torch.testing.assert_close(result.teacher_T, 0.3 * 0.5 ** (steps_T - 1), rtol=0, atol=1e-12)
    assert result.gap_T[0] == 0


def test_covariates_stay_true_and_the_gradient_flows_on_demand() -> None:
    for through in (False, True):
        model = Decay(0.8)
        inputs = torch.ones(1, 3, 2, dtype=torch.float64)
        y, _ = forced_forward(
            model, inputs, truth_probability=0.0, key=(0,), feedback=feed_values(lambda y, u: y, through=through)
        )
        # x1 = a + b, x2 = a x1 + b, x3 = a x2 + b; with a = 0.8, b = 1
        assert y[0, :, 0].tolist() == pytest.approx([1.8, 0.8 * 1.8 + 1, 0.8 * (0.8 * 1.8 + 1) + 1])
        y[0, 2, 0].backward()
        assert model.weight.grad is not None
        slope = 3 * 0.8**2 + 2 * 0.8 + 1 if through else 0.8 * 1.8 + 1
        assert model.weight.grad[0].item() == pytest.approx(slope)


def test_the_gap_is_where_own_tokens_were_read_and_nowhere_before() -> None:
    model, text_BT = made(), tokens(6, 13)
    result = exposure_gap(model, text_BT[:, :-1], text_BT[:, 1:], prefix=4, own=3)
    assert result.gap_T[:4].abs().max() < 1e-12
    assert (result.gap_T[4:].abs() > 1e-12).all()
    assert result.foreign_T is not None
    assert (result.foreign_T - result.teacher_T)[:4].abs().max() < 1e-12
    assert result.count_T.tolist() == [6] * 12
    repeated = exposure_gap(model, text_BT[:, :-1], text_BT[:, 1:], prefix=4, own=3)
    assert torch.equal(repeated.own_T, result.own_T)


def test_a_machine_that_forgets_has_a_gap_of_its_memory() -> None:
    """An order-2 Markov model has read all it knows two true tokens after the stretch."""
    model, text_BT = made("markov"), tokens(6, 13)
    order = next(row for row in LINEAGE if row.name == "markov").spec.order
    result = exposure_gap(model, text_BT[:, :-1], text_BT[:, 1:], prefix=2, own=3)
    assert result.gap_T[5 + order - 1 :].abs().max() < 1e-12
    assert result.gap_T[2:5].abs().max() > 1e-3


def test_the_gap_of_ragged_rows_counts_what_is_there() -> None:
    model, text_BT = made(), tokens(3, 8)
    lengths_B = torch.tensor([7, 3, 5])
    result = exposure_gap(model, text_BT[:, :-1], text_BT[:, 1:], lengths_B=lengths_B, prefix=1)
    assert result.count_T.tolist() == [3, 3, 3, 2, 2, 1, 1]
    alone = exposure_gap(model, text_BT[:1, :-1], text_BT[:1, 1:], prefix=1)
    assert alone.foreign_T is None
    torch.testing.assert_close(result.own_T[5:], alone.own_T[5:], rtol=0, atol=1e-12)


def test_what_is_dropped_for_a_whole_sequence_is_drawn_once() -> None:
    """With the truth fed back, step by step is the parallel pass, its dropout included."""
    spec = GRUSpec(width=16, dropout=0.5, input_dropout=0.5, variational=True, weight_drop=0.5)
    model = build_sample(spec, vocab=VOCAB).double().train()
    inputs_BT = tokens()
    torch.manual_seed(1)
    parallel, _ = model(inputs_BT)
    torch.manual_seed(1)
    steps, _ = forced_forward(
        model, inputs_BT, truth_probability=0.0, key=(0,), feedback=lambda y, truth, uniform: truth
    )
    torch.testing.assert_close(steps, parallel, rtol=0, atol=1e-12)
