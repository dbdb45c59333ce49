"""Trees as arrays: forms, batches and spans, against NLTK's own and against one tree at a time."""

import random
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import nltk
import numpy as np
import pytest
import torch
from tree_batch import tree_batch

from statewise.data import NO_LABEL, LabelledTree, Labels, Tokenizer, Where, read_trees
from statewise.data.flat_tree import FlatTree, binarised, collapsed, depth_of, spans_of
from statewise.data.trees import flat_tree, read_flat_trees, read_trees_and_gaps
from statewise.encoders import from_nltk
from statewise.models import LINEAGE
from statewise.models.tree_classifier import build_node_classifier
from statewise.specs import TreeSpec, UserError, make_spec, parse_spec
from statewise.specs.toml import dumps
from statewise.specs.tree import TreeDataSpec
from statewise.tasks.job import Opening
from statewise.tasks.tree.examples import Read, Trees, flattened, formed, refuse_wide
from statewise.tasks.tree.job import TreeJob, log_probabilities
from statewise.training.parallel import parallel

CPU = torch.device("cpu")


def random_tree(rng: random.Random, depth: int, most: int = 4) -> Any:
    """Labels 0 to 4; some nodes have one child, some words stand bare among other children."""
    label = str(rng.randrange(5))
    if depth == 0 or rng.random() < 0.25:
        return nltk.Tree(label, [rng.choice("abcdefg")])
    children = [random_tree(rng, depth - 1, most) for _ in range(rng.randint(1, most))]
    if len(children) > 1 and rng.random() < 0.2:
        children[0] = rng.choice("abcdefg")
    return nltk.Tree(label, children)


def trees(count: int = 12, *, seed: int = 0, most: int = 4, depth: int = 5) -> list[LabelledTree]:
    rng = random.Random(seed)
    return [LabelledTree(random_tree(rng, depth, most), Where("made", number)) for number in range(count)]


def shape(flat: FlatTree, node: int = 0) -> Any:
    if not flat.children[node]:
        return flat.words[node]
    return tuple(shape(flat, child) for child in flat.children[node])


def shape_of(tree: Any) -> Any:
    """A word and the label around it alone are one node."""
    if isinstance(tree, str):
        return tree
    if len(tree) == 1 and isinstance(tree[0], str):
        return tree[0]
    return tuple(shape_of(child) for child in tree)


def test_a_flat_tree_is_the_tree() -> None:
    for one in trees():
        flat = flat_tree(one)
        assert shape(flat) == shape_of(one.tree)
        assert flat.sentence() == one.tree.leaves()
        assert [label for label in flat.labels if label is not None] == [t.label() for t in one.tree.subtrees()]


@pytest.mark.parametrize("side", ["left", "right"])
def test_binarised_as_nltk_does(side: Any) -> None:
    for one in trees():
        flat, made = flat_tree(one), binarised(flat_tree(one), side)
        expected = one.tree.copy(deep=True)
        expected.chomsky_normal_form(factor=side)
        assert shape(made) == shape_of(expected)
        count = len(flat.children)
        assert made.labels[:count] == flat.labels
        assert all(label is None for label in made.labels[count:])
        assert made.written_as == list(range(count))


def test_collapsed_as_nltk_does() -> None:
    several = 0
    for one in trees():
        flat = flat_tree(one)
        made = collapsed(flat)
        expected = one.tree.copy(deep=True)
        expected.collapse_unary(collapsePOS=True, collapseRoot=True, joinChar="+")
        assert shape(made) == shape_of(expected)
        # NLTK joins the labels of a chain; ours is the uppermost.
        assert [label for label in made.labels if label is not None] == [
            t.label().split("+")[0] for t in expected.subtrees()
        ]
        several += len(made.children) < len(flat.children)
        assert [made.words[made.written_as[n]] for n, word in enumerate(flat.words) if word] == flat.sentence()
    assert several, "no tree had a chain"


def test_depths_and_spans() -> None:
    for one in trees():
        flat = flat_tree(one)
        begins, ends = spans_of(flat)
        labelled = [node for node, label in enumerate(flat.labels) if label is not None]
        for node, subtree in zip(labelled, one.tree.subtrees(), strict=True):
            assert flat.sentence()[begins[node] : ends[node]] == subtree.leaves()
        assert depth_of(flat) == one.tree.height() - 2 or any(
            isinstance(c, str) for t in one.tree.subtrees() for c in t
        )


def vocabulary(given: list[LabelledTree]) -> tuple[Tokenizer, Labels]:
    words = [word for one in given for word in one.words()]
    return Tokenizer.train("whole", words), Labels.of(label for one in given for label in one.labels())


def test_a_batch_is_what_the_loader_makes_of_it() -> None:
    """The forest of any trees, cut out of flat arrays, is that of `tree_batch`."""
    given = trees(20)
    tokenizer, labels = vocabulary(given)
    nodes = flattened([flat_tree(one) for one in given], tokenizer=tokenizer, classes=labels, spans=False)
    all_trees = Trees(nodes, spans=False)
    index = np.array([7, 3, 19, 3])
    (batch,) = all_trees.batches(index, wanted=(all_trees.label_N >= 0).__getitem__, device=CPU)
    word_M, forest = batch.inputs
    chosen = [given[i] for i in index]
    expected = tree_batch(chosen, word_ids=[tokenizer.encode_words(one.words()) for one in chosen], labels=labels)
    assert torch.equal(word_M, expected.word_N)
    assert np.array_equal(all_trees.label_N[batch.node_M], expected.label_N.numpy())
    assert torch.equal(forest.children_NK, expected.forest.children_NK)
    assert torch.equal(forest.root_B, expected.forest.root_B)
    for made, wanted in zip(forest.levels, expected.forest.levels, strict=True):
        assert torch.equal(made.node_M, wanted.node_M)
        assert torch.equal(made.child_MK, wanted.child_MK)


def test_every_span_is_read_once_and_whole() -> None:
    given = trees(20)
    tokenizer, labels = vocabulary(given)
    flat = [flat_tree(one) for one in given]
    all_trees = Trees(flattened(flat, tokenizer=tokenizer, classes=labels, spans=True), spans=True)
    wanted_N = all_trees.label_N != NO_LABEL
    read: dict[int, list[int]] = {}
    for batch in all_trees.batches(np.array([4, 0, 11]), wanted=wanted_N.__getitem__, device=CPU):
        word_MT, length_M = batch.inputs
        assert length_M.max() == word_MT.shape[1] < 2 * length_M.min() + 1
        for node, words, length in zip(batch.node_M.tolist(), word_MT.tolist(), length_M.tolist(), strict=True):
            assert node not in read
            read[node] = words[:length]
    expected: dict[int, list[int]] = {}
    for number in (4, 0, 11):
        labelled = [node for node, label in enumerate(flat[number].labels) if label is not None]
        for node, subtree in zip(labelled, given[number].tree.subtrees(), strict=True):
            expected[int(all_trees.first_B[number]) + node] = tokenizer.encode_words(subtree.leaves()).tolist()
    assert read == expected


def test_a_batch_forest_of_nltk_has_the_same_levels() -> None:
    given = [one for one in trees(6, depth=3) if all(len(t) > 1 or isinstance(t[0], str) for t in one.tree.subtrees())]
    assert given
    deepest = max(depth_of(flat_tree(one)) for one in given)
    assert len(from_nltk([one.tree for one in given])[0].levels) in (deepest + 1, deepest + 2)  # its words are nodes


def test_a_forest_moves_whole() -> None:
    """Parts travel together and come apart again; a device without memory shows their shapes."""
    made = from_nltk([one.tree for one in trees(5)])[0]
    assert made.to(CPU) is made
    moved = made.to(torch.device("meta"))
    assert moved.children_NK.shape == made.children_NK.shape
    assert moved.root_B.shape == made.root_B.shape
    for level, before in zip(moved.levels, made.levels, strict=True):
        assert level.node_M.shape == before.node_M.shape
        assert level.child_MK.shape == before.child_MK.shape


def test_a_wide_node_widens_only_its_own_depth() -> None:
    wide = nltk.Tree("1", [nltk.Tree("0", ["a"]) for _ in range(50)] + [nltk.Tree("1", ["a", "b"])])
    made = from_nltk([wide])[0]
    assert [level.child_MK.shape[1] for level in made.levels] == [1, 2, 51]


@pytest.mark.parametrize("kind", ["composition", "child_sum", "nary"])
@pytest.mark.parametrize("shape_", ["given", "balanced", "chain"])
def test_a_node_does_not_depend_on_its_batch(kind: str, shape_: str) -> None:
    given = trees(8, most=3)
    tokenizer, labels = vocabulary(given)
    arity = {} if kind == "child_sum" else {"arity": 3}
    spec = TreeSpec(model={"kind": kind, "width": 6, "shape": shape_, **arity})
    model = build_node_classifier(spec.model, spec.reader, num_classes=len(labels), vocab=tokenizer.vocab).double()
    flat = [flat_tree(one) for one in given]

    def answers(some: list[FlatTree]) -> Any:
        spans = shape_ != "given"
        made = Trees(flattened(some, tokenizer=tokenizer, classes=labels, spans=spans), spans=spans)
        return log_probabilities(model.eval(), made, wanted_N=made.label_N != NO_LABEL, device=CPU)

    alone = np.concatenate([answers([tree]) for tree in flat])
    np.testing.assert_allclose(answers(flat), alone, rtol=0, atol=1e-12)


def job(path: Path, *settings: str) -> TreeJob:
    with parallel(CPU) as par:
        base = {"task": "tree", "data": {"train": [str(path)]}, "train": {"batch": 4}}
        spec = make_spec(base, ["model.width=8", *settings])
        assert isinstance(spec, TreeSpec)
        return TreeJob.open(spec, Opening(path.parent, par))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("trees") / "trees.txt"
    file.write_text("".join(one.tree.pformat(margin=10**6) + "\n" for one in trees(60, depth=4)))
    return file


KINDS = ["child_sum", *(row.name for row in LINEAGE if row.spec.learns == "gradient")]


@pytest.mark.parametrize("kind", KINDS)
def test_any_model_of_the_lineage_learns_from_trees(kind: str, path: Path) -> None:
    made = job(path, f"model.kind={kind}")
    model = made.build()
    window = made.window(0)
    loss, state = made.loss(model, window, slice(None), slice(None), ())
    assert state == ()
    (loss / window.weight).backward()
    assert torch.isfinite(loss)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters() if p.requires_grad)
    figures = made.evaluate(model.eval(), lambda: None)
    assert set(figures) == set(made.judges) == {"root_accuracy", "node_accuracy", "nats"}


WAYS: dict[str, list[str]] = {
    "given": [],
    "spans": ["model.kind=gru"],
    "balanced": ["model.shape=balanced"],
    "roots": ["objective.nodes=root"],
    "root spans": ["objective.nodes=root", "model.kind=gru"],
    "weights": ["objective.weights=balanced", "objective.root_weight=3"],
    "smoothed": ["objective.smoothing=0.1"],
}


@pytest.mark.parametrize("way", WAYS)
def test_the_loss_of_a_step_is_the_sum_of_its_parts(way: str, path: Path) -> None:
    made = job(path, *WAYS[way])
    model = made.build().double()
    window = made.window(3)
    whole = made.loss(model, window, slice(None), slice(None), ())[0]
    parts = sum(made.loss(model, window, slice(i, i + 1), slice(None), ())[0] for i in range(window.rows))
    torch.testing.assert_close(whole, parts)


def test_weights_are_those_of_the_nodes_that_count(path: Path) -> None:
    """A model that knows nothing has the loss log K at every node, whatever the nodes weigh."""
    for settings in WAYS.values():
        made = job(path, *settings)
        model = made.build().double()
        for p in model.parameters():
            torch.nn.init.zeros_(p)
        window = made.window(0)
        loss = made.loss(model, window, slice(None), slice(None), ())[0].item()
        assert loss / window.weight == pytest.approx(np.log(len(made.classes)), rel=1e-6)


def test_labels_are_renamed_and_left_out() -> None:
    given = [
        LabelledTree(nltk.Tree.fromstring("(4 (0 bad) (3 fine))"), Where("a", 1)),
        LabelledTree(nltk.Tree.fromstring("(2 (1 so) (2 so))"), Where("a", 2)),
    ]
    names = {"0": "no", "1": "no", "2": "", "3": "yes", "4": "yes"}
    read = formed(given, TreeDataSpec(labels=names))
    assert read.dropped == 1
    assert read.where == [Where("a", 1)]
    assert read.trees[0].labels == ["yes", "no", "yes"]
    kept = formed(given, TreeDataSpec(labels=names, unlabelled_root="keep"))
    assert kept.trees[1].labels == [None, "no", None]
    with pytest.raises(UserError, match="no tree has a label at its root that counts"):
        formed(given[1:], TreeDataSpec(labels={"2": ""}))
    with pytest.raises(UserError, match=r"data.labels renames '7', but no node has that label\nvalid: 0, 1, 2, 3, 4"):
        formed(given, TreeDataSpec(labels={"7": "yes"}), learned=True)


def test_neutral_roots_can_be_kept_and_nodes_judged(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("(top (1 a) (0 b))\n(top (0 b) (1 a))\n(top (1 a) (1 a))\n(top (0 b) (0 b))\n")
    settings = ["data.labels.top=''", "data.unlabelled_root=keep", "data.held_out=0.5"]
    made = job(file, *settings)
    assert made.classes.names == ("0", "1")
    assert list(made.judges) == ["node_accuracy", "nats"]
    assert set(made.evaluate(made.build().eval(), lambda: None)) == {"node_accuracy", "nats"}
    with pytest.raises(UserError, match="no labels to learn"):
        job(file, *settings, "objective.nodes=root")


def test_too_many_children_are_refused_with_their_line() -> None:
    given = [LabelledTree(nltk.Tree.fromstring("(1 (0 a) (1 b) (0 c))"), Where("a.txt", 7))]
    spec = TreeSpec(model={"kind": "nary"})
    with pytest.raises(UserError, match=r"a.txt line 7: a node has 3 children, model.arity is 2") as caught:
        refuse_wide(spec, formed(given, spec.data))
    assert "data.binarise = left, or model.arity = 3, or take model.kind = child_sum" in caught.value.fix
    refuse_wide(spec, formed(given, TreeDataSpec(binarise="right")))
    refuse_wide(TreeSpec(), formed(given, spec.data))
    refuse_wide(TreeSpec(model={"kind": "nary", "shape": "chain"}), Read([flat_tree(given[0])], []))


def test_written_with_other_labels() -> None:
    for one in trees():
        text = one.written_with([f"<{label}>" for label in one.labels()])
        again = nltk.Tree.fromstring(text)
        assert [t.label() for t in again.subtrees()] == [f"<{label}>" for label in one.labels()]
        assert one.written_with(one.labels()) == one.tree.pformat(margin=10**6)
        assert again.leaves() == one.tree.leaves()


def test_empty_lines_keep_their_place(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbf\r\n(1 good)\r\n\r\n(1 (0 a)\r\n\r\n(1 b))\r\n\r\n")
    found = [
        (one.line, True) if isinstance(one, Where) else (one.where.line, False) for one in read_trees_and_gaps(file)
    ]
    assert found == [(1, True), (2, False), (3, True), (4, False), (7, True)]
    assert read_trees(file).counts == {"empty lines": 3}


def test_one_switch_from_tree_to_chain() -> None:
    """What only trees need has no meaning for a chain, and does not have to be taken out."""
    tree = make_spec({"task": "tree"}, ["model.kind=nary", "data.binarise=left"])
    chain = make_spec({"task": "tree"}, ["model.kind=lstm", "data.binarise=left"])
    assert isinstance(tree, TreeSpec)
    assert isinstance(chain, TreeSpec)
    assert (tree.read_data.binarise, chain.read_data.binarise) == ("left", "none")
    unset = make_spec({"task": "tree"}, ["data.binarise=none"])
    assert isinstance(unset, TreeSpec)
    assert unset.data.binarise == "none"


def test_label_names_survive_the_folder() -> None:
    names = {"very bad": "no", 'a "quoted" one': "yes", "0": "", "a.b": "dotted"}
    spec = TreeSpec(data=TreeDataSpec(labels=names))
    assert parse_spec(tomllib.loads(dumps(spec.model_dump(mode="json")))) == spec


@pytest.mark.parametrize("kind", ["composition", "child_sum", "nary", "lstm"])
def test_in_half_precision_the_loss_is_nearly_the_same(kind: str, path: Path) -> None:
    made = job(path, f"model.kind={kind}", "data.binarise=left")
    model, window = made.build(), made.window(0)
    exact = made.loss(model, window, slice(None), slice(None), ())[0]
    with torch.autocast("cpu", torch.bfloat16):
        rough = made.loss(model, window, slice(None), slice(None), ())[0]
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=0.02, atol=0)
    rough.backward()  # torch leaves it untyped


def refused(settings: list[str]) -> Callable[[], Any]:
    return lambda: make_spec({"task": "tree"}, settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.kind=nray"], r"model.kind: 'nray' is not known; did you mean 'nary'"),
        (["model.arity=3"], r"model.arity: unknown key"),
        (["model.kind=nary", "reader.summary=max"], r"reader.\* is how a sequence is read; nary composes trees"),
        (["model.kind=lstm", "model.shape=chain"], r"model.shape: unknown key"),
        (["data.validation=a.txt"], r"data.validation is named, data.train is not"),
        (["train.window=3"], r"train.window has no meaning here"),
        (["objective.nodes=leaves"], r"objective.nodes = 'leaves': input should be 'all' or 'root'"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense(settings: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        refused(settings)()


def test_files_are_read_into_flat_trees(tmp_path: Path) -> None:
    """The same as by way of trees; several on a line, and one on several lines, too."""
    given = trees(30, seed=4)
    texts = [one.written_with(one.labels()) for one in given]
    path = tmp_path / "trees.txt"
    path.write_text("\n".join([" ".join(texts[:3]), texts[3].replace(" ", "\n"), f"( {texts[4]} )", *texts[5:]]))
    assert [flat_tree(one) for one in read_flat_trees(path)] == [flat_tree(one) for one in given]
    assert [flat_tree(one) for one in read_trees(path)] == [flat_tree(one) for one in given]


def test_trees_are_opened_about_as_fast_as_their_text_is_cut_up(tmp_path: Path) -> None:
    """At every start a file of 90,000 trees is read anew: to open it is worth no more than some looks at its text."""
    text = "\n".join(one.written_with(one.labels()) for one in trees(1500, seed=5, depth=6))
    path = tmp_path / "trees.txt"
    path.write_text(text)
    made = parse_spec({"task": "tree", "data": {"train": [str(path)]}, "model": {"kind": "child_sum"}})
    assert isinstance(made, TreeSpec)

    def seconds(work: Callable[[], object]) -> float:
        began = process_time()
        work()
        return process_time() - began

    with parallel(CPU) as par:
        opening = Opening(folder=tmp_path / "run", par=par)
        own = min(seconds(lambda: TreeJob.open(made, opening)) for _ in range(3))
    cut = min(seconds(lambda: re.findall(r"[()]|[^\s()]+", text)) for _ in range(3))
    assert own < 25 * cut
