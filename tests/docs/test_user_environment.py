"""The environment of a user has the core dependencies and nothing else, and all six tasks work in it."""

import json
from importlib import metadata
from pathlib import Path

import pytest
from task_runs import write_files
from user_environment import User, core_closure

FEW = ["train.steps=2", "train.evaluate_every=2", "train.save_every=2", "train.batch=4", "train.warmup=1"]
# The settings of a small run, and what it predicts from: a part of the file that it learned from.
TASKS = {
    "classification": ("rows.tsv", ["data.min_count=1", "model.width=8", "model.embedding=8"]),
    "tagging": ("tags.tsv", ["model.width=8"]),
    "translation": ("pairs.tsv", ["model.encoder.width=8", "model.decoder.width=8", "data.header=no"]),
    "tree": ("trees.txt", ["model.width=8"]),
    "forecasting": ("series.csv", ["model.width=8", "forecast.context=12", "forecast.horizon=4"]),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    write_files(folder)
    return folder


def test_only_core_dependencies_can_be_imported(user: User, tmp_path: Path) -> None:
    core = set(core_closure())
    modules = {
        module: {name.lower().replace("_", "-") for name in names}
        for module, names in metadata.packages_distributions().items()
        if module.isidentifier() and not module.startswith("_")
    }
    foreign = sorted(module for module, names in modules.items() if not names & {*core, "statewise", "pip"})
    assert {"matplotlib", "nltk", "pytest", "scipy", "seqeval", "sklearn", "tensorboard"} <= set(foreign)
    code = f"import importlib.util as i, json; print(json.dumps([m for m in {foreign} if i.find_spec(m)]))"
    done = user.run(user.python, "-c", code, folder=tmp_path)
    assert json.loads(done.stdout) == []
    done = user.run(user.python, "-c", "import matplotlib", folder=tmp_path)
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'matplotlib'" in done.stdout
    done = user.run(user.python, "-c", "import sacrebleu, tokenizers, statewise.tasks as t; print(t)", folder=tmp_path)
    assert done.returncode == 0, done.stdout


def command(user: User, folder: Path, *words: str) -> str:
    done = user.run("statewise", *words, folder=folder)
    assert done.returncode == 0, done.stdout
    return done.stdout


def settings(*given: str) -> list[str]:
    return [word for one in given for word in ("--set", one)]


@pytest.mark.parametrize("task", TASKS)
def test_a_task_trains_evaluates_and_predicts(task: str, warm_user: User, files: Path, tmp_path: Path) -> None:
    name, own = TASKS[task]
    path = files / name
    learn = ["train", task, "--data", str(path), "--out", "run", "--quiet", *settings(*FEW, *own)]
    assert "in run; try: statewise" in command(warm_user, tmp_path, *learn)
    assert json.loads(command(warm_user, tmp_path, "evaluate", "run", "--json"))
    told = command(warm_user, tmp_path, "evaluate", "run")
    assert "not installed" not in told
    if task == "translation":
        path = tmp_path / "sources.txt"
        path.write_text("a b c\nd e f\n")
    predicted = command(warm_user, tmp_path, "predict", "run", str(path))
    # After so few steps a translation may be empty; it is a line all the same.
    assert predicted.count("\n") == 2 if task == "translation" else predicted.strip()


def test_a_language_model_trains_evaluates_and_writes(warm_user: User, tmp_path: Path) -> None:
    learn = ["train", "lstm", "--out", "run", "--quiet", *settings(*FEW, "model.width=8", "train.evaluate_tokens=500")]
    command(warm_user, tmp_path, *learn)
    assert json.loads(command(warm_user, tmp_path, "evaluate", "run", "--json"))["perplexity"] > 1
    assert command(warm_user, tmp_path, "generate", "run", "--prompt", "The ", "--tokens", "8").startswith("The ")
    assert not list(tmp_path.glob("run/events.*")), "TensorBoard is not installed here"
    assert (tmp_path / "run/metrics.jsonl").read_text()


def test_spans_are_scored(warm_user: User, tmp_path: Path) -> None:
    rows = "\n\n".join("Ada\tB-PER\nLovelace\tI-PER\nwrote\tO" for _ in range(20))
    (tmp_path / "spans.tsv").write_text(rows + "\n")
    learn = ["train", "tagging", "--data", "spans.tsv", "--out", "run", "--quiet"]
    command(warm_user, tmp_path, *learn, *settings(*FEW, "model.width=8"))
    assert "span_f1" in json.loads(command(warm_user, tmp_path, "evaluate", "run", "--json"))


def test_row_d1_the_ladder_runs_with_core_packages(warm_user: User, tmp_path: Path) -> None:
    few = settings("base.train.steps=2", "base.train.evaluate_every=2", "budget.amount=20000")
    found = json.loads(
        command(warm_user, tmp_path, "compare", "ladder", "--seeds", "1", "--only", "encoder-decoder", "--json", *few)
    )
    assert found["failed"] == 0


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("train forecasting --data series.mat --out run", "MATLAB files need the library scipy"),
        (
            "train classification --data hub:made:train --out run",
            "Hugging Face datasets, Parquet and Arrow files need the library datasets",
        ),
        ("compare ladder --engine ray", "trials on a Ray cluster need the library ray"),
        ("export shakespeare-elman --out run", "ONNX graphs need the library onnx"),
    ],
)
def test_an_extra_is_asked_for_before_any_work(words: str, needed: str, warm_user: User, tmp_path: Path) -> None:
    (tmp_path / "series.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200))
    done = warm_user.run("statewise", *words.split(), folder=tmp_path)
    assert done.returncode == 2
    assert f"{needed}, which is not installed" in done.stdout
    assert f"install -e '{Path(__file__).parents[2]}[" in done.stdout
    assert "step" not in done.stdout
    assert not (tmp_path / "run").exists()
    assert not list(tmp_path.glob("studies/*/trials/*"))
