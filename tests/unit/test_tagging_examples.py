"""Sentences as batches of words, parts of long ones, and the job's windows."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from statewise.data import Layout, Tagged, Where, read_tagged, with_tags
from statewise.models.tagger import Tags, Words
from statewise.specs import TaggingSpec, UserError, WordsSpec, make_spec
from statewise.tasks.job import Opening
from statewise.tasks.tagging.examples import (
    Encoding,
    Known,
    in_parts,
    learn_encoding,
    lexicon_from_json,
    lexicon_to_json,
)
from statewise.tasks.tagging.job import TaggingJob, by_sentence, guess
from statewise.training import Parallel


def sentence(text: str, tags: str = "", *, line: int = 1) -> Tagged:
    return Tagged(tuple(text.split()), tuple(tags.split()), Where("a.txt", line))


TRAIN = [
    sentence("The cat sat", "D N V"),
    sentence("the dog saw the cat", "D N V D N", line=5),
    sentence("Dogs sat", "N V", line=11),
    sentence("run", "V", line=14),
]


def encoding(**settings: Any) -> Encoding:
    return learn_encoding(WordsSpec.model_validate(settings), TRAIN)


# ------------------------------------------------------------------ parts


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 12))
def test_parts_cover_every_word_once(lengths: list[int], longest: int) -> None:
    begin_P, length_P = in_parts(lengths, longest)
    assert length_P.min() >= 1
    assert length_P.max() <= longest
    assert len(begin_P) == sum(-(-length // longest) for length in lengths)
    assert begin_P.tolist() == np.cumsum([0, *length_P])[:-1].tolist()
    assert int(length_P.sum()) == sum(lengths)
    # No part reaches over the end of its sentence.
    assert set(np.cumsum(lengths)) <= set((begin_P + length_P).tolist())


def test_parts_of_a_sentence_are_alike() -> None:
    assert in_parts([10, 3], 4)[1].tolist() == [3, 3, 4, 3]


# ------------------------------------------------------------------ batches


def test_a_batch_spells_each_different_word_once() -> None:
    known = encoding(lower=True)
    rows = known.encode(TRAIN, in_parts([len(one.words) for one in TRAIN], 4))
    assert len(rows) == 5  # the second sentence has five words
    batch = rows.batch(np.array([2, 0, 4]))
    assert batch.lengths_B.tolist() == [3, 3, 1]
    expected = [["saw", "the", "cat"], ["The", "cat", "sat"], ["run"]]
    words = batch.words
    assert len(words.char_UC) == len({word for row in expected for word in row})
    for row, texts in enumerate(expected):
        for place, text in enumerate(texts):
            slot = int(words.slot_BT[row, place])
            assert words.word_BT[row, place] == known.words.encode_words([text])[0]
            spelled = words.char_UC[slot, : words.length_U[slot]]
            assert spelled.tolist() == known.characters.encode(text).tolist()


def test_the_case_is_in_the_characters_alone() -> None:
    for lower in (True, False):
        known = encoding(lower=lower)
        a, b = known.words.encode_words(["The", "the"])
        assert (a == b) == lower
    assert known.characters.encode("Te").tolist() != known.characters.encode("te").tolist()


def test_new_words_and_characters_are_unknown_and_rare_ones_too() -> None:
    known = encoding()
    assert known.words.encode_words(["zebra"]).tolist() == [known.unknown_id]
    unknown = known.characters.unknown_id
    # "D" is in one word only ("Dogs"), "z" in none: what is learnt of the first serves the second.
    assert known.characters.encode("Dz").tolist() == [unknown, unknown]
    assert known.characters.encode("s").tolist() != [unknown]
    assert encoding(min_count=2).words.encode_words(["run"]).tolist() == [known.unknown_id]


def test_of_a_long_word_both_ends_are_read() -> None:
    known = encoding(longest=5)
    rows = known.encode([sentence("tac" + "o" * 40 + "dog")], in_parts([1], 9))
    expected = known.characters.encode("tadog")  # two of the beginning, three of the end
    assert rows.batch(np.array([0])).words.char_UC[0].tolist() == expected.tolist()


def test_guesses_stand_in_the_order_of_the_words() -> None:
    class ById(nn.Module):
        """A tagger that says the remainder of a word's number."""

        def forward(self, words: Words, lengths_B: torch.Tensor) -> Tags:
            best_BT = words.word_BT % 3
            p_BTK = torch.nn.functional.one_hot(best_BT, 3).double() * 0.5 + 0.1
            return Tags(best_BT, p_BTK)

    known = encoding()
    rows = known.encode(TRAIN, in_parts([len(one.words) for one in TRAIN], 2))
    words = [word for one in TRAIN for word in one.words]
    expected = known.words.encode_words(words) % 3
    true = np.where(np.arange(len(words)) == 4, -1, expected)  # -1: a tag that training never showed
    true[0] = (true[0] + 1) % 3
    found = guess(ById(), rows, true, device=torch.device("cpu"))
    assert found.best_N.tolist() == expected.tolist()
    assert found.p_N.tolist() == pytest.approx([0.6] * len(words))
    seen = len(words) - 1
    assert found.nats == pytest.approx(-(np.log(0.1) + (seen - 1) * np.log(0.6)) / seen)
    assert [list(row) for row in by_sentence(words, TRAIN)] == [list(one.words) for one in TRAIN]


# ------------------------------------------------------------------ the trivial tagger


def test_the_lexicon_comes_back_from_its_file() -> None:
    lexicon = Known.learn(WordsSpec(), TRAIN).lexicon
    assert lexicon.tag(["cat", "the", "new"]) == ["N", "D", "N"]
    assert lexicon_from_json(lexicon_to_json(lexicon)) == lexicon
    for damaged in ("{", "[]", '{"words": []}', '{"words": {}}'):
        with pytest.raises(UserError, match="lexicon"):
            lexicon_from_json(damaged)


# ------------------------------------------------------------------ the job


def spec_of(**settings: Any) -> TaggingSpec:
    train = {"batch": 2}
    spec = make_spec({"task": "tagging", "model": {"width": 6}, "words": {"characters": 3}, "train": train, **settings})
    assert isinstance(spec, TaggingSpec)
    return spec


def job_of(spec: TaggingSpec, *, train: list[Tagged] = TRAIN, par: Parallel | None = None) -> TaggingJob:
    return TaggingJob(spec, train, train[:2], Known.learn(spec.words, train), par or Parallel())


def test_a_window_is_divided_by_what_its_words_weigh() -> None:
    plain, balanced = (job_of(spec_of(objective={"weights": weights})) for weights in ("none", "balanced"))
    counts = Counter(tag for one in TRAIN for tag in one.tags)
    total = sum(counts.values())
    weight = {tag: total / (len(counts) * count) for tag, count in counts.items()}
    for step in range(4):
        window = plain.window(step)
        assert window.weight == window.tokens == int(window.content.batch.lengths_B.sum())
        again = balanced.window(step)
        names = balanced.known.tags.names
        inside = [row[:length] for row, length in zip(again.content.tags_BT, again.content.batch.lengths_B)]
        assert again.weight == pytest.approx(sum(weight[names[i]] for row in inside for i in row.tolist()))


def test_two_processes_read_what_one_does() -> None:
    alone = job_of(spec_of())
    two = [job_of(spec_of(), par=Parallel(rank=rank, world=2)) for rank in range(2)]
    model = alone.build().eval()
    for step in range(3):
        whole, parts = alone.window(step), [job.window(step) for job in two]
        rows = slice(0, None)
        loss = float(alone.loss(model, whole, rows, rows, ())[0].detach()) / whole.weight
        shares = [
            float(job.loss(model, part, rows, rows, ())[0].detach()) / part.weight for job, part in zip(two, parts)
        ]
        if whole.rows == 2:
            assert float(np.mean(shares)) == pytest.approx(loss, rel=1e-5)
        assert all(part.tokens >= whole.tokens for part in parts)


def test_accumulation_reads_the_same_words() -> None:
    job = job_of(spec_of(objective={"kind": "crf"}))
    model, window = job.build().eval(), job.window(0)
    times = slice(0, 1)
    whole = job.loss(model, window, slice(0, 2), times, ())[0].detach()
    parts = [job.loss(model, window, slice(i, i + 1), times, ())[0].detach() for i in range(2)]
    torch.testing.assert_close(sum(parts), whole)


SPANS = [
    sentence("I saw New York today", "O O B-place I-place O"),
    sentence("Rio de Janeiro", "B-place I-place I-place", line=7),
]


def test_a_span_that_has_no_beginning_is_refused_by_line() -> None:
    spec = spec_of(objective={"kind": "crf"})
    broken = [*SPANS, sentence("to Rome", "O I-place", line=11)]
    with pytest.raises(UserError, match=r"a\.txt line 11: word 2 .*'I-place' after 'O'.*[\s\S]*scheme = iob2"):
        job_of(spec, train=broken)
    job_of(spec_of(objective={"kind": "crf", "constraint": "none"}), train=broken)
    job_of(spec_of(), train=broken)


def test_a_part_in_the_midst_of_a_span_begins_one() -> None:
    job = job_of(spec_of(objective={"kind": "crf"}, data={"longest": 2}), train=SPANS)
    model = job.build()
    names, seen = job.known.tags.names, []
    for step in range(3):
        window = job.window(step)
        loss, _ = job.loss(model, window, slice(0, 2), slice(0, 1), ())
        assert torch.isfinite(loss)
        for row, length in zip(window.content.tags_BT, window.content.batch.lengths_B.tolist()):
            seen.append(tuple(names[i] for i in row[:length].tolist()))
    assert ("B-place", "I-place") in seen  # the end of Rio de | Janeiro, or the midst of it
    assert not [row for row in seen if row[0].startswith("I-")]


def test_what_decides_depends_on_the_tags() -> None:
    assert list(job_of(spec_of()).judges) == ["accuracy", "nats"]
    spec = spec_of()
    job = TaggingJob(spec, SPANS, SPANS, Known.learn(spec.words, SPANS), Parallel())
    assert next(iter(job.judges)) == "span_f1"
    figures = job.evaluate(job.build().eval(), lambda: None)
    assert figures.keys() == job.judges.keys()
    assert 0 <= figures["span_f1"] <= 1


def test_what_is_known_comes_back_from_a_folder(tmp_path: Path) -> None:
    spec = WordsSpec()
    known = Known.learn(spec, TRAIN)
    for name, payload in known.files().items():
        assert isinstance(payload, str)
        (tmp_path / name).write_text(payload, encoding="utf-8")
    again = Known.load(spec, tmp_path)
    assert again.files() == known.files()
    assert json.loads((tmp_path / "labels.json").read_text())["labels"] == {"D": 3, "N": 4, "V": 4}
    (tmp_path / "lexicon.json").unlink()
    with pytest.raises(UserError, match=r"lexicon\.json"):
        Known.load(spec, tmp_path)


@pytest.mark.parametrize("column", [3, -4])
def test_a_file_that_lacks_the_column_of_tags_gets_one(column: int, tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_text("a b\nc d\n\ne f\n")
    layout = Layout(tag=column)
    assert [one.words for one in read_tagged(file, layout=layout, tags=False)] == [("a", "c"), ("e",)]
    assert list(with_tags(file, [["X", "Y"], ["Z"]], layout=layout)) == ["a b X", "c d Y", "", "e f Z"]


def test_the_embedded_data_are_there_without_a_file() -> None:
    job = TaggingJob.open(spec_of(), Opening(Path("nowhere"), Parallel()))
    assert len(job.train_rows) > 2000
    assert len(job.held_rows) > 300
    assert len(job.known.tags) >= 8
