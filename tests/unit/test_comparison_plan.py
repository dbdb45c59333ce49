"""Trials: the same tries for every entry, chosen by the search, then every seed; and keys that tell runs apart."""

from pathlib import Path
from typing import Any

import pytest

from statewise.comparison.plan import Plan, code_version, plan
from statewise.comparison.study import load_study, parse_study
from statewise.comparison.study_data import Opener
from statewise.comparison.trial import Found, Point, Trial
from statewise.specs import UserError, parse_spec
from statewise.tasks.dispatch import metric_names

SPACE = {"train.lr": [0.1, 0.01, 0.001], "model.dropout": [0.0, 0.2]}


@pytest.fixture(scope="module")
def opener() -> Opener:
    return Opener()


def study(*entries: dict[str, Any], **more: Any) -> Any:
    base = {"train": {"steps": 3, "batch": 4, "truncation": 8}, **more.pop("base", {})}
    budget = {"kind": "none"} if "budget" not in more else more.pop("budget")
    table = {"title": "t", "question": "q", "base": base, "entry": list(entries), "budget": budget, **more}
    return parse_study(table)


def of_kind(kind: str, **more: Any) -> dict[str, Any]:
    return {"name": kind, "settings": {"model.kind": kind}, **more}


MARKOV = of_kind("markov", width="none")


def found(trial: Trial, figure: float, **more: Any) -> Found:
    blank: dict[str, Any] = dict.fromkeys(Found._fields)
    blank |= {name: getattr(trial, name) for name in ("key", "entry", "seed", "phase", "settings")}
    return Found(**{**blank, "figures": {"bits_per_byte": figure}, "curve": [], **more})


def searched(opener: Opener, trials: int = 6, **more: Any) -> Plan:
    search = {"trials": trials, "space": SPACE}
    return plan(study(of_kind("lstm"), of_kind("gru"), MARKOV, search=search, seeds=2, **more), opener=opener)


def test_without_a_search_all_seeds_are_known_at_once(opener: Opener) -> None:
    made = plan(study(of_kind("lstm"), of_kind("gru"), seeds=3), opener=opener)
    assert made.search_trials == []
    assert made.search_log([]) == []
    trials = made.final_trials()
    assert [(one.entry, one.seed) for one in trials] == [(n, s) for s in range(3) for n in ("lstm", "gru")]
    assert all(one.spec.seed == one.seed for one in trials)
    assert len({one.key for one in trials}) == len(trials)
    assert trials == plan(study(of_kind("lstm"), of_kind("gru"), seeds=3), opener=opener).final_trials()


def test_a_key_changes_with_the_spec_and_with_the_data(opener: Opener, tmp_path: Path) -> None:
    def key(text: str | None = None, **more: Any) -> str:
        if text is None:
            return plan(study(of_kind("gru"), **more), opener=opener).final_trials()[0].key
        (tmp_path / "a.txt").write_text(text * 60, encoding="utf-8")
        return plan(study(of_kind("gru"), **more), data=tmp_path / "a.txt").final_trials()[0].key

    assert key() == key()
    assert key("one text. ") == key("one text. ")
    keys = [key(), key(base={"train": {"steps": 4}}), key("one text. "), key("one next. ")]
    assert len(set(keys)) == len(keys)
    assert len(code_version()) == 64


def test_the_whole_grid_is_tried_where_it_fits_and_the_same_sample_of_it_where_not(opener: Opener) -> None:
    grid = searched(opener)
    assert len(grid.tried["lstm"]) == 6
    assert grid.tried["lstm"] == grid.tried["gru"]
    assert [one.settings for one in grid.search_trials if one.entry == "gru"] == grid.tried["gru"]
    assert {one.seed for one in grid.search_trials}.isdisjoint(one.seed for one in grid.final_trials())
    some = searched(opener, trials=4)
    assert len(some.tried["lstm"]) == 4
    assert all(point in grid.tried["lstm"] for point in some.tried["lstm"])
    assert some.tried["lstm"] == some.tried["gru"] == searched(opener, trials=4).tried["gru"]
    assert grid.tried["markov"] == []  # it has neither a rate nor dropout


def test_each_entry_goes_on_with_its_own_best(opener: Opener) -> None:
    made = searched(opener)
    lstm = [one for one in made.search_trials if one.entry == "lstm"]
    gru = [one for one in made.search_trials if one.entry == "gru"]
    results = [found(one, 3.0 + i) for i, one in enumerate(lstm)] + [found(one, 5.0 - i) for i, one in enumerate(gru)]
    final = made.final_trials(results)
    chosen = {one.entry: one.settings for one in final}
    assert chosen == {"lstm": lstm[0].settings, "gru": gru[-1].settings, "markov": {}}
    assert {(one.entry, one.seed) for one in final} == {(n, s) for n in ("lstm", "gru", "markov") for s in (0, 1)}
    assert next(one for one in final if one.entry == "gru").spec.train.lr == gru[-1].settings["train.lr"]
    log = made.search_log(results)
    assert [line.metric for line in log if line.entry == "lstm"] == [3.0 + i for i in range(6)]
    recorded = made.study.model_copy(update={"record": tuple(log)})
    assert {entry: recorded.chosen(entry) for entry in ("lstm", "gru", "markov")} == {
        "lstm": log[0],
        "gru": log[-1],
        "markov": None,
    }
    again = plan(recorded, opener=opener)
    assert again.search_trials == []
    assert [one.key for one in again.final_trials()] == [one.key for one in final], "the record takes its place"


def test_what_failed_is_not_chosen_and_without_a_result_an_entry_runs_as_written(opener: Opener) -> None:
    made = searched(opener)
    lstm = [one for one in made.search_trials if one.entry == "lstm"]
    results = [found(lstm[0], float("nan")), found(lstm[1], 4.0), found(lstm[2], float("inf"))]
    chosen = {one.entry: one for one in made.final_trials(results)}
    assert chosen["lstm"].settings == lstm[1].settings
    assert chosen["gru"].settings == {}
    assert chosen["gru"].spec.train.lr == made.entries[1].spec.train.lr


def test_the_budget_is_met_at_every_try(opener: Opener) -> None:
    search = {"trials": 3, "space": {"model.depth": [1, 2, 3]}}
    made = plan(study(of_kind("gru"), budget={"amount": 50_000}, search=search), opener=opener)
    widths = [one.settings["model.width"] for one in made.search_trials]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == 3
    for index in range(3):
        assert abs(made.solved["gru", index].parameters / 50_000 - 1) <= 0.02


def test_a_setting_that_an_entry_does_not_have_is_not_tried_for_it(opener: Opener) -> None:
    search = {"trials": 4, "space": {"model.heads": [1, 2], "train.lr": [0.1, 0.2]}}
    made = plan(study(of_kind("transformer"), of_kind("gru"), search=search), opener=opener)
    assert len(made.tried["transformer"]) == 4
    assert made.tried["gru"] == [{"train.lr": 0.1}, {"train.lr": 0.2}]
    wrong = {"trials": 2, "space": {"train.lr": [0.1, -1.0]}}
    with pytest.raises(UserError, match=r"train.lr = -1.0"):
        plan(study(of_kind("gru"), search=wrong), opener=opener)


@pytest.mark.parametrize(
    ("entries", "more", "says"),
    [
        ([of_kind("gru")], {"metric": "bits_per_bite"}, "did you mean 'bits_per_byte'"),
        ([of_kind("gru")], {"search": {"trials": 2}}, "search.space is empty"),
        ([of_kind("gru"), of_kind("gru", name="other")], {}, "'gru' and 'other' are the same run"),
        (
            [of_kind("gru"), {"name": "words", "settings": {"data.tokenizer": "word"}}],
            {"metric": "perplexity"},
            "data.tokenizer = 'char' and 'words' has 'word'.*bits_per_byte",
        ),
        ([of_kind("gru"), {"name": "b", "settings": {"data.held_out": 0.3}}], {}, "not comparable"),
        ([of_kind("gru"), {"name": "b", "settings": {"task": "tree"}}], {}, "their metrics differ in kind"),
        ([{"name": "a", "settings": {"data.text": ["-"]}}], {}, "standard input"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    entries: list[dict[str, Any]], more: dict[str, Any], says: str, opener: Opener
) -> None:
    base = {"train": {"steps": 3}} if "tree" in says or "kind" in says else {}
    with pytest.raises(UserError, match=f"(?s){says}"):
        plan(study(*entries, base=base, **more), opener=opener)


def test_bits_per_byte_compare_tokenisations(opener: Opener) -> None:
    words = {"name": "words", "settings": {"data.tokenizer": "word", "data.vocab": 50}}
    assert len(plan(study(of_kind("gru"), words), opener=opener).entries) == 2


def test_a_forecaster_is_chosen_by_validation_and_not_by_its_test() -> None:
    table = {"task": "forecasting", "forecast": {"context": 24}, "train": {"steps": 1}}
    search = {"trials": 2, "space": {"train.lr": [0.1, 0.2]}}
    one = parse_study(
        {"title": "t", "question": "q", "base": table, "entry": [of_kind("gru")], "budget": {"kind": "none"}}
        | {"metric": "mse", "search": search, "seeds": 1}
    )
    made = plan(one)
    validation = [[Point(1, 1, 1.0, 1.0, 0.9)], [Point(1, 1, 1.0, 1.0, 0.5)]]
    results = [
        found(trial, 0.0, figures={"mse": test}, curve=curve)
        for trial, curve, test in zip(made.search_trials, validation, (0.1, 0.7))
    ]
    assert made.final_trials(results)[0].settings == {"train.lr": 0.2}


def test_figures_are_the_numbers_of_an_evaluation() -> None:
    assert "bits_per_byte" in metric_names(parse_spec({}))
    assert "exact" in metric_names(parse_spec({"task": "translation"}))
    assert "signature" not in metric_names(parse_spec({"task": "translation"}))
    assert "root_accuracy" in metric_names(parse_spec({"task": "tree"}))


def test_a_larger_vocabulary_does_not_eat_the_budget(opener: Opener, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(map(chr, range(0x4E00, 0x4E00 + 3000))) * 2, encoding="utf-8")
    one = study(of_kind("lstm"), of_kind("gru"), budget={"amount": 60_000})
    own, other = plan(one, opener=opener), plan(one, data=tmp_path / "a.txt", opener=opener)
    assert other.entries[0].solved == own.entries[0].solved
    assert other.entries[0].parameters > 400_000
    assert all(entry.error is not None and abs(entry.error) <= 0.02 for entry in other.entries)


@pytest.mark.slow
def test_on_other_data_the_budget_is_one_that_all_can_meet(tmp_path: Path, opener: Opener) -> None:
    """A TTT layer has only the widths that its heads divide: with few words, none is near the study's amount."""
    rows = [f"{'abc'[i % 3]} {'de'[i % 2]}\t{'xyz'[i % 3]}" for i in range(60)]
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    memory = load_study("memory")
    assert memory.budget.amount is not None
    made = plan(memory, data=tmp_path / "rows.tsv", opener=opener)
    assert made.study.budget.amount is not None
    assert memory.budget.amount < made.study.budget.amount < 1.25 * memory.budget.amount
    for entry in made.entries:
        spec = entry.spec
        assert abs(opener(spec).parameters(spec) / made.study.budget.amount - 1) < 0.02


def test_a_study_whose_own_data_are_not_here(tmp_path: Path, opener: Opener) -> None:
    (tmp_path / "text.txt").write_text("some text, and some more of it. " * 200)
    missing = {"base": {"data": {"text": ["nowhere.txt"]}}, "budget": {"kind": "parameters", "amount": 4000}}
    made = plan(study(of_kind("gru"), of_kind("lstm"), **missing), data=tmp_path / "text.txt", opener=opener)
    assert made.study.budget.amount == 4000
