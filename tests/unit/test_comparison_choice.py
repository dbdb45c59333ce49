"""What the report says beyond its figures: which one to choose, answers, forecasts, curves, trivial predictors."""

import json
from pathlib import Path
from typing import Any

import made_study as made
import pytest

from statewise.comparison.report import Part
from statewise.comparison.trial import Found, Point
from statewise.tasks import Answer, Course

ELMAN, LSTM, GRU = made.ENTRIES[1:4]


def report(folder: Path, found: list[Found], *names: str, seeds: int = 3) -> tuple[dict[str, Any], str, str]:
    return written(Part("made", made.study(names, seeds=seeds), [], found, (), folder))


def written(part: Part) -> tuple[dict[str, Any], str, str]:
    """The JSON, with the only part's keys at its top, the page and the Markdown."""
    path = made.write(part, folder=part.folder)
    data = json.loads(path.with_suffix(".json").read_text())
    return {**data["parts"][0], **data}, path.read_text(), path.with_suffix(".md").read_text()


def figures(data: dict[str, Any], name: str = "") -> list[dict[str, Any]]:
    """Those whose name begins so, in the order of the page."""
    return [one for one in (*data["lead"], *data["figures"], *data["more"]) if one["name"].startswith(name)]


# -------------------------------------------------------------------- which one to choose


def chosen(data: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    """By constraint: the choice among the best, and the cheapest of all."""
    rows = data["choices"]["rows"]
    return {row["wanted"]["text"]: (row["near"]["text"], row.get("cheapest", {}).get("text")) for row in rows}


def test_the_cheapest_of_the_best_and_of_all(tmp_path: Path) -> None:
    """gru and lstm are tied, and gru has the smaller state; elman decodes faster, and is worse."""
    data, html, markdown = report(tmp_path, made.results((ELMAN, LSTM, GRU)), "elman", "lstm", "gru")
    best = data["table"]["rows"][0]["entry"]["text"]
    assert best == "lstm"
    found = chosen(data)
    assert found["bits per byte"][0] == "lstm"
    assert found["state after 1,024 tokens"] == ("gru", "–")
    assert found["training time"] == ("lstm", "elman")
    assert "parameters" not in found  # no other model has clearly fewer
    said = data["choices"]["said"]
    assert said == "gru is statistically tied with lstm. Among them, the smallest state: gru (620 B, not 1.02 KiB)."
    price = next(row["price"]["text"] for row in data["choices"]["rows"] if row["wanted"]["text"] == "training time")
    assert price.endswith("worse than lstm")
    for text in (html, markdown.replace("\\", "")):
        assert said in text
        assert price in text


def test_who_is_alone_at_the_top_is_said_to_be(tmp_path: Path) -> None:
    data, _, _ = report(tmp_path, made.results((ELMAN, LSTM)), "elman", "lstm")
    assert data["choices"]["said"].startswith("No other model is statistically tied with lstm")


def test_choices_are_measured_by_the_best_size_matched_entry(tmp_path: Path) -> None:
    counted = made.ENTRIES[0]._replace(ends=1.5)
    entries = [made.entry(one) for one in (counted, ELMAN, LSTM, GRU)]
    study = made.study([one.name for one in entries])
    data, _, _ = written(Part("made", study, entries, made.results((counted, ELMAN, LSTM, GRU)), (), tmp_path))
    assert chosen(data)["bits per byte"] == ("lstm", "markov")
    assert chosen(data)["state after 1,024 tokens"] == ("gru", "markov")
    assert data["choices"]["said"].startswith("markov has the best score but is not size-matched. gru is statistically")
    (state,) = figures(data, "quality-state")
    assert state["finding"] == "Pareto-optimal: markov (24 B). Not size-matched: markov."


def test_an_interval_ends_where_a_share_does(tmp_path: Path) -> None:
    study = made.study(["lstm", "gru"]).model_copy(update={"metric": "accuracy", "better": "higher"})
    shares = {0: 1.0, 1: 0.6, 2: 0.99}
    found = [one._replace(figures={"accuracy": shares[one.seed]}) for one in made.results((LSTM, GRU))]
    data, _, _ = written(Part("made", study, [], found, (), tmp_path))
    for figure in (figures(data, "scores")[0], figures(data, "quality-state")[0]):
        assert figure["series"][0]["high"][0] == 1.0
    assert data["table"]["rows"][0]["high"]["value"] > 1  # what was computed is there for machines


def test_times_that_overlap_are_no_reason(tmp_path: Path) -> None:
    """The mean of gru's times is far below lstm's, by one seed that the machine had time for."""
    found = [
        one._replace(seconds=1.0 if one.entry == "gru" and one.seed == 0 else 10.0) for one in made.results((LSTM, GRU))
    ]
    data, _, _ = report(tmp_path, found, "lstm", "gru")
    assert data["table"]["rows"][0]["entry"]["text"] == "lstm"
    assert "training time" not in chosen(data)  # no other model is clearly faster


def test_one_seed_has_no_groups_and_none_as_good(tmp_path: Path) -> None:
    data, _, _ = report(tmp_path, made.results((ELMAN, LSTM, GRU), seeds=1), "elman", "lstm", "gru", seeds=1)
    assert "group" not in [column["name"] for column in data["table"]["columns"]]
    assert data["method"].startswith("One seed per model: differences cannot be tested")
    assert {near for near, _ in chosen(data).values()} == {data["table"]["rows"][0]["entry"]["text"]}
    assert "tied" not in " ".join(data["verdict"])


def test_equal_figures_on_one_seed_are_no_order(tmp_path: Path) -> None:
    found = [one._replace(figures={"bits_per_byte": 0.0}) for one in made.results((LSTM, GRU), seeds=1)]
    data, _, _ = report(tmp_path, found, "lstm", "gru", seeds=1)
    assert data["verdict"][0] == "All 2 entries have the same score, 0 bits per byte (one seed)."


def test_seeds_that_tell_nothing_apart_have_no_best(tmp_path: Path) -> None:
    data, _, _ = report(tmp_path, made.results((LSTM, GRU)), "lstm", "gru")
    assert data["verdict"][0].startswith("All 2 entries are statistically tied, from 2.")


def test_whoever_varies_most_is_named(tmp_path: Path) -> None:
    found = made.results((ELMAN, LSTM, GRU))
    wild = [one._replace(figures={"bits_per_byte": 2 + one.seed}) if one.entry == "gru" else one for one in found]
    assert report(tmp_path / "usual", found, "elman", "lstm", "gru")[0]["noisy"] == ""
    data, html, _ = report(tmp_path / "wild", wild, "elman", "lstm", "gru")
    assert data["noisy"].startswith("gru varies over 4 times more between seeds than the median model")
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
    assert "on 2 of these 3 some entries are right" in data["answered"]
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
        "observed": ([-1, 0, 1], [1, 2, 3]),
    }
    assert "gru has the smallest error (RMSE 0)" in figure["finding"]


# -------------------------------------------------------------------- curves


def test_what_else_training_looked_at_has_a_curve(tmp_path: Path) -> None:
    points = [Point(step, step, float(step), float(step), 40 - step) for step in (10, 20)]
    found = [one._replace(watched={"bleu": points, "nats": points}) for one in made.results((LSTM, GRU))]
    data, _, _ = report(tmp_path, found, "lstm", "gru")
    names = [figure["name"] for figure in figures(data, "learning")]
    assert names == ["learning-steps", "learning-time", "learning-flops", "learning-bleu-steps", "learning-nats-steps"]
    bleu, nats = figures(data, "learning")[3:]
    assert (bleu["title"], nats["title"]) == ("BLEU during training", "Nats during training")
    assert "higher is better" in bleu["reading"]
    assert "lower is better" in nats["reading"]
    bare = [one._replace(curve=[]) for one in found]  # the study's own metric is not looked at on the way
    data, _, _ = report(tmp_path / "bare", bare, "lstm", "gru")
    assert [figure["name"] for figure in figures(data, "learning")] == ["learning-bleu-steps", "learning-nats-steps"]


def test_a_curve_that_is_no_part_of_the_table_says_so(tmp_path: Path) -> None:
    said = "so curves end near the table"
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
    assert "Outside the axis: blind guess (6.000)." in html  # it would squeeze the entries


def test_nothing_is_drawn_of_what_nobody_has(tmp_path: Path) -> None:
    found = [made.found(one, seed=seed, bare=True) for one in (LSTM, GRU) for seed in range(3)]
    data, html, _ = report(tmp_path, found, "lstm", "gru")
    names = ["standings", "learning-steps", "throughput", "learning-time", "learning-flops"]
    assert [one["name"] for one in figures(data)] == names
    assert [one["name"] for one in figures(data, "throughput")[0]["series"]] == ["training"]
    assert all(figure["series"] for figure in figures(data))
    assert "Missing" not in html
    assert data["missing_text"] == []


def test_a_plot_of_equal_states_is_left_out(tmp_path: Path) -> None:
    same = {256: 768, 1024: 768}
    found = [one._replace(state_bytes=same) for one in made.results((LSTM, GRU))]
    data, _, _ = report(tmp_path, found, "lstm", "gru")
    assert figures(data, "state-by-context") == figures(data, "quality-state") == []


def test_samples_show_the_prompt_that_they_continue(tmp_path: Path) -> None:
    more = {"prompt": "Once <upon>", "anchors": {"token frequencies": 9.0}}
    found = [one._replace(**more) for one in made.results((LSTM, GRU))]
    data, html, markdown = report(tmp_path, found, "lstm", "gru")
    assert data["prompt"] == "Once <upon>"
    assert "Once &lt;upon&gt;" in html
    assert "Once <upon>" in markdown


@pytest.mark.parametrize(("name", "said"), [("a b c", "“a b c”"), ("a, b", "“a, b”"), ("markov 7", "markov 7")])
def test_a_name_of_several_words_has_quotes_in_a_sentence(name: str, said: str, tmp_path: Path) -> None:
    found = [one._replace(entry=name) if one.entry == "lstm" else one for one in made.results((ELMAN, LSTM))]
    assert report(tmp_path, found, "elman", name)[0]["verdict"][0].startswith(f"{said} is best")
