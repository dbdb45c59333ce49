"""What a study shows of each model beside its figures: the same held-out rows, answered, on runs of every task."""

import math
from pathlib import Path

import pytest
from task_runs import make_run

from statewise.comparison.measure import finite_metrics
from statewise.tasks import load, trivial_scores


@pytest.mark.parametrize(
    ("name", "metric", "little"),
    [
        ("classifier", "accuracy", {"blind guess", "most frequent class", "bag-of-words logistic regression"}),
        ("tagger", "accuracy", {"blind guess", "most frequent class", "tag by word alone"}),
        ("tree", "root_accuracy", {"blind guess", "most frequent class"}),
        ("tree-words", "root_accuracy", {"blind guess", "most frequent class"}),
        ("translator", "bleu", {"source copied", "one fixed target"}),
    ],
)
def test_the_answers_are_those_that_the_figure_counts(name: str, metric: str, little: set[str], tasks: Path) -> None:
    run = load(make_run(name, tasks))
    evaluation = run.evaluate()._asdict()
    answers = run.answers()
    found = answers.rows
    assert found
    assert answers.course is None
    assert answers.sample is None
    assert all(one.given for one in found)
    if name == "tagger":
        assert all(f"[{one.asked}]" in one.given for one in found)
    all_rows = evaluation.get("words") or evaluation.get("rows") or evaluation["trees"]
    share = sum(one.right for one in found) / len(found)
    if len(found) == all_rows:  # they are all there is
        assert share == pytest.approx(evaluation["exact" if name == "translator" else metric])
    assert trivial_scores(evaluation, metric).keys() == little
    assert all(math.isfinite(value) for value in trivial_scores(evaluation, metric).values())
    assert (run.decode_speed() is not None) == (name == "translator")


def test_a_forecast_is_shown_with_what_came(tasks: Path) -> None:
    run = load(make_run("direct", tasks))
    assert run.answers().rows is None
    found = run.answers().course
    assert found is not None
    assert len(found.truth) == len(found.forecast) == 4
    assert len(found.past) == 8
    lines = [line.split(",") for line in (tasks / "series.csv").read_text().splitlines()]
    values = [float(cell) for line in lines[1:] for cell in line if _is_number(cell)]
    assert all(any(math.isclose(one, value) for value in values) for one in found.truth if one is not None)
    evaluation = run.evaluate()._asdict()
    assert (
        trivial_scores(evaluation, "mse").items() == {n: t["mse"] for n, t in evaluation["baselines"].items()}.items()
    )
    assert finite_metrics(evaluation)["mse"] == evaluation["mse"]


def test_a_whole_series_has_no_stretch_to_show(tasks: Path) -> None:
    assert load(make_run("whole-series", tasks)).answers().course is None


def test_bits_per_byte_of_what_knows_little() -> None:
    """Of 100 bytes in 50 tokens: 4 equally likely ones are 2 bits each."""
    evaluation = {"tokens": 50, "bytes": 100, "uniform_perplexity": 4.0, "unigram_perplexity": 2.0}
    assert trivial_scores(evaluation, "bits_per_byte") == {"blind guess": 1.0, "token frequencies": 0.5}
    assert trivial_scores(evaluation, "perplexity") == {"blind guess": 4.0, "token frequencies": 2.0}


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
