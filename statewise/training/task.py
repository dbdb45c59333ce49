"""What the loop asks of a task: windows, losses, figures. It never asks what the task is."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from torch import Tensor

Better = Literal["lower", "higher"]


DIFFERS = "the windows of this task differ in shape"


class Window(NamedTuple):
    """What one step reads on this rank. `content` is the task's own business.

    Where `obstacle` is None, it is tensors in nested tuples and, beside them, values that are the same for all windows
    of one form; its loss then asks the device for no number.
    """

    rows: int
    time: int  # where a truncation may cut; 1: nowhere
    fresh: bool  # all rows start from the initial state
    content: Any
    weight: float  # what the summed loss is divided by: over ranks, in the mean, what their losses sum over
    tokens: int  # read by all ranks together
    ends: bool = False  # nobody goes on from its last state: the next window is fresh
    obstacle: str | None = DIFFERS  # why a captured step cannot read it


class Task(Protocol):
    @property
    def judges(self) -> Mapping[str, Better]:
        """The validation figures that can decide which weights are best; the first one does by default."""

    def begin(self, model: Any, rows: int) -> Any:
        """The state before anything was read: `()` where nothing is carried from window to window."""

    def window(self, step: int) -> Window:
        """The window of step `step` (from 0): a pure function."""

    def loss(self, model: Any, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        """The summed loss over some rows and times, and the state after them."""

    def evaluate(self, model: Any, poll: Callable[[], None]) -> dict[str, float]:
        """Validation figures. `poll` raises when the run should end."""
