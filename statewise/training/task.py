"""What the loop needs of a task: windows, losses, validation metrics. It does not know which task it is."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from torch import Tensor

from statewise.specs import TrainSpec, UserError, nearest

Better = Literal["lower", "higher"]


DIFFERS = "the windows of this task differ in shape"


class Window(NamedTuple):
    """What one step reads on this rank. Only the task looks into `content`.

    If `obstacle` is None, `content` is tensors in nested tuples, and other values that are equal for all windows of
    the same shapes; the loss then reads no number from the device.
    """

    rows: int
    time: int  # where a truncation may cut; 1: nowhere
    fresh: bool  # all rows start from the initial state
    content: Any
    weight: float  # the divisor of the summed loss; its mean over ranks is what their losses sum over
    tokens: int  # read by all ranks together
    ends: bool = False  # its last state is not used: the next window is fresh
    obstacle: str | None = DIFFERS  # why a captured step cannot read it


class Task(Protocol):
    @property
    def judges(self) -> Mapping[str, Better]:
        """The validation metrics that can decide which weights are best; by default the first one does."""

    @property
    def regular(self) -> bool:
        """Whether each loss reads every part of the model equally often, whatever the rows. Only then can ranks gather
        the parameters of one layer after the other.
        """

    def begin(self, model: Any, rows: int) -> Any:
        """The initial state; `()` where nothing is carried from window to window."""

    def window(self, step: int) -> Window:
        """The window of step `step` (from 0): a pure function."""

    def loss(self, model: Any, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        """The summed loss over some rows and times, and the state after them."""

    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        """Validation metrics. `poll` raises when the run should end."""


def judge_of(task: Task, spec: TrainSpec) -> tuple[str, Better]:
    """The validation metric that decides which weights are best, and its direction."""
    judges = task.judges
    name = spec.judge or next(iter(judges))
    if name not in judges:
        raise UserError(f"train.judge = {name!r} is not a metric of this task", fix=nearest(name, judges))
    return name, judges[name]
