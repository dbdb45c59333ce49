"""From pairs of texts to batches and losses of an encoder-decoder."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_data_gettext import catalog, put

from statewise.data import Where
from statewise.specs import Seq2SeqSpec, TranslationSpec, UserError, make_spec
from statewise.specs.model import KINDS
from statewise.tasks.translation import TranslationJob
from statewise.tasks.translation.examples import (
    Languages,
    Pairs,
    batches_of,
    learnable,
)
from statewise.tasks.translation.reading import read_files, read_split
from statewise.tasks.translation.sides import Levels, TextSource, learn_levels, mean_series, series_errors
from statewise.tasks.translation.write import Writer, told
from statewise.training import Parallel

SOURCES = ["a b c", "b", "c c a b b", "a", "d e"]
SMALL = {"model__encoder__width": 8, "model__decoder__width": 8}
TARGETS = ["x y", "y y z", "z", "x x x x y", "w"]


def pairs(sources: list[str] = SOURCES, targets: list[str] = TARGETS) -> Pairs:
    return Pairs(sources, targets, [Where("file", n + 1) for n in range(len(sources))])


def spec(**settings: Any) -> TranslationSpec:
    made = make_spec(
        {"task": "translation"}, [f"{name.replace('__', '.')}={value}" for name, value in settings.items()]
    )
    assert isinstance(made, TranslationSpec)
    return made


def job(found: TranslationSpec) -> TranslationJob:
    return TranslationJob(found, pairs(), pairs(), Languages.learn(found.data, pairs()), Parallel())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"data__target": "b.en"}, "name the sources too"),
        ({"data__train": "a.de", "data__target": "a.en", "data__validation": "v.de"}, "set validation_target"),
        ({"data__train": "a", "data__target": "b", "data__format": "tsv"}, "is for files of pairs"),
        ({"data__format": "gettext"}, "go together"),
        ({"data__shared_vocab": "true", "data__target_vocab": 99}, "both sides have one vocabulary"),
        ({"model__share_embeddings": "true"}, "data.shared_vocab = true"),
        ({"decoding__n_best": 9}, "widen the beam"),
        ({"decoding__coverage_penalty": 0.1, "model__context": "initial"}, "model.context = 'attention'"),
        ({"train__judge": "bleu", "decoding__watch": 0}, "decoding.watch above 0"),
        (
            {
                "model__decoder__kind": "transformer",
                "model__decoder__position": "learned",
                "model__decoder__context": 99,
            },
            "model.decoder has 99 learned positions",
        ),
        ({"model__attention__score": "location", "data__longest": 300}, "are fewer than data.longest = 300"),
        ({"train__truncation": 20}, "reads whole sequences"),
        ({"forcing__kind": "taught"}, "'taught' is not known"),
    ],
)
def test_what_does_not_fit_together_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        spec(**settings)
    assert said in str(caught.value)


def test_the_end_symbol_begins_what_is_read_and_ends_what_is_written() -> None:
    languages = Languages.learn(spec().data, pairs())
    rows = languages.encode(pairs())
    end = languages.target.end_id
    batch = rows.batch(np.array([1, 0]), end)
    y, z, x = (int(languages.target.encode(word)[0]) for word in "yzx")
    assert batch.input_BT.tolist() == [[end, y, y, z], [end, x, y, end]]
    assert batch.target_BT.tolist() == [[y, y, z, end], [x, y, end, -100]]
    assert batch.length_B.tolist() == [4, 3]
    assert batch.source_length_B.tolist() == [2, 4]
    assert [row[-1] for row in rows.sources] == [languages.source.tokenizer.end_id] * 5


def test_a_target_that_was_cut_has_no_end_and_a_reversed_source_keeps_its_own() -> None:
    languages = Languages.learn(spec(data__longest=3, data__reverse="true").data, pairs())
    rows = languages.encode(pairs())
    a, b, c = (int(languages.source.encode([word])[0][0]) for word in "abc")
    end = languages.target.end_id
    assert rows.sources[0].tolist() == [c, b, a, languages.source.tokenizer.end_id]
    assert rows.sources[2].tolist() == [a, c, c, languages.source.tokenizer.end_id]  # cut, then turned round
    assert len(rows.targets[3]) == 4
    assert end not in rows.targets[3]
    assert all(target[-1] == end for target in (rows.targets[0], rows.targets[1]))
    assert rows.cut == 2


def test_long_pairs_are_left_out_cut_or_refused_and_counted() -> None:
    for beyond, left in (("leave-out", 3), ("cut", 5)):
        found = spec(data__longest=3, data__beyond=beyond).data
        rows, too_long = learnable(found, Languages.learn(found, pairs()), pairs())
        assert (len(rows), too_long) == (left, 2)
    found = spec(data__longest=3, data__beyond="refuse").data
    with pytest.raises(UserError, match="file line 3: 5 tokens"):
        learnable(found, Languages.learn(found, pairs()), pairs())
    found = spec(data__longest=1).data
    with pytest.raises(UserError, match="all 2 pairs are longer"):
        learnable(found, Languages.learn(found, pairs()), pairs(["a b", "b c"], ["x", "y"]))


def test_each_side_has_its_own_vocabulary_unless_they_share_one() -> None:
    apart = Languages.learn(spec(data__target_tokenizer="char", data__target_lower="true").data, pairs(["A"], ["B b"]))
    assert apart.source.encode(["A"])[0].size == 1
    assert apart.target.encode("b b").tolist() == apart.target.encode("B b").tolist()
    assert set(apart.files()) == {"source.json", "target.json"}
    shared = Languages.learn(spec(data__shared_vocab="true").data, pairs())
    assert shared.shared
    assert shared.target.unknown_id not in shared.source.encode(["a x"])[0]
    assert set(shared.files()) == {"tokenizer.json"}
    rare = Languages.learn(spec(data__min_count=2).data, pairs())
    assert isinstance(rare.source, TextSource)
    assert rare.source.encode(["d"])[0].tolist() == [rare.source.tokenizer.unknown_id]


# ---------------------------------------------------------------- files


def write(folder: Path, **files: str) -> list[str]:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_bytes(text.encode())
    return [str(folder / name.replace("_", ".")) for name in files]


def test_aligned_files_pairs_in_one_file_and_scan_are_read_alike(tmp_path: Path) -> None:
    de, en, tsv, scan, more_de, more_en = write(
        tmp_path,
        a_de="\ufeffeins\r\nzwei\r\n",
        a_en="one\ntwo\n",
        a_tsv="eins\tone\nzwei\ttwo\n",
        a_txt="IN: eins OUT: one\nIN: zwei OUT: two\n",
        b_de="drei\n",
        b_en="three\n",
    )
    wanted = ["eins", "zwei"], ["one", "two"]
    data = spec().data
    for found in (
        read_files(data, [de], [en]),
        read_files(data, [de, en]),
        read_files(data, [tsv]),
        read_files(spec(data__format="scan").data, [scan]),
    ):
        assert (found.sources, found.targets) == wanted
    assert read_files(data, [de, more_de, en, more_en]).targets == ["one", "two", "three"]
    with pytest.raises(UserError, match=r'data=\["a\.de", "a\.en"\]'):
        read_files(data, [de])
    with pytest.raises(UserError, match="has no counterpart"):
        read_files(data, [de, more_en])


def test_catalogs_of_a_program_are_pairs(tmp_path: Path) -> None:
    put(tmp_path, "de", catalog({"Open": "Öffnen", "Close": "Schließen", "Save": "Sichern"}))
    put(tmp_path, "fr", catalog({"Open": "Ouvrir"}))
    found = read_files(spec(data__format="gettext", data__language="de").data, [str(tmp_path)])
    assert dict(zip(found.sources, found.targets)) == {"Open": "Öffnen", "Close": "Schließen", "Save": "Sichern"}
    data = spec(data__format="gettext", data__language="de", data__train=f'["{tmp_path}"]', data__held_out=0.4).data
    assert sorted(map(len, read_split(data, seed=0))) == [1, 2]


def test_equal_sources_are_never_on_both_sides_of_a_split(tmp_path: Path) -> None:
    lines = [f"word{number % 7}\tanswer {number}" for number in range(70)]
    (tsv,) = write(tmp_path, a_tsv="\n".join(lines) + "\n")
    train, held = read_split(spec(data__train=f'["{tsv}"]', data__held_out=0.3).data, seed=1)
    assert len(train) + len(held) == 70
    assert not set(train.sources) & set(held.sources)
    with pytest.raises(UserError, match="standard input"):
        read_split(spec(data__train="-").data, seed=1)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 200))
def test_batches_hold_every_row_once_within_their_budget(lengths: list[int], tokens: int) -> None:
    found = list(batches_of(lengths, tokens=tokens))
    assert sorted(np.concatenate(found)) == list(range(len(lengths)))
    for index in found:
        assert len(index) == 1 or len(index) * max(lengths[i] for i in index) <= tokens


# ---------------------------------------------------------------- losses


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "markov"])
def test_any_model_of_the_lineage_reads_and_writes(kind: str) -> None:
    """A batch costs what its rows cost alone, so padding and neighbours change nothing; and each can translate."""
    small = {"kind": kind, "width": 8}
    found = spec(
        **{f"model__{side}__{name}": value for side in ("encoder", "decoder") for name, value in small.items()},
        train__batch=5,
        objective__smoothing=0.1,
    )
    task = job(found)
    model = task.build().double().eval()
    window = task.window(0)
    whole, _ = task.loss(model, window, slice(0, 5), slice(0, 1), ())
    apart = 0.0
    for i in range(5):
        alone = task.train_rows.batch(np.array([i]), task.languages.target.end_id)
        content = window.content._replace(batch=alone)
        apart += float(task.loss(model, window._replace(content=content), slice(0, 1), slice(0, 1), ())[0].detach())
    assert float(whole.detach()) == pytest.approx(apart, rel=1e-12)
    assert window.weight == sum(len(target) for target in task.train_rows.targets)
    whole.backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
    figures = task.evaluate(model, lambda: None)
    assert set(figures) == set(task.judges)
    assert np.isfinite(list(figures.values())).all()


def test_parts_of_a_batch_add_up_under_scheduled_sampling() -> None:
    task = job(
        spec(forcing__kind="scheduled", forcing__schedule="constant", forcing__start=0.5, train__batch=5, **SMALL)
    )
    model = task.build().double()
    window = task.window(3)
    whole, _ = task.loss(model, window, slice(0, 5), slice(0, 1), ())
    parts = [task.loss(model, window, some, slice(0, 1), ())[0] for some in (slice(0, 2), slice(2, 5))]
    torch.testing.assert_close(whole, parts[0] + parts[1], rtol=1e-10, atol=0)
    taught = job(spec(train__batch=5, **SMALL)).loss(model, window, slice(0, 5), slice(0, 1), ())[0]
    assert abs(float((taught - whole).detach())) > 1e-6, "half of the inputs were the model's own"


@pytest.mark.parametrize("forcing", ["teacher", "free"])
def test_processes_share_what_one_would_read(forcing: str) -> None:
    found = spec(forcing__kind=forcing, train__batch=4, **SMALL)
    alone = job(found)
    model = alone.build().double()
    window = alone.window(0)
    whole, _ = alone.loss(model, window, slice(0, 4), slice(0, 1), ())
    shares = [
        TranslationJob(found, pairs(), pairs(), alone.languages, Parallel(rank=rank, world=2)) for rank in range(2)
    ]
    losses = [one.loss(model, one.window(0), slice(0, 2), slice(0, 1), ())[0] for one in shares]
    torch.testing.assert_close(whole, losses[0] + losses[1], rtol=1e-10, atol=0)
    assert sum(one.window(0).weight for one in shares) == window.weight


def test_nats_are_those_of_the_definition() -> None:
    task = job(spec(**SMALL))
    model = task.build().double().eval()
    found = told(task.translator, model, task.held_rows)
    by_hand, count = 0.0, 0
    for source, target in zip(task.held_rows.sources, task.held_rows.targets):
        state = model.condition(torch.from_numpy(source)[None])
        last = task.languages.target.end_id
        for token in target.tolist():
            logits_BV, state = model.step(torch.tensor([last]), state)
            by_hand -= float(logits_BV.detach().log_softmax(-1)[0, token])
            last, count = token, count + 1
    assert found.nats == pytest.approx(by_hand, rel=1e-9)
    assert found.tokens == count


def test_nothing_longer_is_written_than_allowed_nor_the_unknown_word() -> None:
    task = job(spec(model__decoder__width=8, decoding__max_ratio=0.5, decoding__extra=2, data__min_count=2))
    writer = Writer(task.translator, task.build().eval(), task.spec.decoding)
    for source, hypotheses in zip(task.held_rows.sources, writer.search(task.held_rows.sources)):
        assert len(hypotheses[0].tokens) <= np.ceil(0.5 * (len(source) - 1)) + 2
        assert task.languages.target.unknown_id not in hypotheses[0].tokens
    learned = spec(
        model__decoder__kind="transformer",
        model__decoder__position="learned",
        model__decoder__context=12,
        data__longest=9,
    )
    assert job(learned).translator.most_written(5) == 11


# -------------------------------------------------------------------- a class or a vector in, a series out


def test_a_series_is_rounded_to_the_nearest_level() -> None:
    where = [Where("file", 1)]
    tokenizer = learn_levels(["-1 0.5 3"], where, 9)
    levels = Levels(tokenizer)
    given = np.random.default_rng(0).uniform(-1, 3, 50)
    rounded = np.array([float(one) for one in levels.rounded(" ".join(map(str, given)), "here").split()])
    assert np.abs(rounded - given).max() <= 0.25 + 1e-9  # half of what is between two levels
    assert set(rounded) <= {-1 + 0.5 * level for level in range(9)}
    assert levels.rounded("-9 99", "here") == levels.rounded("-1 3", "here")
    assert tokenizer.unknown_id not in tokenizer.encode(levels.rounded("0.1 2", "here"))
    assert Levels(learn_levels(["2 2 2"], where, 9)).rounded("5 2", "here").split() == ["2.000000"] * 2


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.integers(2, 200))
def test_levels_are_different_and_cover_what_was_learned(values: list[float], count: int) -> None:
    text = " ".join(map(repr, values))
    rounded = Levels(learn_levels([text], [Where("file", 1)], count)).rounded(text, "here")
    apart = (max(values) - min(values)) / (count - 1)
    np.testing.assert_allclose([float(one) for one in rounded.split()], values, atol=0.6 * apart + 1e-6, rtol=1e-6)


def test_errors_of_series_are_those_by_hand() -> None:
    assert mean_series(["1 2 6", "3 4", "5 0 3"]) == "3 2 4.5"
    found = series_errors(["1 2", "0 0 0 9"], ["1 2 4", "0 1 0"])
    assert found["mse"] == pytest.approx((4 + 1) / 6)  # the first goes on with 2; of the second, 9 is not counted
    assert found["mae"] == pytest.approx((2 + 1) / 6)


@pytest.mark.parametrize("context", ["initial", "each_step", "both"])
@pytest.mark.parametrize("kind", ["class", "vector"])
def test_row_b4_a_class_or_a_vector_conditions_the_decoder(context: str, kind: str) -> None:
    """c is the class's vector or `W x + b`: the first state is `tanh(V c + d)`, or c enters at every step, or both."""
    made = spec(data__source_kind=kind, model__context=context, model__decoder__kind="gru", **SMALL)
    assert isinstance(made.model, Seq2SeqSpec)
    assert made.model.encoder.kind == "linear"
    sources = ["a", "b", "a", "b", "b"] if kind == "class" else ["1 2", "3 5", "1 2", "0 -1", "4 4"]
    given = pairs(sources)
    languages = Languages.learn(made.data, given)
    model: Any = TranslationJob(made, given, given, languages, Parallel()).build().double().eval()
    rows = languages.encode(given)
    batch = rows.batch(np.arange(5), languages.target.end_id)
    source = batch.source.double() if kind == "vector" else batch.source
    state = model.condition(source, batch.source_length_B)
    if kind == "class":
        c_BC = model.reader.entry.weight[source[:, 0]]
    else:
        x_NI = np.array([[float(one) for one in text.split()] for text in sources])
        scaled_NI = torch.from_numpy((x_NI - x_NI.mean(0)) / x_NI.std(0))
        torch.testing.assert_close(source[:, 0], scaled_NI, atol=1e-6, rtol=1e-6)
        c_BC = source[:, 0] @ model.reader.entry.weight.T + model.reader.entry.bias
    begun_BD = model.stack.init_state(5).layers[0].h_BD
    if context != "each_step":
        begun_BD = torch.tanh(c_BC @ model.bridge.maps[0].weight.T + model.bridge.maps[0].bias)
    torch.testing.assert_close(state.mixer.layers[0].h_BD, begun_BD)
    torch.testing.assert_close(state.context_BC, c_BC if context != "initial" else c_BC[:, :0])
    all_BTV, _ = model(batch.input_BT, state)
    torch.testing.assert_close(all_BTV[0, 0], all_BTV[2, 0])  # the same source
    assert (all_BTV[0, 0] - all_BTV[1, 0]).abs().max() > 1e-4
    for t in range(batch.input_BT.shape[1]):
        logits_BV, state = model.step(batch.input_BT[:, t], state)
        torch.testing.assert_close(logits_BV, all_BTV[:, t])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"data__source_kind": "class", "model__kind": "gru"}, "set model.kind = 'seq2seq'"),
        ({"data__target_kind": "series", "model__kind": "gru"}, "set model.kind = 'seq2seq'"),
        ({"data__source_kind": "class", "data__reverse": "true"}, "reverse is for sources that are texts"),
        ({"data__source_kind": "vector", "data__shared_vocab": "true"}, "shared_vocab is for sources that are texts"),
        ({"data__source_column": '["a", "b"]'}, "source_kind = 'vector'"),
        ({"model__encoder__kind": "linear"}, "model.source = 'mean'"),
        ({"model__encoder__kind": "linear", "model__source": "mean", "model__bidirectional": "true"}, "no direction"),
    ],
)
def test_a_class_or_a_vector_has_no_settings_of_a_text(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        spec(**settings)


def test_of_every_class_a_share_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("".join(f"{'abc'[n % 3]}\tx{n}\n" for n in range(60)))
    data = spec(data__source_kind="class", data__train=tmp_path / "p.tsv", data__held_out=0.2).data
    train, held = read_split(data, seed=0)
    assert sorted(held.sources) == sorted("abc" * 4)
    assert len(train) == 48
    with pytest.raises(UserError, match="no embedded pairs of a class and a series"):
        read_split(spec(data__source_kind="class", data__target_kind="series").data, seed=0)
