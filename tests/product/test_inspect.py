"""`statewise inspect`: what it prints and writes, what machines may rely on, and how it complains."""

import json
from pathlib import Path

import pytest
from command import TEXT, TINY, call, run

import statewise
from statewise.inspection.lenses import LENSES

SMALL = ("--set", "window=12", "--set", "context=12", "--set", "targets=8", "--set", "queries=3", "--set", "steps=2")


def test_it_lists_the_lenses() -> None:
    said = call("inspect")
    assert said.code == 0
    for lens in LENSES:
        assert lens.name in said.out
    listed = json.loads(call("inspect", "--json").out)
    assert listed.keys() == {lens.name for lens in LENSES}
    assert listed["gradient"]["settings"]["properties"]["window"]["default"] == 64


def test_one_lens_writes_a_page_and_says_what_it_found(here: Path, tmp_path: Path) -> None:
    said = call("inspect", "runs/lstm", "surprise", "--out", str(tmp_path / "page"), "--static")
    assert said.code == 0, said.err
    assert "bits a token" in said.out
    assert (tmp_path / "page/inspect.html").as_uri() in said.out
    page = (tmp_path / "page/inspect.html").read_text()
    assert "statewise inspect runs/lstm surprise" in page
    for name in ("surprise-text", "surprise-position", "surprise-calibration"):
        assert f'id="{name}"' in page
        assert (tmp_path / f"page/figures/{name}.csv").is_file()
        assert (tmp_path / f"page/figures/{name}.svg").is_file()


def test_json_says_what_the_page_says(here: Path, tmp_path: Path) -> None:
    said = call("inspect", "runs/lstm", "gradient", *SMALL, "--json", "--out", str(tmp_path), "--static")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert json.loads((tmp_path / "inspect.json").read_text())["findings"] == found["findings"]
    (finding,) = found["findings"]
    assert finding["data"]["window"] == 12
    assert finding["data"]["clipping"]["steps"] == [10, 20]
    assert all(Path(name).is_file() for name in found["files"])
    assert finding["sentences"][0] in (tmp_path / "inspect.html").read_text()


def test_a_text_of_ones_own(here: Path, tmp_path: Path) -> None:
    for text in ("the dog and the cat sat on the log", "text.txt"):
        said = call("inspect", "runs/lstm", "surprise", "--text", text, "--out", str(tmp_path), "--json")
        data = json.loads(said.out)["findings"][0]["data"]
        assert data["tokens"] == len(text if " " in text else TEXT)


def test_two_runs_on_one_text(here: Path, tmp_path: Path) -> None:
    said = call(
        *("train", "gru", "--text", "text.txt", *TINY, "--set", "data.tokenizer=byte"),
        *("--out", str(tmp_path / "gru"), "--quiet"),
    )
    assert said.code == 0, said.err
    options = ("--against", str(tmp_path / "gru"), "--out", str(tmp_path / "page"), "--json")
    found = json.loads(call("inspect", "runs/lstm", "surprise", *options).out)
    against = found["findings"][0]["data"]["against"]
    assert against["run"] == str(tmp_path / "gru")
    assert "surprise-difference" in {one["name"] for one in found["findings"][0]["figures"]}
    assert len(against["bits"]) == 2


def test_the_laboratory_trains(here: Path, tmp_path: Path) -> None:
    options = ("--set", "window=12", "--set", "length=4", "--set", "draws=2", "--set", "rows=1", "--set", "batches=2")
    options = (*options, "--train", "--set", "steps=2", "--set", "seeds=1", "--quiet", "--static")
    said = call("inspect", "runs/lstm", "bptt", *options, "--out", str(tmp_path), "--json")
    assert said.code == 0, said.err
    policies = json.loads(said.out)["findings"][0]["data"]["policies"]
    assert policies.keys() == {"full", "fixed", "random", "unbiased"}
    for one in policies.values():
        assert len(one["course"]["nats"]) == 1
        assert one["held_bytes"] > 0
    assert policies["full"]["cosine"]["mean"] == pytest.approx(1)


def test_from_python(here: Path) -> None:
    found = statewise.inspect("runs/lstm", "surprise", text="the cat sat on the mat")
    assert found.finding("surprise").data["tokens"] == 22
    assert "<svg" in found._repr_html_()


@pytest.mark.slow
def test_less_can_be_asked_of_all_lenses(here: Path, tmp_path: Path) -> None:
    less = ("gradient.window=8", "gradient.queries=2", "gates.tokens=60", "intervene.places=2", "intervene.tokens=4")
    given = [word for one in less for word in ("--set", one)]
    said = call("inspect", "runs/lstm", *given, "--text", "text.txt", "--static", "--json", "--out", str(tmp_path))
    assert said.code == 0, said.err
    found = {one["lens"]: one for one in json.loads(said.out)["findings"]}
    assert found["gradient"]["data"]["window"] == 8
    assert len(found["intervene"]["data"]["cuts"]) == 2
    assert any("the first 60 of" in one for one in found["gates"]["missing"])
    both = statewise.inspect("runs/lstm", ["gradient", "surprise"], gradient={"window": 8, "targets": 4})
    assert both.finding("gradient").data["window"] == 8
    with pytest.raises(statewise.UserError, match="say whose it is: gradient"):
        statewise.inspect("runs/lstm", ["gradient", "surprise"], window=8)


def test_a_folder_with_the_name_of_a_lens_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wrote what the probes found into `probes` can look again."""
    monkeypatch.chdir(tmp_path)
    few = ("--set", 'families=["markov"]', "--set", 'tasks=["parity"]', "--set", "rows=4", "--set", "workers=1")
    for _ in range(2):
        said = call("inspect", "probes", *few, "--static", "--quiet", "--out", "probes")
        assert said.code == 0, said.err
    assert (tmp_path / "probes/inspect.html").is_file()


@pytest.mark.slow
def test_progress_is_for_people(here: Path, tmp_path: Path) -> None:
    said = run("inspect", "runs/lstm", "attention", "--out", str(tmp_path), cwd=here)
    assert said.code == 0, said.err
    assert "\x1b" not in said.out + said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("runs/lstm", "surprize"), "did you mean 'surprise'"),
        (("runs/lstn",), "did you mean 'runs/lstm'"),
        (("runs/lstm", "surprise", "--set", "show=3"), "did you mean 'shown'"),
        (("runs/lstm", "surprise", "--set", "shown=no"), "shown = 'no'"),
        (("runs/lstm", "--set", "gradint.window=3"), "did you mean 'gradient'"),
        (("runs/lstm", "--set", "gradient.windo=3"), "did you mean 'window'"),
        (("runs/lstm", "--set", "shown=3"), "no lens was named"),
        (("runs/lstm", "gradient", "--against", "runs/lstm"), "it is for"),
        (("runs/lstm", "surprise", "--train"), "it is for bptt"),
        (("runs/lstm", "surprise", "--text", "none.txt"), "there is no file 'none.txt'"),
        (("runs/lstm", "surprise", "--text", ""), "the text is empty"),
        (("runs/lstm", "surprise", "--against", "runs/none"), "runs/none"),
        (("runs/lstm", "gradient", "--text", "a"), "give a longer text"),
        (("runs/lstm", "surprise", "--out", "text.txt"), "is a file"),
        (("surprise",), "is not a"),
    ],
)
def test_mistakes_are_named(words: tuple[str, ...], said: str, here: Path) -> None:
    found = call("inspect", *words)
    assert found.code == 2
    assert said in found.err
    assert "Traceback" not in found.err
