"""Tree classification as data: a label for every node, by a composer along the tree or by any model of the lineage."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from statewise.specs.base import Finer, Paths, Spec, default_kind
from statewise.specs.model import AnyMixerSpec
from statewise.specs.objective import CategoricalSpec
from statewise.specs.run import ReaderSpec, RunSpec


class ComposerSpec(Spec):
    """What every composer shares. `shape`: the given trees, or trees built over the words."""

    width: int = Field(150, ge=1, description="units of a node")
    embedding: int | None = Field(None, ge=1, description="width of the word vectors; default: `width`")
    shape: Literal["given", "balanced", "chain"] = Field(
        "given", description="given: along the trees; else every labelled span is read as a sentence of its own"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="on what a node shows to the head")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="on the word vectors")
    embedding_dropout: float = Field(0.0, ge=0, lt=1, description="drops whole rows of the embedding")
    embedding_scale: float | None = Field(
        None, gt=0, description="standard deviation of the word vectors before training; default: as for other models"
    )
    init: Literal["orthogonal", "published", "torch"] = Field("orthogonal", description="initialisation scheme")
    kernel: Literal["auto", "naive", "batched"] = Field("auto", description="force an implementation")

    @property
    def embedding_width(self) -> int:
        return self.embedding or self.width

    @property
    def most_children(self) -> int | None:
        """Of a node; None: any number."""
        raise NotImplementedError

    def sizes(self) -> dict[str, int]:
        return {"width": self.width}

    def finer(self) -> Finer:
        return Finer("embedding", self.embedding_width)


class CompositionSpec(ComposerSpec):
    kind: Literal["composition"] = "composition"
    arity: int = Field(2, ge=1, description="the most children of a node")

    @property
    def most_children(self) -> int:
        return self.arity


class ChildSumSpec(ComposerSpec):
    kind: Literal["child_sum"] = "child_sum"
    forget_bias: float = Field(1.0, description="initial bias of the forget gate")

    @property
    def most_children(self) -> None:
        return None


class NarySpec(ComposerSpec):
    kind: Literal["nary"] = "nary"
    arity: int = Field(2, ge=1, description="the most children of a node")
    forget_bias: float = Field(1.0, description="initial bias of the forget gates")

    @property
    def most_children(self) -> int:
        return self.arity


AnyComposerSpec = CompositionSpec | ChildSumSpec | NarySpec


TreeModelSpec = Annotated[
    Annotated[AnyComposerSpec | AnyMixerSpec, Field(discriminator="kind")], default_kind("child_sum")
]


def _none(value: Any) -> Any:
    """`--set data.binarise=none` is the word, not the absence of one."""
    return "none" if value is None else value


class TreeDataSpec(Spec):
    train: Paths = Field((), description="files of bracketed trees; empty: the embedded ones")
    validation: Paths = Field((), description="files held out; empty: a share of `train`, of each root label alike")
    held_out: float = Field(0.1, gt=0, lt=1, description="share of `train` held out when `validation` is empty")
    embedded: Literal["listops", "boolean", "arithmetic", "syntax"] = Field(
        "listops", description="which trees, when `train` is empty; the first three are generated from the seed"
    )
    encoding: str = Field("utf-8", description="of the files, such as latin-1 or utf-16")
    labels: dict[str, str] = Field(
        {}, description="other names for labels; to become '' is to be left out of the loss and of every metric"
    )
    unlabelled_root: Literal["drop", "keep"] = Field(
        "drop", description="trees whose root has no label: drop them with all they hold, or learn from what they have"
    )
    unary: Literal["keep", "collapse"] = Field("keep", description="collapse: a node and its only child become one")
    binarise: Annotated[Literal["none", "left", "right"], BeforeValidator(_none)] = Field(
        "none",
        description="several children as pairs: ((a b) c) from the left, (a (b c)) from the right; "
        "without a meaning where the model is not shown the trees",
    )
    vocab: int | None = Field(None, ge=3, description="largest vocabulary")
    lower: bool = Field(False, description="read as if all were in lower case")
    min_count: int = Field(1, ge=1, description="rarer words are unknown")


class TreeObjectiveSpec(CategoricalSpec):
    nodes: Literal["all", "root"] = Field("all", description="whose labels are learned")
    root_weight: float = Field(1.0, gt=0, description="how much a root counts, where another node counts 1")


class TreeSpec(RunSpec):
    task: Literal["tree"] = "tree"
    data: TreeDataSpec = TreeDataSpec()
    model: TreeModelSpec = ChildSumSpec()
    reader: ReaderSpec = ReaderSpec()
    objective: TreeObjectiveSpec = TreeObjectiveSpec()

    @property
    def layout(self) -> str:
        return "trees" if self.follows_trees else "spans"

    @property
    def follows_trees(self) -> bool:
        """Whether the model follows the trees, or reads each span as a sentence."""
        return isinstance(self.model, ComposerSpec) and self.model.shape == "given"

    @property
    def most_children(self) -> int | None:
        """Of a node that the model reads; None: any number."""
        return self.model.most_children if isinstance(self.model, ComposerSpec) and self.follows_trees else None

    @property
    def read_data(self) -> TreeDataSpec:
        """How trees are read: spans are those of the original tree, so that only the model changes."""
        return self.data if self.follows_trees else self.data.model_copy(update={"binarise": "none"})

    @model_validator(mode="before")
    @classmethod
    def _read_older_folders(cls, given: Any) -> Any:
        """`words.scale` is the older name of `model.embedding_scale`."""
        if not (
            isinstance(given, dict) and isinstance(words := given.get("words"), dict) and words.keys() == {"scale"}
        ):
            return given
        model = given.get("model", {"kind": "child_sum"})
        moved = {"embedding_scale": words["scale"], **model} if isinstance(model, dict) else model
        return {key: value for key, value in given.items() if key != "words"} | {"model": moved}

    @model_validator(mode="after")
    def _what_has_a_meaning(self) -> Self:
        if isinstance(self.model, ComposerSpec) and self.reader != ReaderSpec():
            raise ValueError(f"reader.* is how a sequence is read; {self.model.kind} composes trees: leave it out")
        if self.data.validation and not self.data.train:
            raise ValueError("data.validation is named, data.train is not: name both")
        return self
