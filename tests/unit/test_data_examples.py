"""Examples on disk: what a list gives, rows on disk give; damage is found; a folder is finished or begun again."""

import json
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statewise.data import ExampleWriter, Labels, Where, building, chosen, hold_out, lengths_of, mapped, open_examples
from statewise.data.example_shards import ExampleFolder, ExampleIndex, read_example_index
from statewise.data.file import EXAMPLES
from statewise.specs import UserError

TEXTS = ["the cat", "", "naïve 日本", "the cat", "a", "dog " * 40, "a", ""]
IDS = [np.arange(n) * 7 % 300 for n in (3, 0, 5, 1, 0, 40, 2, 0)]
PLACES = [Where("a.txt", n + 1) for n in range(5)] + [Where("b.jsonl", 1), Where("hub:x", 7, "row"), Where("a.txt", 9)]


def write(folder: Path, *, shard_bytes: int = 16) -> ExampleFolder:
    """Shards so small that rows lie in several of them, in two batches of rows."""
    writer = ExampleWriter(folder, shard_bytes=shard_bytes)
    for some in (slice(0, 3), slice(3, None)):
        writer.texts("text", TEXTS[some])
        writer.ids("ids", IDS[some], vocab=300)
        writer.numbers("label", [len(text) % 3 for text in TEXTS[some]])
        writer.places(PLACES[some])
    writer.texts("label_names", ["no", "yes", "perhaps"])
    writer.parts(np.array([0, 2, 3, 5, 6]), np.array([1, 4, 7]))
    writer.file("tokenizer.json", "{}")
    writer.facts |= {"rows": len(TEXTS)}
    writer.finish("classification", {"key": "made"})
    return open_examples(folder, "classification")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ExampleFolder:
    return write(tmp_path_factory.mktemp("examples"))


def equal(found: Any, expected: Any) -> bool:
    return len(found) == len(expected) and all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@given(data=st.data())
def test_rows_on_disk_are_those_of_a_list(folder: ExampleFolder, data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, len(TEXTS) - 1), max_size=12))
    names = [("no", "yes", "perhaps")[len(text) % 3] for text in TEXTS]
    columns = [
        (folder.texts("text"), TEXTS),
        (folder.ids("ids", below=300), IDS),
        (folder.names("label"), names),
        (folder.places(), PLACES),
        (mapped(folder.ids("ids", below=300), lambda row: row[:2], lambda length_N: np.minimum(length_N, 2)), None),
    ]
    for rows, plain in columns:
        expected = [row[:2] for row in IDS] if plain is None else plain
        some = chosen(rows, index)
        assert equal(rows, expected)
        assert equal(some, [expected[i] for i in index])
        assert equal([some[at] for at in range(len(index))], [expected[i] for i in index])
        assert equal(some[1:4], [expected[i] for i in index][1:4])  # a slice of a choice
        assert equal(chosen(some, range(0, len(index), 2)), [expected[i] for i in index[::2]])
        with pytest.raises(IndexError):
            rows[len(expected)]
    for rows, plain in columns[1::3]:
        expected = [row[:2] for row in IDS] if plain is None else plain
        assert lengths_of(chosen(rows, index)).tolist() == [len(expected[i]) for i in index]
    padded_UC, length_U = folder.ids("ids", below=300).padded(np.array(index, dtype=np.int64))
    assert length_U.tolist() == [len(IDS[i]) for i in index]
    assert equal([row_C[:length] for row_C, length in zip(padded_UC, length_U)], [IDS[i] for i in index])
    assert all(not row_C[length:].any() for row_C, length in zip(padded_UC, length_U))


def test_what_is_counted_is_that_of_a_list(folder: ExampleFolder) -> None:
    texts, labels = folder.texts("text"), folder.names("label")
    numbers: dict[str, int] = {}
    assert texts.numbered().tolist() == [numbers.setdefault(text, len(numbers)) for text in TEXTS]
    # Of three texts that are there twice, the one that comes first; of a part, the first of that part.
    assert texts.most_frequent() == Counter(TEXTS).most_common(1)[0][0] == "the cat"
    assert texts.chosen([7, 4, 6, 1]).most_frequent() == ""
    learned, known = Labels.of(labels), Labels.of(list(labels))
    assert (learned.names, learned.counts) == (known.names, known.counts)
    only = Labels.of(["no"])
    for found in (only.encode(labels, unseen="wrong"), only.encode(list(labels), unseen="wrong")):
        assert found.ids_N.tolist() == [0 if name == "no" else -1 for name in labels]
        assert found.unseen == Counter(name for name in labels if name != "no")
    with pytest.raises(UserError, match=r"a\.txt line 1: label 'yes' is not among those learned"):
        only.encode(labels, where=folder.places())


@pytest.mark.parametrize("kind", ["groups", "strata"])
def test_what_is_held_out_is_the_same(kind: str, folder: ExampleFolder) -> None:
    on_disk: Any = folder.texts("text") if kind == "groups" else folder.names("label")
    for seed in range(5):
        found, expected = (hold_out(8, share=0.3, seed=seed, **{kind: keys}) for keys in (on_disk, list(on_disk)))
        assert equal(found, expected)


def test_damage_is_found_where_it_is_touched(tmp_path: Path) -> None:
    folder = write(tmp_path)
    damaged = tmp_path / "text-00005.values"
    content = bytearray(damaged.read_bytes())
    content[3] ^= 1
    damaged.write_bytes(content)
    opened = open_examples(tmp_path, "classification")
    assert opened.texts("text")[0] == TEXTS[0]  # in another shard
    with pytest.raises(UserError, match=r"text-00005\.values' is damaged") as caught:
        opened.texts("text")[5]
    assert "build it again" in str(caught.value)
    damaged.write_bytes(content[:-1])
    with pytest.raises(UserError, match="has 15 bytes, and the index says 16"):
        opened.texts("text")
    damaged.unlink()
    with pytest.raises(UserError, match="is missing: the index lists it"):
        folder.texts("text")
    (tmp_path / "tokenizer.json").write_text("[]")
    with pytest.raises(UserError, match=r"tokenizer\.json' is damaged"):
        open_examples(tmp_path, "classification")


def test_numbers_out_of_range_are_refused(tmp_path: Path) -> None:
    """A folder whose sums are right, but whose numbers are not."""
    folder = write(tmp_path)
    with pytest.raises(UserError, match="holds a number that is not below 100"):
        list(folder.ids("ids", below=100))
    writer = ExampleWriter(tmp_path / "other")
    (tmp_path / "other").mkdir()
    writer.numbers("text.ends", [5, 2, 9])
    writer.texts("other", ["abc"])
    read = writer.read()
    ends, values = read.numbers("text.ends"), read.numbers("other")
    rows = type(folder.texts("text"))(values, ends)
    for at in range(3):
        with pytest.raises(UserError, match="ends where none can"):
            rows[at]


def test_another_task_and_another_kind_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path)
    with pytest.raises(UserError, match="holds examples for the task classification, and tree is trained"):
        open_examples(tmp_path, "tree")
    with pytest.raises(UserError, match="has no column 'nothing'"):
        folder.texts("nothing")
    with pytest.raises(UserError, match="does not say 'sha256'"):
        folder.fact("sha256", str)


def test_a_build_begins_again_or_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def fail() -> None:
        with building(out, "key"):
            (out / "text-00000.values").write_bytes(b"x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [path.name for path in out.iterdir() if not path.name.startswith(".")] == []
    # A kill leaves files behind, and its mark.
    (out / "unfinished.json").write_text('{"examples": "other"}')
    (out / "text-00007.values").write_bytes(b"left behind")
    with building(out, "made") as begun:
        assert begun
        write(out)
    assert not (out / "text-00007.values").read_bytes().startswith(b"left")
    assert not (out / "unfinished.json").exists()
    with building(out, "made") as begun:
        assert not begun
    with pytest.raises(UserError, match="holds examples of other files"), building(out, "other"):
        pass
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds other files: mine\.txt"), building(tmp_path / "full", "made"):
        pass
    assert (tmp_path / "full" / "mine.txt").exists()


def test_no_index_crashes_the_reader(tmp_path: Path) -> None:
    write(tmp_path)
    path, chance = tmp_path / EXAMPLES, random.Random(0)
    text = path.read_text()
    strange = [None, -1, 1 << 70, 0.5, "x", "../x", [], {}, [{}], True]
    refused = 0
    for number in range(200):
        if number % 2:
            made = inside = json.loads(text)
            while True:
                key = chance.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
                if not isinstance(inside[key], dict | list) or not inside[key] or chance.random() < 0.3:
                    inside[key] = chance.choice(strange)
                    break
                inside = inside[key]
            with suppress(ValueError, KeyError, TypeError):  # by somebody who knows how the sum is made
                made["sha256"] = ExampleIndex.model_validate(made["index"]).sha256
            path.write_text(json.dumps(made))
        else:
            start = chance.randrange(len(text))
            path.write_bytes(text[:start].encode() + chance.randbytes(3) + text[start + 3 :].encode())
        try:
            opened = open_examples(tmp_path, "classification")
            list(opened.texts("text"))
            list(opened.names("label"))
            opened.part("train")
        except UserError:
            refused += 1
    assert refused > 100
    path.write_text("[" * 100_000)
    with pytest.raises(UserError, match="damaged"):
        read_example_index(tmp_path)
