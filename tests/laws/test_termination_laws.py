"""Machines that can end keep the laws, whatever is inside and however they end; and their probabilities add up."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from covering import covered
from example import example
from listed import shaken

from statewise.core import concat, laws, rows
from statewise.core.randomness import uniforms
from statewise.decoding.termination import calibrate_lengths, decode_until_end
from statewise.models import LINEAGE
from statewise.models.build_seq2seq import SCHEMES, Scheme, build_terminating
from statewise.models.remaining_length import OVER, UNKNOWN, WholeLogistic
from statewise.models.termination import Terminating
from statewise.specs import GRUSpec, UserError

termination = example("termination")

LAYERED = [row for row in LINEAGE if row.spec.learns == "gradient"]
VOCAB = 3
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def made(scheme: Scheme, spec: Any = None, *, vocab: int = VOCAB) -> Terminating[Any]:
    model = build_terminating(spec or GRUSpec(width=6), scheme=scheme, vocab=vocab)
    shaken(model)
    return model


@covered("scheme, kind", SCHEMES, [row.name for row in LAYERED], strength=1)
def test_laws_in_a_prompt_and_in_a_content(scheme: Scheme, kind: str) -> None:
    row = next(row for row in LAYERED if row.name == kind)
    model = made(scheme, row.spec.model_copy(update={"width": 12}))
    prompt = laws.make_case(model)
    # Rows that are over, about to be, and far from it.
    within = model.begin(torch.zeros(3, 1), prompt.state, length_B=torch.tensor([2, 5, 90]))
    for state in (prompt.state, within):
        case = prompt._replace(state=state)
        broken = {law: error_of(model, case) for law, error_of in laws.EXACT.items()}
        assert max(broken.values()) <= 1e-10, broken


@each_scheme
def test_content_and_length_together_have_probability_one(scheme: Scheme) -> None:
    """Over all contents up to a length, the probabilities sum to that of ending by then, counted another way."""
    model = made(scheme, vocab=2)
    prompt_BP = torch.tensor([[0, 1, 1]])
    total = 0.0
    reached = []
    for length in range(5):
        contents = torch.tensor(list(itertools.product(range(2), repeat=length)), dtype=torch.int64)
        contents = contents.view(2**length, length)
        some = prompt_BP.expand(2**length, 3)
        with torch.no_grad():
            nats_BT = model.loss(some, None, contents, torch.full((2**length,), length))
        assert nats_BT.shape == (2**length, length + 1)
        total += nats_BT.sum(1).neg().exp().sum().item()
        reached.append(total)
    many = decode_until_end(model, prompt_BP.expand(20000, 3), longest=4, seed=3)
    for length, expected in enumerate(reached):
        share = ((many.lengths_B <= length) & many.ended_B).double().mean().item()
        assert share == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(20000))


@each_scheme
def test_a_ragged_batch_is_its_rows(scheme: Scheme) -> None:
    model = made(scheme)
    data = termination.terminated("determined", 6, seed=2, longest=5)
    nats_NT = model.loss(data.prompt_NP, data.prompt_length_N, data.content_NT, data.length_N)
    for row, length in enumerate(data.length_N.tolist()):
        one = slice(row, row + 1)
        alone = model.loss(data.prompt_NP[one, :length], None, data.content_NT[one, :length], data.length_N[one])
        torch.testing.assert_close(nats_NT[one, : length + 1], alone, rtol=0, atol=1e-12)
        assert not nats_NT[row, length + 1 :].any()


@each_scheme
def test_writing_gives_what_scoring_says(scheme: Scheme) -> None:
    """Token by token, what was written has the probability that one parallel pass gives it."""
    model = made(scheme)
    prompt_BP, length_B = torch.randint(VOCAB, (50, 4)), torch.randint(1, 5, (50,))
    written = decode_until_end(model, prompt_BP, length_B, longest=30, seed=1)
    again = decode_until_end(model, prompt_BP, length_B, longest=30, seed=1)
    assert torch.equal(written.tokens_BT, again.tokens_BT)
    inside_BT = torch.arange(written.tokens_BT.shape[1]) < written.lengths_B[:, None]
    assert ((written.tokens_BT == model.edge) == ~inside_BT).all()
    content_BT = written.tokens_BT.masked_fill(~inside_BT, 0)
    nats_BT = model.loss(prompt_BP, length_B, content_BT, written.lengths_B)
    assert torch.isfinite(nats_BT).all()
    fewer = decode_until_end(model, prompt_BP[:20], length_B[:20], longest=30, seed=1)
    assert torch.equal(fewer.lengths_B, written.lengths_B[:20])
    best = decode_until_end(model, prompt_BP, length_B, longest=30, seed=None)
    assert torch.equal(best.lengths_B, decode_until_end(model, prompt_BP, length_B, longest=30, seed=None).lengths_B)


@each_scheme
def test_what_does_not_end_is_said(scheme: Scheme) -> None:
    model = made(scheme)
    written = decode_until_end(model, torch.zeros(200, 2, dtype=torch.int64), longest=2, seed=0)
    assert (written.lengths_B[~written.ended_B] == 2).all()
    nothing = decode_until_end(model, torch.zeros(200, 2, dtype=torch.int64), longest=0, seed=0)
    assert nothing.tokens_BT.shape == (200, 0)
    with pytest.raises(UserError, match="prompt is empty"):
        decode_until_end(model, torch.zeros(1, 2, dtype=torch.int64), torch.tensor([0]), longest=2)
    with pytest.raises(UserError, match="longest is -1"):
        decode_until_end(model, torch.zeros(1, 2, dtype=torch.int64), longest=-1)


def test_the_count_is_in_the_state() -> None:
    model = made("remaining")
    tokens_BT = torch.zeros(3, 2, dtype=torch.int64)
    _, state = model(tokens_BT)
    assert state.due_B.tolist() == [UNKNOWN] * 3
    state = model.begin(torch.zeros(3, 6), state, length_B=torch.tensor([0, 1, 7]))
    over = []
    for _ in range(3):
        outputs, state = model.step(torch.full((3,), model.edge), state)
        over.append(model.stops(outputs, state).tolist())
    assert over == [[True, False, False], [True, True, False], [True, True, False]]
    assert state.due_B.tolist() == [OVER, OVER, 4]
    reordered = rows(state, torch.tensor([2, 0]))
    assert concat([reordered, state]).due_B.tolist() == [4, OVER, OVER, OVER, 4]


def test_whole_logistic_is_a_distribution() -> None:
    generator = torch.Generator().manual_seed(0)
    log_weight_BK = torch.randn(4, 3, generator=generator, dtype=torch.float64).log_softmax(-1)
    location_BK = 10 * torch.rand(4, 3, generator=generator, dtype=torch.float64) - 2
    scale_BK = 0.1 + torch.rand(4, 3, generator=generator, dtype=torch.float64)
    length = WholeLogistic(log_weight_BK, location_BK, scale_BK)
    probability_BN = torch.stack([length.log_probability(torch.full((4,), n)).exp() for n in range(200)], dim=1)
    cumulative_BN = torch.stack([length.cumulative(torch.full((4,), n)) for n in range(200)], dim=1)
    torch.testing.assert_close(probability_BN.cumsum(1), cumulative_BN, rtol=0, atol=1e-12)
    assert (cumulative_BN[:, -1] - 1).abs().max() < 1e-12
    for uniform in (0.0, 0.01, 0.3, 0.5, 0.99, 0.999999):
        got_B = length.quantile(torch.full((4,), uniform, dtype=torch.float64))
        assert torch.equal(got_B, (cumulative_BN <= uniform).sum(1))
    far = length.log_probability(torch.full((4,), 10**6))
    assert torch.isfinite(far).all()


def test_calibration_knows_right_from_wrong() -> None:
    draw = np.random.default_rng(0)
    mean_N = draw.uniform(2, 30, size=1500)
    true_N = draw.poisson(mean_N)
    right = calibrate_lengths(true_N, draw.poisson(mean_N[:, None], size=(1500, 400)))
    assert right.pit_distance < 1.36 / np.sqrt(1500) + 0.01
    assert max(right.pit) < 0.13
    assert right.covered[0.8] == pytest.approx(0.84, abs=0.04)  # whole numbers: never less than asked for
    assert all(abs(drawn - true) < 1 for drawn, true, _ in right.reliability)
    narrow = calibrate_lengths(true_N, np.repeat(np.rint(mean_N).astype(np.int64)[:, None], 400, 1))
    assert narrow.pit_distance > 0.3
    late = calibrate_lengths(true_N, draw.poisson(mean_N[:, None] + 5, size=(1500, 400)))
    assert late.pit_distance > 0.3
    assert late.drawn_mean - late.true_mean == pytest.approx(5, abs=0.5)
    perfect = calibrate_lengths(true_N, np.repeat(true_N[:, None], 10, 1))
    assert perfect.exact == 1
    assert perfect.absolute_error == 0


def test_the_probes_are_what_they_say() -> None:
    data = termination.terminated("determined", 500, seed=1, shortest=3, longest=9)
    assert torch.equal(data.length_N, data.prompt_length_N)
    assert (data.length_N.min(), data.length_N.max()) == (3, 9)
    assert ((data.content_NT == 2).sum(1) == data.length_N).all()
    many = termination.terminated("distributed", 30000, seed=1)
    for symbol, mean in enumerate(termination.MEANS):
        some = many.length_N[many.prompt_NP[:, 0] == symbol].double()
        assert some.mean().item() == pytest.approx(mean, rel=0.05)
        assert some.var().item() == pytest.approx(mean * (mean + 1), rel=0.15)
    entropy = np.mean([(1 + m) * np.log(1 + m) - m * np.log(m) + m * np.log(3) for m in termination.MEANS])
    assert termination.least_nats(many).mean().item() == pytest.approx(entropy, rel=0.02)
    assert torch.equal(many.content_NT, termination.terminated("distributed", 30000, seed=1).content_NT)
    with pytest.raises(UserError, match="in order"):
        termination.terminated("determined", 5, shortest=4, longest=3)


def test_uniform_numbers_do_not_depend_on_who_else_asks() -> None:
    whole = uniforms((1, 2), rows=50, times=40, kinds=3)
    assert whole.min() >= 0
    assert whole.max() < 1
    assert abs(whole.mean() - 0.5) < 0.02
    part = uniforms((1, 2), rows=7, times=11, kinds=2, first_row=20, first_time=13)
    assert torch.equal(part, whole[20:27, 13:24, :2])
    assert not torch.equal(uniforms((1, 3), rows=50, times=40, kinds=3), whole)
