"""Published results from the command line: a recipe, a folder of data, a verdict."""

import gzip
import hashlib
import json
import re
import statistics
from collections import Counter
from pathlib import Path

import pytest
from command import call
from scipy import stats

from statewise.specs import ReproductionSpec, UserError, load_published, load_recipe, published_names
from statewise.tasks.reproduce import find_files, judge

RECIPE = """
task = "classification"
[model]
kind = "gru"
width = 8
[data]
min_count = 1
[train]
steps = 60
batch = 4
lr = 0.02
warmup = 2
evaluate_every = 20
[reproduction]
metric = "accuracy"
better = "higher"
published = {{ figure = {figure}, source = "somebody" }}
goal = {{ figure = 0.5 }}
expected = {expected}
evaluate = ["held*.tsv"]
[reproduction.files]
"data.train" = "train.tsv"
"data.validation" = "held*.tsv"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    words = {"good": ("warm", "funny"), "bad": ("dull", "cold")}
    rows = [f"{label}\ta {word} film\n" for _ in range(6) for label, some in words.items() for word in some]
    (tmp_path / "train.tsv").write_text("label\ttext\n" + "".join(rows))
    (tmp_path / "held-out.tsv").write_text("label\ttext\n" + "".join(rows[:4]))
    return tmp_path


def write(folder: Path, *, figure: float, expected: str) -> str:
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(figure=figure, expected=expected))
    return str(path)


def test_a_result_that_lands(folder: Path) -> None:
    recipe = write(folder, figure=0.9, expected="[0.9, 1.0]")
    said = call("reproduce", recipe, "--data", str(folder), "--out", str(folder / "run"), "--json", "--quiet")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["found"] == 1.0
    assert found["landed"] is True
    assert found["reached"] is True


def test_a_result_that_does_not(folder: Path) -> None:
    recipe = write(folder, figure=1.1, expected="[0.1, 0.2]")
    said = call("reproduce", recipe, "--data", str(folder), "--out", str(folder / "run"), "--quiet")
    assert said.code == 1
    assert "OUTSIDE the expected 0.1 to 0.2 (one run, widened by judgement)" in said.out
    assert "our goal 0.5, reached" in said.out
    assert "published 1.1, not reached: somebody" in said.out


@pytest.mark.parametrize(
    ("better", "found", "reached"), [("lower", 1.4, True), ("lower", 1.6, False), ("higher", 1.4, False)]
)
def test_reached_means_at_least_as_good(better: str, found: float, reached: bool) -> None:
    wanted = {"figure": 1.5, "source": "s"}
    reproduction = ReproductionSpec(metric="m", better=better, published=wanted, goal={"figure": 1.4}, files={})
    verdict = judge("r", reproduction, [found], seconds=1.0, runs=("runs/r",))
    assert verdict.reached is reached
    assert verdict.goal_reached is (found == 1.4 or better == "higher")
    other = judge("r", reproduction, [found], other_data=("data.train",), seconds=1.0, runs=("runs/r",))
    assert (other.reached, other.goal_reached) == (None, None)
    assert verdict.landed is None


def test_the_list_names_every_recipe_and_its_files() -> None:
    said = call("reproduce")
    assert said.code == 0
    assert all(name in said.out for name in published_names())
    listed = {row["name"]: row for row in json.loads(call("reproduce", "--json").out)}
    assert listed.keys() == set(published_names())
    for name in listed:
        table, published = load_published(name)
        assert published.files or "embedded" in table["data"]
        assert published.interval is not None, f"{name}: say where our own result landed"
        assert published.interval[0] < published.interval[1]
        assert published.expected is None or published.ours is None or published.ours.interval is None, name


def test_published_figures_and_our_goals_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = call("reproduce").out
    assert max(map(len, said.splitlines())) <= 80
    lines = {words[0]: line for line in said.splitlines() if (words := line.split())}
    listed = {row["name"]: row for row in json.loads(call("reproduce", "--json").out)}
    columns = {title: lines["recipe"].index(title) + len(title) for title in ("published", "our goal", "ours")}
    for name, row in listed.items():
        shown = {title: lines[name][:end].split()[-1].lstrip("~") for title, end in columns.items()}
        for title, key in (("published", "published"), ("our goal", "goal")):
            if row[key] is not None:
                assert float(shown[title]) == row[key]["figure"], (name, title)
        ours = load_published(name)[1].ours
        assert ours is None or lines[name][: columns["ours"]].endswith(f" {ours}")
        assert row["published"] is None or " ".join(row["published"]["source"].split()[:4]) in " ".join(said.split())
        many = ours is not None and ours.seeds >= 3
        assert row["expected_from"] == (
            f"95 % prediction interval of {ours.seeds} seeds" if many else "one run, widened by judgement"
        )
    assert listed["wikitext-2-lstm"]["status"] == "not reproduced"
    assert "perplexity, lower is better; not reproduced" in said
    assert listed["tinyshakespeare-gru"]["published"] is None


def test_row_e10_the_page_says_what_the_recipes_say() -> None:
    """docs/results.md and `statewise reproduce` hold the same figures."""
    page = (Path(__file__).parents[2] / "docs/results.md").read_text(encoding="utf-8")
    head = next(line for line in page.splitlines() if line.startswith("| recipe |"))
    titles = [cell.strip() for cell in head.strip("|").split("|")]
    table = {}
    for line in page.splitlines():
        if line.startswith("| `"):
            cells = dict(zip(titles, (cell.strip() for cell in line.strip("|").split("|")), strict=True))
            table[cells["recipe"].strip("`")] = cells
    assert table.keys() == set(published_names())
    for name in published_names():
        one = load_published(name)[1]
        for title, figure in (("published", one.published), ("our goal", one.goal)):
            assert _number(table[name][title]) == (None if figure is None else pytest.approx(figure.figure)), name
        assert _number(table[name]["ours"]) == (None if one.ours is None else pytest.approx(one.ours.figure, rel=2e-3))
        assert table[name]["seeds"] == ("" if one.ours is None else str(one.ours.seeds))
        assert table[name]["published"].startswith("~") is (one.published is not None and not one.published.verified)
        assert table[name]["verdict"] == one.status
    every = [load_published(name)[1] for name in published_names()]
    public = [one for one in every if one.published is not None]
    count = Counter(one.status.partition(":")[0] for one in public)
    missed = ", ".join(f"`{name}`" for name, one in zip(published_names(), every) if one.status == "not reproduced")
    assert (
        f"Of the {len(every)} recipes, {len(public)} have a published value and {len(every) - len(public)} only a goal."
        f" Of the {len(public)}, {count['reproduced']} are reproduced, {count['not reproduced']} are not "
        f"({missed}), and {count['not comparable']} were measured on another part of the data than the published "
        f"value. {sum(one.ours is not None and one.ours.seeds >= 3 for one in every)} have three seeds."
    ) in " ".join(page.split())


def _number(cell: str) -> float | None:
    if not cell:
        return None
    number, _, unit = cell.lstrip("~").partition(" ")
    unit = unit[-1:]
    return float(number) / 100 if unit == "%" else float(number)


def test_several_seeds_give_a_mean_and_a_deviation(folder: Path) -> None:
    recipe = write(folder, figure=0.9, expected="[0.1, 1.0]")
    said = call(
        "reproduce", recipe, "--data", str(folder), "--out", str(folder / "run"), "--seeds", "2", "--quiet", "--json"
    )
    assert said.code == 0, said.err
    found = json.loads(said.out)
    alone = call("reproduce", recipe, "--data", str(folder), "--out", str(folder / "alone"), "--quiet", "--json")
    assert found["runs"] == [str(folder / "run-seed0"), str(folder / "run-seed1")]
    assert found["figures"][0] == json.loads(alone.out)["found"]
    assert found["found"] == statistics.fmean(found["figures"])
    assert (
        "mean and standard deviation of 2 seeds"
        in call(
            "reproduce", recipe, "--data", str(folder), "--out", str(folder / "again"), "--seeds", "2", "--quiet"
        ).out
    )


@pytest.mark.parametrize("seeds", range(3, 9))
def test_the_expected_interval_of_three_seeds_is_a_prediction_interval(seeds: int) -> None:
    """Beside scipy's quantile of Student's t: exact up to six runs, never too narrow beyond."""
    figures = [10.0 + (place % 3) for place in range(seeds)]
    low, high = ReproductionSpec(
        metric="m", better="lower", goal={"figure": 1.0}, files={}, ours={"figures": figures}, expected=(0.0, 1.0)
    ).interval
    reach = stats.t.ppf(0.975, seeds - 1) * statistics.stdev(figures) * (1 + 1 / seeds) ** 0.5
    assert low == pytest.approx(statistics.fmean(figures) - (high - low) / 2)
    assert (high - low) / 2 == (pytest.approx(reach, rel=1e-4) if seeds <= 6 else pytest.approx(reach, rel=0.1))
    assert (high - low) / 2 >= reach * 0.9999


def test_a_recipe_based_on_another(tmp_path: Path) -> None:
    below, above = tmp_path / "below.toml", tmp_path / "above.toml"
    below.write_text('[model]\nkind = "gru"\nwidth = 8\n[train]\nsteps = 60\n')
    above.write_text('based_on = "below"\nmodel.width = 16\n')
    assert load_recipe(str(above)) == {"model": {"kind": "gru", "width": 16}, "train": {"steps": 60}}
    above.write_text('based_on = "lstm"\ntrain.steps = 7\n')
    shipped = load_recipe("lstm")
    assert load_recipe(str(above)) == {**shipped, "train": {**shipped.get("train", {}), "steps": 7}}
    for text, message in (
        ('based_on = "nowhere"', "based on 'nowhere', which does not exist"),
        ("based_on = 3", "based_on is 3, expected the name of a recipe"),
        ('based_on = "above"', "based on itself"),
    ):
        above.write_text(text)
        with pytest.raises(UserError, match=message):
            load_recipe(str(above))
    above.write_text('based_on = "below"')
    below.write_text('based_on = "above"')
    with pytest.raises(UserError, match="based on itself"):
        load_recipe(str(above))


def test_other_data_have_no_verdict(folder: Path) -> None:
    """The recipe knows the sums of its own files; unpacked, so that a gzipped copy is no other one."""
    recipe = Path(write(folder, figure=0.9, expected="[0.1, 0.2]"))
    sums = [hashlib.sha256((folder / name).read_bytes()).hexdigest()[:16] for name in ("train.tsv", "held-out.tsv")]
    text = recipe.read_text().replace("goal = {", f"sha256 = {json.dumps(sums)}\ngoal = {{")
    recipe.write_text(text + '[reproduction.elsewhere]\n"train.steps" = 30\n')
    (folder / "held-out.tsv.gz").write_bytes(gzip.compress((folder / "held-out.tsv").read_bytes()))
    (folder / "held-out.tsv").unlink()
    recipe.write_text(recipe.read_text().replace("held*.tsv", "held*.tsv*"))
    own = call("reproduce", str(recipe), "--data", str(folder), "--out", str(folder / "own"), "--quiet", "--json")
    assert own.code == 1, own.err
    assert json.loads(own.out)["landed"] is False
    assert json.loads(own.out)["other_data"] == []
    with (folder / "train.tsv").open("a") as file:
        file.write("bad\ta dull film\n")
    said = call("reproduce", str(recipe), "--data", str(folder), "--out", str(folder / "other"), "--quiet", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert (found["landed"], found["reached"]) == (None, None)
    assert found["other_data"] == ["data.train"]
    assert found["changed"] == ["train.steps=30"]
    said = call("reproduce", str(recipe), "--data", str(folder), "--out", str(folder / "third"), "--quiet")
    assert "no verdict: other data than the recipe's (data.train)" in said.out
    assert f"statewise evaluate {folder / 'third'} --data {folder / 'held-out.tsv.gz'}" in said.out
    assert "with other settings than the recipe's: train.steps=30" in said.out
    assert "\n4 rows\n" in said.out, "what the evaluation notes"
    for known in ("published", "goal", "expected", "somebody"):
        assert known not in said.out
    assert {found[key] for key in ("published", "source", "goal", "expected", "expected_from")} == {None}


def test_another_metric_has_no_verdict_either(folder: Path) -> None:
    recipe = write(folder, figure=0.9, expected="[0.9, 1.0]")
    options = ("--data", str(folder), "--quiet", "--out", str(folder / "run"))
    said = call("reproduce", recipe, *options, "--metric", "acuracy")
    assert said.code == 2
    assert "accuracy" in said.err
    assert not (folder / "run").exists(), "it was trained before anybody was told"
    said = call("reproduce", recipe, *options, "--metric", "nats")
    assert said.code == 0, said.err
    assert said.out.startswith("nats 0.")
    assert "published" not in said.out
    assert "goal" not in said.out


def test_the_metric_of_named_entities(tmp_path: Path) -> None:
    """The recipe is of parts of speech; where tags mark no spans, there is no such metric, and that is said."""
    recipe = tmp_path / "recipe.toml"
    table = RECIPE.format(figure=0.9, expected="[0.9, 1.0]").replace('"classification"', '"tagging"')
    table = table.replace("held*.tsv", "held*.txt").replace("train.tsv", "train.txt").replace("min_count = 1\n", "")
    recipe.write_text(table)
    options = ("--data", str(tmp_path), "--quiet", "--metric", "span_f1", "--set", "train.steps=2")
    for tags, code in ((("B-PER", "I-PER", "O"), 0), (("NOUN", "NOUN", "VERB"), 2)):
        rows = "".join(f"{word}\t{tag}\n" for word, tag in zip(("Ada", "Lovelace", "writes"), tags)) + "\n"
        for name in ("train.txt", "held-out.txt"):
            (tmp_path / name).write_text(20 * rows)
        said = call("reproduce", str(recipe), *options, "--out", str(tmp_path / tags[0]))
        assert said.code == code, said.err + said.out
        if code == 0:
            assert re.search(r"^span_f1 [01]\.\d", said.out, re.MULTILINE), said.out
        else:
            assert "this evaluation has no span_f1" in said.err


def test_a_file_named_by_hand_is_not_searched_for(folder: Path) -> None:
    """As the advice has it: --set for what is learned from, --test for the final evaluation; emoji do no harm."""
    recipe = write(folder, figure=0.9, expected="[0.9, 1.0]")
    away = folder / "\N{SLIGHTLY SMILING FACE}"
    away.mkdir()
    for name in ("train.tsv", "held-out.tsv"):
        (folder / name).rename(away / name)
    named = ("--set", f"data.train={away / 'train.tsv'}", "--set", f"data.validation={away / 'held-out.tsv'}")
    said = call("reproduce", recipe, *named, "--data", str(folder), "--quiet", "--out", str(folder / "run"))
    assert said.code == 2
    assert "nothing is called 'held*.tsv', for the final evaluation" in said.err
    assert "--test FILE" in said.err
    test = ("--test", str(away / "held-out.tsv"))
    said = call("reproduce", recipe, *named, *test, "--quiet", "--out", str(folder / "run"), "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["evaluated"] == [str(away / "held-out.tsv")]
    said = call("reproduce", recipe, "--data", str(away), "--quiet", "--out", str(folder / "found"))
    assert said.code == 0, said.err


def test_the_files_of_another_language_are_found(tmp_path: Path) -> None:
    _, published = load_published("multi30k-transformer")
    for name in ("train.es", "train.en", "val.es", "val.en", "test.es", "test.en"):
        (tmp_path / name).write_text(f"{name}\n")
    files = find_files(published, tmp_path, given={})
    assert files.settings["data.train"] == (str(tmp_path / "train.es"),)
    assert files.settings["data.validation_target"] == (str(tmp_path / "val.en"),)
    assert files.evaluated == (str(tmp_path / "test.es"), str(tmp_path / "test.en"))
    assert files.other == (*published.files, "test")
    none = find_files(
        load_published("ewt-upos")[1], tmp_path, given={"data.train": str(tmp_path / "train.en"), "data.validation": []}
    )
    assert none.other == ("data.train", "data.validation")
    (tmp_path / "train.fi").write_text("kaksi\n")
    (tmp_path / "train.es").rename(tmp_path / "train.cs")
    with pytest.raises(UserError, match=r"train.cs and train.fi all fit data.train.*\n.*settings=..data.train.: .FILE"):
        find_files(published, tmp_path, given={})


def test_all_that_is_missing_is_said_at_once(tmp_path: Path) -> None:
    """Neither language is English, so the recipe cannot know which one to translate into."""
    _, published = load_published("multi30k-lstm")
    for name in ("train.de", "train.cs", "val.de", "val.cs", "test.de", "test.cs"):
        (tmp_path / name).write_text(f"{name}\n")
    with pytest.raises(UserError) as caught:
        find_files(published, tmp_path, given={})
    said = (
        "nothing is called 'train.en' or the like, for data.target; nothing is called 'val.en' or the like, for data.v"
    )
    assert said in caught.value.what
    assert (
        "test.cs and test.de all fit the final evaluation; nothing is called 'test_2016_flickr.en'" in caught.value.what
    )
    asked = "--set data.target=FILE --set data.validation_target=FILE --test FILE --test FILE"
    assert asked in caught.value.on_command_line()
    assert """{"data.target": "FILE", "data.validation_target": "FILE"} test=['FILE', 'FILE']""" in caught.value.fix
    with pytest.raises(UserError, match=r"data.text.: .DIR.} reads every file of a folder"):
        find_files(load_published("tinyshakespeare-gru")[1], tmp_path, given={})


def test_the_other_direction_is_other_data(tmp_path: Path) -> None:
    """Files are known by their place: the same ones, turned around, have no verdict."""
    _, published = load_published("multi30k-lstm")
    names = ("train.de", "train.en", "val.de", "val.en", "test_2016_flickr.de", "test_2016_flickr.en")
    for name in names:
        (tmp_path / name).write_text(f"{name}\n")
    sums = tuple(hashlib.sha256(f"{name}\n".encode()).hexdigest()[:16] for name in names)
    published = published.model_copy(update={"sha256": sums})
    assert find_files(published, tmp_path, given={}).other == ()
    path = {name: str(tmp_path / name) for name in names}
    turned = {"data.train": path["train.en"], "data.target": path["train.de"]}
    with pytest.raises(
        UserError, match=r"data.train names .*train.en', which this recipe takes for data.target"
    ) as caught:
        find_files(published, tmp_path, given=turned)
    asked = "--set data.validation=FILE --set data.validation_target=FILE --test FILE --test FILE"
    assert asked in caught.value.on_command_line()
    turned |= {"data.validation": path["val.en"], "data.validation_target": path["val.de"]}
    with pytest.raises(UserError, match=r"name them too: test=.'FILE', 'FILE'."):
        find_files(published, tmp_path, given=turned)
    test = [path["test_2016_flickr.en"], path["test_2016_flickr.de"]]
    files = find_files(published, tmp_path, given=turned, test=test)
    assert files.other == (*published.files, "test")
    assert find_files(published, tmp_path, given={}, test=test).other == ("test",)


def test_one_file_is_not_found_for_two(tmp_path: Path) -> None:
    _, published = load_published("multi30k-lstm")
    for name in ("train.de", "train.en", "val.tok.en", "test.de", "test.en"):
        (tmp_path / name).write_text(f"{name}\n")
    with pytest.raises(UserError, match=r"val.tok.en' was found for data.validation and for data.validation_target"):
        find_files(published, tmp_path, given={})


def test_packed_files_and_other_names_of_parts_are_found(tmp_path: Path) -> None:
    _, published = load_published("multi30k-lstm")
    names = ("train.fr.gz", "train.en.gz", "dev.fr", "dev.en", "test_2016_flickr.fr", "test_2016_flickr.en")
    for name in (*names, "test_2017_flickr.fr", "test_2017_flickr.en"):
        (tmp_path / name).write_bytes(gzip.compress(name.encode()) if name.endswith(".gz") else name.encode())
    files = find_files(published, tmp_path, given={})
    assert (*(path for paths in files.settings.values() for path in paths), *files.evaluated) == tuple(
        str(tmp_path / name) for name in names
    )


def test_a_folder_may_be_what_a_recipe_takes(tmp_path: Path) -> None:
    """IMDB as it is handed out: a folder of folders."""
    (tmp_path / "train").mkdir()
    files = find_files(load_published("imdb-bilstm")[1], tmp_path, given={})
    assert files.settings == {"data.train": (str(tmp_path / "train"),)}
    assert files.other == ("data.train",)


def test_one_file_is_enough_only_where_one_is_needed(tmp_path: Path) -> None:
    """Else a model would be judged by what it learned from."""
    file = tmp_path / "other.npz"
    file.write_bytes(b"arrays")
    files = find_files(load_published("mnist1d-gru")[1], file, given={})
    assert files.settings == {"data.train": (str(file),)}
    assert files.evaluated == (f"{file}:x_test:y_test",)
    with pytest.raises(UserError, match=r"one file, but the recipe needs 2: tasks_test_simple\.txt"):
        find_files(load_published("scan-simple")[1], file, given={})


def test_every_recipe_knows_its_files() -> None:
    for name in published_names():
        _, published = load_published(name)
        assert len(published.sha256) >= len(published.files), name
        assert all(len(one) == 16 and int(one, 16) for one in published.sha256), name


MISTAKES = [
    (["multi30k-transfromer", "--data", "."], "multi30k-transformer"),
    (["ewt-upos"], "--data DIR"),
    (["ewt-upos", "--data", "absent"], "'absent' is not a folder"),
    (
        ["ewt-upos", "--data", "."],
        "in '.' nothing is called '*train*.conllu*', for data.train; nothing is called '*dev*",
    ),
    (["lstm", "--data", "."], "is not a published recipe"),
]


@pytest.mark.parametrize(("words", "says"), MISTAKES, ids=[says for _, says in MISTAKES])
def test_a_mistake_is_answered(words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = call("reproduce", *words)
    assert said.code == 2
    assert says in said.err
    assert not list(tmp_path.iterdir())


def test_the_readme_counts_what_the_command_lists() -> None:
    statuses = Counter(row["status"] for row in json.loads(call("reproduce", "--json").out) if row["published"])
    counts = [statuses.total(), statuses["reproduced"], statuses["not reproduced"]]
    root = Path(__file__).parents[2]
    english = re.search(
        r"Of (\d+) published\s+values, (\d+) are\s+reproduced and (\d+) are not", (root / "README.md").read_text()
    )
    chinese = re.search(
        r"(\d+) 个已发表的\s*数字中，(\d+) 个得到重现，(\d+) 个没有", (root / "docs/zh/README.md").read_text()
    )
    for sentence in (english, chinese):
        assert sentence is not None
        assert [int(number) for number in sentence.groups()] == counts
