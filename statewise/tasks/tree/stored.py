"""Trees that lie on disk: the text of each, and the nodes of all as a model reads them.

N nodes of all trees together, B trees, W words.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from statewise.data import (
    NO_LABEL,
    Coded,
    DiskRows,
    ExampleFolder,
    ExampleWriter,
    FlatTree,
    HeldOut,
    LabelledTree,
    Labels,
    Places,
    Texts,
    Tokenizer,
    Where,
    hold_out,
    open_examples,
    parse_flat,
    some_at_once,
    tree_texts,
)
from statewise.specs import TreeDataSpec, TreeSpec, UserError
from statewise.tasks.folder import fingerprint
from statewise.tasks.tree.examples import (
    Index,
    Learned,
    Nodes,
    Read,
    Trees,
    flattened,
    form,
    formed,
    learn,
    learned_labels,
    load_vocabularies,
    refuse_new_names,
    refuse_none_left,
    refuse_standard_input,
    refuse_wider,
    roots_of,
    widest,
)

# Columns hold no number below 0, so these are added to what they hold.
_LABEL, _WORD, _PARENT = -NO_LABEL, 1, 1
_AT_ONCE = 1 << 6  # trees that are held while they are read and flattened: a tree has hundreds of nodes
_PARSED = Where("a folder of examples", 0)  # what is stored could be parsed


@final
class StoredTrees(DiskRows[FlatTree]):
    """Trees in the form that the spec asks for, made of their texts when they are asked for."""

    def __init__(self, texts: Texts, where: Places, spec: TreeDataSpec) -> None:
        self._texts, self._where, self._spec = texts, where, spec

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[FlatTree]:
        return map(self._made, self._texts)

    def chosen(self, index: Sequence[int] | Index) -> "StoredTrees":
        return StoredTrees(self._texts.chosen(index), self._where.chosen(index), self._spec)

    @property
    def lengths_N(self) -> Index:
        return self._texts.lengths_N

    def read(self) -> Read:
        """All of them, in memory."""
        trees = [LabelledTree(parse_flat(text, where), where) for text, where in zip(self._texts, self._where)]
        return formed(trees, self._spec)

    def _row(self, at: int) -> FlatTree:
        return self._made(self._texts[at])

    def _made(self, text: str) -> FlatTree:
        return form(parse_flat(text, _PARSED), self._spec)


def store_trees(spec: TreeSpec, writer: ExampleWriter) -> None:
    """Trees of any number in columns: their texts, and their nodes by the words and classes learned from them."""
    data = spec.read_data
    refuse_standard_input(data)
    names: set[str] = set()
    roots: dict[str, int] = {}
    dropped = 0

    def put(paths: Sequence[str]) -> int:
        nonlocal dropped
        for some in some_at_once(tree_texts(paths, Counter(), encoding=data.encoding), size=_AT_ONCE):
            flat = [parse_flat(text, where) for text, where in some]
            names.update(label for tree in flat for label in tree.labels if label is not None)
            made = [form(tree, data) for tree in flat]
            kept = [at for at, tree in enumerate(made) if data.unlabelled_root == "keep" or tree.root_label is not None]
            dropped += len(made) - len(kept)
            writer.texts("text", [some[at][0] for at in kept])
            writer.places(some[at][1] for at in kept)
            writer.numbers("root", [roots.setdefault(made[at].root_label or "", len(roots)) for at in kept])
            writer.numbers("widest", [widest(made[at]) for at in kept])
        refuse_none_left(writer.rows("text"))
        return writer.rows("text")

    count = first = put(data.train)
    refuse_new_names(data, names)
    dropped_in_training = dropped
    if data.validation:
        count = put(data.validation)
    writer.texts("root_names", list(roots))
    read = writer.read()
    whole = StoredTrees(read.texts("text"), read.places(), data)
    if data.validation:
        split = HeldOut(np.arange(first), np.arange(first, count))
    else:
        split = hold_out(count, share=data.held_out, seed=spec.seed, strata=read.names("root"))
    writer.parts(*split)
    train = whole.chosen(split.train_N)
    found = _Found(spec)
    sha256 = fingerprint(found.written(train))
    tokenizer, classes = learn(spec, found.words.elements(), found.labels.elements())
    words = 0
    for begin in range(0, count, _AT_ONCE):
        some = list(whole.chosen(np.arange(begin, min(begin + _AT_ONCE, count))))
        words = _put_nodes(writer, flattened(some, tokenizer=tokenizer, classes=classes, spans=True), words)
        writer.encoded(begin + len(some), count)
    writer.file("tokenizer.json", tokenizer.to_json())
    writer.file("labels.json", classes.to_json())
    writer.facts |= {
        "rows": count,
        "dropped": dropped_in_training,
        "binarise": data.binarise,
        "sha256": sha256,
        "roots": dict(found.roots),
    }


class _Found:
    """What is counted of training trees while they are read once."""

    def __init__(self, spec: TreeSpec) -> None:
        self._nodes = spec.objective.nodes
        self.words, self.labels, self.roots = Counter[str](), Counter[str](), Counter[str]()

    def written(self, trees: Iterable[FlatTree]) -> Iterator[str]:
        """Each tree as the fingerprint has it."""
        for tree in trees:
            self.words.update(tree.sentence())
            self.labels.update(learned_labels(tree, self._nodes))
            self.roots.update(roots_of([tree]))
            yield str(tree)


def _put_nodes(writer: ExampleWriter, nodes: Nodes, words: int) -> int:
    """`words` come before them; how many come before the next."""
    columns: dict[str, Any] = nodes._asdict()
    for name in ("size", "depth", "words"):
        writer.numbers(name, columns[f"{name}_B"])
    writer.small("spoken", columns["words_W"])
    for name, shift in (("word", _WORD), ("label", _LABEL), ("parent", _PARENT), ("place", 0)):
        writer.small(f"node_{name}", columns[f"{name}_N"] + shift)
    for name in ("begin", "end"):
        writer.numbers(f"node_{name}", columns[f"{name}_N"] + words)
    return words + len(nodes.words_W)


def open_stored(spec: TreeSpec) -> tuple[Learned, Read, Tokenizer, Labels]:
    """The trees to learn from, on disk, and those held out, in memory; words and classes."""
    folder = open_examples(Path(spec.data.train[0]), "tree")
    data = spec.read_data
    if folder.fact("binarise", str) != data.binarise:
        raise UserError(
            f"{str(folder.path)!r} was built with data.binarise = {folder.fact('binarise', str)!r}, "
            f"and this model reads trees with {data.binarise!r}",
            fix="build another folder with the settings of this model",
        )
    tokenizer, classes = load_vocabularies(folder.path)
    whole = StoredTrees(folder.texts("text"), folder.places(), data)
    train_N = folder.part("train")
    if spec.most_children is not None:
        refuse_wider(spec, folder.numbers("widest")[train_N].tolist(), folder.places().chosen(train_N))
    trees = Trees(_nodes(folder, train_N, tokenizer, classes), spans=not spec.follows_trees)
    roots = Counter({str(name): int(count) for name, count in folder.fact("roots", dict).items()})
    learned = Learned(trees, folder.fact("sha256", str), roots, folder.fact("dropped", int))
    return learned, whole.chosen(folder.part("validation")).read(), tokenizer, classes


def _nodes(folder: ExampleFolder, tree_B: Index, tokenizer: Tokenizer, classes: Labels) -> Nodes:
    size_B, depth_B, words_B = (folder.numbers(name)[:] for name in ("size", "depth", "words"))

    def coded(name: str, shift: int = 0, below: int | None = None) -> Coded:
        return Coded(folder.numbers(name, below=below), lambda number_N: number_N - shift)

    return Nodes(
        size_B[tree_B],
        (np.cumsum(size_B) - size_B)[tree_B],
        depth_B[tree_B],
        words_B[tree_B],
        coded("spoken", below=tokenizer.vocab),
        coded("node_word", _WORD, below=tokenizer.vocab + _WORD),
        coded("node_label", _LABEL, below=len(classes) + _LABEL),
        coded("node_parent", _PARENT),
        coded("node_place"),
        coded("node_begin"),
        coded("node_end"),
    )
