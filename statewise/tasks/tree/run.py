"""A trained classifier of nodes, opened."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from statewise.core import Machine
from statewise.data import (
    NO_LABEL,
    Data,
    LabelledTree,
    Labels,
    Tokenizer,
    Where,
    as_files,
    flat_tree,
    is_nltk_tree,
    read_flat_trees,
    read_trees_and_gaps,
    source_name,
    spans_of,
    temporary_file,
)
from statewise.decoding import Sampling
from statewise.models import Classifier, NodeClassifier, build_node_classifier
from statewise.specs import TreeDataSpec, TreeSpec
from statewise.tasks.answers import MOST, Answer, Answers
from statewise.tasks.folder import Opened
from statewise.tasks.metric.label import label_scores
from statewise.tasks.portable import Portable
from statewise.tasks.report import Report, confusion_table, of_this_run, percent, shows_report, worse_than_trivial
from statewise.tasks.run import PredictingRun, named
from statewise.tasks.tree.examples import Index, Read, form, formed, refuse_wide
from statewise.tasks.tree.job import accuracy, counted, held_out, log_probabilities, make_trees, nats
from statewise.tasks.tree.portable import portable
from statewise.tasks.tree.specimens import TreeSpecimens

_TREES = 512  # predicted at a time, so that a long file streams


class DepthFigure(NamedTuple):
    """How the trees of some depths did: edges from the root to the deepest node."""

    depth: str
    trees: int
    root_accuracy: float
    majority_accuracy: float


@shows_report
class TreeEvaluation(NamedTuple):
    root_accuracy: float | None  # None: no root has a label that counts
    node_accuracy: float | None  # None: only roots were learned
    macro_f1: float  # of the roots; of all nodes where roots have none
    nats: float  # of the same
    trees: int
    nodes: int  # that count
    left_out: int  # trees whose root has no label that counts
    majority_class: str
    majority_root_accuracy: float | None
    majority_node_class: str
    majority_node_accuracy: float | None
    uniform_accuracy: float
    uniform_nats: float
    per_class: dict[str, dict[str, float]]
    confusion: list[list[int]]
    classes: list[str]
    by_depth: list[dict[str, Any]]
    unseen: dict[str, int]  # labels that training never showed; their nodes count as wrong

    def report(self, name: str) -> Report:
        uniform = percent(self.uniform_accuracy)
        always = f"always {self.majority_class!r}"
        if self.node_accuracy is not None and self.majority_node_class != self.majority_class:
            always += f" (nodes: {self.majority_node_class!r})"
        own = (percent(self.root_accuracy), percent(self.node_accuracy), f"{self.macro_f1:.3f}", f"{self.nats:.3f}")
        rows = (
            ("perfect", "100.0 %", "100.0 %", "1.000", "0.000"),
            (name, *own),
            (always, percent(self.majority_root_accuracy), percent(self.majority_node_accuracy), "", ""),
            ("uniform (knows nothing)", uniform, uniform, "", f"{self.uniform_nats:.3f}"),
        )
        parts = [f"{self.trees:,} trees, {self.nodes:,} nodes"]
        if self.left_out:
            parts.append(f"{self.left_out:,} trees left out for their root")
        if self.unseen:
            parts.append(f"{sum(self.unseen.values()):,} labels never seen in training")
        if len(self.by_depth) > 1:
            depths = (f"{figure['depth']}: {percent(figure['root_accuracy'])}" for figure in self.by_depth)
            parts.append("roots by depth " + ", ".join(depths))
        more = confusion_table(self.classes, self.confusion)
        own_metric = ("root_accuracy", self.root_accuracy, self.majority_root_accuracy)
        if self.root_accuracy is None:
            own_metric = ("node_accuracy", self.node_accuracy, self.majority_node_accuracy)
        metric, value, majority = own_metric
        warning = worse_than_trivial(name, metric, value, {always: majority})
        note = " · ".join(parts)
        return Report(("roots", "nodes", "macro F1", "nats"), rows, own=1, note=note, more=more, warning=warning)


@final
class TreeRun(PredictingRun):
    """A trained classifier of trees: a label for the root, or for every node.

    >>> run = sw.load("runs/tree")
    >>> run.evaluate().trees > 0
    True
    >>> run.generate("(1 (1 1) (0 0))").count("(")
    3
    >>> row = run.predict("trees.txt")[0]
    >>> row["label"] in run.classes.names
    True
    >>> next(run.predict_lines("trees.txt"))[0]
    '('
    >>> len(run.specimens(text="(1 (1 1) (0 0))"))
    1
    """

    _evaluation = TreeEvaluation

    spec: TreeSpec
    model: NodeClassifier

    def _open(self, opened: Opened) -> NodeClassifier:
        spec = self.spec
        self.tokenizer = Tokenizer.load(opened.verified / "tokenizer.json")
        self.classes = Labels.from_json(opened.text("labels.json"))
        options = {"num_classes": len(self.classes), "vocab": self.tokenizer.vocab, "seed": spec.seed}
        self.roots = Labels.from_json(opened.text("roots.json"))
        return opened.model(lambda: build_node_classifier(spec.model, spec.reader, **options))

    def sizes(self) -> dict[str, Any]:
        return {**self.spec.model.sizes(), "classes": len(self.classes)}

    @of_this_run
    def evaluate(self, data: Data | None = None) -> TreeEvaluation:
        spec = self.spec
        if data is None:
            held = held_out(spec)
        else:
            held = self._read(data)
        refuse_wide(spec, held)
        trees = make_trees(spec, held, self.tokenizer, self.classes)
        roots_only = spec.objective.nodes == "root"
        label_N = counted(trees, roots_only=roots_only)
        node_M = np.flatnonzero(label_N != NO_LABEL)
        log_NK = log_probabilities(self.model, trees, wanted_N=label_N != NO_LABEL, device=self.device)
        rooted_B = np.flatnonzero(label_N[trees.first_B] != NO_LABEL)
        judged = trees.first_B[rooted_B] if len(rooted_B) else node_M
        names = [label for tree in held.trees for label in tree.labels]
        scores = label_scores(
            [str(names[node]) for node in judged],
            self.classes.decode(log_NK[judged].argmax(-1).tolist()),
            names=self.classes.names,
        )
        root, node = (int(np.argmax(labels.counts)) for labels in (self.roots, self.classes))
        return TreeEvaluation(
            root_accuracy=accuracy(log_NK, label_N, judged) if len(rooted_B) else None,
            node_accuracy=None if roots_only else accuracy(log_NK, label_N, node_M),
            macro_f1=scores.macro_f1,
            nats=nats(log_NK, label_N, judged),
            trees=len(trees),
            nodes=len(node_M),
            left_out=held.dropped,
            majority_class=self.roots.names[root],
            majority_root_accuracy=float((label_N[judged] == root).mean()) if len(rooted_B) else None,
            majority_node_class=self.classes.names[node],
            majority_node_accuracy=None if roots_only else float((label_N[node_M] == node).mean()),
            uniform_accuracy=1 / len(self.classes),
            uniform_nats=math.log(len(self.classes)),
            per_class=scores.per_class,
            confusion=scores.confusion,
            classes=scores.labels,
            by_depth=[
                depth_row._asdict()
                for depth_row in _by_depth(
                    trees.depth_B[rooted_B], log_NK[judged].argmax(-1) == label_N[judged], label_N[judged] == root
                )
            ]
            if len(rooted_B)
            else [],
            unseen=dict(Counter(str(names[node]) for node in node_M[label_N[node_M] < 0])),
        )

    def _read(self, data: Data) -> Read:
        with as_files(self.spec, data) as files:
            return formed(read_flat_trees(files.paths, encoding=files.data.encoding), self.spec.read_data)

    @property
    def machine(self) -> Machine[Any] | None:
        return self.model.reader.layers.machine if isinstance(self.model, Classifier) else None

    def portable(self) -> Portable:
        return portable(self.model, self.spec, self.classes, self.tokenizer)

    def answers(self) -> Answers:
        # Of the roots: a model that reads words is asked for no other node.
        held = held_out(self.spec)
        some = held.chosen(np.arange(min(MOST, len(held.trees))))
        trees = make_trees(self.spec, some, self.tokenizer, self.classes)
        label_N = counted(trees, roots_only=True)
        log_NK = log_probabilities(self.model, trees, wanted_N=label_N != NO_LABEL, device=self.device)
        guessed = self.classes.decode(log_NK[trees.first_B].argmax(-1).tolist())
        return Answers(
            [
                Answer(" ".join(tree.sentence()), "", str(tree.root_label), guess)
                for tree, root, guess in zip(some.trees, trees.first_B, guessed)
                if label_N[root] != NO_LABEL
            ]
        )

    def specimens(self, data: Data | None = None, *, text: str | None = None) -> TreeSpecimens:
        """Trees for `sw.inspect`: held-out ones, those of `data`, or those of a `text`, in brackets."""
        spec = self.spec
        if text is not None:
            with temporary_file("the text", text) as file:
                read, source = formed(read_flat_trees(file), spec.read_data), "the given text"
        elif data is None:
            read, source = held_out(spec), "the held-out trees"
        else:
            read, source = self._read(data), source_name(data)
        refuse_wide(spec, read)
        return TreeSpecimens(
            self.model,
            read,
            spec=spec,
            tokenizer=self.tokenizer,
            classes=self.classes,
            source=source,
            device=self.device,
        )

    def _generate(self, prompt: str, tokens: int | None, sampling: Sampling, stop: Sequence[str]) -> str:
        """The trees of the prompt, in brackets, with the labels that the model predicts."""
        with temporary_file("the prompt", self._asked(prompt)) as file:
            return "\n".join(self._lines([str(file)], encoding="utf-8"))

    def _rows(self, paths: Sequence[str], data: TreeDataSpec) -> Iterator[dict[str, Any]]:
        """One row per tree; an empty line between trees gives an empty row in its place."""
        for one, answer in self._answers(paths, data.encoding):
            if answer is None:
                assert isinstance(one, Where)
                yield {"file": one.path, "line": one.line, "label": None, "probabilities": {}, "nodes": [], "tree": ""}
                continue
            assert isinstance(one, LabelledTree)
            root_K = np.exp(answer.log_NK[0])
            yield {
                "file": one.where.path,
                "line": one.where.line,
                "label": answer.names[0],
                "probabilities": dict(zip(self.classes.names, root_K.tolist())),
                "nodes": [
                    {"label": name, "probability": math.exp(log), "span": list(span)}
                    for name, log, span in zip(answer.names, answer.log_NK.max(-1).tolist(), answer.spans)
                ],
                "tree": answer.written(one),
            }

    def _answer(self, row: Mapping[str, Any]) -> str:
        return str(row["tree"])

    def _is_one(self, data: Data) -> bool:
        return isinstance(data, str) or is_nltk_tree(data)

    def predict_lines(self, data: str | Path | Sequence[str | Path]) -> Iterator[str]:
        """Each tree on a line, with the labels that the model gives; an empty line for an empty line."""
        return self._lines(named(data), encoding=self.spec.data.encoding)

    def _lines(self, paths: Sequence[str], *, encoding: str) -> Iterator[str]:
        for one, answer in self._answers(paths, encoding):
            if answer is None:
                yield ""
            else:
                assert isinstance(one, LabelledTree)
                yield answer.written(one)

    def _answers(self, paths: Sequence[str], encoding: str) -> Iterator[tuple[LabelledTree | Where, "_Answer | None"]]:
        for some in _cut(read_trees_and_gaps(paths, encoding=encoding), _TREES):
            trees = [item for item in some if isinstance(item, LabelledTree)]
            answers = iter(self._answered(trees) if trees else [])
            for item in some:
                yield item, next(answers) if isinstance(item, LabelledTree) else None

    def _answered(self, given: Sequence[LabelledTree]) -> Iterator["_Answer"]:
        spec = self.spec
        written = [flat_tree(tree) for tree in given]
        read = Read([form(tree, spec.read_data) for tree in written], [tree.where for tree in given])
        refuse_wide(spec, read)
        trees = make_trees(spec, read, self.tokenizer, self.classes)
        roots_only = spec.objective.nodes == "root"
        wanted_N = np.full(len(trees.label_N), not roots_only)
        wanted_N[trees.first_B] = True
        log_NK = log_probabilities(self.model, trees, wanted_N=wanted_N, device=self.device)
        for as_written, as_read, first in zip(written, read.trees, trees.first_B):
            # Only what has a label can be given another one; where only roots were learned, only the root.
            labelled = [node for node, label in enumerate(as_written.labels) if label is not None]
            shown = labelled[:1] if roots_only else labelled
            at_M: Index = first + np.array([as_read.written_as[node] for node in shown], dtype=np.int64)
            begins, ends = spans_of(as_written)
            log_MK = log_NK[at_M]
            yield _Answer(
                self.classes.decode(log_MK.argmax(-1).tolist()), log_MK, [(begins[node], ends[node]) for node in shown]
            )


class _Answer(NamedTuple):
    """For the nodes of one tree that are given a label, in the order of writing: the root first."""

    names: list[str]
    log_NK: NDArray[np.float64]
    spans: list[tuple[int, int]]

    def written(self, tree: LabelledTree) -> str:
        return tree.written_with([*self.names, *tree.labels()[len(self.names) :]])


def _by_depth(depth_B: Index, right_B: NDArray[np.bool_], majority_B: NDArray[np.bool_]) -> Iterator[DepthFigure]:
    """Depths 0 and 1, 2 and 3, 4 to 7, 8 to 15, and so on."""
    group_B = np.floor(np.log2(np.maximum(depth_B, 1))).astype(np.int64)
    for group in np.unique(group_B):
        least, some = (0 if group == 0 else 2 ** int(group)), group_B == group
        name = f"{least}-{2 ** int(group + 1) - 1}"
        yield DepthFigure(name, int(some.sum()), float(right_B[some].mean()), float(majority_B[some].mean()))


def _cut(trees: Iterable[LabelledTree | Where], count: int) -> Iterator[list[LabelledTree | Where]]:
    left = iter(trees)
    while some := list(islice(left, count)):
        yield some
