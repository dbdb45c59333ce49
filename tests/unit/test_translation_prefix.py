"""One machine that reads a source and goes on with the target: specs, losses, searches, in all three ways to end."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from statewise.data import Where
from statewise.models.build_seq2seq import SCHEMES, Scheme, build_terminating
from statewise.models.termination import BernoulliStop, EndAsToken
from statewise.specs import GRUSpec, TranslationSpec, UserError, load_recipe, make_spec
from statewise.specs.model import KINDS
from statewise.specs.translation import DecodingSpec, PairDataSpec
from statewise.tasks.translation import TranslationJob
from statewise.tasks.translation.evaluation import by_length
from statewise.tasks.translation.examples import Languages, Pairs
from statewise.tasks.translation.write import Writer, told
from statewise.training import Parallel

SOURCES = ["a b c", "b", "c c a b b", "a", "d e"]
TARGETS = ["x y", "y y z", "z", "x x x x y", "w"]
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def pairs(sources: list[str] = SOURCES, targets: list[str] = TARGETS) -> Pairs:
    return Pairs(sources, targets, [Where("file", n + 1) for n in range(len(sources))])


def spec(scheme: str = "end", kind: str = "gru", **settings: Any) -> TranslationSpec:
    both = {"model__kind": kind, "model__width": 8, "termination__kind": scheme, **settings}
    made = make_spec({"task": "translation"}, [f"{name.replace('__', '.')}={value}" for name, value in both.items()])
    assert isinstance(made, TranslationSpec)
    return made


def job(found: TranslationSpec, par: Parallel | None = None) -> TranslationJob:
    return TranslationJob(found, pairs(), pairs(), Languages.learn(found.data, pairs()), par or Parallel())


# ---------------------------------------------------------------- specs


def test_what_follows_from_the_model_is_decided() -> None:
    found = spec("remaining")
    assert found.data.shared_vocab
    assert found.decoding.beam == 1
    assert spec("end").decoding.beam == DecodingSpec().beam
    assert spec("end", data__shared_vocab="true").data.shared_vocab
    made = TranslationSpec(model=GRUSpec(), data=PairDataSpec(tokenizer="char"))
    assert made.data == PairDataSpec(tokenizer="char", shared_vocab=True)
    assert not TranslationSpec().data.shared_vocab
    assert [spec(scheme).name for scheme in SCHEMES] == [
        "gru-translation",
        "gru-bernoulli-translation",
        "gru-remaining-translation",
    ]
    again = make_spec(found.model_dump(mode="json", exclude_none=True))
    assert again == found


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"data__shared_vocab": "false"}, "both have one vocabulary"),
        ({"data__target_vocab": 99}, "both sides have one vocabulary"),
        ({"scheme": "stop"}, "'end', 'bernoulli' or 'remaining'"),
        ({"decoding__align": "true"}, "set model.kind = 'seq2seq'"),
        ({"decoding__coverage_penalty": 0.1}, "set model.kind = 'seq2seq'"),
        ({"kind": "markov"}, "'markov' cannot do this; valid: "),
        ({"model__bidirectional": "true"}, "model.bidirectional: unknown key"),
        (
            {"kind": "transformer", "model__position": "learned", "model__context": 401},
            "model has 401 learned positions, but a source and a target of data.longest = 200",
        ),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        spec(**settings)
    assert said in str(caught.value)


def test_an_encoder_decoder_ends_by_a_symbol() -> None:
    with pytest.raises(UserError, match="an encoder-decoder ends by a symbol"):
        make_spec({"task": "translation"}, ["termination.kind=bernoulli"])


def test_another_kind_takes_the_place_of_the_recipes() -> None:
    """What the recipe said of its own kind goes with it; what was set by hand never does."""
    table = load_recipe("translation")
    made = make_spec(table, ["model.width=12", "model.kind=transformer"])
    assert (made.model.kind, made.model.sizes()["width"]) == ("transformer", 12)
    assert made.train == make_spec(table).train
    with pytest.raises(UserError, match=r"model\.bidirectional: unknown key"):
        make_spec(table, ["model.bidirectional=true", "model.kind=gru"])
    deeper = {"task": "translation", "model": {"decoder": {"kind": "lstm", "width": 9, "peephole": True}}}
    assert make_spec(deeper, ["model.decoder.kind=gru"]).model.model_dump()["decoder"]["width"] == 9
    with pytest.raises(UserError, match=r"model\.colour: unknown key"):
        make_spec({"task": "translation", "model": {"colour": 1}}, ["model.kind=gru"])


# ---------------------------------------------------------------- losses


@pytest.mark.parametrize(
    ("kind", "scheme"),
    [(kind, SCHEMES[n % 3]) for n, kind in enumerate(KINDS) if kind != "markov"]
    + [("gru", scheme) for scheme in SCHEMES],
)
def test_any_machine_of_the_lineage_reads_and_goes_on(kind: str, scheme: str) -> None:
    """A batch costs what its rows cost alone, so padding and neighbours change nothing; and each can translate."""
    task = job(spec(scheme, kind, train__batch=5, objective__smoothing=0.1))
    model = task.build().double().eval()
    window = task.window(0)
    whole, _ = task.loss(model, window, slice(0, 5), slice(0, 1), ())
    apart = 0.0
    for i in range(5):
        content = window.content._replace(batch=task.translator.batch(task.train_rows, np.array([i])))
        apart += float(task.loss(model, window._replace(content=content), slice(0, 1), slice(0, 1), ())[0].detach())
    assert float(whole.detach()) == pytest.approx(apart, rel=1e-12)
    assert window.weight == sum(len(target) for target in task.train_rows.targets)
    whole.backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
    figures = task.evaluate(model, lambda: None)
    assert set(figures) == set(task.judges)
    assert np.isfinite(list(figures.values())).all()
    drawn = Writer(task.translator, model, task.spec.decoding).draw_lengths(task.held_rows.sources)
    assert drawn.shape == (5, task.spec.decoding.draws)
    assert drawn.max() <= math.ceil(1.5 * 5) + 10


@each_scheme
def test_nats_are_those_of_the_machine_itself(scheme: Scheme) -> None:
    """Content and length together, row by row, as `Terminating.loss` gives them."""
    task = job(spec(scheme))
    model = task.build().double().eval()
    found = told(task.translator, model, task.held_rows)
    by_hand, count = 0.0, 0
    for source, text in zip(task.held_rows.sources, TARGETS):
        content_BN = torch.from_numpy(task.languages.target.encode(text).astype(np.int64))[None]
        length_B = torch.tensor([content_BN.shape[1]])
        by_hand += float(model.loss(torch.from_numpy(source)[None], None, content_BN, length_B).detach().sum())
        count += int(length_B) + 1
    assert found.nats == pytest.approx(by_hand, rel=1e-9)
    assert found.tokens == count


@each_scheme
def test_a_target_that_was_cut_has_no_end_but_a_length(scheme: Scheme) -> None:
    task = job(spec(scheme, data__longest=3, data__beyond="cut"))
    model = task.build().double().eval()
    assert task.held_rows.whole.tolist() == [2, 3, 1, 5, 1]
    row = 3  # five words, of which four are read
    cost = float(task.translator.loss(model, task.translator.batch(task.held_rows, np.array([row]))).detach())
    ids = torch.from_numpy(task.languages.target.encode(TARGETS[row]).astype(np.int64))[None]
    whole_B = torch.tensor([5])
    nats_BT = model.loss(torch.from_numpy(task.held_rows.sources[row])[None], None, ids, whole_B).detach()
    assert cost == pytest.approx(float(nats_BT[:, :4].sum()), rel=1e-9)


@each_scheme
def test_smoothing_is_that_of_the_symbols(scheme: Scheme) -> None:
    task = job(spec(scheme))
    model = task.build().double().eval()
    batch = task.translator.batch(task.held_rows, np.arange(5))
    plain, smooth = (float(task.translator.loss(model, batch, smoothing=s).detach()) for s in (0.0, 0.2))
    state_after = model.condition(batch.source, batch.source_length_B)
    begun = model.begin(*state_after, length_B=batch.whole_B)
    outputs_BTV, _ = model(batch.input_BT, begun)
    chosen = outputs_BTV if scheme == "end" else outputs_BTV[..., :-1]
    log_p_BTV = chosen.detach().log_softmax(-1)
    symbols_B = batch.length_B if scheme == "end" else batch.whole_B
    target_BT = batch.target_BT.clamp(min=0)
    expected = plain
    for row, count in enumerate(symbols_B.tolist()):
        for t in range(count):
            true = model.edge if scheme == "end" and t == int(batch.whole_B[row]) else int(target_BT[row, t])
            expected += 0.2 * float(log_p_BTV[row, t, true] - log_p_BTV[row, t].mean())
    assert smooth == pytest.approx(expected, rel=1e-9)


@each_scheme
def test_parts_of_a_batch_and_processes_add_up_under_scheduled_sampling(scheme: Scheme) -> None:
    half = {"forcing__kind": "scheduled", "forcing__schedule": "constant", "forcing__start": 0.5, "train__batch": 4}
    found = spec(scheme, **half)
    task = job(found)
    model = task.build().double()
    window = task.window(2)
    whole, _ = task.loss(model, window, slice(0, 4), slice(0, 1), ())
    parts = [task.loss(model, window, some, slice(0, 1), ())[0] for some in (slice(0, 1), slice(1, 4))]
    torch.testing.assert_close(whole, parts[0] + parts[1], rtol=1e-10, atol=0)
    shares = [job(found, Parallel(rank=rank, world=2)) for rank in range(2)]
    losses = [one.loss(model, one.window(2), slice(0, 2), slice(0, 1), ())[0] for one in shares]
    torch.testing.assert_close(whole, losses[0] + losses[1], rtol=1e-10, atol=0)
    taught = job(spec(scheme, train__batch=4)).loss(model, window, slice(0, 4), slice(0, 1), ())[0]
    assert abs(float((taught - whole).detach())) > 1e-6, "half of the inputs were the model's own"


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize(("scheme", "beam"), [*itertools.product(SCHEMES, (1, 4))])
def test_nothing_is_written_that_must_not_be(scheme: Scheme, beam: int) -> None:
    task = job(
        spec(
            scheme,
            decoding__beam=beam,
            decoding__max_ratio=0.5,
            decoding__extra=3,
            decoding__min_length=2,
            data__min_count=2,
        )
    )
    model = task.build().double().eval()
    writer = Writer(task.translator, model, task.spec.decoding)
    found = writer.search(task.held_rows.sources)
    for source, hypotheses in zip(task.held_rows.sources, found):
        tokens = hypotheses[0].tokens
        assert 2 <= len(tokens) <= math.ceil(0.5 * (len(source) - 1)) + 3
        assert not {task.languages.target.unknown_id, task.languages.target.end_id, model.edge} & set(tokens)
        content_BN = torch.tensor([tokens])
        log_p = -model.loss(torch.from_numpy(source)[None], None, content_BN, torch.tensor([len(tokens)])).sum()
        assert hypotheses[0].log_probability == pytest.approx(float(log_p.detach()), rel=1e-6)
    alone = [writer.search([source])[0][0] for source in task.held_rows.sources]
    assert [one.tokens for one in alone] == [one[0].tokens for one in found]
    with pytest.raises(UserError, match="looks at no source"):
        writer.search(task.held_rows.sources, align=True)


def test_learned_positions_leave_room_for_source_and_target() -> None:
    task = job(spec(kind="transformer", model__position="learned", model__context=20, data__longest=9))
    assert task.translator.most_written(6) == 13
    long = ["a " * 9] * 2
    rows = task.languages.encode(pairs(long, ["x " * 30] * 2))
    model = task.build().eval()
    assert np.isfinite(told(task.translator, model, rows).nats)
    writer = Writer(task.translator, model, task.spec.decoding.model_copy(update={"max_ratio": 9.0}))
    assert len(writer.search(rows.sources)[0][0].tokens) <= 20 - 10 - 1


@each_scheme
def test_a_tied_head_shares_the_embedding(scheme: Scheme) -> None:
    for spec_ in (GRUSpec(width=6, tie=True), GRUSpec(width=6, embedding=4, tie=True)):
        model = build_terminating(spec_, scheme=scheme, vocab=3).double()
        assert model.head.weight_VE is model.body.embedding.weight
        nats = model.loss(torch.tensor([[0, 1]]), None, torch.tensor([[2, 2]]), torch.tensor([2])).sum()
        nats.backward()
        assert model.body.embedding.weight.grad is not None
        assert model.body.embedding.weight.grad.isfinite().all()


def test_input_dropout_reaches_the_machine() -> None:
    model = build_terminating(GRUSpec(width=6, input_dropout=0.5), scheme="bernoulli", vocab=3)
    assert isinstance(model, BernoulliStop)
    prompt = torch.tensor([[0, 1, 2, 1]])
    assert not torch.equal(model(prompt)[0], model(prompt)[0])
    model.eval()
    assert torch.equal(model(prompt)[0], model(prompt)[0])


def test_the_end_as_a_token_is_the_same_machine() -> None:
    model = build_terminating(GRUSpec(width=6), scheme="end", vocab=3).double()
    tokens = EndAsToken(model)
    assert tokens.vocab == 4
    given = tokens.sample_input(2, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(tokens(given)[0], model(given)[0].log_softmax(-1), rtol=0, atol=1e-12)


@each_scheme
@pytest.mark.parametrize("alpha", [pytest.param(0.0, marks=pytest.mark.slow), 0.8])
def test_a_wide_beam_finds_the_best_of_all_however_it_ends(scheme: Scheme, alpha: float) -> None:
    """Against every content that can be written, weighed by the model's own loss."""
    task = job(spec(scheme, decoding__beam=1000, decoding__n_best=3, decoding__length_penalty=alpha))
    model, translator = task.build().double().eval(), task.translator
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.5 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
    source, longest = task.held_rows.sources[0], 3
    decoding = task.spec.decoding.model_copy(update={"max_ratio": 1e-9, "extra": longest - 1, "min_length": 1})
    (found,) = translator.search(model, [source], decoding, align=False)
    prompt_1P = torch.from_numpy(source)[None]
    with torch.no_grad():
        summary_1D, _ = model.condition(prompt_1P)
        predicted = model.predicted_length(summary_1D)
        lengths = range(1, longest + 1) if predicted is None else [int(predicted.clamp(1, longest))]
        symbols = [s for s in range(model.vocab) if s not in translator.never(decoding)]
        every = {
            tokens: -float(model.loss(prompt_1P, None, torch.tensor([tokens]), torch.tensor([n])).sum())
            for n in lengths
            for tokens in itertools.product(symbols, repeat=n)
        }
    last = 1  # the end counts as written
    ranked = sorted(every, key=lambda tokens: -every[tokens] / ((5 + len(tokens) + last) / 6) ** alpha)
    assert [one.tokens for one in found] == ranked[:3]
    for one in found:
        assert one.log_probability == pytest.approx(every[one.tokens], rel=1e-9)


def test_rows_by_the_length_of_their_targets() -> None:
    true = [1, 2, 2, 3, 9, 9, 12]
    written = [1, 2, 5, 3, 9, 8, 12]
    exact = [True, True, False, False, True, False, False]
    found = by_length(true, written, exact, learned=3)
    assert [(one.shortest, one.longest, one.beyond, one.rows) for one in found] == [
        (1, 1, False, 1),
        (2, 2, False, 2),
        (3, 3, False, 1),
        (9, 9, True, 2),
        (12, 12, True, 1),
    ]
    assert [one.exact for one in found] == [1, 0.5, 0, 0.5, 0]
    assert [one.right_length for one in found] == [1, 0.5, 1, 0.5, 1]
    assert [one.length_error for one in found] == [0, 1.5, 0, 0.5, 0]
    assert sum(one.rows for one in by_length(true, written, exact, learned=None)) == 7
    many = by_length(list(range(100)), [0] * 100, [False] * 100, learned=49)
    assert [one.beyond for one in many] == [False] * 5 + [True] * 3
