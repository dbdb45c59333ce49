"""Hugging Face datasets that lie on this machine, read as tables."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from statewise.data import labelled_columns, pair_columns, read_hub
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
    found = labelled_columns(rows, text="review", label="stars")
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
