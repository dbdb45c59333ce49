"""The report says the same in all its forms, says what is missing, and lets nothing from data be more than text."""

import csv
import io
import json
import math
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import made_study as made
import pytest

from statewise.comparison.budget import Held
from statewise.comparison.report import Part
from statewise.comparison.report.content import MOST, gather
from statewise.comparison.report.lineage import FORMS, groups, models
from statewise.comparison.report.surprise import Surprised, disagreements
from statewise.comparison.trial import Failure, Found, Point
from statewise.figures import Frame
from statewise.models.lineage import LINEAGE
from statewise.specs.study import TrainingBudgetSpec

ROOT = Path(__file__).parents[2]
SCRIPT = "<script>alert(1)</script>"


class Report(NamedTuple):
    html: str
    markdown: str
    json: dict[str, Any]


def written(
    folder: Path,
    entries: tuple[made.Made, ...] = made.ENTRIES,
    *,
    found: list[Found] | None = None,
    failures: tuple[Failure, ...] = (),
    seeds: int = 3,
    searched: bool = False,
    static: bool = True,
) -> Report:
    study = made.study([one.name for one in entries], seeds=seeds, searched=searched)
    runs = made.results(entries, seeds=seeds) if found is None else found
    part = Part("made", study, [made.entry(one) for one in entries], runs, failures, folder)
    return read(made.write(part, folder=folder, static=static))


def read(path: Path) -> Report:
    """All three files; the JSON of a single study's part is merged into the whole."""
    data = json.loads(path.with_suffix(".json").read_text())
    (only,) = data["parts"] if len(data["parts"]) == 1 else ({},)
    return Report(path.read_text(), path.with_suffix(".md").read_text(), {**only, **data})


class Seen(HTMLParser):
    """What a browser would make of a page: its elements, and the tables' texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self._cell = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.tables[-1][-1][-1] += data


def markdown_table(text: str, under: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    text = text[text.index(under) :]
    lines = text[text.index("\n| ") + 1 :].partition("\n\n")[0].splitlines()
    cells = [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return cells[2:]


def test_three_forms_say_the_same(tmp_path: Path) -> None:
    html, markdown, data = written(tmp_path)
    seen = Seen(html)
    columns = [column["name"] for column in data["table"]["columns"] if column["shown"]]
    rows = [[row[name]["text"] for name in columns] for row in data["table"]["rows"]]
    assert seen.tables[1][1:] == rows  # the first has the models
    assert markdown_table(markdown, "## Results") == rows
    for sentence in data["verdict"]:
        assert sentence in html
        assert sentence in markdown.replace("\\", "")
    figures = [*data["lead"], *data["figures"], *data["more"]]
    assert len({figure["name"] for figure in figures}) == len(figures) == 8
    for figure in figures:
        for words in (figure["title"], figure["reading"], figure["finding"]):
            assert words.endswith(".") or words == figure["title"]
            assert words in markdown.replace("\\", "")
            assert words in html


def test_numbers_are_those_that_were_found(tmp_path: Path) -> None:
    found = made.results()
    data = written(tmp_path, found=found).json
    for row in data["table"]["rows"]:
        runs = [one for one in found if one.entry == row["entry"]["value"]]
        values = [one.figures["bits_per_byte"] for one in runs]
        mean = sum(values) / 3
        assert row["metric"]["value"] == pytest.approx(mean, abs=1e-12)
        deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / 2)
        half = 4.302652729911275 * deviation / math.sqrt(3)  # SciPy: t.ppf(0.975, 2)
        assert row["high"]["value"] == pytest.approx(mean + half, abs=1e-9)
        assert row["state_bytes"]["value"] == runs[0].state_bytes[1024]
    means = [row["metric"]["value"] for row in data["table"]["rows"]]
    assert means == sorted(means)


def test_a_figure_exports_what_it_shows(tmp_path: Path) -> None:
    content = gather([made.memory(tmp_path), made.prediction(tmp_path)], title="t", question="q")
    for figure in content.figures:
        rows = list(csv.reader(io.StringIO(figure.csv())))
        assert len(rows) == 1 + sum(len(series.x) for series in figure.series)
        assert [float(row[1]) for row in rows[1:]] == [x for series in figure.series for x in series.x]
        assert (figure.y.label or "") == rows[0][2]


def test_the_verdict_names_ties_cost_and_front(tmp_path: Path) -> None:
    first, second, third = written(tmp_path).json["verdict"]
    assert first == (
        "lstm is best, with 2.262 ± 0.019 bits per byte (mean of 3 seeds), 0.083 (3.5 %) better than the best model "
        "that is not tied, transformer; statistically tied: gru."
    )
    assert second == (
        "lstm needs 60.2k parameters (235 KiB), 1.02 KiB of state after 1,024 tokens and 118k FLOPs per token; gru is "
        "statistically tied with it and needs only 620 B of state."
    )
    assert third == "Pareto-optimal in bits per byte and state size: markov (24 B), gru (620 B) and lstm (1.02 KiB)."


def test_the_verdict_of_two_studies_is_three_sentences(tmp_path: Path) -> None:
    """Who remembers, what it costs, who predicts best and at what size."""
    data = read(made.write_lineage(tmp_path)).json
    assert data["verdict"] == [
        "Only models whose state is a list, a matrix or weights remember (accuracy 0.99 to 1.00); the best others "
        "reach 0.47 with a pair (lstm), 0.45 with a vector (gru) and 0.15 with a window (window).",
        "The cost is state: after 1,024 tokens transformer keeps 1.5 MiB, more with every token; gated_delta keeps "
        "16 KiB at any length; lstm, the best of the others, keeps 1.02 KiB.",
        "markov 7 predicts best, 1.632 ± 0.023 bits per byte in 8.64 MiB, but is not size-matched; among the models "
        "that are, mamba2 is best, 1.902 ± 0.055 bits per byte in 235 KiB.",
    ]


def test_the_verdict_follows_the_numbers(tmp_path: Path) -> None:
    """Were vectors to remember, and small counts to predict best, it would say that."""
    memory, prediction = made.memory(tmp_path), made.prediction(tmp_path)
    found = [one._replace(figures={"accuracy": 0.99}) if one.entry == "gru" else one for one in memory.found]
    changed = [one._replace(figures={"bits_per_byte": 1.0}) if one.entry == "lstm" else one for one in prediction.found]
    content = gather([memory._replace(found=found), prediction._replace(found=changed)], title="t", question="q")
    assert content.verdict[0].startswith("Only models whose state is a list, a matrix, weights or a vector remember")
    assert content.verdict[2].startswith(
        "lstm predicts best, 1.000 bits per byte in 235 KiB; at half that size or less"
    )


def test_where_no_model_learned_the_verdict_says_so(tmp_path: Path) -> None:
    memory = made.memory(tmp_path)
    low = [one._replace(figures={"accuracy": one.figures["accuracy"] / 5}) for one in memory.found]
    first, second, _ = gather([memory._replace(found=low)], title="t", question="q").verdict
    assert first == "No model remembers: the best, transformer, reaches accuracy 0.20; trivial predictors reach 0.06."
    assert second.startswith("transformer needs")


def test_a_clear_winner_is_said_to_be_one(tmp_path: Path) -> None:
    entries = (made.ENTRIES[1], made.ENTRIES[2])
    first = written(tmp_path, entries).json["verdict"][0]
    assert first.startswith("lstm is best")
    assert "better than the next, elman" in first
    assert "tied" not in first


def test_seeds_that_came_to_other_steps_share_a_curve(tmp_path: Path) -> None:
    """By the clock: a fast seed and a slow one, whose figures fall on the same line in time."""

    def curve(steps: range, seconds: float) -> list[Point]:
        return [Point(step, step, step * seconds, 0.0, 10 - step * seconds) for step in steps]

    lstm = made.ENTRIES[2]
    curves = [curve(range(2, 11, 2), 1.0), curve(range(5, 41, 5), 0.25)]
    found = [made.found(lstm, seed=seed)._replace(curve=one) for seed, one in enumerate(curves)]
    data = written(tmp_path, (lstm,), found=found, seeds=2).json
    (learning,) = (figure for figure in data["more"] if figure["name"] == "learning-time")
    (series,) = learning["series"]
    assert series["x"] == [2, 4, 6, 8, 10]
    assert series["y"] == pytest.approx([8, 6, 4, 2, 0])
    assert series["low"] == pytest.approx(series["high"])


def test_equal_figures_are_not_put_into_an_order(tmp_path: Path) -> None:
    elman, lstm, gru = made.ENTRIES[1:4]
    same = {"bits_per_byte": 1.0}
    found = [made.found(elman, seed=seed) for seed in range(3)]
    found += [made.found(one, seed=seed)._replace(figures=same) for one in (lstm, gru) for seed in range(3)]
    first = written(tmp_path, (elman, lstm, gru), found=found).json["verdict"][0]
    assert first.startswith("lstm and gru are best, with 1.000 bits per byte (on each of 3 seeds), ")
    assert first.endswith("better than the next, elman.")
    last = written(tmp_path / "all", (lstm, gru), found=found[3:]).json["verdict"][0]
    assert last == "All 2 entries have the same score, 1.000 bits per byte (on each of 3 seeds)."


def test_costs_are_those_of_the_best_size_matched_entry(tmp_path: Path) -> None:
    counted = made.ENTRIES[0]._replace(ends=1.5)
    first, second, _ = written(tmp_path, (counted, *made.ENTRIES[1:])).json["verdict"]
    assert first.startswith("markov is best")
    assert "markov is not size-matched; among the models that are, lstm is best: 2.262" in first
    assert second.startswith("lstm needs 60.2k parameters (235 KiB), 1.02 KiB of state")


def test_seconds_are_held_to_what_they_were(tmp_path: Path) -> None:
    """Sizes are known beforehand; how long a trial trained is known from the trial."""
    lstm, gru = made.ENTRIES[2:4]
    study = made.study(["lstm", "gru"])
    also = TrainingBudgetSpec(kind="seconds", amount=10.0)
    study = study.model_copy(update={"budget": study.budget.model_copy(update={"also": also})})
    entries = [one._replace(held=(*one.held, Held("seconds", 10.0, None))) for one in map(made.entry, (lstm, gru))]
    used = {"lstm": 10.1, "gru": 9.95}
    found = [one._replace(seconds=used[one.entry], steps=700) for one in made.results((lstm, gru))]
    data = read(made.write(Part("made", study, entries, found, (), tmp_path), folder=tmp_path)).json
    rows = {row["entry"]["value"]: row for row in data["table"]["rows"]}
    assert rows["lstm"]["off_seconds"] == {"value": pytest.approx(0.01), "text": "1.0 %"}
    assert rows["gru"]["off_seconds"]["value"] == pytest.approx(-0.005)
    assert rows["gru"]["off_parameters"]["value"] == pytest.approx(120 / 60_000)
    assert rows["gru"]["steps"]["value"] == 700
    assert (
        "held equal: 60,000 parameters, met to within 0.27 %; 10 seconds of training, met to within 1.0 %"
        in (tmp_path / "report.md").read_text()
    )


# -------------------------------------------------------------------- partial studies


def test_missing_seeds_and_failures_are_told(tmp_path: Path) -> None:
    found = [one for one in made.results() if one.entry != "gru" and (one.entry, one.seed) != ("lstm", 1)]
    failure = Failure("0123", "lstm", 1, "final", "the loss was NaN at step 12", True)
    html, markdown, data = written(tmp_path, found=found, failures=(failure,))
    on = "Run the command at the end of this page again to finish the missing trials."
    assert data["missing"] == ["lstm: only 2 of 3 seeds finished, 1 failed.", "gru: none of 3 seeds finished.", on]
    for text in (html, markdown):
        assert "the loss was NaN at step 12" in text
        assert "gru: none of 3 seeds finished." in text
    last = data["table"]["rows"][-1]
    assert (last["entry"]["text"], last["metric"]["text"]) == ("gru", "no result")


def test_one_entry_on_one_seed_of_another_task(tmp_path: Path) -> None:
    html, _, data = written(
        tmp_path, made.ENTRIES[2:3], found=[made.found(made.ENTRIES[2], seed=0, bare=True)], seeds=1
    )
    assert data["verdict"][0].startswith("Only lstm has finished")
    assert "±" not in data["table"]["rows"][0]["metric"]["text"]
    assert "state_bytes" not in [column["name"] for column in data["table"]["columns"]]
    assert data["samples"] == []
    assert "Samples" not in html


def test_one_seed_is_no_ranking(tmp_path: Path) -> None:
    assert "one seed cannot show whether the difference is significant" in written(tmp_path, seeds=1).json["verdict"][0]


def test_nothing_yet(tmp_path: Path) -> None:
    html, markdown, data = written(tmp_path, found=[])
    assert data["verdict"][0] == "No trial has finished yet, so there is nothing to compare."
    assert "No trial has finished yet" in html
    assert "No trial has finished yet" in markdown
    assert len(data["missing"]) == len(made.ENTRIES) + 1


def test_a_result_without_the_metric_is_a_failure(tmp_path: Path) -> None:
    found = made.results()
    found[4] = found[4]._replace(figures={"bits_per_byte": math.nan})
    data = written(tmp_path, found=found).json
    (row,) = data["failures"]["rows"]
    assert row["entry"]["text"] == found[4].entry
    assert "bits_per_byte" in row["error"]["text"]


def test_the_search_is_logged(tmp_path: Path) -> None:
    tries = [made.found(one, seed=3, phase="search", rate=rate) for one in made.ENTRIES for rate in (1e-3, 3e-3)]
    data = written(tmp_path, found=[*made.results(), *tries], searched=True).json
    rows = data["search"]["rows"]
    assert len(rows) == 12
    assert [row["note"]["text"] for row in rows] == ["chosen", ""] * 6
    assert "same 2 search trials" in data["searched"]


def test_models_that_read_what_is_typed_have_a_section(tmp_path: Path) -> None:
    part = Part("made", made.study([one.name for one in made.ENTRIES]), [], made.results(), [], tmp_path)
    frame = Frame("<iframe></iframe>", ("'sha256-one'", "'wasm-unsafe-eval'"))
    page = made.write(part, folder=tmp_path, static=False, live=frame).read_text()
    assert '<section id="live"><h2>Try them</h2>' in page
    assert "<iframe></iframe></section>" in page.replace("\n", "")
    assert " 'sha256-one' 'wasm-unsafe-eval';" in page
    assert "iframe" not in made.write(part, folder=tmp_path, static=False).read_text()


# -------------------------------------------------------------------- text from data is text


@pytest.mark.parametrize("static", [True, False])
def test_nothing_from_data_runs(static: bool, tmp_path: Path) -> None:
    bad = made.Made(f"{SCRIPT}|`*[x](javascript:1)", 2.2, 1e4, 800)
    found = [made.found(one, seed=seed) for one in (bad, made.ENTRIES[2]) for seed in range(3)]
    quoted = [("</pre>" + SCRIPT, 1.0), ('"><img src=x onerror=alert(1)>', 2.0)]
    found = [one._replace(sample=[(SCRIPT + "```\n# no", 1.0)], surprise=quoted) for one in found]
    study = made.study([bad.name, "lstm"], title=f"A {SCRIPT} title")
    folder = tmp_path / "study"
    failure = Failure("k", "lstm", 0, "search", SCRIPT, True)
    part = Part("made", study, [], found, [failure], folder)
    html = made.write(part, folder=folder, static=static, command=f"x {SCRIPT}").read_text()
    assert SCRIPT not in html
    seen = Seen(re.sub(r"<script>.*?</script>", "<script></script>", html, flags=re.DOTALL))
    scripts = [attributes for tag, attributes in seen.tags if tag == "script"]
    assert scripts == ([] if static else [{}])
    assert not [tag for tag, _ in seen.tags if tag in ("img", "iframe", "object")]
    assert not [name for _, attributes in seen.tags for name in attributes if name.startswith("on")]
    markdown = (folder / "report.md").read_text()
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in outside.replace("\\<script", "")
    assert "[x](" not in outside.replace("\\[x\\](", "")


def test_the_page_asks_for_nothing(tmp_path: Path) -> None:
    """Papers are linked, and nothing is loaded."""
    seen = Seen(written(tmp_path, static=False).html)
    for tag, attributes in seen.tags:
        for name in ("src", "href"):
            value = attributes.get(name) or ""
            outside = tag == "a" and value.startswith(("https://arxiv.org/abs/", "https://doi.org/10."))
            assert outside or value.startswith(("#", "data:")) or not value, (tag, value)
    policy = next(a["content"] for _, a in seen.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy


def test_a_static_page_has_no_script(tmp_path: Path) -> None:
    html = written(tmp_path, static=True).html
    assert "<script" not in html
    assert "script-src" not in html


# -------------------------------------------------------------------- what people see first


def test_the_report_opens_with_the_figure_of_the_lesson(tmp_path: Path) -> None:
    html, markdown, data = read(made.write_lineage(tmp_path))
    lead = data["lead"]
    assert [figure["name"] for figure in lead] == ["memory-scores", "prediction-quality-model", "look"]
    assert html.index("<figure ") == html.index('<figure id="memory-scores"') < html.index('class="verdict"')
    bars = {one["name"]: one for one in lead[0]["series"]}
    assert bars["transformer"]["text"] == ["1.00 · list, 1.5 MiB"]
    assert bars["most frequent class"]["entry"] is None
    assert lead[1]["joined"] == [["markov 1", "markov 2", "markov 4", "markov 7"]]
    sizes = {one["name"]: one["x"][0] for one in lead[1]["series"]}
    assert sizes["markov 7"] == 9_057_656  # the count table is counted
    assert "1.00 · list, 1.5 MiB" in markdown


def test_at_most_eight_figures_come_before_more(tmp_path: Path) -> None:
    html, _, data = read(made.write_lineage(tmp_path))
    before, _, after = html.partition('<section id="more">')
    inside = 1 + sum(len(part["figures"]) for part in data["parts"])
    assert before.count("<figure ") == len(data["lead"]) - 1 + inside == MOST == 8
    assert after.count("<figure ") == len(data["more"]) > 0
    assert after.startswith("<h2>More</h2>\n<details><summary>")


def test_a_page_is_small(tmp_path: Path) -> None:
    assert len(read(made.write_lineage(tmp_path)).html.encode()) < 3 << 20
    assert len(written(tmp_path / "one", made.LINEAGE, static=False).html.encode()) < 3 << 20


def test_there_is_one_legend(tmp_path: Path) -> None:
    """Colour is what the state is; no figure repeats the names of the entries in a legend of its own."""
    html = read(made.write_lineage(tmp_path)).html
    assert html.count('class="legend"') == 1
    legend = html[html.index('class="legend"') :].partition("</div>")[0]
    assert re.findall(r"<b>(\w+)</b>", legend) == ["window", "vector", "pair", "matrix", "list", "weights"]
    for key in re.findall(r'<g class="series key[^>]*>.*?</g>', html):
        assert "data-entry" not in key
    colour = dict(re.findall(r'class="series c(\d)" data-series="\d+" data-entry="([^"]+)"', html))
    assert len(set(colour)) == 6


def test_few_forms_are_coloured_by_entry() -> None:
    by_entry = groups(["fixed, 4", "full"], {"fixed, 4": "lstm", "full": "lstm"})
    assert [(group.name, group.colour) for group in by_entry] == [("", 0), ("", 1)]


def test_every_model_of_the_lineage_has_a_form_of_state() -> None:
    assert set(FORMS) == {row.name for row in LINEAGE}
    linked = [model for model in models({row.name: row.name for row in LINEAGE}) if model.link]
    assert len(linked) > 10
    assert [model.year for model in linked] == sorted(model.year for model in linked)


def test_the_models_come_in_order_of_years(tmp_path: Path) -> None:
    html, markdown, data = read(made.write_lineage(tmp_path))
    years = [model["year"] for model in data["models"]]
    assert years == sorted(years)
    assert (years[0], data["models"][0]["entries"]) == (1913, ["markov 1", "markov 2", "markov 4", "markov 7"])
    for model in data["models"]:
        assert (ROOT / model["page"]).is_file()
        for said in (model["fixed"], model["page"]):
            assert said in markdown.replace("\\", "")
            assert escape(said) in html
    assert '<a href="https://arxiv.org/abs/1706.03762"' in html


def test_the_page_says_what_it_is_to_those_who_share_it(tmp_path: Path) -> None:
    html, _, data = read(made.write_lineage(tmp_path))
    assert '<meta property="og:title" content="The lineage · statewise">' in html
    assert f'<meta property="og:description" content="{escape(" ".join(data["verdict"]))}">' in html


# -------------------------------------------------------------------- columns, settings, samples


def test_columns_without_information_are_hidden(tmp_path: Path) -> None:
    data = written(tmp_path).json
    shown = {column["name"]: column["shown"] for column in data["table"]["columns"]}
    assert not any(shown[name] for name in ("seeds", "steps", "peak_bytes", "off_parameters"))
    assert all(shown[name] for name in ("entry", "metric", "parameters", "model_bytes", "state_bytes"))
    found = [one for one in made.results() if (one.entry, one.seed) != ("lstm", 2)]
    part = written(tmp_path / "part", found=found).json
    assert {column["name"]: column["shown"] for column in part["table"]["columns"]}["seeds"]
    names = [figure["name"] for figure in (*data["lead"], *data["figures"], *data["more"])]
    assert "quality-parameters" not in names  # equal by construction
    assert "memory" not in names


def test_other_metrics_stand_beside_the_metric(tmp_path: Path) -> None:
    """A column for each, of a table by a number one for each number, and a line against it; 16 comes after 8."""
    part = made.memory(tmp_path)
    runs = [
        one._replace(figures={**one.figures, "accuracy_at.16": one.seed / 8, "accuracy_at.8": one.seed / 4})
        for one in part.found
    ]
    study = part.study.model_copy(update={"also": ("accuracy_at",)})
    report = read(made.write(part._replace(study=study, found=runs), folder=tmp_path))
    assert report.json["also"] == ["accuracy_at.8", "accuracy_at.16"]
    assert all(row["accuracy_at.8"]["value"] == 0.25 for row in report.json["table"]["rows"])
    assert "accuracy (distance 8)" in report.markdown
    (figure,) = [one for one in report.json["figures"] if one["name"] == "accuracy-at"]
    assert {(tuple(one["x"]), tuple(one["y"])) for one in figure["series"]} == {((8.0, 16.0), (0.25, 0.125))}
    assert figure["series"][0]["low"] == [0.0, 0.0]


def test_settings_and_the_recorded_search_are_printed(tmp_path: Path) -> None:
    html, markdown, data = read(made.write_lineage(tmp_path))
    prediction = data["parts"][1]
    assert [row["entry"]["text"] for row in prediction["settings"]["table"]["rows"]][:1] == ["markov 1"]
    (gru,) = (row for row in prediction["record"]["rows"] if row["entry"]["text"] == "gru")
    assert gru["learning rate 0.008"]["text"] == "✓ 1.950"
    assert gru["learning rate 0.002"]["text"] == "2.104"
    assert "3 trials for each of 7 models, on a separate seed." in prediction["searched"]
    assert "The recorded search was run with base train.steps = 700 (now unset)" in prediction["searched"]
    for text in (html, markdown):
        assert "✓ 1.950" in text
    assert data["parts"][0]["searched"] == "No search: every entry ran with its settings as written."


def test_only_readable_samples_are_shown(tmp_path: Path) -> None:
    """At most half the bits of token frequencies (4.4), at most four, one per kind of model."""
    prediction = made.prediction(tmp_path)
    data = read(made.write(prediction, folder=tmp_path)).json
    assert [sample["entry"] for sample in data["samples"]] == ["markov 7", "mamba2", "lstm", "gru"]
    assert "below 2.200 bits per byte, half of what token frequencies need; 7 others are left out" in data["sampled"]
    worse = [one._replace(anchors={"token frequencies": 3.0}) for one in prediction.found]
    html, _, data = read(made.write(prediction._replace(found=worse), folder=tmp_path / "worse"))
    assert data["samples"] == []
    assert "No samples: no model reaches 1.500 bits per byte" in html


PRIVATE = (
    r"told (apart|from)|distinguishable|cannot be told|at this moment|moments?\b|whoever|\bnobody\b|somebody|\bwhom\b"
    r"|outside of the budget|budget does not hold|the figure:|best figure|same figure|\bthing\b|of those that"
    r"|one to take\b|\btaken\b|\btries\b|\bwrites\b|writing|set beside|lie (far|apart)|stands? alone|paid\b"
    r"|to be placed by|press(es|ing) the|deeper the colour|by its title|a logarithm\b|at the worst|which is\b"
)


def test_the_report_uses_the_words_of_the_field(tmp_path: Path) -> None:
    """Everything the report itself says, without the lineage's own sentences and the data."""
    partial = [one for one in made.results() if (one.entry, one.seed) != ("gru", 1)]
    noisy = [one._replace(figures={"bits_per_byte": 2 + one.seed}) if one.entry == "elman" else one for one in partial]
    pages = [
        read(made.write_lineage(tmp_path / "two")).html,
        written(tmp_path / "one", made.LINEAGE).html,
        written(tmp_path / "noisy", found=noisy, searched=True).html,
        written(tmp_path / "single", seeds=1).html,
        written(tmp_path / "none", found=[]).html,
    ]
    for html in pages:
        said = re.sub(
            r'<table class="lineage">.*?</table>|<style>.*?</style>|<script>.*?</script>', "", html, flags=re.S
        )
        said = re.sub(r"<[^>]+>", " ", said)
        found = re.search(PRIVATE, said, re.IGNORECASE)
        assert found is None, said[max(found.start() - 80, 0) : found.end() + 80]


# -------------------------------------------------------------------- surprise


def test_disagreements_between_tokenizers() -> None:
    """Pieces are compared between ends that both have: `ab|c` and `a|bc` share only the end of `abc`."""
    one = Surprised("one", (("ab", 1.0), ("c", 2.0), ("d", 7.0)), 10.0)
    other = Surprised("other", (("a", 0.5), ("bc", 0.5), ("d", 1.0)), 2.0)
    first, second = disagreements([one, other])
    assert (first.piece, first.gap, first.expected_by, first.surprised) == ("d", 6.0, "other", "one")
    assert (second.piece, second.gap, second.before, second.after) == ("abc", 2.0, "", "d")


def test_surprise_is_in_bits_and_the_mean_over_seeds(tmp_path: Path) -> None:
    runs = [
        made.found(made.ENTRIES[2], seed=seed)._replace(surprise=[("x", (seed + 1) * math.log(2))]) for seed in (0, 1)
    ]
    (read,) = written(tmp_path, made.ENTRIES[2:3], found=runs, seeds=2).json["surprise"]
    assert read["pieces"] == [["x", pytest.approx(1.5)]]


def test_another_text_is_not_compared(tmp_path: Path) -> None:
    found = made.results()
    found = [one._replace(surprise=[("other", 1.0)]) if one.entry == "gru" else one for one in found]
    data = written(tmp_path, found=found).json
    assert "gru" not in [one["entry"] for one in data["surprise"]]
    assert any("gru read another text" in said for said in data["missing_text"])
