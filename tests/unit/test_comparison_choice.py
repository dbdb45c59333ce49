"""What the report says beyond its figures: which one to take, what each answers, what else training looked at."""

import json
from pathlib import Path
from typing import Any

import made_study as made
import pytest

from statewise.comparison.report import write_report
from statewise.comparison.trial import Answer, Course, Found, Point

ELMAN, LSTM, GRU = made.ENTRIES[1:4]


def report(folder: Path, found: list[Found], *names: str, seeds: int = 3) -> tuple[dict[str, Any], str, str]:
    path = write_report(made.study(names, seeds=seeds), [], found, folder=folder, static=True)
    return json.loads((folder / "report.json").read_text()), path.read_text(), (folder / "report.md").read_text()


def figures(data: dict[str, Any], section: str) -> list[dict[str, Any]]:
    return [figure for one in data["sections"] if one["name"] == section for figure in one["figures"]]


# -------------------------------------------------------------------- which one to take


def chosen(data: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    """By what counts: whom to take of the best, and of all."""
    rows = data["choices"]["rows"]
    return {row["wanted"]["text"]: (row["near"]["text"], row.get("cheapest", {}).get("text")) for row in rows}


def test_the_cheapest_of_the_best_and_of_all(tmp_path: Path) -> None:
    """gru and lstm are not told apart, and gru keeps less; elman writes faster, and is worse."""
    data, html, markdown = report(tmp_path, made.results((ELMAN, LSTM, GRU)), "elman", "lstm", "gru")
    best = data["table"]["rows"][0]["entry"]["text"]
    assert best == "lstm"
    found = chosen(data)
    assert found["the figure: bits per byte"][0] == "lstm"
    assert found["state after 1,024 tokens"] == ("gru", "–")
    assert found["training time"] == ("lstm", "elman")
    assert found["parameters"] == ("lstm", "–")  # nobody has clearly fewer
    said = data["choices"]["said"]
    assert said.startswith("By these seeds, gru cannot be told from lstm. Of them, the smallest state: gru (620 B for")
    price = next(row["price"]["text"] for row in data["choices"]["rows"] if row["wanted"]["text"] == "training time")
    assert price.endswith("above lstm")
    for text in (html, markdown.replace("\\", "")):
        assert said in text
        assert price in text


def test_who_is_alone_at_the_top_is_said_to_be(tmp_path: Path) -> None:
    data, _, _ = report(tmp_path, made.results((ELMAN, LSTM)), "elman", "lstm")
    assert data["choices"]["said"].startswith("By these seeds nobody else is as good as lstm")


def test_whoever_is_outside_of_the_budget_is_no_measure(tmp_path: Path) -> None:
    counted = made.ENTRIES[0]._replace(ends=1.5)
    entries = [made.entry(one) for one in (counted, ELMAN, LSTM, GRU)]
    study = made.study([one.name for one in entries])
    write_report(study, entries, made.results((counted, ELMAN, LSTM, GRU)), folder=tmp_path, static=True)
    data = json.loads((tmp_path / "report.json").read_text())
    assert chosen(data)["the figure: bits per byte"] == ("lstm", "markov")
    assert chosen(data)["state after 1,024 tokens"] == ("gru", "markov")
    assert data["choices"]["said"].startswith("markov has the best figure, outside of the budget. By these seeds, gru")
    (state,) = (one for one in figures(data, "quality") if one["name"] == "quality-state")
    assert state["finding"].endswith("markov, outside of the budget, left aside.")


def test_an_interval_ends_where_a_share_does(tmp_path: Path) -> None:
    study = made.study(["lstm", "gru"]).model_copy(update={"metric": "accuracy", "better": "higher"})
    shares = {0: 1.0, 1: 0.6, 2: 0.99}
    found = [one._replace(figures={"accuracy": shares[one.seed]}) for one in made.results((LSTM, GRU))]
    write_report(study, [], found, folder=tmp_path, static=True)
    data = json.loads((tmp_path / "report.json").read_text())
    for figure in (figures(data, "standings")[0], figures(data, "quality")[0]):
        assert figure["series"][0]["high"][0] == 1.0
    assert data["table"]["rows"][0]["high"]["value"] > 1  # what was computed is there for machines


def test_times_that_overlap_are_no_reason(tmp_path: Path) -> None:
    """The mean of gru's times is far below lstm's, by one seed that the machine had time for."""
    found = [
        one._replace(seconds=1.0 if one.entry == "gru" and one.seed == 0 else 10.0) for one in made.results((LSTM, GRU))
    ]
    data, _, _ = report(tmp_path, found, "lstm", "gru")
    assert chosen(data)["training time"][0] == data["table"]["rows"][0]["entry"]["text"] == "lstm"


def test_one_seed_has_no_groups_and_none_as_good(tmp_path: Path) -> None:
    data, _, _ = report(tmp_path, made.results((ELMAN, LSTM, GRU), seeds=1), "elman", "lstm", "gru", seeds=1)
    assert "group" not in [column["name"] for column in data["table"]["columns"]]
    assert data["method"].startswith("With one seed nothing can be said of differences")
    assert {near for near, _ in chosen(data).values()} == {data["table"]["rows"][0]["entry"]["text"]}
    assert "distinguishable" not in " ".join(data["verdict"])


def test_equal_figures_on_one_seed_are_no_order(tmp_path: Path) -> None:
    found = [one._replace(figures={"bits_per_byte": 0.0}) for one in made.results((LSTM, GRU), seeds=1)]
    data, _, _ = report(tmp_path, found, "lstm", "gru", seeds=1)
    assert data["verdict"][0] == "All have the same figure, 0 bits per byte on one seed: it tells none of them apart."


def test_seeds_that_tell_nothing_apart_have_no_best(tmp_path: Path) -> None:
    data, _, _ = report(tmp_path, made.results((LSTM, GRU)), "lstm", "gru")
    assert data["verdict"][0].startswith("The seeds tell none of the 2 entries apart: their means go from 2.")


def test_whoever_varies_most_is_named(tmp_path: Path) -> None:
    found = made.results((ELMAN, LSTM, GRU))
    wild = [one._replace(figures={"bits_per_byte": 2 + one.seed}) if one.entry == "gru" else one for one in found]
    assert report(tmp_path / "usual", found, "elman", "lstm", "gru")[0]["noisy"] == ""
    data, html, _ = report(tmp_path / "wild", wild, "elman", "lstm", "gru")
    assert data["noisy"].startswith("Seeds of gru lie more than 4 times as far apart")
    assert data["noisy"] in html


# -------------------------------------------------------------------- answers


def answered(one: Found, *right: str) -> Found:
    rows = {"x": "1", "y": "2", "z": "3"}
    return one._replace(
        answers=[Answer(given, "", truth, truth if given in right else "0") for given, truth in rows.items()]
    )


def test_rows_on_which_the_entries_part_come_first(tmp_path: Path) -> None:
    right = {"lstm": ("x", "z"), "gru": ("x", "y"), "elman": ("x",)}
    found = [answered(one, *right[one.entry]) for one in made.results((ELMAN, LSTM, GRU))]
    data, html, markdown = report(tmp_path, found, "elman", "lstm", "gru")
    assert [one["given"] for one in data["answers"]] == ["y", "z", "x"]
    assert data["answers"][0]["answers"] == {"elman": "0", "lstm": "0", "gru": "2"}
    assert "on 2 of these 3 some are right" in data["answered"]
    assert html.count("<mark>2</mark>") == 1
    assert "| y | 2 | 0 | 0 | ✓ 2 |" in markdown


def test_answers_to_other_rows_are_not_set_beside_each_other(tmp_path: Path) -> None:
    """Where each seed holds out other rows, those of one seed are shown; who was asked something else is not."""
    found = [answered(one, "x") for one in made.results((LSTM, GRU))]
    found = [
        one._replace(answers=[Answer(f"{one.seed} {row.given}", *row[1:]) for row in one.answers or []])
        for one in found
    ]
    data, _, _ = report(tmp_path, found[1:], "lstm", "gru")  # seed 0 of lstm has not ended
    assert {one["given"] for one in data["answers"]} == {"1 x", "1 y", "1 z"}


def test_a_forecast_of_each_beside_what_came(tmp_path: Path) -> None:
    ahead = {"lstm": [2.0, 4.0], "gru": [2.0, None]}
    found = [
        one._replace(course=Course("x from 5", [1.0], [2.0, 3.0], ahead[one.entry]))
        for one in made.results((LSTM, GRU))
    ]
    data, _, _ = report(tmp_path, found, "lstm", "gru")
    (figure,) = figures(data, "forecast")
    assert {one["name"]: (one["x"], one["y"]) for one in figure["series"]} == {
        "lstm": ([0, 1], [2, 4]),
        "gru": ([0], [2]),
        "what came": ([-1, 0, 1], [1, 2, 3]),
    }
    assert "Here gru comes nearest, 0 off" in figure["finding"]


# -------------------------------------------------------------------- curves


def test_what_else_training_looked_at_has_a_curve(tmp_path: Path) -> None:
    points = [Point(step, step, float(step), float(step), 40 - step) for step in (10, 20)]
    found = [one._replace(watched={"bleu": points, "nats": points}) for one in made.results((LSTM, GRU))]
    data, _, _ = report(tmp_path, found, "lstm", "gru")
    names = [figure["name"] for figure in figures(data, "learning")]
    assert names == ["learning-steps", "learning-time", "learning-flops", "learning-bleu-steps", "learning-nats-steps"]
    bleu, nats = figures(data, "learning")[3:]
    assert (bleu["title"], nats["title"]) == ("BLEU along training", "Nats along training")
    assert "higher is better" in bleu["reading"]
    assert "lower is better" in nats["reading"]
    bare = [one._replace(curve=[]) for one in found]  # the study's own metric is not looked at on the way
    data, _, _ = report(tmp_path / "bare", bare, "lstm", "gru")
    assert [figure["name"] for figure in figures(data, "learning")] == ["learning-bleu-steps", "learning-nats-steps"]


def test_a_curve_that_is_no_part_of_the_table_says_so(tmp_path: Path) -> None:
    said = "no curve ends just where the table says"
    exact = made.results((LSTM, GRU))
    assert said not in report(tmp_path / "exact", exact, "lstm", "gru")[1]
    quick = [one._replace(figures={"bits_per_byte": one.figures["bits_per_byte"] + 0.1}) for one in exact]
    assert said in report(tmp_path / "quick", quick, "lstm", "gru")[1]


def test_errors_that_fall_far_are_drawn_on_a_logarithm(tmp_path: Path) -> None:
    points = [Point(step, step, float(step), float(step), 100.0 / step**2) for step in (1, 2, 4, 8)]
    found = [one._replace(curve=points) for one in made.results((LSTM, GRU))]
    data, _, _ = report(tmp_path, found, "lstm", "gru")
    assert {figure["y"]["scale"] for figure in figures(data, "learning")} == {"log"}


def test_what_hardly_learns_stands_below_the_entries(tmp_path: Path) -> None:
    anchors = {"token frequencies": 2.55, "blind guess": 6.0}
    found = [one._replace(anchors=anchors) for one in made.results((ELMAN, LSTM))]
    data, html, _ = report(tmp_path, found, "elman", "lstm")
    (figure,) = figures(data, "standings")
    assert figure["y"]["categories"] == ["lstm", "elman", "token frequencies"]
    assert (figure["series"][-1]["x"], figure["series"][-1]["y"]) == ([2.55], [2.0])
    assert "Not drawn, since they lie far off: blind guess (6.000)." in html  # it would press the entries together


def test_nothing_is_drawn_of_what_nobody_has(tmp_path: Path) -> None:
    found = [made.found(one, seed=seed, bare=True) for one in (LSTM, GRU) for seed in range(3)]
    data, html, _ = report(tmp_path, found, "lstm", "gru")
    assert [one["name"] for one in data["sections"]] == ["standings", "learning", "quality", "speed"]
    assert figures(data, "speed")[0]["title"] == "Training speed"
    assert all(figure["series"] for one in data["sections"] for figure in one["figures"])
    assert "Missing" not in html
    assert data["missing_text"] == []


def test_all_samples_show_what_they_go_on_from(tmp_path: Path) -> None:
    found = [one._replace(prompt="Once <upon>") for one in made.results((LSTM, GRU))]
    data, html, markdown = report(tmp_path, found, "lstm", "gru")
    assert data["prompt"] == "Once <upon>"
    assert "Once &lt;upon&gt;" in html
    assert "Once <upon>" in markdown


@pytest.mark.parametrize(("name", "said"), [("a b", "“a b”"), ("lstm", "lstm")])
def test_a_name_of_several_words_has_marks_in_a_sentence(name: str, said: str, tmp_path: Path) -> None:
    found = [one._replace(entry=name) if one.entry == "lstm" else one for one in made.results((ELMAN, LSTM))]
    assert report(tmp_path, found, "elman", name)[0]["verdict"][0].startswith(f"{said} is best")
