"""Translation by one machine as a product, in every way to end: trained, cut and resumed, evaluated, predicted with."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_run import Cut, at, call, crash, evidence, resume

from statewise.models.build_seq2seq import SCHEMES
from statewise.specs import UserError
from statewise.tasks import Trained, load, train
from statewise.tasks.translation import TranslationRun
from statewise.training.progress import Silent

LETTERS = "abcd"
BASE: dict[str, Any] = {
    "model.kind": "gru",
    "model.width": 8,
    "train.steps": 12,
    "train.batch": 8,
    "train.warmup": 2,
    "train.log_every": 1,
    "train.evaluate_every": 6,
    "train.save_every": 4,
    "decoding.watch": 10,
}
# What a resume must bring back besides weights: dropout's chance, the forcing's coin, its place in the schedule.
REGIMES: dict[str, dict[str, Any]] = {
    "end": {"model.input_dropout": 0.2, "train.accumulate": 3, "model.kind": "transformer", "model.depth": 1},
    "bernoulli": {"forcing.kind": "scheduled", "forcing.schedule": "linear", "forcing.steps": 9},
    "remaining": {"model.dropout": 0.3, "model.tie": True, "train.judge": "bleu", "forcing.kind": "free"},
}
each_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def letters(count: int, longest: int) -> list[str]:
    """Texts of letters: the target doubles the last and says nothing of the others."""
    return [" ".join(LETTERS[(n // 4**p) % 4] for p in range(1 + n % longest)) for n in range(count)]


def doubled(text: str) -> str:
    return " ".join([text.split()[-1]] * (1 + len(text.split())))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    for name, texts in (("short", letters(120, 3)), ("long", [*letters(12, 3), *letters(40, 6)[30:]])):
        (folder / f"{name}.tsv").write_text("".join(f"{text}\t{doubled(text)}\n" for text in texts))
    return folder


def start(files: Path, out: Path, scheme: str, settings: dict[str, Any] | None = None, **more: Any) -> Trained:
    both = {"data.train": str(files / "short.tsv"), **BASE, "termination.kind": scheme, **(settings or {})}
    return train("translation", settings=both, out=out, display=Silent(), **more)


@pytest.fixture(scope="module")
def runs(files: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    learned = {"model.width": 32, "train.steps": 120, "train.lr": 0.02, "train.evaluate_every": 120}
    return {scheme: start(files, folder / scheme, scheme, learned).path for scheme in SCHEMES}


@each_scheme
def test_a_run_that_was_cut_is_the_run_that_was_not(scheme: str, files: Path, tmp_path: Path) -> None:
    whole = evidence(start(files, tmp_path / "whole", scheme, REGIMES[scheme]))
    with pytest.raises(Cut):
        start(files, tmp_path / "cut", scheme, REGIMES[scheme], on_step=at(7, crash))
    trained = resume(tmp_path / "cut")
    assert trained.resumed_from == 6
    assert evidence(trained) == whole


@each_scheme
def test_evaluation_tells_of_lengths(scheme: str, runs: dict[str, Path], files: Path) -> None:
    said = call("evaluate", str(runs[scheme]), "--data", str(files / "long.tsv"), "--json")
    assert said.code == 0, said.err
    figures = json.loads(said.out)
    assert figures["termination"] == scheme
    assert figures["nats"] < figures["uniform_nats"] / 2
    assert figures["longest_learned"] == 4
    assert {row["beyond"] for row in figures["by_length"]} == {False, True}
    assert sum(row["rows"] for row in figures["by_length"]) == figures["rows"] == 22
    learned = [row for row in figures["by_length"] if not row["beyond"]]
    assert sum(row["exact"] * row["rows"] for row in learned) > 0.6 * sum(row["rows"] for row in learned)
    assert all(row["shortest"] > 4 for row in figures["by_length"] if row["beyond"])
    of_rows = sum(row["length_error"] * row["rows"] for row in figures["by_length"])
    assert of_rows == pytest.approx(figures["length_error"] * figures["rows"])
    drawn = figures["lengths"]
    assert drawn["cases"] == 22
    assert sum(drawn["pit"]) == pytest.approx(1)
    assert set(drawn["covered"]) == {"0.5", "0.8", "0.95"}
    table = call("evaluate", str(runs[scheme]), "--data", str(files / "long.tsv"))
    assert "never learned from" in table.out
    assert f"ended by '{scheme}'" in table.out
    none = call("evaluate", str(runs[scheme]), "--json", "--set", "decoding.draws=0")
    assert json.loads(none.out)["lengths"] is None


@each_scheme
def test_predictions_keep_their_lines(scheme: str, runs: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("a\n\nb c\n   \nzebra\n" + "d " * 5000 + "\n", encoding="utf-8")
    said = call("predict", str(runs[scheme]), str(tmp_path / "new.txt"))
    assert said.code == 0, said.err
    found = said.out.split("\n")
    assert len(found) == 7, "six lines and what follows the last"
    assert (found[0], found[1], found[3]) == ("a a", "", "")
    rows = [
        json.loads(line)
        for line in call("predict", str(runs[scheme]), str(tmp_path / "new.txt"), "--json").out.splitlines()
    ]
    assert [row["line"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [row["translation"] for row in rows] == found[:6]
    assert all(row["hypotheses"][0]["log_probability"] <= 0 for row in rows)


def test_every_way_to_end_is_searched_for(runs: dict[str, Path], tmp_path: Path) -> None:
    opened = load(runs["end"])
    assert isinstance(opened, TranslationRun)
    assert opened.translate(["a", ""]) == ["a a", ""]
    (best,) = opened.with_settings(["decoding.n_best=3"]).hypotheses(["b c"])
    assert len(best) == 3
    assert best[0].score >= best[1].score >= best[2].score
    with pytest.raises(UserError, match=r"decoding\.align needs a decoder that looks"):
        opened.with_settings(["decoding.align=true"])
    with pytest.raises(UserError, match="looks at no source"):
        list(opened.hypotheses(["a"], align=True))
    (tmp_path / "new.txt").write_text("a\n")
    for scheme in ("bernoulli", "remaining"):
        wide = ("--set", "decoding.beam=3", "--set", "decoding.n_best=2", "--json")
        (line,) = call("predict", str(runs[scheme]), str(tmp_path / "new.txt"), *wide).out.splitlines()
        first, second = json.loads(line)["hypotheses"]
        assert first["score"] >= second["score"]
        assert first["text"] != second["text"]


@each_scheme
def test_the_exposure_gap(scheme: str, runs: dict[str, Path], files: Path) -> None:
    said = call("evaluate", str(runs[scheme]), "--exposure", "--json", "--data", str(files / "long.tsv"))
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["unit"] == "nats"
    assert abs(found["gap_T"][0]) < 1e-6, "the first input is the edge in any case"
    assert found["count_T"][0] == 22
    opened = load(runs[scheme])
    assert isinstance(opened, TranslationRun)
    figures = opened.evaluate(str(files / "long.tsv"))
    taught = sum(nats * count for nats, count in zip(found["teacher_T"], found["count_T"]))
    assert taught / sum(found["count_T"]) == pytest.approx(figures.nats, rel=1e-4)
    table = call("evaluate", str(runs[scheme]), "--exposure")
    assert "1: truth" in table.out


def test_the_laws_hold_for_what_was_trained(runs: dict[str, Path]) -> None:
    said = call("verify", str(runs["remaining"]))
    assert said.code == 0, said.out + said.err


def test_mistakes_are_named(tmp_path: Path) -> None:
    for settings, wanted in (
        (["model.kind=gru", "data.shared_vocab=false"], "both have one vocabulary"),
        (["termination.kind=bernoulli"], "an encoder-decoder ends by a symbol"),
        (["model.kind=markov"], "'markov' cannot do this"),
        (["model.kind=gru", "termination.kind=bernouli"], "'end', 'bernoulli' or 'remaining'"),
    ):
        said = call(
            "train", "translation", *(word for one in settings for word in ("--set", one)), "-o", str(tmp_path / "r")
        )
        assert said.code == 2
        assert wanted in " ".join(said.err.split())
    assert not (tmp_path / "r").exists()
