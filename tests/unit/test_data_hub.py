"""Hugging Face datasets that lie on this machine, read as tables."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from statewise.data import Layout, read_hub, read_tagged, read_trees, with_tags
from statewise.data.labelled import labelled_columns
from statewise.data.pairs import pair_columns
from statewise.data.series import read_series
from statewise.data.source import open_source
from statewise.specs import UserError

datasets = pytest.importorskip("datasets", reason="the extra `hub` is not installed")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test writes into the user's own cache, or asks the network."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    features = datasets.Features(
        {
            "review": datasets.Value("string"),
            "stars": datasets.ClassLabel(names=["bad", "good"]),
            "translation": {"de": datasets.Value("string"), "en": datasets.Value("string")},
        }
    )
    rows = {
        "review": ["fine", "awful"],
        "stars": [1, 0],
        "translation": [{"de": "gut", "en": "good"}, {"de": "schlecht", "en": "bad"}],
    }
    table = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": table, "test": table.select([1])}).save_to_disk(str(tmp_path / "saved"))
    return tmp_path / "saved"


def test_a_saved_dataset(saved: Path) -> None:
    rows = read_hub(saved, ["stars", "review"])
    found = list(labelled_columns(rows, text="review", label="stars"))
    assert [(one.text, one.label) for one in found] == [("fine", "good"), ("awful", "bad")]
    assert str(found[1].where) == f"{saved} train row 1"
    assert len(read_hub(saved, ["review"], split="test")) == 1


def test_a_column_inside_a_column(saved: Path) -> None:
    columns = ("translation.de", "translation.en")
    assert [p[:2] for p in pair_columns(read_hub(saved, columns), columns=columns)] == [
        ("gut", "good"),
        ("schlecht", "bad"),
    ]


def test_files_by_their_kind_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "train.csv").write_text("text,label\nx,1\ny,0\n")
    for name, files in (("csv", str(tmp_path / "folder" / "train.csv")), (str(tmp_path / "folder"), None)):
        found = labelled_columns(read_hub(name, ["text", "label"], data_files=files), text="text", label="label")
        assert [(one.text, one.label) for one in found] == [("x", "1"), ("y", "0")]
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "z"}) + "\n")
    assert (
        read_hub("json", ["text"], data_files={"test": str(tmp_path / "a.jsonl")}, split="test")[0].text("text") == "z"
    )


def test_what_is_not_there_is_named(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no column 'star'\ndid you mean 'stars'"):
        read_hub(saved, ["star"])
    with pytest.raises(UserError, match=r"has no split 'tset'\ndid you mean 'test'"):
        read_hub(saved, ["stars"], split="tset")
    with pytest.raises(UserError, match=r"row 0: column 'translation' holds no 'fr'"):
        read_hub(saved, ["translation.fr"])
    with pytest.raises(UserError, match=r"nowhere' cannot be loaded"):
        read_hub(str(tmp_path / "nowhere"), ["text"])


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    tags = datasets.ClassLabel(names=["O", "B-X", "I-X"])
    rows = {"tokens": [["the", "cat"], [], ["a", "b"]], "ner_tags": [[0, 2], [], [1, 2]], "short": [["O"], [], ["O"]]}
    features = datasets.Features(
        {
            "tokens": datasets.Sequence(datasets.Value("string")),
            "ner_tags": datasets.Sequence(tags),
            "short": datasets.Sequence(datasets.Value("string")),
        }
    )
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows, features=features)}).save_to_disk(
        str(tmp_path / "tagged")
    )
    return tmp_path / "tagged"


def test_sentences_are_lists_of_words_and_tags(tagged: Path) -> None:
    layout = Layout(tag="ner_tags")
    found = read_tagged(f"hub:{tagged}", layout=layout)
    assert [(one.words, one.tags) for one in found] == [(("the", "cat"), ("O", "I-X")), (("a", "b"), ("B-X", "I-X"))]
    assert found.counts["empty sentences"] == 1
    assert str(found[1].where).endswith("train row 2")
    assert read_tagged(f"hub:{tagged}", layout=layout, scheme="iob2")[0].tags == ("O", "B-X")
    words = read_tagged(f"hub:{tagged}", layout=layout, tags=False)
    assert [one.words for one in words] == [("the", "cat"), (), ("a", "b")], "no row is lost where one is predicted"
    lines = list(with_tags(f"hub:{tagged}", [["1", "2"], [], ["3", "4"]], layout=layout))
    assert lines == ["the\t1", "cat\t2", "", "", "a\t3", "b\t4", ""]
    with pytest.raises(UserError, match=r"no column 'tags' in .*\n.*{\"data.tag\": \"ner_tags\"}"):
        read_tagged(f"hub:{tagged}")
    with pytest.raises(UserError, match=r"row 0: 2 words in 'tokens', but 1 tags in 'short'"):
        read_tagged(f"hub:{tagged}", layout=Layout(tag="short"))


def test_series_and_trees(tmp_path: Path) -> None:
    begin = datetime(2024, 1, 1)
    rows = {"date": [begin + timedelta(hours=i) for i in range(5)], "load": [1.5, None, 2.0, 3.0, -4.0]}
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows)}).save_to_disk(str(tmp_path / "series"))
    (series,) = read_series(f"hub:{tmp_path / 'series'}")
    assert series.channels == ("load",)
    assert series.values_TC[:, 0].tolist()[2:] == [2.0, 3.0, -4.0]
    assert np.isnan(series.values_TC).sum() == 1
    assert series.time_T[1] == np.datetime64("2024-01-01T01:00")
    trees = {"tree": ["(1 (0 a) (1 b))", "(0 c)"]}
    datasets.DatasetDict({"train": datasets.Dataset.from_dict(trees)}).save_to_disk(str(tmp_path / "trees"))
    found = read_trees(f"hub:{tmp_path / 'trees'}")
    assert [one.words() for one in found] == [["a", "b"], ["c"]]
    assert str(found[1].where).endswith("train row 1")


def test_the_texts_of_a_dataset_are_documents(tmp_path: Path) -> None:
    """In the dataset's own order, which is not that of its memory."""
    texts = ["one cat", "two\r\ndogs é", "", "three"] * 200
    whole = datasets.Dataset.from_dict({"n": list(range(len(texts))), "body": texts}).shuffle(seed=1)
    datasets.DatasetDict({"train": whole, "test": whole.select(range(3))}).save_to_disk(str(tmp_path / "texts"))
    source = open_source([f"hub:{tmp_path / 'texts'}"], text_column="body")
    found, text = [], ""
    for piece in source.pieces(piece=5):
        text += piece.text
        if piece.ends:
            found.append(text)
            text = ""
    assert found == [row["body"].replace("\r\n", "\n") for row in whole]
    assert source.size == sum(len(row.encode()) for row in texts)
    again, part = (open_source([f"hub:{tmp_path / 'texts'}:{one}"], text_column="body") for one in ("train", "test"))
    assert again.fingerprint() == source.fingerprint() != part.fingerprint()
    with pytest.raises(UserError, match=r"if the text is in 'body'"):
        open_source([f"hub:{tmp_path / 'texts'}"])
    with pytest.raises(UserError, match="column 'n' holds int64, expected text"):
        open_source([f"hub:{tmp_path / 'texts'}"], text_column="n")
    with pytest.raises(UserError, match="has no split 'dev'"):
        open_source([f"hub:{tmp_path / 'texts'}:dev"], text_column="body")
