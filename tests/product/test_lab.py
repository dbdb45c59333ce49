"""`statewise lab`: runs of one's own in a page, what is in it, and what is refused."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from command import TEXT, TINY, call

import statewise as sw
from statewise.lab.bundle import lineage
from statewise.models import LINEAGE
from statewise.specs import UserError


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    for name, more in {"lstm": (), "markov": (), "words": ("--set", "data.tokenizer=word")}.items():
        kind = "elman" if name == "words" else name
        tiny = TINY if kind != "markov" else ()
        out = str(folder / name)
        done = call("train", kind, "--data", str(folder / "text.txt"), "--out", out, "--quiet", *tiny, *more)
        assert done.code == 0, done.err
    return folder


def data_of(page: Path) -> dict[str, Any]:
    (packed,) = re.findall(r'id="data">([^<]*)<', page.read_text(encoding="utf-8"))
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return found


def test_own_runs_become_a_page(world: Path, tmp_path: Path) -> None:
    page = tmp_path / "my.html"
    said = call("lab", str(world / "lstm"), str(world / "markov"), "--out", str(page), "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["models"] == ["lstm", "markov"]
    lstm, markov = data_of(page)["models"]
    assert (lstm["family"], lstm["year"], lstm["task"]) == ("recurrent", 1997, "language_model")
    assert lstm["weights"]["kind"] == "f2"
    assert "layers.0.lstm.forget_gate" in lstm["lens"]
    assert [leaf["name"] for leaf in lstm["states"]] == ["layers.0.h_BP", "layers.0.c_BD"]
    assert markov["table"]["order"] == 7
    assert "graph" not in markov


def test_exact_weights_are_twice_as_large(world: Path) -> None:
    run = sw.load(world / "words", device="cpu")
    half, whole = (sw.lab.bundle([run], exact, {})["models"][0]["weights"] for exact in (False, True))
    assert (half["kind"], whole["kind"]) == ("f2", "f4")
    assert len(base64.b64decode(whole["data"])) == 2 * len(base64.b64decode(half["data"]))


def test_two_runs_of_one_name_are_told_apart_by_number(world: Path) -> None:
    run = sw.load(world / "markov", device="cpu")
    assert [model["name"] for model in sw.lab.bundle([run, run], extra={})["models"]] == ["markov (1)", "markov (2)"]


def test_what_does_not_read_token_by_token_is_refused(world: Path, tmp_path: Path) -> None:
    rows = [("good film", "good"), ("bad film", "bad")] * 8
    trained = sw.train("classification", data=rows, steps=2, out=tmp_path / "both-ways")
    with pytest.raises(UserError, match="does not read a text token by token"):
        sw.lab.bundle([trained.load()])
    said = call("lab", "--exact", "--out", str(tmp_path / "lab.html"))
    assert said.code == 2
    assert "leave out --exact" in said.err


def test_the_lineage_comes_with_the_package(tmp_path: Path) -> None:
    """All models of the lineage on one page of at most 4 MB, and those of the Italy question."""
    page = tmp_path / "lab.html"
    said = call("lab", "--out", str(page), "--json")
    assert said.code == 0, said.err
    models = data_of(page)["models"]
    readers = [model for model in models if model["task"] == "classification"]
    writers = [model for model in models if model["task"] == "language_model"]
    assert [model["name"] for model in writers] == [row.name for row in LINEAGE]
    assert all(57_000 <= model["parameters"] <= 63_000 for model in writers if model["name"] != "markov")
    assert len(readers) == 8
    assert page.stat().st_size <= 4_000_000
    asked = lineage()["extra"]["ask"]
    assert {passage["distance"] for passage in asked["passages"]} == {8, 16, 32, 64, 128}
    assert asked["accuracy"].keys() == {model["name"] for model in readers}
