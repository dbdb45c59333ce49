"""A mixer of one's own, from a file that is named: every verb, and no way for a folder to bring code with it."""

import contextlib
import json
import shutil
import tomllib
from pathlib import Path

import pytest
from command import TEXT, TINY, call, run
from own_mixer import FADING, write_fading
from tiny_run import sha256
from tiny_study import RECALL, STORY, events, write_study

import statewise as sw
from statewise.core import laws
from statewise.specs import UserError
from statewise.training.progress import Silent

OWN = ("--mixer", "fading.py")
PLANT = """
from pathlib import Path
Path({marker!r}).write_text("this was executed")
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `fading.py`, `text.txt` and `runs/fading_sum`. Tests leave them as they are."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "text.txt").write_text(TEXT)
    write_fading(folder)
    with contextlib.chdir(folder):
        said = call("train", "fading.py", "--text", "text.txt", *TINY, "--set", "model.options.keep=0.5", "--quiet")
    assert said.code == 0, said.err
    assert "try: statewise generate runs/fading_sum --mixer fading.py" in said.out
    return folder


@pytest.fixture
def here(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    return made


def test_a_run_names_its_class_and_no_place(here: Path) -> None:
    table = tomllib.loads((here / "runs/fading_sum/run.toml").read_text())["model"]
    assert (table["kind"], table["mixer"], table["file"]) == ("custom", "FadingSum", "fading.py")
    assert table["options"] == {"keep": 0.5, "start": "equal"}
    assert not list((here / "runs/fading_sum").rglob("*.py"))


@pytest.mark.parametrize(
    "words",
    [
        ("generate", "runs/fading_sum", "--tokens", "5"),
        ("evaluate", "runs/fading_sum"),
        ("inspect", "runs/fading_sum", "surprise", "--out", "looked", "--quiet"),
        ("verify", "runs/fading_sum"),
    ],
    ids=lambda words: words[0],
)
def test_a_verb_needs_the_class_and_says_which(here: Path, words: tuple[str, ...]) -> None:
    said = call(*words, *OWN)
    assert (said.code, said.err) == (0, "")
    assert said.out
    without = call(*words)
    assert without.code == 2
    assert "runs/fading_sum needs the mixer class 'FadingSum' (from fading.py), which is not part of" in without.err
    assert "--mixer fading.py" in without.err


@pytest.mark.slow
def test_a_run_set_against_one_of_ours(here: Path) -> None:
    ours = call("train", "gru", "--text", "text.txt", *TINY, "--out", "runs/gru", "--quiet")
    assert ours.code == 0, ours.err
    for first, second in (("gru", "fading_sum"), ("fading_sum", "gru")):
        words = ("inspect", f"runs/{first}", "surprise", "--against", f"runs/{second}", "--out", "both", "--quiet")
        assert call(*words, *OWN).code == 0


def test_the_same_run_in_python(here: Path) -> None:
    run_ = sw.load("runs/fading_sum", mixer=here / "fading.py")
    (own,) = run_.mixers
    text = run_.generate("the ", tokens=5)
    assert sw.load("runs/fading_sum", mixer=own.cls).generate("the ", tokens=5) == text
    assert (
        text
        == call("generate", "runs/fading_sum", "--prompt", "the ", "--tokens", "5", "--temperature", "1", *OWN).out[
            4:-1
        ]
    )
    trained = sw.train(
        own.cls, data="text.txt", settings={"train.steps": 2, "model.width": 6}, out="runs/python", display=Silent()
    )
    assert trained.load().spec.model.width == 6
    assert trained.history["step"] == [2]
    again = sw.train("runs/python/run.toml", mixer=own.cls, out="runs/again", display=Silent())
    assert again.outcome.weights_sha256 == trained.outcome.weights_sha256
    held = sw.train(
        own.cls, data=TEXT, settings={"train.steps": 2, "model.width": 6}, out="runs/held", display=Silent()
    )
    assert held.load().evaluate().tokens > 0
    with pytest.raises(UserError, match="needs the mixer class 'FadingSum'"):
        sw.load("runs/python")


def test_a_run_is_resumed_with_its_class(here: Path, tmp_path: Path) -> None:
    out = shutil.copytree("runs/fading_sum", tmp_path / "run")
    words = ("train", "--resume", "--out", str(out), "--set", "train.steps=30", "--quiet", "--json")
    assert "needs the mixer class" in call(*words).err
    said = call(*words, *OWN)
    assert said.code == 0, said.err
    assert json.loads(said.out)["resumed_from"] == 20


def test_a_run_of_ours_is_resumed_whatever_is_passed_in(here: Path, tmp_path: Path) -> None:
    """A study that has a class of the user's among its entries resumes the others with it."""
    small = {"train.steps": 2, "model.width": 6, "train.save_every": 1}
    trained = sw.train("elman", data="text.txt", settings=small, out=tmp_path / "run", display=Silent())
    more = sw.train(out=trained.path, resume=True, mixer="fading.py", settings={"train.steps": 3}, display=Silent())
    assert (more.resumed_from, more.load().spec.model.kind) == (2, "elman")


def test_a_source_that_has_changed_is_told_and_read(here: Path, tmp_path: Path) -> None:
    changed = write_fading(tmp_path, more="# a comment\n")
    said = run("evaluate", "runs/fading_sum", "--mixer", str(changed), "--json", cwd=here)
    assert said.code == 0, said.err
    assert said.err == "warning: the source of FadingSum has changed since the run was trained\n"
    with pytest.warns(UserWarning, match="the source of FadingSum has changed"):
        assert sw.load("runs/fading_sum", mixer=changed)


def test_weights_that_do_not_fit_the_class_are_refused(here: Path, tmp_path: Path) -> None:
    changed = write_fading(tmp_path, old="nn.Linear(self.input_width, width)", new="nn.Bilinear(2, 3, width)")
    with pytest.warns(UserWarning, match="changed"), pytest.raises(UserError, match=r"describes a model with .*enter"):
        sw.load("runs/fading_sum", mixer=changed)


@pytest.mark.parametrize(
    "task",
    [
        "forecasting",
        "translation",
        *(pytest.param(t, marks=pytest.mark.slow) for t in ("classification", "tagging", "tree")),
    ],
)
def test_every_task_reads_with_it(here: Path, tmp_path: Path, task: str) -> None:
    small = ("--set", "train.steps=2", "--set", "train.batch=2", "--set", "model.width=6", "--quiet")
    said = call("train", task, *OWN, *small, "--out", str(tmp_path / "run"))
    assert said.code == 0, said.err
    own = sw.load(tmp_path / "run", mixer="fading.py")
    assert own.spec.model.kind == "custom"
    assert own.spec.name.startswith("fading_sum")
    if task in ("translation", "forecasting"):
        setting = {"translation": "decoding.beam=2", "forecasting": "forecast.stride=2"}[task]
        assert own.with_settings([setting]).mixers == own.mixers


# ------------------------------------------------------------------------- the laws


def test_the_laws_are_tried_before_any_training(here: Path) -> None:
    said = call("verify", "fading.py", "--set", "model.options.keep=0.3")
    assert said.code == 0, said.err + said.out
    count = 2 * (2 * len(laws.EXACT) + 3)  # the class and a model of it; two dtypes, and three of precision
    assert f"{count} of {count} checks passed" in said.out
    python = list(sw.verify(sw.load("runs/fading_sum", mixer="fading.py").mixers[0].cls))
    assert len(python) == count
    assert {finding.model for finding in python} == {"FadingSum", "a model of FadingSum"}


@pytest.mark.parametrize(
    ("old", "new", "law"),
    [
        ("return torch.tanh(sum_BD)", "state.sum_BD.add_(1); return torch.tanh(sum_BD)", "pure"),
        ("return torch.tanh(sum_BD)", "return torch.tanh(sum_BD - sum_BD.mean(0))", "rows"),
        ("lengths_B)\n\n", "None)\n\n", "ragged"),
        ("state or self.init_state(len(x_BTI))", "self.init_state(len(x_BTI))", "split"),
    ],
)
def test_a_broken_law_is_named(tmp_path: Path, old: str, new: str, law: str) -> None:
    said = call("verify", str(write_fading(tmp_path, old=old, new=new)), "--json")
    assert said.code == 1
    assert law in {finding["law"] for finding in json.loads(said.out) if not finding["passed"]}


def test_a_law_that_cannot_be_tried_is_broken(tmp_path: Path) -> None:
    new = "assert x_BI.shape[0] != 2; sum_BD = observe"
    said = call("verify", str(write_fading(tmp_path, old="sum_BD = observe", new=new)))
    assert said.code == 1
    assert "FadingSum, rows: AssertionError" in said.out


def test_a_class_without_a_method_is_explained(tmp_path: Path) -> None:
    said = call("verify", str(write_fading(tmp_path, old="def step", new="def stop")))
    assert (said.code, said.out) == (2, "")
    assert "FadingSum does not keep the contract: it lacks step" in said.err


# ------------------------------------------------------------------------- studies


@pytest.mark.slow
def test_a_study_has_an_entry_of_it_and_finds_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study, own = write_study(tmp_path), write_fading(tmp_path)
    words = ("compare", str(study), "--only", "gru", "--workers", "1", "--quiet", "--json", "--out", "study")
    added = ("--add", "mine=fading.py model.options.keep=0.5")
    said = call(*words, *added)
    assert said.code == 0, said.err
    entries = {row["entry"]["text"] for row in json.loads(said.out)["parts"][0]["table"]["rows"]}
    assert entries == {"gru", "mine"}
    done = events(tmp_path / "study")
    assert call(*words, *added).code == 0
    assert events(tmp_path / "study") == done, "what is done is found"
    kept = tomllib.loads((tmp_path / "study/study.toml").read_text())["entry"][1]["settings"]["model"]
    assert kept == {"kind": "custom", "mixer": "FadingSum", "options": {"keep": 0.5}}

    again = ("compare", "study/study.toml", "--out", "study", "--workers", "1", "--quiet")
    assert "entry 'mine' of the study needs the mixer class 'FadingSum'" in call(*again).err
    assert call(*again, *OWN).code == 0
    assert events(tmp_path / "study") == done

    own.write_text(FADING + "# a comment\n")  # other source is another model
    assert call(*words, *added).code == 0
    assert sum(events(tmp_path / "study").values()) == sum(done.values()) + 2 * 2


@pytest.mark.slow
def test_a_story_has_an_entry_of_it_and_looks_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path)
    (tmp_path / "recall.toml").write_text(RECALL)
    (tmp_path / "story.toml").write_text(STORY)
    own = write_fading(tmp_path)
    found = sw.compare("story.toml", mixers=own, only=["elman"], settings={"recall.seeds": 1}, workers=1, static=True)
    assert {row["entry"] for row in found.table} == {"elman", "fading_sum"}
    assert (found.failed, found.left) == (0, 0)
    (look,) = [figure for figure in found.report["lead"] if figure["name"] == "look"]
    assert "fading_sum" in json.dumps(look)
    assert found.report["command"].endswith(f"--mixer {own}")


@pytest.mark.slow
def test_a_class_that_is_passed_in_becomes_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = write_study(tmp_path)
    found = sw.compare(study, mixers=[write_fading(tmp_path)], only=["gru"], settings={"seeds": 1}, workers=1)
    assert {row["entry"] for row in found.table} == {"gru", "fading_sum"}
    assert not found.failed


# ------------------------------------------------------------------------- nothing that is read is executed


def sealed(folder: Path, text: str) -> None:
    """Put `text` into run.toml, here and in every checkpoint, and let each manifest vouch for it."""
    for place in (folder, *(folder / "checkpoints").iterdir()):
        (place / "run.toml").write_text(text)
        manifest = json.loads((place / "manifest.json").read_text())
        manifest["files"]["run.toml"] = {"bytes": len(text), "sha256": sha256(place / "run.toml")}
        (place / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("mixer", ["FadingSum", "evil", "evil.FadingSum", "./evil.py:FadingSum"])
def test_no_folder_recipe_or_study_can_have_code_executed(here: Path, tmp_path: Path, mixer: str) -> None:
    """Every name by which one could try, with a file of that name wherever it might be looked for."""
    marker = tmp_path / "executed"
    out = shutil.copytree("runs/fading_sum", tmp_path / "run")
    for folder in (tmp_path, out, *(out / "checkpoints").iterdir()):
        for name in ("fading.py", "FadingSum.py", "evil.py", "evil/__init__.py", "custom.py"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(PLANT.format(marker=str(marker)) + FADING)
    table, study = (out / "run.toml").read_text(), write_study(tmp_path).read_text()
    with contextlib.chdir(tmp_path):
        for file in ("evil.py", str(tmp_path / "evil.py"), "run/fading.py"):
            changed = table.replace('"FadingSum"', f'"{mixer}"').replace('"fading.py"', f'"{file}"')
            sealed(out, changed)
            Path("recipe.toml").write_text(changed)
            named = f'{{ kind = "custom", mixer = "{mixer}", file = "{file}" }}'
            Path("study.toml").write_text(f'{study}[[entry]]\nname = "x"\nsettings.model = {named}')
            for words in (
                ("train", "recipe.toml", "--quiet"),
                ("train", "--resume", "--out", "run", "--quiet"),
                ("evaluate", "run"),
                ("verify", "run"),
                ("compare", "study.toml", "--out", "study", "--quiet"),
            ):
                said = call(*words)
                assert not marker.exists(), (words, file)
                assert said.code == 2, words
                assert f"needs the mixer class '{mixer}'" in said.err
                assert file not in said.err or "/" not in file, "nobody is told to run what a folder names"
    sealed(out, table)
    assert call("evaluate", str(out), *OWN).code == 0, "but for the names, the folder is whole"
    assert not marker.exists()


@pytest.mark.slow
def test_the_file_that_is_named_is_the_one_that_is_executed(here: Path, tmp_path: Path) -> None:
    """Not another of its name beside the run."""
    marker = tmp_path / "executed"
    out = shutil.copytree("runs/fading_sum", tmp_path / "run")
    (out / "fading.py").write_text(PLANT.format(marker=str(marker)) + FADING)
    assert call("generate", str(out), "--tokens", "2", *OWN).code == 0
    assert not marker.exists()
    said = run("generate", str(out), "--tokens", "2", "--mixer", str(out / "fading.py"))
    assert said.code == 0
    assert marker.exists(), "the trap itself works"
