"""`statewise inspect` on runs of every task: what it says, what it writes, and what it refuses."""

import json
from pathlib import Path

import pytest
from command import call
from task_runs import RUNS, make_run

import statewise
from statewise.figures import Figure
from statewise.inspection.lenses import LENSES

SOME = ("classifier-transformer", "tagger-crf", "translator-prompted")  # and the plain run of each task
QUICK = [lens.name for lens in LENSES if lens.quick]


def run_of(tasks: Path, name: str) -> str:
    return str(make_run(name, tasks))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if "-" in name and name not in SOME else []) for name in RUNS]
)
def test_every_quick_lens_on_one_page(name: str, tasks: Path) -> None:
    found = statewise.inspect(run_of(tasks, name))
    assert [one.lens for one in found.findings] == QUICK
    page = found.to_html(static=True)
    for one in found.findings:
        assert one.sentences
        # A vector is one time step: what looks along time has nothing to look at, and says so.
        assert name == "classifier-vector" or not one.sentences[0].startswith("Not inspected"), one.sentences
        for figure in one.figures:
            assert figure.finding
            assert figure.reading
            assert f'id="{figure.name}"' in page


STATEFUL = ("classifier-one-way", "tagger", "tree-words", "recursive", "whole-series", "translator", "direct")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("tagger", "recursive") else pytest.mark.slow) for name in STATEFUL]
)
def test_row_e3_truncation_is_measured_on_every_task_with_a_state(name: str, tasks: Path, tmp_path: Path) -> None:
    options = ("--set", "draws=2", "--set", "rows=2", "--set", "batches=2", "--static", "--out", str(tmp_path))
    said = call("inspect", run_of(tasks, name), "bptt", *options)
    assert said.code == 0, said.err
    (finding,) = json.loads((tmp_path / "inspect.json").read_text())["findings"]
    policies = finding["data"]["policies"]
    assert policies["full"]["cosine"]["mean"] == pytest.approx(1)
    assert policies["full"]["bias"]["mean"] < 1e-12
    for name, policy in policies.items():
        assert name == "full" or policy["bias"]["mean"] > 1e-4, "something was cut"
        assert policy["seconds"] > 0


@pytest.mark.parametrize(("name", "tokens"), [("tagger", {"the", "a"}), ("translator", {"→", "<end>"})])
def test_row_e4_gradient_maps_name_tokens(name: str, tokens: set[str], tasks: Path) -> None:
    finding = statewise.inspect(run_of(tasks, name), "gradient", rows=2).findings[0]
    maps = [figure for figure in finding.figures if figure.name.startswith("gradient-map")]
    assert len(maps) > 1, "by the input, and by the state"
    for figure in maps:
        assert isinstance(figure, Figure)
        assert tokens <= {label.split()[-1] for label in figure.x.categories}
        assert len(figure.y.categories) == len(figure.grid.values)


def test_it_writes_and_says_what_it_found(tasks: Path, tmp_path: Path) -> None:
    said = call(
        "inspect", run_of(tasks, "direct"), "--data", str(tasks / "series.csv"), "--out", str(tmp_path), "--static"
    )
    assert said.code == 0, said.err
    for title in ("Surprise", "Gradients through the input", "Gates, cells and units", "Interventions"):
        assert title in said.out
    record = json.loads((tmp_path / "inspect.json").read_text())
    assert {one["lens"] for one in record["findings"]} == set(QUICK)
    assert (tmp_path / "figures/surprise-ahead.csv").is_file()
    assert (tmp_path / "figures/gradient-map.svg").is_file()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classifier", "a warm film\na dull year and more"),
        ("tagger", "the cat sees a hen"),
        ("tree", "(0 (1 1) (0 (0 0) (1 1)))"),
        ("translator", "a b c d\ne f a b c"),
        ("translator-prompted", "a b c d\ne f a b c"),
    ],
)
def test_a_text_of_ones_own(name: str, text: str, tasks: Path) -> None:
    for lens in ("surprise", "gradient", "gates"):
        finding = statewise.inspect(run_of(tasks, name), lens, text=text).finding(lens)
        told = name == "tree"
        if lens == "surprise":
            assert (finding.data["told"] > 0) == told
        assert any("not known" in one for one in finding.missing) == (not told and lens != "gates")


@pytest.mark.parametrize(("name", "file"), [(name, file) for name, (_, file, _) in RUNS.items() if "-" not in name])
def test_a_file_of_ones_own(name: str, file: str, tasks: Path) -> None:
    data = statewise.inspect(run_of(tasks, name), "surprise", data=tasks / file).finding("surprise").data
    held = statewise.inspect(run_of(tasks, name), "surprise").finding("surprise").data
    count = "answers" if "answers" in data else "windows"
    assert data[count] > held[count]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("classifier", "classifier-one-way"),
        ("tagger", "tagger-crf"),
        ("direct", "recursive"),
        ("translator", "translator-one-vector"),
    ],
)
def test_two_runs_on_the_same_rows(first: str, second: str, tasks: Path) -> None:
    finding = statewise.inspect(run_of(tasks, first), "surprise", against=run_of(tasks, second)).finding("surprise")
    against = finding.data["against"]
    mine = finding.data.get("nats", finding.data.get("mean"))
    assert against["difference"] == pytest.approx(mine - against["mean"], abs=1e-9)
    assert "less than" in finding.sentences[0]


def test_translators_with_other_tokens_are_compared_pair_by_pair(tasks: Path) -> None:
    first, second = (run_of(tasks, name) for name in ("translator", "translator-transformer"))
    finding = statewise.inspect(first, "surprise", against=second).finding("surprise")
    there = statewise.inspect(second, "surprise").finding("surprise").data
    pairs = len(statewise.load(first).specimens() or ())
    mine, theirs = (one["nats"] * one["answers"] / pairs for one in (finding.data, there))
    assert finding.data["against"]["mean"] == pytest.approx(theirs)
    assert finding.data["against"]["difference"] == pytest.approx(mine - theirs)
    assert "nats a row" in finding.sentences[0]


def test_a_translation_is_looked_at_in_its_two_texts(tasks: Path) -> None:
    found = statewise.inspect(run_of(tasks, "translator"), text="a b c d\td c b a\ne f a b\tb a f e\n")
    gradient, gates = (found.finding(lens) for lens in ("gradient", "gates"))
    followed = {"source", "target", "state", "state along the source", "state along the source, from its end"}
    assert set(gradient.data["decay"]) == followed
    assert sum(gradient.data["parts"].values()) == pytest.approx(1)
    assert set(gates.data) == {"source", "target"}
    assert {figure.name for figure in gates.figures} >= {"gates-source-features", "gates-target-features"}
    surprise = found.finding("surprise").data
    assert (surprise["told"], surprise["answers"]) == (10, 10)  # four symbols and an end, twice
    added = found.finding("intervene").data["added"]
    assert {"swap memory", "forget memory", "freeze memory", "zero memory"} <= set(added)
    assert added["freeze memory"] == pytest.approx(0, abs=1e-6)  # what was read of a source is never changed
    assert [pair["kind"] for pair in found.finding("attention").data["pairs"]] == ["reversal", "reversal"]


def test_a_source_that_is_read_at_once_has_no_states_and_says_so(tasks: Path) -> None:
    gradient = statewise.inspect(run_of(tasks, "translator-transformer"), "gradient", rows=2).finding("gradient")
    assert set(gradient.data["decay"]) == {"source", "target", "state"}
    assert "The source is read at once: there is no state along it to follow." in gradient.missing


def test_which_heads_and_tokens_of_an_alignment_are_drawn(tasks: Path) -> None:
    path = run_of(tasks, "translator-transformer")
    every, one = (statewise.inspect(path, "attention", pairs=1, **chosen) for chosen in ({}, {"queries": [2, 0]}))
    drawn, some = (found.finding("attention").figures[0].grid for found in (every, one))
    assert [list(row) for row in some.values] == [list(drawn.values[at]) for at in (2, 0)]
    with pytest.raises(statewise.UserError, match="layers = 7 is not there"):
        statewise.inspect(path, "attention", layers=[7])
    with pytest.raises(statewise.UserError, match="not a token of the target of pair 1"):
        statewise.inspect(path, "attention", queries=[99])


def test_one_place_of_a_state_and_one_name(tasks: Path) -> None:
    cases = [
        ("translator", "memory"),
        ("translator-one-vector", "context_BC[C=3]"),
        ("tagger-one-way", "layers.0.h_BD[D=3]"),
        ("classifier", "reader.layers.0.back.gru.h"),
        ("classifier-transformer", "reader.encoder.0.attention.weights[1=1]"),
    ]
    for name, address in cases:
        found = statewise.inspect(run_of(tasks, name), "intervene", address=address, places=3)
        added = found.finding("intervene").data["added"]
        assert any(address in key for key in added)


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("grids", ("bptt",), "nothing to truncate"),
        ("tree", ("bptt",), "carries no state along its rows"),
        ("classifier", ("bptt", "--set", "train=true"), "only language models have one"),
        ("classifier", ("bptt", "--set", "length=99"), "has 100 tokens or more"),
        ("direct", ("surprise", "--text", "some text"), "was given a text"),
        ("grids", ("surprise", "--text", "some text"), "not texts"),
        ("classifier", ("surprise", "--text", "a", "--data", "b"), "both a text and data"),
        ("classifier", ("surprise", "--data", "none.tsv"), "none.tsv"),
        ("classifier", ("intervene", "--set", "other=abc"), "leave other out"),
        ("classifier", ("intervene", "--set", "address=reader.layers.0.back.gru.hh"), "did you mean"),
        ("tagger-one-way", ("intervene", "--set", "address=layers.0.hh"), "nothing in the state is called"),
        ("direct", ("gates", "--set", 'features=["a=b"]'), "leave features out"),
        ("tagger", ("gradient", "--text", "one two"), "has 4 words or more"),
        ("classifier", ("attention", "--set", "layers=[7]"), None),
        ("classifier-transformer", ("attention", "--set", "layers=[7]"), "this model has layers 0 to"),
        ("tree", ("surprise", "--text", "(0 (1 1)"), "the text"),
        ("translator", ("surprise", "--text", "a\tb\tc"), "line 1 of the text has 2 tabs"),
        ("translator", ("surprise", "--text", "a b\tb a\n\tc"), "line 2 of the text has no source"),
        ("translator", ("intervene", "--set", "address=memories"), "nothing in the state is called"),
    ],
)
def test_mistakes_are_named(name: str, words: tuple[str, ...], said: str | None, tasks: Path, tmp_path: Path) -> None:
    found = call("inspect", run_of(tasks, name), *words, "--out", str(tmp_path))
    assert found.code == (0 if said is None else 2)
    assert said is None or said in found.err
    assert "Traceback" not in found.err


def test_runs_of_other_tasks_are_not_set_against_each_other(tasks: Path) -> None:
    found = call("inspect", run_of(tasks, "classifier"), "surprise", "--against", run_of(tasks, "tagger"))
    assert found.code == 2
    assert "is a tagging run" in found.err
