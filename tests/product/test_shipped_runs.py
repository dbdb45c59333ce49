"""Trained runs that come with the package: opened by name, by the code that opens any run."""

from pathlib import Path

import pytest
from command import call

import statewise as sw
from statewise.comparison.comparison import changed_story
from statewise.comparison.study import spec_of
from statewise.specs.recipe import load_recipe
from statewise.tasks.folder import find_run, shipped_names

PASSAGE = """HAMLET:
To be, or not to be: that is the question:
Whether 'tis nobler in the mind to suffer
The slings and arrows of outrageous fortune,
Or to take arms against a sea of troubles,
And by opposing end them?
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_they_are_small_and_name_no_machine() -> None:
    assert shipped_names() == [f"shakespeare-{kind}" for kind in ("elman", "lstm", "markov", "transformer", "ttt")]
    files = [path for name in shipped_names() for path in find_run(name).iterdir()]
    assert sum(path.stat().st_size for path in files) <= 12_000_000
    for path in files:
        if path.suffix in (".toml", ".json", ".jsonl"):
            text = path.read_text(encoding="utf-8")
            assert "/" not in text.replace("text/", ""), path


@pytest.mark.parametrize("name", shipped_names())
def test_each_predicts_a_passage_that_it_has_not_read(name: str) -> None:
    """Hamlet is not in its text. Four bits a character are what the letters' frequencies give."""
    Path("passage.txt").write_text(PASSAGE, encoding="utf-8")
    run = sw.load(name, device="cpu")
    assert run.skipped == []
    assert run.evaluate("passage.txt").bits_per_byte < 2.7
    assert len(run.generate("ROMEO:", tokens=20)) >= 1


@pytest.mark.parametrize("name", shipped_names())
def test_its_recipe_is_in_the_repository(name: str) -> None:
    recipe, spec = load_recipe(name), sw.load(name, device="cpu").spec.model_dump(mode="json")
    for part, settings in recipe.items():
        for key, value in settings.items():
            got = spec[part][key]
            assert got == value or key == "truncation", (part, key)


def test_without_a_text_there_is_nothing_to_evaluate() -> None:
    with pytest.raises(sw.UserError, match=r"comes without the text it learned from \(input.txt\)"):
        sw.load("shakespeare-markov").evaluate()


def test_verbs_take_their_names() -> None:
    written = call("generate", "shakespeare-lstm", "--prompt", "ROMEO:", "--tokens", "60").out
    assert written.startswith("ROMEO:")
    assert len(written) > 40
    assert call("verify", "shakespeare-elman").code == 0
    looked = call("inspect", "shakespeare-elman", "surprise", "--quiet")
    assert looked.code == 0, looked.err
    assert Path("inspect/shakespeare-elman/surprise").is_dir()
    Path("passage.txt").write_text(PASSAGE, encoding="utf-8")
    assert "bits per byte" in call("evaluate", "shakespeare-markov", "--data", "passage.txt").out.lower()


def test_a_misspelt_name_is_guessed() -> None:
    missed = call("generate", "shakespear-lstm")
    assert missed.code == 2
    assert "shakespeare-lstm" in missed.err


def test_a_run_of_ones_own_comes_first() -> None:
    Path("shakespeare-lstm").mkdir()
    assert find_run("shakespeare-lstm").is_absolute()  # an empty folder is no run
    Path("shakespeare-lstm/run.toml").write_text("", encoding="utf-8")
    assert not find_run("shakespeare-lstm").is_absolute()


def test_a_study_takes_the_model_of_a_run() -> None:
    story = changed_story("prediction", settings={}, only=["gru"], add=["big=shakespeare-elman train.lr=0.002"])
    (study,) = (chapter.study for chapter in story.chapters)
    assert [entry.name for entry in study.entry] == ["gru", "big"]
    spec = spec_of(study, study.entry[1])
    assert spec.model == sw.load("shakespeare-elman").spec.model
    assert (spec.train.lr, study.entry[1].width) == (0.002, None)
    with pytest.raises(sw.UserError, match="the study has another task"):
        changed_story("memory", settings={}, add=["big=shakespeare-elman"])
    with pytest.raises(sw.UserError, match="no entry 'shakespeare-elma'"):
        changed_story("prediction", settings={}, add=["big=shakespeare-elma"])
