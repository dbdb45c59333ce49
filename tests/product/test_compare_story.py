"""`statewise compare` on a story: all parts side by side, one report, nothing run twice, a search that can be kept."""

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import Said, call
from tiny_study import RECALL, STORY, events, results, write_study

import statewise

pytestmark = pytest.mark.slow  # a dozen processes; unit/test_comparison_story.py has what needs none


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("story")
    write_study(folder, seeds=1)
    (folder / "recall.toml").write_text(RECALL.replace("seeds = 2", "seeds = 1"), encoding="utf-8")
    (folder / "story.toml").write_text(STORY, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def said(folder: Path) -> Said:
    with contextlib.chdir(folder):
        return call("compare", "story.toml", "--workers", "2", "--static", "--quiet", "--json")


def of_entry(report: dict[str, Any], part: int) -> set[str]:
    return {row["entry"]["value"] for row in report["parts"][part]["table"]["rows"]}


def test_a_story_has_one_report_and_a_folder_for_each_part(folder: Path, said: Said) -> None:
    assert said.code == 0, said.err
    report = json.loads(said.out)
    assert (report["title"], report["left"], report["failed"]) == ("A small story", 0, 0)
    assert [part["name"] for part in report["parts"]] == ["recall", "tiny"]
    assert of_entry(report, 0) == {"elman", "gru"}
    assert of_entry(report, 1) == {"lstm", "gru"}
    top = folder / "studies/story"
    assert (top / "report.html").exists()
    assert not (top / "trials").exists()
    assert len(results(top / "recall")) == 2 * 2 + 2, "a search of two values, and one seed"
    assert len(results(top / "tiny")) == 2
    assert set(events(top / "tiny").values()) == {1}
    trial = next(iter(results(top / "tiny").values()))
    assert trial["model_bytes"] == 4 * trial["parameters"]
    assert "share of the gradient" in (top / "report.json").read_text()


def test_the_search_of_a_run_can_be_kept_beside_the_study(folder: Path, said: Said, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(folder, copied)
    record = copied / "studies/story/recall/search.json"
    shutil.copy(record, copied / "recall.search.json")
    tried = json.loads(record.read_text())["record"]
    assert [(one["entry"], one["settings"]["train.lr"]) for one in tried] == [
        (name, rate) for name in ("elman", "gru") for rate in (0.01, 0.001)
    ]
    with contextlib.chdir(copied):
        found = statewise.compare("story.toml", static=True)
    assert [part.name for part in found.parts] == ["recall", "tiny"]
    assert {row["part"] for row in found.table} == {"recall", "tiny"}
    assert "Recall" in found._repr_html_()
    begun = [key for event, key in events(copied / "studies/story/recall") if event == "start"]
    assert len(begun) == 6, "the recorded values are those of the search, so all trials are there"


def test_the_story_in_its_folder_says_the_same(folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    again = call("compare", "studies/story/study.toml", "--out", "studies/story", "--static", "--quiet", "--json")
    assert again.code == 0, again.err
    tables = [[part["table"] for part in json.loads(one.out)["parts"]] for one in (said, again)]
    assert tables[0] == tables[1]
    assert set(events(Path("studies/story/tiny")).values()) == {1}


def test_one_entry_of_one_part(folder: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    some = call("compare", "story.toml", "--only", "lstm", "--static", "--quiet")
    assert some.code == 0, some.err
    assert "Two small ones" in some.out
    assert "Recall" not in some.out
    assert set(events(Path("studies/story/tiny")).values()) == {1}
