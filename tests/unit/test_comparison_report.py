"""The report says the same in all its forms, says what is missing, and lets nothing from data be more than text."""

import csv
import io
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import made_study as made
import pytest

from statewise.comparison.budget import Held
from statewise.comparison.report import write_report
from statewise.comparison.report.content import gather
from statewise.comparison.report.html import page
from statewise.comparison.report.surprise import Surprised, disagreements
from statewise.comparison.trial import Failure, Found, Point
from statewise.specs.study import TrainingBudgetSpec

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
    path = write_report(
        study, [made.entry(one) for one in entries], runs, folder=folder, static=static, failures=failures
    )
    assert path == folder / "report.html"
    data = json.loads((folder / "report.json").read_text())
    return Report(path.read_text(), (folder / "report.md").read_text(), data)


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


def first_markdown_table(text: str) -> list[list[str]]:
    lines = text[text.index("\n| ") + 1 :].partition("\n\n")[0].splitlines()
    cells = [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return cells[2:]


def test_three_forms_say_the_same(tmp_path: Path) -> None:
    html, markdown, data = written(tmp_path)
    seen = Seen(html)
    columns = [column["name"] for column in data["table"]["columns"] if column["shown"]]
    rows = [[row[name]["text"] for name in columns] for row in data["table"]["rows"]]
    assert seen.tables[0][1:] == rows
    assert first_markdown_table(markdown) == rows
    for sentence in data["verdict"]:
        assert sentence in html
        assert sentence in markdown.replace("\\", "")
    figures = [figure for section in data["sections"] for figure in section["figures"]]
    assert len(figures) == 10
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
    study = made.study([one.name for one in made.ENTRIES])
    content = gather(study, [made.entry(one) for one in made.ENTRIES], made.results(), folder=tmp_path)
    for figure in content.figures:
        rows = list(csv.reader(io.StringIO(figure.csv())))
        assert len(rows) == 1 + sum(len(series.x) for series in figure.series)
        assert [float(row[1]) for row in rows[1:]] == [x for series in figure.series for x in series.x]
        assert (figure.y.label or "") == rows[0][2]


def test_the_verdict_names_who_cannot_be_told_apart(tmp_path: Path) -> None:
    first, second = written(tmp_path).json["verdict"]
    assert "gru" in first
    assert "lstm" in first
    assert "not distinguishable" in first
    assert "transformer, the next that can be told apart" in first
    assert "parameters" in second
    assert "1,024 tokens" in second


def test_a_clear_winner_is_said_to_be_one(tmp_path: Path) -> None:
    entries = (made.ENTRIES[1], made.ENTRIES[2])
    first, _ = written(tmp_path, entries).json["verdict"]
    assert first.startswith("lstm is best")
    assert "that of the next, elman" in first
    assert "distinguishable" not in first


def test_seeds_that_came_to_other_steps_share_a_curve(tmp_path: Path) -> None:
    """By the clock: a fast seed and a slow one, whose figures fall on the same line in time."""

    def curve(steps: range, seconds: float) -> list[Point]:
        return [Point(step, step, step * seconds, 0.0, 10 - step * seconds) for step in steps]

    lstm = made.ENTRIES[2]
    curves = [curve(range(2, 11, 2), 1.0), curve(range(5, 41, 5), 0.25)]
    found = [made.found(lstm, seed=seed)._replace(curve=one) for seed, one in enumerate(curves)]
    data = written(tmp_path, (lstm,), found=found, seeds=2).json
    (learning,) = (section for section in data["sections"] if section["name"] == "learning")
    (series,) = learning["figures"][1]["series"]
    assert series["x"] == [2, 4, 6, 8, 10]
    assert series["y"] == pytest.approx([8, 6, 4, 2, 0])
    assert series["low"] == pytest.approx(series["high"])


def test_equal_figures_are_not_put_into_an_order(tmp_path: Path) -> None:
    elman, lstm, gru = made.ENTRIES[1:4]
    same = {"bits_per_byte": 1.0}
    found = [made.found(elman, seed=seed) for seed in range(3)]
    found += [made.found(one, seed=seed)._replace(figures=same) for one in (lstm, gru) for seed in range(3)]
    first, _ = written(tmp_path, (elman, lstm, gru), found=found).json["verdict"]
    assert first.startswith("lstm and gru are best, all with 1.000 bits per byte on each of 3 seeds, ")
    assert "that of the next, elman" in first
    last, _ = written(tmp_path / "all", (lstm, gru), found=found[3:]).json["verdict"]
    assert last == "All have the same figure, 1.000 bits per byte on each of 3 seeds: it tells none of them apart."


def test_what_it_costs_is_said_of_the_best_that_shares_the_budget(tmp_path: Path) -> None:
    counted = made.ENTRIES[0]._replace(ends=1.5)
    first, second = written(tmp_path, (counted, *made.ENTRIES[1:])).json["verdict"]
    assert first.startswith("markov is best")
    assert "The budget does not hold for markov; of those that share it, lstm is best" in first
    assert second.startswith("lstm has 60.2k parameters, 118k FLOPs a token")


def test_seconds_are_held_to_what_they_were(tmp_path: Path) -> None:
    """Sizes are known beforehand; how long a trial trained is known from the trial."""
    lstm, gru = made.ENTRIES[2:4]
    study = made.study(["lstm", "gru"])
    also = TrainingBudgetSpec(kind="seconds", amount=10.0)
    study = study.model_copy(update={"budget": study.budget.model_copy(update={"also": also})})
    entries = [one._replace(held=(*one.held, Held("seconds", 10.0, None))) for one in map(made.entry, (lstm, gru))]
    used = {"lstm": 10.1, "gru": 9.95}
    found = [one._replace(seconds=used[one.entry], steps=700) for one in made.results((lstm, gru))]
    write_report(study, entries, found, folder=tmp_path, static=True)
    data = json.loads((tmp_path / "report.json").read_text())
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
    on = "The command at the end, run again, goes on with what is missing."
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
    assert "Samples" not in html  # what no entry has is no section


def test_one_seed_is_no_ranking(tmp_path: Path) -> None:
    first, _ = written(tmp_path, seeds=1).json["verdict"]
    assert "one seed cannot tell" in first


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
    assert "same 2 tries" in data["searched"]


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
    path = write_report(study, [], found, folder=folder, static=static, failures=[failure], command=f"x {SCRIPT}")
    html = path.read_text()
    assert SCRIPT not in html
    seen = Seen(re.sub(r"<script>.*?</script>", "<script></script>", html, flags=re.DOTALL))
    scripts = [attributes for tag, attributes in seen.tags if tag == "script"]
    assert scripts == ([{}] if static else [{"type": "application/json", "id": "figures"}, {}, {}, {}])
    assert not [tag for tag, _ in seen.tags if tag in ("img", "iframe", "object")]
    assert not [name for _, attributes in seen.tags for name in attributes if name.startswith("on")]
    markdown = (folder / "report.md").read_text()
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in outside.replace("\\<script", "")
    assert "[x](" not in outside.replace("\\[x\\](", "")


def test_the_page_asks_for_nothing(tmp_path: Path) -> None:
    seen = Seen(written(tmp_path).html)
    for tag, attributes in seen.tags:
        for name in ("src", "href"):
            value = attributes.get(name) or ""
            assert value.startswith(("#", "data:")) or not value, (tag, value)
    policy = next(a["content"] for _, a in seen.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy


def test_plotly_is_used_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly", reason="needs the extra `report`")
    study = made.study([one.name for one in made.LINEAGE])
    content = gather(study, [], made.results(made.LINEAGE), folder=tmp_path)
    live = page(content)
    assert 1 << 20 < len(live.encode()) < 8_000_000
    figures = json.loads(re.findall(r'id="figures">(.*?)</script>', live)[0])["figures"]
    assert json.loads(json.dumps([one.as_dict() for one in content.figures])) == [
        {name: value for name, value in one.items() if name != "ticks"} for one in figures
    ]
    monkeypatch.setattr("statewise.figures.html.find_spec", lambda name: None)
    assert page(content) == page(content, static=True)
    assert len(page(content).encode()) < 1_500_000


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
