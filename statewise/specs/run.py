"""What every run has, whatever its task."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Spec
from statewise.specs.train import TrainSpec


class ReaderSpec(Spec):
    bidirectional: bool = Field(False, description="from both ends; a Transformer: without a mask")
    summary: Literal["last", "mean", "max", "attention"] = Field(
        "last", description="what stands for all positions together; attention: a mean by weights that a query learns"
    )
    score: Literal["additive", "dot", "scaled_dot", "general", "concat", "cosine"] = Field(
        "additive", description="summary by attention: how well a position fits the query"
    )
    alignment: Literal["soft", "sparsemax", "hard"] = Field(
        "soft", description="summary by attention: how scores become weights"
    )

    @model_validator(mode="after")
    def _only_attention_has_scores(self) -> Self:
        for name in ("score", "alignment"):
            value = getattr(self, name)
            if self.summary != "attention" and value != ReaderSpec.model_fields[name].default:
                raise ValueError(
                    f"reader.{name} = {value!r} has no meaning with reader.summary = {self.summary!r}; set "
                    f"reader.summary = 'attention', or leave it out"
                )
        return self


class RunSpec(Spec):
    """Each task has its own, with `task` (its name), `data`, `model`, and what else it needs."""

    main_data: ClassVar[str] = "data.train"  # the setting that names the training data
    file_settings: ClassVar[tuple[str, ...]] = ("train", "validation")  # those of `data` that name files
    tested: ClassVar[bool] = False  # it is evaluated on a test part that nothing is selected by
    verb: ClassVar[str] = "evaluate"  # the command to suggest after training
    whole_sequences: ClassVar[bool] = True  # a step reads whole sequences, so none is truncated

    seed: int = Field(0, ge=0, lt=2**63, description="seed of all random numbers")
    train: TrainSpec = TrainSpec()

    @property
    def learns(self) -> Literal["gradient", "counting"]:
        return "gradient"

    @property
    def loss_name(self) -> str:
        """What the training loss counts; the validation metric of this name is the same loss on held-out data."""
        return "nats"

    @property
    def layout(self) -> str:
        """How the data are laid out for the model."""
        return "rows"

    @property
    def step_grows(self) -> bool:
        """Whether training steps become more expensive: a growing state is carried from window to window."""
        return False

    @property
    def name(self) -> str:
        """The default name of the run's folder."""
        return f"{getattr(self, 'model').known_as}-{getattr(self, 'task')}"  # noqa: B009  (every task has its own)

    def absolute(self, folder: Path | None = None) -> Self:
        """The same with absolute paths; relative ones are in `folder` (default: the current one)."""
        root = (folder or Path()).absolute()
        return self.with_files(lambda name: name if _is_no_path(name) else str(root / name))

    def relative_to(self, folder: Path) -> Self:
        """The same with names relative to `folder` for files inside it, so that the folder can be moved."""
        root = folder.absolute()

        def named(name: str) -> str:
            path = Path(name).absolute()
            return str(path.relative_to(root)) if not _is_no_path(name) and path.is_relative_to(root) else name

        return self.with_files(named)

    def with_files(self, change: Callable[[str], str]) -> Self:
        """The same with other names for the files of its data."""
        data: Spec = getattr(self, "data")  # noqa: B009  (every task has its own type of it)
        files = {name: tuple(map(change, getattr(data, name))) for name in self.file_settings}
        return self.model_copy(update={"data": data.model_copy(update=files)})

    @model_validator(mode="after")
    def _no_windows_of_whole_sequences(self) -> Self:
        if self.whole_sequences:
            for name in ("window", "truncation"):
                if getattr(self.train, name) != TrainSpec.model_fields[name].default:
                    raise ValueError(f"train.{name} has no meaning here: this task reads whole sequences; leave it out")
        return self


def _is_no_path(name: str) -> bool:
    """Standard input and datasets of the hub are not paths."""
    return name == "-" or name.startswith("hub:")
