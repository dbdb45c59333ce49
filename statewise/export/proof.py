"""Is what a graph computes what the machine computes? Measured in onnxruntime, from states that are not zero."""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import Machine, laws, leaves
from statewise.export.graph import AFTER, begun, port_names, sample
from statewise.models import longest_context
from statewise.specs import optional
from statewise.tasks import Whole

BATCHES = (1, 3, 8)
LENGTHS = (1, 7, 64, 300)
STEPS = 200  # chained: each starts from the state that the graph itself returned
_READ = 5  # tokens before, so that no state is zero
_ROUNDS, _CALLS = 7, 10  # of a measurement of time
_SLACK = 8  # how much further than float32 itself a graph may be from float64

Array = NDArray[Any]
Arrays = dict[str, Array]
Call = Callable[[Mapping[str, Array]], Arrays]  # a graph: arrays by name to arrays by name


class Proof(NamedTuple):
    """The largest errors of a graph against PyTorch, relative to the largest value of each tensor above 1."""

    step: float  # one step
    chained: float  # `STEPS` steps, each from the last one's state
    sequence: float  # whole sequences
    rounding: float | None  # PyTorch's own in float32, over the same sequences; measured where the bound does not hold
    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    steps: int
    bound: float

    @property
    def passed(self) -> bool:
        return max(self.step, self.chained, self.sequence) <= max(self.bound, _SLACK * (self.rounding or 0.0))


def session(model: Any) -> Call:
    """An ONNX model, or its file, in onnxruntime."""
    ort = optional("onnxruntime", extra="onnx", needed_by="ONNX graphs")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    content = model if isinstance(model, str | bytes) else model.SerializeToString()
    opened = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in opened.get_outputs()]
    return lambda feed: dict(zip(names, opened.run(None, dict(feed))))


def prove(machine: Machine[Any], step: Call, sequence: Call) -> Proof:
    """Compare both graphs with the machine, over all batches and lengths that it can read."""
    _, room = machine.reserve(begun(machine, 1), LENGTHS[-1] + _READ)
    room = min(room, longest_context(machine) or room)
    lengths = tuple(n for n in LENGTHS if n + _READ <= room)
    steps = min(STEPS, room - _READ)
    single = many = whole = 0.0
    cases = [
        (rows, read, length) for rows in BATCHES for read, length in [(0, lengths[-1]), *((_READ, n) for n in lengths)]
    ]
    for rows, read, length in cases:
        x, state = sample(machine, rows, read, length, seed=length)
        whole = max(whole, distance(_fed(machine, sequence, x, state), _whole(machine, x, state)))
    for rows in BATCHES:
        for read in (0, _READ):
            x, state = sample(machine, rows, read, steps)
            single = max(single, distance(_fed(machine, step, x[:, 0], state), _stepped(machine, x[:, :1], state)[0]))
        many = max(many, _chained(machine, step, x, state))
    bound = laws.BOUNDS[torch.float32]
    rounding = None if max(single, many, whole) <= bound else _rounding(machine, cases)
    return Proof(single, many, whole, rounding, BATCHES, lengths, steps, bound)


def _fed(machine: Machine[Any], graph: Call, x: Tensor, state: Any) -> Arrays:
    return graph({port_names(machine)[0]: x.numpy(), **{path: leaf.numpy() for path, leaf in leaves(state)}})


@torch.no_grad()
def _whole(machine: Machine[Any], x: Tensor, state: Any) -> Arrays:
    y, after = machine(x, state)
    return {port_names(machine)[1]: y.numpy(), **{AFTER + path: leaf.numpy() for path, leaf in leaves(after)}}


@torch.no_grad()
def _stepped(machine: Machine[Any], x: Tensor, state: Any) -> tuple[Arrays, Array]:
    """Of steps over all of `x`, the last output and state; and all outputs."""
    outputs = []
    for at in x.unbind(1):
        y, state = machine.step(at, state)
        outputs.append(y)
    after = {AFTER + path: leaf.numpy() for path, leaf in leaves(state)}
    return {port_names(machine)[1]: outputs[-1].numpy(), **after}, torch.stack(outputs, 1).numpy()


def _chained(machine: Machine[Any], step: Call, x: Tensor, state: Any) -> float:
    """Both go on from their own states."""
    input_, output = port_names(machine)
    feed = {path: leaf.numpy() for path, leaf in leaves(state)}
    result, every = {}, []
    for at in x.unbind(1):
        result = step({input_: at.numpy(), **feed})
        every.append(result[output])
        feed = {path: result[AFTER + path] for path in feed}
    expected, outputs = _stepped(machine, x, state)
    return max(distance(result, expected), distance({"": np.stack(every, 1)}, {"": outputs}))


def _rounding(machine: Machine[Any], cases: Sequence[tuple[int, int, int]]) -> float:
    """How far PyTorch in float32 is from float64, over the same sequences."""
    exact = copy.deepcopy(machine).double()
    worst = 0.0
    for rows, read, length in cases:
        ours, true = (_whole(model, *sample(model, rows, read, length, seed=length)) for model in (machine, exact))
        worst = max(worst, distance(ours, true))
    return worst


@torch.no_grad()
def step_times(machine: Machine[Any], step: Call) -> dict[str, float]:
    """Milliseconds that a step of one row takes in the graph and in PyTorch, the least of several rounds."""
    x, state = sample(machine, 1, _READ, 1)
    feed = {port_names(machine)[0]: x[:, 0].numpy(), **{path: leaf.numpy() for path, leaf in leaves(state)}}
    rounds: dict[str, list[float]] = {"graph": [], "torch": []}
    for _ in range(_ROUNDS):
        for name, call in (("graph", lambda: step(feed)), ("torch", lambda: machine.step(x[:, 0], state))):
            begin = time.perf_counter()
            for _ in range(_CALLS):
                call()
            rounds[name].append(1e3 * (time.perf_counter() - begin) / _CALLS)
    return {name: min(taken) for name, taken in rounds.items()}


def prove_whole(whole: Whole, graph: Call) -> dict[str, Any]:
    """The largest error of a graph that reads all of its input at once, over batches and lengths."""
    lengths = [length for length in LENGTHS if length <= (whole.longest or length)]
    worst = 0.0
    for rows in BATCHES:
        for length in lengths:
            given = whole.sample(rows, length, torch.Generator().manual_seed(length))
            with torch.no_grad():
                expected = whole.module(*given)
            actual = graph({name: value.numpy() for (name, _), value in zip(whole.inputs, given)})
            true = {name: value.numpy() for (name, _), value in zip(whole.outputs, expected, strict=True)}
            worst = max(worst, distance(actual, true))
    bound = laws.BOUNDS[torch.float32]
    return {"error": worst, "batches": BATCHES, "lengths": lengths, "bound": bound, "passed": worst <= bound}


def distance(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """The largest difference of any tensor, relative to its largest value where that is above 1; infinite if unlike."""
    worst = 0.0
    for name, true in expected.items():
        ours = actual[name]
        if ours.shape != true.shape:
            return float("inf")
        finite = np.isfinite(true)
        if not np.array_equal(ours[~finite], true[~finite]) or not np.isfinite(ours[finite]).all():
            return float("inf")
        if finite.any():
            error = np.abs(ours[finite].astype(np.float64) - true[finite])
            worst = max(worst, float(error.max()) / max(1.0, float(np.abs(true[finite]).max())))
    return worst
