"""Where rows come from: files in other encodings, with other separators, and Hugging Face datasets on this machine."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import call

from statewise.data import read_hub
from statewise.data.hub import HubName, hub_name
from statewise.specs import UserError, make_spec

QUICK = ["train.steps=2", "train.evaluate_every=2", "train.batch=4", "data.held_out=0.25"]
SMALL = {
    "classification": ["model.width=8", "model.embedding=8"],
    "tree": ["model.width=8", "model.embedding=8"],
    "translation": ["model.encoder.width=8", "model.decoder.width=8", "decoding.watch=0"],
}


def start(task: str, data: str, out: Path, *settings: str) -> None:
    chosen = [word for one in [*QUICK, *SMALL[task], *settings] for word in ("--set", one)]
    said = call("train", task, "--data", data, *chosen, "--out", str(out), "--quiet")
    assert said.code == 0, said.err


LATIN = {
    "classification": ("DESC Qu'est-ce qu'un caf\u00e9 ?\nLOC O\u00f9 est le caf\u00e9 ?\n", "data.format=label-first"),
    "translation": ("o\u00f9 est le caf\u00e9 ;wo ist das Caf\u00e9\n\u00e9t\u00e9;Sommer\n", "data.format=tsv"),
    "tree": ("(\u00e9t\u00e9 (1 caf\u00e9) (0 na\u00efve))\n(1 caf\u00e9)\n", "data.unary=keep"),
}


@pytest.mark.parametrize("task", LATIN)
def test_files_in_another_encoding(task: str, tmp_path: Path) -> None:
    text, form = LATIN[task]
    path = tmp_path / "latin.txt"
    path.write_bytes(text.encode("latin-1") * 6)
    said = call("train", task, "--data", str(path), "--set", form, "--out", str(tmp_path / "no"))
    assert said.code == 2
    assert "latin.txt line 1" in said.err
    assert "--set data.encoding=latin-1" in said.err
    more = ["data.delimiter=;"] if task == "translation" else []
    start(task, str(path), tmp_path / "run", form, "data.encoding=latin-1", *more)
    said = call("evaluate", str(tmp_path / "run"), "--data", str(path), "--json")
    assert said.code == 0, said.err
    said = call("predict", str(tmp_path / "run"), str(path), "--json")
    assert said.code == 0, said.err
    found = [json.loads(line) for line in said.out.splitlines()]
    assert [row["line"] for row in found] == list(range(1, 13))
    if task == "translation":
        assert found[1]["source"] == "\u00e9t\u00e9"
    if task == "tree":
        assert "na\u00efve" in found[0]["tree"]


def test_another_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("label|text\n" + "good|a, b\nbad|c\n" * 6)
    start("classification", str(path), tmp_path / "run", "data.delimiter=|")
    assert len(call("predict", str(tmp_path / "run"), str(path)).out.splitlines()) == 12


def test_names_of_datasets() -> None:
    assert hub_name("a.tsv") is None
    assert hub_name(Path("hub:imdb")) == HubName("imdb", None, "train")
    assert hub_name("hub:user/name:test") == HubName("user/name", None, "test")
    assert hub_name("hub:wmt14:de-en:test") == HubName("wmt14", "de-en", "test")
    for wrong in ("hub:", "hub::train", "hub:a:", "hub:a:b:c:d"):
        with pytest.raises(UserError, match="names no dataset"):
            hub_name(wrong)


def test_names_of_datasets_are_no_paths() -> None:
    table = {"task": "classification", "data": {"train": ["hub:imdb:train", "a.tsv"], "validation": "hub:imdb:test"}}
    data = make_spec(table).absolute().data.model_dump()
    assert data["train"] == ("hub:imdb:train", str(Path("a.tsv").absolute()))
    assert data["validation"] == ("hub:imdb:test",)


# ------------------------------------------------------------------ datasets that were saved

datasets = pytest.importorskip("datasets", reason="the extra `hub` is not installed")


@pytest.fixture(autouse=True)
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


@pytest.fixture
def saved(tmp_path: Path) -> str:
    features = datasets.Features(
        {
            "stars": datasets.ClassLabel(names=["bad", "good"]),
            "review": datasets.Value("string"),
            "translation": {"de": datasets.Value("string"), "en": datasets.Value("string")},
        }
    )
    sides = [{"de": f"Film {i}", "en": f"film {i}"} for i in range(12)]
    rows = {"stars": [0, 1] * 6, "review": ["dull", "warm"] * 6, "translation": sides}
    table = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": table, "test": table.select(range(4))}).save_to_disk(str(tmp_path / "saved"))
    return f"hub:{tmp_path / 'saved'}"


def test_rows_of_a_dataset_are_classified(saved: str, tmp_path: Path) -> None:
    columns = ("data.text=review", "data.label=stars")
    start("classification", f"{saved}:train", tmp_path / "run", *columns, f"data.validation={saved}:test")
    said = call("evaluate", str(tmp_path / "run"), "--json")
    assert json.loads(said.out)["rows"] == 4
    assert json.loads(said.out)["labels"] == ["bad", "good"]
    said = call("predict", str(tmp_path / "run"), f"{saved}:test", "--json")
    assert [json.loads(line)["line"] for line in said.out.splitlines()] == [0, 1, 2, 3]


def test_rows_of_a_dataset_are_translated(saved: str, tmp_path: Path) -> None:
    columns = ("data.source_column=translation.de", "data.target_column=translation.en")
    start("translation", f"{saved}:train", tmp_path / "run", *columns)
    said = call("predict", str(tmp_path / "run"), f"{saved}:test", "--json")
    assert [json.loads(line)["source"] for line in said.out.splitlines()] == [f"Film {i}" for i in range(4)]


def test_columns_by_number(saved: str) -> None:
    rows = read_hub(saved.removeprefix("hub:"), [1, 0])
    assert [(row.text(1), row.text(0)) for row in rows[:2]] == [("dull", "bad"), ("warm", "good")]
    with pytest.raises(UserError, match=r"has no column 7\ncolumns are numbered from 0: stars, review"):
        read_hub(saved.removeprefix("hub:"), [7])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("{}:tset", "no split 'tset'"),
        ("{}:train", "--set data.text=review --set data.label=stars"),
        ("hub:/nowhere:train", "cannot be loaded"),
    ],
)
def test_what_is_not_there_is_named(name: str, says: str, saved: str, tmp_path: Path) -> None:
    said = call("train", "classification", "--data", name.format(saved), "--out", str(tmp_path / "run"))
    assert said.code == 2
    assert says in said.err
    assert not (tmp_path / "run").exists()
