"""A training step on a GPU as the replay of one captured graph: forward, loss, backward, clip, update, average.

Launched from Python, the steps of a small model cost far more than their arithmetic. Captured as a CUDA graph, a step
of any model is one launch: it reads its window and its state from fixed memory and leaves the next state there. The
learning rate, the seed and the window change between replays; they are copied into that memory, not into the graph.

A step is captured at the first window that it can read, with the guard closed, so that the capture changes nothing.
Which steps of a run are replayed therefore depends on their windows alone, not on where the run was resumed.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from statewise.core import Replay, State, is_observed, leaves, map_state
from statewise.specs import FixedTruncation, FullTruncation, TrainSpec, UserError
from statewise.training.optimizer import Average
from statewise.training.parallel import Parallel
from statewise.training.task import DIFFERS, Task, Window

_MOST = 4  # captured steps that a run keeps, each with its memory


class Stepping(Protocol):
    """What a captured step needs of the `Updater`."""

    model: nn.Module
    task: Task
    spec: TrainSpec
    par: Parallel
    average: Average
    state: "State | None"
    updating: bool

    def seed(self, number: int) -> None: ...
    def make(self, number: int, window: Window) -> None: ...
    def unchanged(self) -> AbstractContextManager[None]: ...


class Captured:
    """One step in memory of its own."""

    def __init__(self, step: Stepping, number: int, window: Window) -> None:
        self.whole = window.fresh and window.ends  # starts from the initial state, and its last state is not used
        self.window = window._replace(content=_cloned(window.content), fresh=self.whole)
        self.state: State | None = None
        if not self.whole:
            self.state = map_state(Tensor.clone, step.task.begin(step.model, window.rows))
        device = step.par.device
        with step.unchanged(), torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            self.run = Replay(lambda: self._once(step, number), device)
            if device.type != "cuda":
                self.run()

    def replay(self, step: Stepping, window: Window) -> None:
        for mine, given in zip(_tensors(self.window.content), _tensors(window.content), strict=True):
            mine.copy_(given, non_blocking=True)
        if self.state is not None:
            before = step.state
            if window.fresh or before is None:
                before = step.task.begin(step.model, window.rows)
            if before is not self.state:
                map_state(lambda mine, given: mine.copy_(given), self.state, before)
        self.run()
        step.state = None if window.ends else self.state

    def _once(self, step: Stepping, number: int) -> None:
        step.state = self.state
        step.make(number, self.window)
        if self.state is not None and step.state is not None:
            _copy_state(self.state, step.state)


class Graphs:
    """The captured steps of one run. `why`: why the last step was not replayed, or None."""

    def __init__(self, step: Stepping) -> None:
        self._step = step
        self._captured: dict[object, Captured] = {}
        self._failed: dict[object, str] = {}
        self.why: str | None = "no step was made yet"

    def replayed(self, number: int, window: Window) -> bool:
        """Make the step by a replay; False if it cannot be replayed."""
        captured = self.prepare(number, window)
        if captured is None:
            return False
        captured.run.check()  # before the update begins
        self._step.updating = True
        captured.replay(self._step, window)
        return True

    def prepare(self, number: int, window: Window) -> Captured | None:
        """The captured step for windows of this kind, captured now if there is none. Seeds the step again after it."""
        self.why = obstacle(self._step, window)
        if self.why is not None:
            return None
        key = self._key(window)
        if key in self._failed:
            self.why = self._failed[key]
            return None
        if key not in self._captured:
            if len(self._captured) == _MOST:
                self._captured.clear()  # for example those from before averaging started
            try:
                self._captured[key] = Captured(self._step, number, window)
            except RuntimeError as error:  # CUDA's message about a step that waits for the host
                self.why = self._failed[key] = f"a step cannot be captured: {str(error).splitlines()[0]}"
                self._step.model.zero_grad(set_to_none=True)
                if self._step.spec.graph == "always":
                    raise UserError(f"train.graph = 'always', but {self.why}", fix="train.graph=auto") from error
                return None
            finally:
                self._step.seed(number)
        return self._captured[key]

    def _key(self, window: Window) -> object:
        """What a captured step depends on, besides the weights, whose memory does not change."""
        whole = window.fresh and window.ends
        return whole, window.rows, window.time, window.weight, _signature(window.content), self._step.average.count > 0


def refuse_what_is_never_captured(spec: TrainSpec, par: Parallel) -> None:
    """Refuse train.graph = 'always' where no window can be captured."""
    why = _device_obstacle(spec, par)
    if spec.graph == "always" and why is not None:
        raise UserError(f"train.graph = 'always', but {why}", fix="train.graph=auto")


def obstacle(step: Stepping, window: Window) -> str | None:
    """Why a step cannot be captured, or None. With train.graph = 'always', a reason for all windows is an error."""
    wish = step.spec.graph
    if wish == "never":
        return "train.graph = 'never'"
    why = _of_the_run(step, window)
    if why is None:
        return window.obstacle
    if wish == "always":
        raise UserError(f"train.graph = 'always', but {why}", fix="train.graph=auto")
    return why


def _device_obstacle(spec: TrainSpec, par: Parallel) -> str | None:
    if par.device.type != "cuda":
        return f"graphs are for CUDA, and this model is on {par.device.type}"
    if par.world > 1:
        return f"{par.world} processes agree on the host before each update"
    if spec.recompute or spec.offload:
        return f"train.{'recompute' if spec.recompute else 'offload'} asks the host during a step"
    if not isinstance(spec.truncation, FullTruncation | FixedTruncation):
        return f"truncation {spec.truncation.kind!r} cuts every window elsewhere"
    return None


def _of_the_run(step: Stepping, window: Window) -> str | None:
    why = _device_obstacle(step.spec, step.par)
    if why is not None:
        return why
    if is_observed():
        return "a lens is open, and what it sees would be seen once, at the capture"
    return DIFFERS if window.obstacle == DIFFERS else None


def _copy_state(places: State, values: State) -> None:
    """Copy the next state over the old one."""
    for (name, place), (_, value) in zip(leaves(places), leaves(values), strict=True):
        if place.shape != value.shape:
            raise RuntimeError(
                f"the state grows from window to window: {name} from {list(place.shape)} to {list(value.shape)}"
            )
        place.copy_(value)


def _tensors(content: Any) -> Iterator[Tensor]:
    if isinstance(content, Tensor):
        yield content
    elif isinstance(content, tuple):
        for part in content:
            yield from _tensors(part)


def _cloned(content: Any) -> Any:
    """The same content with cloned tensors."""
    if isinstance(content, Tensor):
        return content.clone()
    if isinstance(content, tuple):
        return getattr(type(content), "_make", tuple)([_cloned(part) for part in content])
    return content


def _signature(content: Any) -> object:
    """Shapes and dtypes of tensors; everything else as it is, because the graph contains it."""
    if isinstance(content, Tensor):
        return content.shape, content.dtype
    if isinstance(content, tuple):
        return tuple(_signature(part) for part in content)
    return content
