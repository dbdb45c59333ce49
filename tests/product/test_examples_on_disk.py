"""Pairs, labels, tags and trees that need not fit into memory: the weights are those of the files in memory."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from command import call, environment
from task_runs import ONE_MACHINE, PAIRS, STEPS, WORDS, write_files
from tiny_run import Cut, at, crash, evidence

from statewise.specs import UserError, as_overrides
from statewise.tasks import Trained, build_examples, load, train
from statewise.training.progress import Silent

SHARD = 100  # bytes: rows of every file lie in several shards
CLASSES = {**PAIRS, "data.source_kind": "class", "data.target_tokenizer": "char"}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "pairs": ("translation", "pairs.tsv", PAIRS),
    "pairs-cut": ("translation", "pairs.tsv", {**PAIRS, "data.longest": 4, "data.beyond": "cut", "data.reverse": True}),
    "pairs-left-out": ("translation", "pairs.tsv", {**PAIRS, "data.longest": 5, "data.tokenizer": "char"}),
    "pairs-one-vocabulary": ("translation", "pairs.tsv", ONE_MACHINE),
    "pairs-of-classes": ("translation", "classes.tsv", CLASSES),
    "pairs-validation": ("translation", "pairs.tsv", {**PAIRS, "data.validation": ["held/pairs.tsv"]}),
    "labels": ("classification", "rows.tsv", {"data.longest": 6, "objective.weights": "balanced"}),
    "labels-bpe": ("classification", "rows.tsv", {"data.tokenizer": "bpe", "data.vocab": 280, "data.lower": True}),
    "labels-validation": ("classification", "rows.tsv", {"data.validation": ["held/rows.tsv"]}),
    "tags": ("tagging", "tags.tsv", {**WORDS, "data.longest": 3}),
    "tags-balanced": ("tagging", "tags.tsv", {**WORDS, "objective.weights": "balanced", "data.longest": 4}),
    "spans": ("tagging", "spans.tsv", {**WORDS, "objective.kind": "crf", "data.longest": 3, "data.scheme": "iob2"}),
    "tags-validation": ("tagging", "tags.tsv", {**WORDS, "data.validation": ["held/tags.tsv"]}),
    "trees": ("tree", "trees.txt", {"objective.root_weight": 3.0, "objective.weights": "balanced"}),
    "trees-binary": ("tree", "trees.txt", {"model.kind": "nary", "data.binarise": "left", "data.unary": "collapse"}),
    "trees-renamed": (
        "tree",
        "trees.txt",
        {"data.labels.1": "one", "data.labels.0": "", "data.unlabelled_root": "keep"},
    ),
    "trees-as-spans": ("tree", "trees.txt", {"model.kind": "gru", "objective.nodes": "root"}),
    "trees-validation": ("tree", "trees.txt", {"data.validation": ["held/trees.txt"]}),
}
# Like another of them; every night.
SLOW = {
    "pairs",
    "pairs-left-out",
    "pairs-validation",
    "labels-bpe",
    "tags",
    "tags-validation",
    "trees",
    "trees-renamed",
}
# What `train` may say again of a folder that was built so; all else is in the folder.
OF_TRAINING = ("data.longest", "data.beyond", "data.reverse")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    sentences = ["a\tO\nb\tI-X\nc\tI-X\nd\tI-Y\ne\tO", "b\tI-Y\na\tO", "c\tI-X\nc\tI-X\nc\tI-X\nc\tI-X\nd\tO"] * 8
    (folder / "spans.tsv").write_text("\n\n".join(sentences) + "\n")
    (folder / "held").mkdir()
    for name in ("pairs.tsv", "rows.tsv", "tags.tsv", "trees.txt"):
        text = (folder / name).read_text()
        unseen = {"rows.tsv": "a new film\tother\n", "tags.tsv": "\nzebra\tNEW\n"}.get(name, "")
        (folder / "held" / name).write_text(text[: len(text) // 3].rpartition("\n")[0] + "\n" + unseen)
    return folder


def settings_of(name: str, files: Path) -> dict[str, Any]:
    own = CASES[name][2]
    common = {**STEPS, "train.steps": 12, "train.evaluate_every": 4, "train.save_every": 4}
    given = {key: value for key, value in {**common, **own}.items() if value is not None}
    if "data.validation" in given:
        given["data.validation"] = [str(files / path) for path in given["data.validation"]]
    return given


def build(name: str, files: Path, out: Path) -> Path:
    recipe, file, _ = CASES[name]
    build_examples(recipe, [files / file], out, settings=as_overrides(settings_of(name, files)), shard_bytes=SHARD)
    return out


def learn(name: str, data: Path, out: Path, settings: dict[str, Any], **more: Any) -> Trained:
    return train(CASES[name][0], data=data, settings=settings, out=out, display=Silent(), **more)


def of_folder(name: str, files: Path) -> dict[str, Any]:
    """The settings without those that the folder has."""
    given = settings_of(name, files)
    return {key: value for key, value in given.items() if not key.startswith("data.") or key in OF_TRAINING}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in CASES])
def test_weights_and_figures_are_those_of_the_files(name: str, files: Path, tmp_path: Path) -> None:
    folder = build(name, files, tmp_path / "examples")
    assert any(path.name.endswith("-00003.values") for path in folder.iterdir())
    plain = learn(name, files / CASES[name][1], tmp_path / "plain", settings_of(name, files))
    stored = learn(name, folder, tmp_path / "stored", of_folder(name, files))
    assert evidence(stored) == evidence(plain)
    one, other = (load(trained.path) for trained in (plain, stored))
    for file in ("data.sha256", "labels.json", "tokenizer.json", "words.json", "target.json", "lengths.json"):
        both = [run.path / file for run in (one, other)]
        assert both[0].exists() == both[1].exists()
        assert not both[0].exists() or both[0].read_bytes() == both[1].read_bytes(), file
    assert repr(one.evaluate()) == repr(other.evaluate())
    assert repr(one.answers()) == repr(other.answers())
    shown = [run.specimens() for run in (one, other)]
    assert len({(specimens.at(1).name, specimens.at(1).pieces) for specimens in shown}) == 1
    # The run reads other files as those that the folder was made of.
    file = files / CASES[name][1]
    assert repr(one.evaluate(file)) == repr(other.evaluate(file))
    if not name.startswith("spans"):
        assert list(one.predict_lines(file)) == list(other.predict_lines(file))
    with pytest.raises(UserError, match="holds examples to train on, and a file is read here"):
        other.evaluate(folder)


@pytest.mark.parametrize("name", ["pairs", "labels", "tags", "trees"])
def test_a_run_that_was_cut_goes_on(name: str, files: Path, tmp_path: Path) -> None:
    folder, settings = build(name, files, tmp_path / "examples"), of_folder(name, files)
    whole = learn(name, folder, tmp_path / "whole", settings)
    with pytest.raises(Cut):
        learn(name, folder, tmp_path / "cut", settings, on_step=at(6, crash))
    resumed = train(out=tmp_path / "cut", resume=True, display=Silent())
    assert resumed.resumed_from == 4
    assert evidence(resumed) == evidence(whole)
    # Another folder in its place is noticed.
    other = tmp_path / "other"
    other.mkdir()
    write_files(other)
    file = other / CASES[name][1]
    lines = file.read_text().split("\n\n" if name == "tags" else "\n")
    file.write_text(("\n\n" if name == "tags" else "\n").join(lines[:40]) + "\n")
    folder.rename(tmp_path / "before")
    build(name, other, folder)
    with pytest.raises(UserError, match="these are not the data that this run began with"):
        train(out=tmp_path / "cut", resume=True, display=Silent(), settings={"train.steps": 13})


COLUMNS = {"pairs": "target_ids", "labels": "ids", "tags": "word", "trees": "node_label"}


@pytest.mark.parametrize(("name", "column"), COLUMNS.items())
def test_damage_ends_training_with_the_name_of_the_file(name: str, column: str, files: Path, tmp_path: Path) -> None:
    folder = build(name, files, tmp_path / "examples")
    path = folder / f"{column}-00001.values"
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"{column}-00001\.values' is damaged") as caught:
        learn(name, folder, tmp_path / "run", of_folder(name, files))
    assert "statewise data build" in str(caught.value)


def test_the_command(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    words = ("data", "build", "rows.tsv", "--out", str(tmp_path / "examples"), "--for", "classification")
    first, again = call(*words, "--quiet"), call(*words, "--quiet")
    assert (first.code, again.code, first.out) == (0, 0, again.out), first.err
    assert "train: 54 examples\nvalidation: 6 examples\n" in first.out
    said = json.loads(call(*words, "--json").out)
    assert (said["task"], said["train"], said["validation"]) == ("classification", 54, 6)
    fast = [f"--set={name}={value}" for name, value in {**STEPS, "train.steps": 2}.items()]
    trained = call(
        "train", "classification", "--data", str(tmp_path / "examples"), "--out", str(tmp_path / "run"), *fast
    )
    assert trained.code == 0, trained.err
    assert call("evaluate", str(tmp_path / "run")).code == 0


BUILD = ("data", "build", "rows.tsv", "--out", "made", "--for", "classification")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("data", "build", "none.tsv", "--out", "made", "--for", "classification"), "does not exist"),
        (("data", "build", "-", "--out", "made", "--for", "tree"), "standard input cannot be read here"),
        (("data", "build", "series.csv", "--out", "made", "--for", "forecasting"), "are not kept on disk"),
        (("data", "build", "grids.npz", "--out", "made", "--for", "digits"), "only texts are kept on disk"),
        (("data", "build", "waves.tsv", "--out", "made", "--for", "vector-to-series"), "are not kept on disk"),
        ((*BUILD, "--workers", "2"), "--workers is for texts"),
        ((*BUILD[:-1], "clasification"), "classification"),
        ((*BUILD, "--set", "data.label=lable"), "there is no column 'lable'"),
        ((*BUILD, "--set", 'data.leave_out=["neutral"]'), "no row has the label 'neutral'"),
        (("train", "translation", "--data", "examples"), "holds examples for the task classification"),
        (("train", "lstm", "--data", "examples"), "holds examples to train on"),
        (("train", "classification", "--data", "examples", "--data", "rows.tsv"), "is trained on alone"),
        (("train", "classification", "--data", "examples", "--set", "data.lower=true"), "was built with False"),
        (
            ("train", "classification", "--data", "examples", "--set", 'data.validation=["rows.tsv"]'),
            "holds its own held-out part",
        ),
        (("data", "build", "rows.tsv", "--out", "examples", "--for", "classification", "--vocab", "9"), "other files"),
        (("data", "build", "examples", "--out", "made", "--tokenizer", "byte"), "holds examples to train on"),
    ],
)
def test_what_is_wrong_is_said(words: tuple[str, ...], message: str, files: Path, tmp_path: Path) -> None:
    for path in files.iterdir():
        (tmp_path / path.name).symlink_to(path)
    with contextlib.chdir(tmp_path):
        if "examples" in words:
            assert (
                call("data", "build", "rows.tsv", "--out", "examples", "--for", "classification", "--quiet").code == 0
            )
        refused = call(*words)
        assert not Path("made", "examples.json").exists()
    assert (refused.code, message in refused.err) == (2, True), refused.err


def test_a_form_of_trees_that_the_model_does_not_read_is_refused(files: Path, tmp_path: Path) -> None:
    folder = build("trees-binary", files, tmp_path / "examples")
    with pytest.raises(UserError, match=r"was built with data\.binarise = 'left'"):
        learn("trees-binary", folder, tmp_path / "run", {**STEPS, "model.kind": "gru"})


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["classification", "translation", "tagging", "tree"])
def test_memory_does_not_grow_with_the_examples(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What more a process takes on a file of 10 MB than on 1 % of it."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    for name, value in environment(TOKENIZERS_PARALLELISM="false").items():
        monkeypatch.setenv(name, value)
    from examples import growth

    found = growth(recipe, tmp_path, megabytes=10)
    assert found["build"] < 60, found  # the buffers of all columns, whatever the size of the file
    assert found["train"] < 20, found
    assert found["train in memory"] > 2 * found["train"] + 15, found  # so this test can fail
