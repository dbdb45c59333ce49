"""Translation as a product: trained, cut and resumed, evaluated, predicted with, and misused."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tiny_run import Cut, at, call, crash, evidence, resume

from statewise.decoding import Sampling
from statewise.specs import UserError
from statewise.tasks import Trained, load, train
from statewise.tasks.translation import TranslationRun
from statewise.training.progress import Silent

DIGITS = ["null", "eins", "zwei", "drei", "vier", "fünf"]
ENGLISH = ["zero", "one", "two", "three", "four", "five"]
BASE: dict[str, Any] = {
    "model.encoder.width": 8,
    "model.decoder.width": 8,
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
    "teacher": {"model.decoder.dropout": 0.3, "train.accumulate": 3},
    "scheduled": {"forcing.kind": "scheduled", "forcing.schedule": "linear", "forcing.steps": 9},
    "transformer": {"model.encoder.kind": "transformer", "model.decoder.kind": "transformer", "train.judge": "bleu"},
}


def numbers(language: list[str]) -> list[str]:
    return [" ".join(language[(n // 6**p) % 6] for p in range(1 + n % 4)) for n in range(120)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("pairs")
    for name, language in (("n.de", DIGITS), ("n.en", ENGLISH)):
        (folder / name).write_text("\n".join(numbers(language)) + "\n", encoding="utf-8")
    return str(folder / "n.de"), str(folder / "n.en")


def start(files: tuple[str, str], out: Path, settings: dict[str, Any] | None = None, **more: Any) -> Trained:
    both = {"data.train": files[0], "data.target": files[1], **BASE, **(settings or {})}
    return train("translation", settings=both, out=out, display=Silent(), **more)


@pytest.fixture(scope="module")
def run(files: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numbers are soon learned."""
    learned = {
        "model.encoder.width": 32,
        "model.decoder.width": 32,
        "train.steps": 150,
        "train.lr": 0.02,
        "train.evaluate_every": 150,
        "train.save_every": 150,
        "decoding.n_best": 2,
    }
    return start(files, tmp_path_factory.mktemp("run") / "run", learned).path


@pytest.mark.parametrize("regime", REGIMES)
def test_a_run_that_was_cut_is_the_run_that_was_not(regime: str, files: tuple[str, str], tmp_path: Path) -> None:
    whole = evidence(start(files, tmp_path / "whole", REGIMES[regime]))
    with pytest.raises(Cut):
        start(files, tmp_path / "cut", REGIMES[regime], on_step=at(7, crash))
    trained = resume(tmp_path / "cut")
    assert trained.resumed_from == 6
    assert evidence(trained) == whole


def test_a_resumed_run_wants_the_same_pairs(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(numbers(DIGITS), numbers(ENGLISH))))
    start((str(tmp_path / "a.tsv"), ""), tmp_path / "run", {"data.target": []})
    (tmp_path / "a.tsv").write_text("eins\tone\nzwei\ttwo\n")
    with pytest.raises(UserError, match="not the data that this run began with"):
        resume(tmp_path / "run", {"train.steps": 20})


def test_evaluation_stands_between_its_baselines(run: Path, files: tuple[str, str]) -> None:
    said = call("evaluate", str(run), "--json")
    assert said.code == 0, said.err
    figures = json.loads(said.out)
    assert figures["bleu"] > 60 > figures["copy"]["bleu"]
    assert figures["exact"] > max(figures["copy"]["exact"], figures["frequent"]["exact"])
    assert figures["nats"] < figures["uniform_nats"] / 2
    assert "tok:13a" in figures["signature"]
    again = call("evaluate", str(run), "--data", files[0], "--data", files[1], "--json")
    assert json.loads(again.out)["rows"] == 120
    table = call("evaluate", str(run))
    assert "copy of the source" in table.out
    assert f"TER {figures['ter']:.2f}" in " ".join(table.out.split())


def test_evaluation_on_whatever_people_have(run: Path, tmp_path: Path) -> None:
    """Unseen words, a byte-order mark, CRLF, an empty line on both sides, a line of 5,000 words."""
    (tmp_path / "odd.de").write_bytes(("\ufeffeins zwölf\r\n\r\n" + "drei " * 5000 + "\r\n").encode())
    (tmp_path / "odd.en").write_bytes(("one twelve\r\n\r\n" + "three " * 5000 + "\r\n").encode())
    opened = load(run)
    assert isinstance(opened, TranslationRun)
    found = opened.with_settings(["decoding.beam=2"]).evaluate([str(tmp_path / "odd.de"), str(tmp_path / "odd.en")])
    assert (found.rows, found.cut, found.decoding["beam"]) == (2, 1, 2)
    assert found.out_of_reach == 1, "5,000 words of which 200 are read"
    short = opened.with_settings(["decoding.max_ratio=0.01", "decoding.extra=0", "decoding.draws=0"])
    files = [str(tmp_path / "short.de"), str(tmp_path / "short.en")]
    for file, text in zip(files, ("eins\nzwei drei\n", "one\ntwo three\n")):
        Path(file).write_text(text)
    found = short.evaluate(files)
    assert found.out_of_reach == 1, "one word is allowed"
    assert "1 targets are longer than decoding.max_ratio and extra let it write" in found.report("x").note


def test_predictions_keep_their_lines(run: Path, tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text("eins\n\nzwei drei\n   \nneununddreißig\n", encoding="utf-8")
    lines = call("predict", str(run), str(tmp_path / "new.txt"))
    assert lines.code == 0, lines.err
    found = lines.out.split("\n")
    assert len(found) == 6, "five lines and what follows the last"
    assert (found[0], found[1], found[3]) == ("one", "", "")
    rows = [
        json.loads(line) for line in call("predict", str(run), str(tmp_path / "new.txt"), "--json").out.splitlines()
    ]
    assert [row["line"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["translation"] for row in rows] == found[:5]
    assert len(rows[0]["hypotheses"]) == 2
    assert rows[0]["hypotheses"][0]["score"] >= rows[0]["hypotheses"][1]["score"]
    looked = call("predict", str(run), str(tmp_path / "new.txt"), "--json", "--set", "decoding.align=true")
    first = json.loads(looked.out.splitlines()[0])
    assert (first["source_tokens"], first["tokens"]) == (["eins", "<end>"], ["one"])
    assert sum(first["alignment"][0]) == pytest.approx(1, abs=1e-5)
    (tmp_path / "new.tsv").write_text("eins\tgiven\nzwei drei\tgiven\n", encoding="utf-8")
    assert call("predict", str(run), str(tmp_path / "new.tsv")).out.split("\n")[0] == "one"


def test_a_long_file_streams_in_order(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statewise.tasks.translation.run._ROWS", 7)
    source = numbers(DIGITS)[:30]
    (tmp_path / "many.txt").write_text("\n".join(source) + "\n", encoding="utf-8")
    opened = load(run)
    assert isinstance(opened, TranslationRun)
    assert list(opened.predict_lines(str(tmp_path / "many.txt"))) == opened.translate(source)


def test_translation_from_python(run: Path) -> None:
    opened = load(run)
    assert isinstance(opened, TranslationRun)
    assert opened.translate("vier") == "four"
    assert opened.translate(["vier", ""]) == ["four", ""]
    wider = opened.with_settings(["decoding.n_best=3", "decoding.beam=4"])
    (best,) = wider.hypotheses(["zwei fünf"], align=True)
    assert len(best) == 3
    assert best[0].source_tokens == ("zwei", "fünf", "<end>")
    assert best[0].alignment is not None
    assert len(best[0].alignment) == len(best[0].tokens)
    for weights in best[0].alignment:
        assert sum(weights) == pytest.approx(1, abs=1e-5)
    gap = opened.exposure_gap(rows=12)
    assert float(gap.gap_T[0]) == 0, "the first input is the truth in any case"
    for setting, said in (
        ("decoding.n_best=9", "widen the beam"),
        ("decoding.bean=9", r"decoding\.bean: unknown key"),
        ("model.encoder.width=9", r"what can be changed: data\.format.*decoding\.beam"),
    ):
        with pytest.raises(UserError, match=said):
            opened.with_settings([setting])
    assert opened.generate("eins", sampling=Sampling(temperature=0)) == opened.translate("eins")


def test_mistakes_are_named(tmp_path: Path, files: tuple[str, str]) -> None:
    (tmp_path / "short.en").write_text("one\n")
    said = call(
        "train", "translation", "--data", files[0], "--data", str(tmp_path / "short.en"), "-o", str(tmp_path / "r")
    )
    assert said.code != 0
    assert "has no counterpart" in said.err
    said = call("train", "translation", "--data", files[0], "-o", str(tmp_path / "r"))
    assert "sources and then as many targets" in said.err
    (tmp_path / "gap.tsv").write_text("eins\tone\n\ttwo\n")
    said = call("train", "translation", "--data", str(tmp_path / "gap.tsv"), "-o", str(tmp_path / "r"))
    assert "gap.tsv line 2: the source is empty" in said.err
    said = call("train", "translation", "--set", "model.encoder.knd=gru", "-o", str(tmp_path / "r"))
    assert "model.encoder.knd: unknown key" in said.err
    assert not (tmp_path / "r").exists()


def test_the_language_of_settings_reaches_the_model(files: tuple[str, str], tmp_path: Path) -> None:
    shared = {
        "data.shared_vocab": True,
        "model.share_embeddings": True,
        "model.decoder.tie": True,
        "data.tokenizer": "bpe",
        "data.vocab": 270,
        "objective.smoothing": 0.1,
        "train.steps": 2,
        "forcing.kind": "free",
    }
    opened = load(start(files, tmp_path / "run", shared).path)
    assert isinstance(opened, TranslationRun)
    assert (opened.path / "tokenizer.json").is_file()
    assert opened.languages.shared
    assert isinstance(opened.translate("eins"), str)


def test_more_references_for_a_source(files: tuple[str, str], run: Path, tmp_path: Path) -> None:
    """With its own translations as a second reference nothing is left to wish for, but loss is that of the first."""
    source, target = files
    data = ("--data", source, "--data", target)
    one = json.loads(call("evaluate", str(run), *data, "--json").out)
    own = tmp_path / "own.en"
    own.write_text(call("predict", str(run), source).out, encoding="utf-8")
    said = call("evaluate", str(run), *data, "--reference", str(own), "--json")
    assert said.code == 0, said.err
    two = json.loads(said.out)
    assert (one["references"], two["references"], two["exact"], two["token_error_rate"]) == (1, 2, 1.0, 0.0)
    assert two["nats"] == one["nats"]
    assert one["token_error_rate"] >= one["ter"]
    assert "2 references for each" in call("evaluate", str(run), *data, "--reference", str(own)).out.replace("\n", " ")
    own.write_text("one\n", encoding="utf-8")
    said = call("evaluate", str(run), *data, "--reference", str(own))
    assert said.code == 2
    assert "has 1 lines" in said.err


def test_a_run_from_before_a_setting_keeps_its_meaning(files: Any, tmp_path: Path) -> None:
    """`attention.query` is younger than runs whose run.toml does not have it: they asked with the state alone."""
    trained = start(files, tmp_path / "run", {"model.attention.query": "state"})
    before = trained.load().translate(["eins zwei"])
    recipe = tmp_path / "run/run.toml"
    manifest = tmp_path / "run/manifest.json"
    old, told = recipe.read_bytes(), json.loads(manifest.read_text())
    assert b'query = "state"\n' in old
    recipe.write_bytes(old.replace(b'query = "state"\n', b""))
    told["files"]["run.toml"] = {
        "bytes": recipe.stat().st_size,
        "sha256": hashlib.sha256(recipe.read_bytes()).hexdigest(),
    }
    manifest.write_text(json.dumps(told))
    again = load(tmp_path / "run", device="cpu")
    assert again.spec.model.attention.query == "state"
    assert again.translate(["eins zwei"]) == before
