"""Published results from the command line: a recipe, a folder of data, a verdict."""

import json
from pathlib import Path

import pytest
from command import call

from statewise.specs import PublishedSpec, load_published, published_names
from statewise.tasks.reproduce import judge

RECIPE = """
task = "classification"
[model]
kind = "gru"
width = 8
[data]
min_count = 1
[train]
steps = 60
batch = 4
lr = 0.02
warmup = 2
evaluate_every = 20
[published]
metric = "accuracy"
better = "higher"
figure = {figure}
expected = {expected}
source = "somebody"
evaluate = ["held*.tsv"]
[published.files]
"data.train" = "train.tsv"
"data.validation" = "held*.tsv"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    words = {"good": ("warm", "funny"), "bad": ("dull", "cold")}
    rows = [f"{label}\ta {word} film\n" for _ in range(6) for label, some in words.items() for word in some]
    (tmp_path / "train.tsv").write_text("label\ttext\n" + "".join(rows))
    (tmp_path / "held-out.tsv").write_text("label\ttext\n" + "".join(rows[:4]))
    return tmp_path


def write(folder: Path, *, figure: float, expected: str) -> str:
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(figure=figure, expected=expected))
    return str(path)


def test_a_result_that_lands(folder: Path) -> None:
    recipe = write(folder, figure=0.9, expected="[0.9, 1.0]")
    said = call("reproduce", recipe, "--data", str(folder), "--out", str(folder / "run"), "--json", "--quiet")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["found"] == 1.0
    assert found["landed"] is True
    assert found["reached"] is True


def test_a_result_that_does_not(folder: Path) -> None:
    recipe = write(folder, figure=1.1, expected="[0.1, 0.2]")
    said = call("reproduce", recipe, "--data", str(folder), "--out", str(folder / "run"), "--quiet")
    assert said.code == 1
    assert "OUTSIDE the expected 0.1 to 0.2" in said.out
    assert "published 1.1, not reached: somebody" in said.out


@pytest.mark.parametrize(
    ("better", "found", "reached"), [("lower", 1.4, True), ("lower", 1.6, False), ("higher", 1.4, False)]
)
def test_reached_means_at_least_as_good(better: str, found: float, reached: bool) -> None:
    published = PublishedSpec(metric="m", better=better, figure=1.5, source="s", files={})
    verdict = judge("r", published, found, seconds=1.0, run="runs/r")
    assert verdict.reached is reached
    assert verdict.landed is None


def test_the_list_names_every_recipe_and_its_files() -> None:
    said = call("reproduce")
    assert said.code == 0
    assert all(name in said.out for name in published_names())
    listed = {row["name"]: row for row in json.loads(call("reproduce", "--json").out)}
    assert listed.keys() == set(published_names())
    for name in listed:
        _, published = load_published(name)
        assert published.files
        assert published.expected is not None, f"{name}: say where our own result landed"
        assert published.expected[0] < published.expected[1]


MISTAKES = [
    (["multi30k-transfromer", "--data", "."], "multi30k-transformer"),
    (["ewt-upos"], "--data DIR"),
    (["ewt-upos", "--data", "absent"], "'absent' is not a folder"),
    (["ewt-upos", "--data", "."], "no file in '.' match '*train*.conllu*'"),
    (["lstm", "--data", "."], "is not a published recipe"),
]


@pytest.mark.parametrize(("words", "says"), MISTAKES, ids=[says for _, says in MISTAKES])
def test_a_mistake_is_answered(words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = call("reproduce", *words)
    assert said.code == 2
    assert says in said.err
    assert not list(tmp_path.iterdir())
