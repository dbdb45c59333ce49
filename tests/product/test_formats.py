"""A folder says its format: older ones are read and continued, newer ones refused with the version they need.

`formats/N` is a run of a few kilobytes as it was written in format N. Whoever changes the layout adds the next.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import call
from test_hostile_run import vouched

import statewise
from statewise.specs import UserError
from statewise.training.checkpoint import FORMAT, MANIFEST

FOLDERS = Path(__file__).parent / "formats"
FORMATS = sorted(int(folder.name) for folder in FOLDERS.iterdir())


def copied(number: int, to: Path) -> Path:
    return Path(shutil.copytree(FOLDERS / str(number), to / "run"))


def changed(run: Path, **values: Any) -> None:
    for path in run.rglob(MANIFEST):
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_every_format_has_a_folder() -> None:
    assert list(range(1, FORMAT + 1)) == FORMATS
    for number in FORMATS:
        assert json.loads((FOLDERS / str(number) / MANIFEST).read_text())["format"] == number
    assert sum(path.stat().st_size for path in FOLDERS.rglob("*") if path.is_file()) < 100_000


@pytest.mark.parametrize("number", FORMATS)
def test_a_folder_of_each_format_opens_and_goes_on(number: int, tmp_path: Path) -> None:
    run = copied(number, tmp_path)
    opened = statewise.load(run, device="cpu")
    assert opened.evaluate().nats_per_token == pytest.approx(2.8762054, abs=1e-5)
    assert opened.generate("the ", tokens=5)
    said = call("train", "--resume", "--out", str(run), "--steps", "6", "--quiet", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["step"] == 6
    manifest = json.loads((run / "checkpoints/step-00000006" / MANIFEST).read_text())
    assert (manifest["format"], manifest["statewise"]) == (FORMAT, statewise.__version__)


@pytest.mark.parametrize(("values", "needed"), [({}, "in a newer version"), ({"statewise": "9.8.7"}, "9.8.7")])
def test_a_newer_format_is_refused_with_the_version_it_needs(
    values: dict[str, str], needed: str, tmp_path: Path
) -> None:
    run = copied(1, tmp_path)
    changed(run, format=99, **values)
    for argv in (("evaluate", str(run)), ("train", "--resume", "--out", str(run))):
        said = call(*argv)
        assert said.code == 2
        assert f"format 99, and statewise {statewise.__version__} reads formats up to {FORMAT}" in said.err
        assert f"install statewise {needed} or newer" in said.err


@pytest.mark.parametrize("value", ["x", None, 0, -1, 1.5, [1]])
def test_a_format_that_is_none_is_damage(value: Any, tmp_path: Path) -> None:
    run = copied(2, tmp_path)
    changed(run, format=value)
    with pytest.raises(UserError, match="can be trusted"):
        statewise.load(run)


def test_a_setting_of_a_newer_version_is_no_typing_mistake(tmp_path: Path) -> None:
    run = copied(2, tmp_path)
    vouched(run, "run.toml", (run / "run.toml").read_bytes().replace(b"[train]", b"[train]\ntruncations = 3"))
    with pytest.raises(UserError, match=r"train\.truncations: unknown key; did you mean 'truncation'"):
        statewise.load(run)
    changed(run, statewise="0.10.0")
    with pytest.raises(UserError) as caught:
        statewise.load(run)
    assert caught.value.fix == (
        f"it was written by statewise 0.10.0, this is {statewise.__version__}: install 0.10.0 or newer"
    )
