"""Trees from the command line: train, go on after a cut, evaluate, predict; and what is refused."""

import json
import random
from pathlib import Path
from typing import Any

import nltk
import pytest
from tiny_run import Cut, at, call, crash, evidence, resume

from statewise.tasks import Trained, load, train
from statewise.training.progress import Silent

SETTINGS: dict[str, Any] = {
    "model.width": 16,
    "train.steps": 24,
    "train.batch": 4,
    "train.warmup": 3,
    "train.log_every": 5,
    "train.evaluate_every": 6,
    "train.save_every": 4,
    "train.lr": 0.02,
}
MODELS: dict[str, dict[str, Any]] = {
    "child_sum": {"model.dropout": 0.3, "model.embedding_dropout": 0.1, "train.accumulate": 3},
    "nary": {"data.binarise": "left", "objective.root_weight": 3.0, "objective.weights": "balanced"},
    "composition": {"model.shape": "balanced", "objective.nodes": "root"},
    "lstm": {"reader.bidirectional": True, "reader.summary": "max"},
}


def expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.3:
        value = rng.randrange(2)
        return f"({value} {value})"
    inside = [expression(rng, depth - 1) for _ in range(rng.choice([2, 2, 3]))]
    values = [int(one[1]) for one in inside]
    word, value = rng.choice([("and", min(values)), ("or", max(values))])
    return f"({value} {word} {' '.join(inside)})"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trees")
    rng = random.Random(0)
    lines = [expression(rng, 3) for _ in range(120)]
    (folder / "train.txt").write_text("\n".join(lines[:100]) + "\n")
    (folder / "dev.txt").write_text("\n".join(lines[100:]) + "\n")
    return folder


def start(kind: str, world: Path, out: Path, **more: Any) -> Trained:
    settings = {**SETTINGS, "model.kind": kind, "data.validation": str(world / "dev.txt"), **MODELS[kind]}
    return train("tree", settings=settings, data=world / "train.txt", out=out, **{"display": Silent(), **more})


@pytest.fixture(autouse=True)
def plain_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped recipe's own data settings are not what is tried here."""
    monkeypatch.setattr("statewise.tasks.launch.load_recipe", lambda name: {"task": name})


@pytest.fixture(scope="module")
def run(world: Path) -> Path:
    out = world / "run"
    settings = {**SETTINGS, "train.steps": 60, "data.validation": str(world / "dev.txt")}
    train(_spec(settings, world), out=out, display=Silent())
    return out


def _spec(settings: dict[str, Any], world: Path) -> Any:
    from statewise.specs import make_spec

    words = [f"{path}={json.dumps(value)}" for path, value in settings.items()]
    return make_spec({"task": "tree"}, words, data=[str(world / "train.txt")])


@pytest.mark.parametrize("kind", MODELS)
def test_a_cut_changes_nothing(kind: str, world: Path, tmp_path: Path) -> None:
    whole = evidence(start(kind, world, tmp_path / "whole"))
    with pytest.raises(Cut):
        start(kind, world, tmp_path / "cut", on_step=at(14, crash))
    trained = resume(tmp_path / "cut")
    assert trained.resumed_from == 12
    assert evidence(trained) == whole


def test_evaluate_and_its_baselines(run: Path, world: Path) -> None:
    said = call("evaluate", str(run), "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["trees"] == 20
    trees = [nltk.Tree.fromstring(line) for line in (world / "dev.txt").read_text().splitlines()]
    roots = [tree.label() for tree in trees]
    nodes = [node.label() for tree in trees for node in tree.subtrees()]
    assert found["nodes"] == len(nodes)
    assert found["majority_root_accuracy"] == pytest.approx(roots.count(found["majority_class"]) / len(roots))
    assert found["majority_node_accuracy"] == pytest.approx(nodes.count(found["majority_node_class"]) / len(nodes))
    assert found["root_accuracy"] > found["majority_root_accuracy"]
    assert found["uniform_accuracy"] == 0.5
    assert sum(one["trees"] for one in found["by_depth"]) == 20
    assert sum(one["trees"] * one["root_accuracy"] for one in found["by_depth"]) == pytest.approx(
        20 * found["root_accuracy"]
    )
    shown = call("evaluate", str(run), "--data", str(world / "train.txt"))
    assert shown.code == 0, shown.err
    assert "always '" in shown.out
    assert "100 trees" in shown.out


def test_predict_agrees_with_evaluate(run: Path, world: Path) -> None:
    said = call("predict", str(run), str(world / "dev.txt"), "--json")
    assert said.code == 0, said.err
    rows = [json.loads(line) for line in said.out.splitlines()]
    given = [nltk.Tree.fromstring(line) for line in (world / "dev.txt").read_text().splitlines()]
    assert [row["line"] for row in rows] == list(range(1, 21))
    right = nodes = 0
    for row, tree in zip(rows, given, strict=True):
        assert sum(row["probabilities"].values()) == pytest.approx(1)
        assert row["label"] == max(row["probabilities"], key=row["probabilities"].get) == row["nodes"][0]["label"]
        for node, subtree in zip(row["nodes"], tree.subtrees(), strict=True):
            assert tree.leaves()[slice(*node["span"])] == subtree.leaves()
            right += node["label"] == subtree.label()
            nodes += 1
    found = load(run).evaluate()._asdict()
    assert right / nodes == pytest.approx(found["node_accuracy"])
    lines = call("predict", str(run), str(world / "dev.txt"))
    assert lines.out.splitlines() == [row["tree"] for row in rows]


def test_lines_stay_aligned_and_no_row_is_lost(run: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "in.txt", tmp_path / "out.txt"
    file.write_bytes("\ufeff(? 1)\r\n\r\n(? xor (? 1) (? never-seen) (? 0) (? 0))\r\n(? (? (? 1)))\r\n".encode())
    assert call("predict", str(run), str(file), "--out", str(out)).code == 0
    lines = out.read_text().splitlines()
    assert len(lines) == 4
    assert lines[1] == ""
    assert nltk.Tree.fromstring(lines[2]).leaves() == ["xor", "1", "never-seen", "0", "0"]
    assert len(list(nltk.Tree.fromstring(lines[3]).subtrees())) == 3
    rows = [json.loads(line) for line in call("predict", str(run), str(file), "--json").out.splitlines()]
    assert [row["line"] for row in rows] == [1, 2, 3, 4]
    assert rows[1] == {
        "file": str(file),
        "line": 2,
        "label": None,
        "probabilities": {},
        "nodes": [],
        "tree": "",
    }


def test_a_long_line_and_a_deep_one(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text(f"(1 and {'(1 1) ' * 5000})\n{'(1 and (1 1) ' * 400}(0 0){')' * 400}\n(1 1)\n")
    said = call("predict", str(run), str(file))
    assert said.code == 0, said.err
    assert [line.count("(") for line in said.out.splitlines()] == [5001, 801, 1]
    file.write_text(f"(1 1)\n{'(1 and (1 1) ' * 4000}(0 0){')' * 4000}\n")
    said = call("predict", str(run), str(file))
    assert said.code == 0, said.err
    assert [line.count("(") for line in said.out.splitlines()] == [1, 8001]


def test_only_roots_learned_only_roots_answered(world: Path, tmp_path: Path) -> None:
    trained = start("composition", world, tmp_path / "run")
    run = load(trained.path)
    found = run.evaluate()._asdict()
    assert found["node_accuracy"] is None
    assert found["nodes"] == found["trees"] == 20
    for row, line in zip(run.predict(world / "dev.txt"), (world / "dev.txt").read_text().splitlines(), strict=True):
        assert len(row["nodes"]) == 1
        assert row["tree"].partition(" ")[2] == line.partition(" ")[2]


def test_other_forms_answer_for_the_tree_as_written(world: Path, tmp_path: Path) -> None:
    """Collapsed and binarised inside, but every node that was written has its answer, a chain the same one."""
    settings = {**SETTINGS, "model.kind": "nary", "data.binarise": "right", "data.unary": "collapse"}
    out = tmp_path / "run"
    run = train("tree", settings=settings, data=world / "train.txt", out=out, display=Silent()).load()
    file = tmp_path / "in.txt"
    file.write_text("(a (b or (c (d (e 1))) (f 0) (g 1)))\n(a or (b 1) (c 0) (d 1))\n")
    chained, plain = run.predict(file)
    assert nltk.Tree.fromstring(chained["tree"]).leaves() == ["or", "1", "0", "1"]
    assert [node["span"] for node in chained["nodes"]] == [[0, 4], [0, 4], [1, 2], [1, 2], [1, 2], [2, 3], [3, 4]]
    root, below, first, second, third, *others = chained["nodes"]
    assert root == below
    assert first == second == third
    assert [root, first, *others] == plain["nodes"]  # what is left of the chains is this tree


def test_a_binary_task_by_renaming(world: Path, tmp_path: Path) -> None:
    """Labels that become nothing are in no figure, and their roots' trees are left out and counted."""
    rng = random.Random(1)
    lines = [f"({rng.randrange(5)} ({rng.randrange(5)} a) ({rng.randrange(5)} b))" for _ in range(80)]
    lines += ["(0 (0 bad) (2 x))", "(1 (1 worse) (2 x))", "(3 (3 good) (2 x))", "(4 (4 best) (2 x))", "(2 (2 x) (2 x))"]
    (tmp_path / "five.txt").write_text("\n".join(lines))
    names = {"0": "negative", "1": "negative", "2": "", "3": "positive", "4": "positive"}
    settings = {**SETTINGS, **{f"data.labels.{old}": new for old, new in names.items()}}
    trained = train("tree", settings=settings, data=tmp_path / "five.txt", out=tmp_path / "run", display=Silent())
    run = load(trained.path)
    found = run.evaluate(tmp_path / "five.txt")._asdict()
    assert found["classes"] == ["negative", "positive"]
    assert found["left_out"] == sum(line.startswith("(2") for line in lines)
    assert found["trees"] == 85 - found["left_out"]
    kept = [nltk.Tree.fromstring(line) for line in lines if not line.startswith("(2")]
    assert found["nodes"] == sum(node.label() != "2" for tree in kept for node in tree.subtrees())
    assert len(list(run.predict(tmp_path / "five.txt"))) == 85  # prediction leaves nothing out


def test_labels_that_a_renaming_leaves_out_are_named(tmp_path: Path) -> None:
    """Written for three classes, it meets five: two more than are renamed, and whoever reads the first line knows."""
    lines = [f"({i % 5} ({i % 5} a) ({i % 5} b))" for i in range(40)]
    (tmp_path / "five.txt").write_text("\n".join(lines))
    said = call(
        *("train", "tree", "--data", str(tmp_path / "five.txt"), "--out", str(tmp_path / "run")),
        *("--set", "train.steps=1", "--set", 'data.labels={0 = "low", 1 = "", 2 = "high"}'),
    )
    assert "4 classes; not named by data.labels: 3, 4" in " ".join((said.out + said.err).split())


def test_unseen_labels_count_as_wrong(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("(7 and (1 1) (1 1))\n(1 or (1 1) (1 1))\n")
    found = load(run).evaluate(tmp_path / "a.txt")._asdict()
    assert found["unseen"] == {"7": 1}
    assert found["root_accuracy"] <= 0.5


@pytest.mark.parametrize(
    ("content", "settings", "said"),
    [
        ("(1 (0 a) (1 b)\n", [], "line 1: the tree that begins here is never closed: 1 ')' are missing"),
        ("(1 a)\nwords\n", [], "line 2: 'words' stands outside any tree"),
        ("\n\n", [], "holds no tree"),
        ("(1 (0 a) (1 b) (0 c))\n" * 9, ["model.kind=nary"], "line 1: a node has 3 children, model.arity"),
        ("(1 a)\n", [], "1 examples cannot be split into what is learned and what is held out"),
        ("(1 a)\n" * 9, ["train.judge=bleu"], "train.judge = 'bleu' is not a metric of this task"),
    ],
    ids=range(6),
)
def test_bad_input_is_named(content: str, settings: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(content)
    words = [word for setting in settings for word in ("--set", setting)]
    out = tmp_path / "run"
    told = call("train", "tree", "--data", str(tmp_path / "a.txt"), *words, "--out", str(out), "--quiet")
    assert told.code == 2
    assert said in told.err.replace("\n", " ")


def test_other_trees_are_not_gone_on_with(world: Path, tmp_path: Path) -> None:
    copy = tmp_path / "train.txt"
    copy.write_text((world / "train.txt").read_text())
    with pytest.raises(Cut):
        train("tree", settings=SETTINGS, data=copy, out=tmp_path / "run", display=Silent(), on_step=at(9, crash))
    copy.write_text((world / "train.txt").read_text().replace("and", "or", 1))
    said = call("train", "--resume", "--out", str(tmp_path / "run"), "--quiet")
    assert "these are not the data that this run began with" in said.err
