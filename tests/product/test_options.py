"""Plain options of the command line, what is listed with them, and the warnings about results of no use."""

import inspect
import json
import re
from pathlib import Path

import pytest
from command import TEXT, TINY, call

import statewise
from statewise import cli
from statewise.specs import UserError, load_recipe, make_spec, recipe_names
from statewise.specs.catalogue import SYNONYMS, settings_of

VERBS = [one.name or one.callback.__name__ for one in cli.app.registered_commands if one.callback]
SMALL = {"model.width": 8, "train.window": 16, "train.truncation": 16, "train.evaluate_every": 1}


def test_plain_options_set_the_fields_they_stand_for(here: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    plain = ("--steps", "3", "--lr", "0.02", "--batch", "2", "--seed", "5", "--device", "cpu")
    said = call("train", "gru", "--data", "text.txt", *TINY[6:], *plain, "--out", out, "--json", "--quiet")
    assert said.code == 0, said.err
    spec = statewise.load(out).spec
    assert (spec.train.steps, spec.train.lr, spec.train.batch, spec.seed) == (3, 0.02, 2, 5)
    assert spec.train.device == "cpu"
    longer = call("train", "--resume", "--out", out, "--steps", "5", "--device", "cpu", "--json", "--quiet")
    assert json.loads(longer.out)["step"] == 5


def test_python_takes_them_as_arguments(here: Path, tmp_path: Path) -> None:
    trained = statewise.train(
        "gru", steps=2, lr=0.02, batch=2, seed=5, device="cpu", settings=SMALL, data="text.txt", out=tmp_path / "run"
    )
    spec = trained.load().spec
    assert (spec.train.steps, spec.train.lr, spec.train.batch, spec.seed) == (2, 0.02, 2, 5)
    same = {**SMALL, "train.steps": 2}
    assert statewise.train("gru", steps=2, settings=same, data="text.txt", out=tmp_path / "same").outcome.step == 2
    with pytest.raises(UserError, match=r'steps=3 and settings=."train.steps": 2. contradict each other'):
        statewise.train("gru", steps=3, settings=same, data="text.txt", out=tmp_path / "other")
    with pytest.raises(UserError, match=r'add resume=True to continue it, or choose another folder: out="DIR"'):
        statewise.train("gru", steps=3, out=tmp_path / "run")


def test_text_is_another_name_of_data(here: Path, tmp_path: Path) -> None:
    for option in ("--data", "-d", "--text", "-t"):
        out = tmp_path / option
        said = call("train", "gru", option, "text.txt", *TINY, "--steps", "20", "--out", str(out), "--quiet")
        assert said.code == 0, said.err
        assert [Path(name).name for name in statewise.load(out).spec.data.text] == ["text.txt"]
    one, two = (json.loads(call("evaluate", "runs/lstm", o, "text.txt", "--json").out) for o in ("--data", "--text"))
    assert one == two


@pytest.mark.parametrize("verb", ["evaluate", "generate", "predict", "inspect", "verify", "train"])
def test_a_device_can_be_named(verb: str) -> None:
    assert "--device" in call(verb, "--help").out


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help_has_no_python_types_and_no_hidden_names(verb: str) -> None:
    said = call(*filter(None, [verb, "--help"])).out
    assert said, verb
    assert not re.findall(r"<[a-z\[\]| ]+>", said), "a type in the help"
    assert "--text" not in said or verb == "inspect"


def test_every_setting_is_listed_and_explained(here: Path) -> None:
    said = call("settings", "classification", "--json")
    listed = {one["path"]: one for one in json.loads(said.out)}
    assert listed["data.text"]["value"] == "text"
    assert listed["train.schedule"]["choices"] == ["constant", "cosine", "linear", "plateau"]
    assert {"elman", "gru", "lstm"} <= set(listed["model.kind"]["choices"])
    people = call("settings", "classification").out
    for path in ("data.label=label", "train.lr=", "model.width=", "seed=0"):
        assert path in people
    for recipe in recipe_names():
        for one in settings_of(make_spec(load_recipe(recipe))):
            assert one.description or one.choices or one.name in ("task", "kind"), f"{recipe}: {one.path}"


def test_every_synonym_names_a_setting() -> None:
    every = [one for recipe in recipe_names() for one in settings_of(make_spec(load_recipe(recipe)))]
    assert set(SYNONYMS.values()) <= {one.name for one in every} | {one.path for one in every}


def test_the_options_of_train_are_the_arguments_of_train() -> None:
    arguments = inspect.signature(statewise.train).parameters
    assert {"steps", "lr", "batch", "seed", "device", "data", "out", "resume", "settings"} <= set(arguments)


def test_a_model_of_no_use_is_said_to_be_one(here: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    train = ("train", "gru", "--data", "text.txt", *TINY[6:], "--batch", "2", "--out", out)
    said = call(*train, "--steps", "1", "--lr", "0.000001")
    assert said.code == 0
    assert "warning: gru is worse than the unigram baseline: validation perplexity" in said.err
    shown = call("evaluate", out).out
    assert "warning: gru is worse than the unigram baseline: perplexity" in " ".join(shown.split())
    quiet = call(*train[:-1], f"{out}-2", "--steps", "1", "--lr", "0.000001", "--quiet", "--json")
    assert "warning: gru is worse than the unigram baseline" in quiet.err
    assert "worse than the unigram baseline" in json.loads(quiet.out)["warning"]


def test_a_good_model_is_not_warned_of(here: Path) -> None:
    said = call("evaluate", "runs/lstm")
    perplexity = json.loads(call("evaluate", "runs/lstm", "--json").out)
    assert ("warning" in said.out) == (perplexity["perplexity"] > perplexity["unigram_perplexity"])


def test_a_prompt_outside_the_vocabulary_is_warned_of(here: Path) -> None:
    said = call("generate", "runs/lstm", "--prompt", "the Ж cat Ж @", "-n", "3")
    assert said.code == 0
    assert "warning: parts of the prompt are not in the run's vocabulary: 'Ж', '@'" in said.err
    assert call("generate", "runs/lstm", "--prompt", "the cat", "-n", "3").err == ""


def test_diverged_training_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    settings = {**SMALL, "train.clip": None, "train.optimizer": "sgd", "train.warmup": 0}
    trained = statewise.train(
        "elman", steps=3, lr=1e4, batch=2, settings=settings, data=tmp_path / "text.txt", out=tmp_path / "run"
    )
    assert re.search("worse than the unigram baseline|is not finite", trained.warning)


def test_columns_of_other_names(tmp_path: Path) -> None:
    """The message names the setting, the setting works, and so it does for another file after training."""
    rows = [f"{i},a {'warm' if i % 2 else 'dull'} film {i},{'good' if i % 2 else 'bad'}" for i in range(12)]
    (tmp_path / "reviews.csv").write_text("\n".join(["id,review,sentiment", *rows]))
    (tmp_path / "other.csv").write_text("\n".join(["id,body,stars", *rows]))
    small = {"model.width": 4, "model.embedding": 4, "data.held_out": 0.3}
    with pytest.raises(UserError) as caught:
        statewise.train("classification", steps=1, data=tmp_path / "reviews.csv", settings=small, out=tmp_path / "run")
    named = {"data.text": "review", "data.label": "sentiment"}
    assert f"settings={json.dumps(named)}" in str(caught.value)
    assert " --" not in str(caught.value)
    settings = {**small, **named}
    statewise.train("classification", steps=1, data=tmp_path / "reviews.csv", settings=settings, out=tmp_path / "run")
    lacking = call("predict", str(tmp_path / "run"), str(tmp_path / "other.csv"))
    assert (lacking.code, "--set data.text=body" in lacking.err) == (2, True)
    columns = ("--set", "data.text=body", "--set", "data.label=stars")
    predicted = call("predict", str(tmp_path / "run"), str(tmp_path / "other.csv"), *columns[:2])
    assert len(predicted.out.splitlines()) == 12
    evaluated = call("evaluate", str(tmp_path / "run"), "--data", str(tmp_path / "other.csv"), *columns, "--json")
    assert json.loads(evaluated.out)["rows"] == 12
