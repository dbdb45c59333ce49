"""What every run says, whatever its task."""

from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from statewise.specs.base import Spec
from statewise.specs.train import TrainSpec


class RunSpec(Spec):
    """Each task has its own: with `task` (its name), `data`, `model`, and what else the job needs."""

    main_data: ClassVar[str]  # the setting that names what to learn from
    tested: ClassVar[bool] = False  # its evaluation is on a part of its own, which nothing is chosen by
    verb: ClassVar[str] = "evaluate"  # what one does with a trained one first
    whole_sequences: ClassVar[bool] = True  # a step reads sequences from beginning to end, so none can be cut

    seed: int = Field(0, ge=0, lt=2**63)
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
        """How the same data are laid out for the model, where models want them in different ways."""
        return "rows"

    @property
    def step_grows(self) -> bool:
        """Whether a step of training costs more the later it comes: a list is carried from window to window."""
        return False

    @property
    def name(self) -> str:
        """What a folder of this run is called."""
        raise NotImplementedError

    def absolute(self) -> Self:
        """The same with paths that mean the same from every folder."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _no_windows_of_whole_sequences(self) -> Self:
        if self.whole_sequences:
            for name in ("window", "truncation"):
                if getattr(self.train, name) != TrainSpec.model_fields[name].default:
                    raise ValueError(f"train.{name} has no meaning here: this task reads whole sequences; leave it out")
        return self


def absolute(names: tuple[str, ...]) -> tuple[str, ...]:
    """Standard input and datasets of the hub are the same everywhere."""
    return tuple(name if name == "-" or name.startswith("hub:") else str(Path(name).absolute()) for name in names)
