"""A machine's step as an ONNX graph: inputs and outputs are named by the paths of its state.

B batch, T time.
"""

import inspect
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, final

import torch
from torch import Tensor, nn

from statewise.core import Machine, State, leaves, lens, map_state
from statewise.models import ConditionalMachine, EndAsToken, RemainingLength, TokenMachine, longest_context
from statewise.specs import UserError, option, optional
from statewise.tasks import Axes, Port, Sample, Whole, given_a_source

OPSET = 20  # onnxruntime reads it since 1.17
AFTER = "after."  # prefix of the names of the state that a graph returns
_ROWS, _READ, _TIME, _SOURCE = 3, 7, 5, 6  # of the example that is traced: sizes that differ, none of them 1
_LARGEST = 2**31 - 2**20  # bytes of a protobuf message
_BRANCHES = 64  # places that one level of a search compares
MARK = -3.0e38  # an observed value that can be edited is clamped from below to this: no number is changed

Graph = Any  # an onnx.ModelProto


def port_names(machine: Machine[Any]) -> tuple[str, str]:
    """Of what it reads, and of what it answers."""
    return ("tokens", "logits") if isinstance(machine, TokenMachine) else ("input", "output")


def begun(machine: Machine[Any], rows: int, *, source: int = _SOURCE) -> Any:
    """The state that reading begins with; of a decoder, after a source."""
    if isinstance(machine, ConditionalMachine):
        return given_a_source(machine, rows, source=source)
    return machine.init_state(rows)


def free_axes(machine: Machine[Any]) -> list[Axes]:
    """Of each leaf of the state, the axes whose size is free but for the batch: lists that grow, and the source."""
    x = machine.sample_input(2, 1, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before, other = begun(machine, 2), begun(machine, 2, source=_SOURCE + 1)
        _, after = machine(x, before)
    return [
        {axis: "source" for axis, (old, new) in enumerate(zip(a.shape, c.shape)) if old != new}
        | {axis: "slots" for axis, (old, new) in enumerate(zip(a.shape, b.shape)) if old != new}
        for (_, a), (_, b), (_, c) in zip(leaves(before), leaves(after), leaves(other))
    ]


def grows(machine: Machine[Any]) -> bool:
    return any("slots" in axes.values() for axes in free_axes(machine))


def sample(machine: Machine[Any], rows: int, read: int, time: int, *, seed: int = 0) -> tuple[Tensor, Any]:
    """Random inputs `[rows, time]`, and the state after `read` others."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        state = begun(machine, rows)
        if read:
            _, state = machine(machine.sample_input(rows, read, generator=generator), state)
    own = map_state(lambda leaf: leaf.detach().clone(memory_format=torch.contiguous_format), state)
    return machine.sample_input(rows, time, generator=generator), own


@final
class _Condition(nn.Module):
    """A source and its lengths to the leaves of the state that writing begins with; and what a length is made of."""

    def __init__(self, machine: ConditionalMachine[Any] | EndAsToken[Any]) -> None:
        super().__init__()
        self.machine = machine

    def forward(self, source: Tensor, lengths_B: Tensor) -> tuple[Tensor, ...]:
        if isinstance(self.machine, ConditionalMachine):
            return tuple(leaf for _, leaf in leaves(self.machine.condition(source, lengths_B)))
        summary_BD, state = self.machine.model.condition(source, lengths_B)
        parts = tuple(leaf for _, leaf in leaves(state))
        model = self.machine.model
        return (*parts, model.length(summary_BD)) if isinstance(model, RemainingLength) else parts


def condition(machine: Machine[Any], source: Sample) -> Whole:
    """The graph of what is read before writing begins, named by the paths of its state."""
    assert isinstance(machine, ConditionalMachine | EndAsToken)
    paths = [path for path, _ in leaves(begun(machine, 1))]
    outputs: list[tuple[str, Axes]] = [
        (path, {0: "batch", **axes}) for path, axes in zip(paths, free_axes(machine), strict=True)
    ]
    if isinstance(machine, EndAsToken) and isinstance(machine.model, RemainingLength):
        outputs.append(("length", {0: "batch"}))
    tokens = not source(1, 1, torch.Generator())[0].is_floating_point()
    return Whole(
        "condition",
        _Condition(machine),
        inputs=[("tokens" if tokens else "values", {0: "batch", 1: "source"}), ("lengths", {0: "batch"})],
        outputs=outputs,
        sample=source,
        longest=longest_context(machine.reader if isinstance(machine, ConditionalMachine) else machine),
    )


@final
class _Flat(nn.Module):
    """`step` or `forward` with the leaves of the state as separate tensors; and what a lens sees, where asked."""

    def __init__(
        self, machine: Machine[Any], like: State, *, step: bool, taps: Sequence[str] = (), marked: bool = False
    ) -> None:
        super().__init__()
        self.machine, self.like, self.of_step, self.taps = machine, like, step, tuple(taps)
        self.edit = _marked if marked else None
        self.seen: list[str] = []

    def forward(self, x: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        remaining = iter(parts)
        state = map_state(lambda _: next(remaining), self.like)
        read = self.machine.step if self.of_step else self.machine.forward
        if not self.taps:
            y, after = read(x, state)
            return y, *(leaf for _, leaf in leaves(after))
        with lens(*self.taps, edit=self.edit) as opened:
            y, after = read(x, state)
        self.seen = opened.names
        return y, *(leaf for _, leaf in leaves(after)), *(opened.seen[name][-1] for name in opened.names)


def _marked(_: str, value: Tensor) -> Tensor:
    return value.clamp(min=MARK) if value.is_floating_point() else value


def flat(
    machine: Machine[Any], *, step: bool, taps: Sequence[str] = (), marked: bool = False
) -> tuple[nn.Module, list[Port], list[tuple[str, Axes]]]:
    """The module that is traced, its inputs, and the names of its outputs with their free sizes."""
    x, state = sample(machine, _ROWS, _READ, _TIME)
    grown = free_axes(machine)
    module = _Flat(machine, state, step=step, taps=taps, marked=marked).eval()
    time: Axes = {} if step else {1: "time"}
    parts = list(zip(leaves(state), grown))
    input_, output = port_names(machine)
    ports = [Port(input_, x[:, 0] if step else x, {0: "batch", **time})]
    ports += [Port(path, leaf, {0: "batch", **axes}) for (path, leaf), axes in parts]
    outputs: list[tuple[str, Axes]] = [(output, {0: "batch", **time})]
    outputs += [(AFTER + path, {0: "batch", **_after(axes)}) for (path, _), axes in parts]
    if taps:
        with torch.no_grad():
            module(*(port.example for port in ports))
        if not module.seen:
            raise UserError(
                f"no value of this model is observed under {', '.join(map(repr, taps))}",
                fix=f"it has {', '.join(_observed(machine)) or 'none'}",
            )
        outputs += [(name, {0: "batch"}) for name in module.seen]
    return module, ports, outputs


def _after(axes: Axes) -> Axes:
    return {axis: "slots_after" if name == "slots" else name for axis, name in axes.items()}


def _observed(machine: Machine[Any]) -> list[str]:
    x, state = sample(machine, 1, 0, 1)
    with torch.no_grad(), lens() as seen:
        machine.step(x[:, 0], state)
    return seen.names


def step_graph(machine: Machine[Any], *, taps: Sequence[str] = (), marked: bool = False) -> Graph:
    """The input and the leaves of the state, to the output and the leaves after it; then what the `taps` see.

    If `marked`, each of these is the result of a node of its own (a clamp to `MARK`), which an interpreter may replace.
    """
    return trace(*flat(machine, step=True, taps=taps, marked=marked))


def traced_sequence(machine: Machine[Any]) -> Graph:
    """The same for an input with a time axis, of a machine whose state grows: a loop could not hold it."""
    return trace(*flat(machine, step=False))


def trace(module: nn.Module, ports: Sequence[Port], outputs: Sequence[tuple[str, Axes]]) -> Graph:
    """A module as a checked ONNX model, with these names and free sizes."""
    onnx = optional("onnx", extra="onnx", needed_by="ONNX graphs")
    optional("onnxscript", extra="onnx", needed_by="ONNX graphs")
    size = sum(part.numel() * part.element_size() for part in (*module.parameters(), *module.buffers()))
    if size > _LARGEST:
        raise UserError(
            f"the model has {size / 2**30:.1f} GiB of weights, and an ONNX file holds at most 2 GiB",
            fix=f"export it with {option('to', 'pt2')}",
        )
    free = tuple(dict.fromkeys(port.axes, torch.export.Dim.DYNAMIC) for port in ports)
    try:
        with torch.no_grad(), quiet():
            program = torch.onnx.export(
                module,
                tuple(port.example for port in ports),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                dynamic_shapes=(free[0], free[1:]) if free[1:] and _takes_any(module) else free,
                input_names=[port.name for port in ports],
                output_names=[name for name, _ in outputs],
                custom_translation_table={torch.ops.aten.searchsorted.Tensor: _searchsorted},
            )
    except torch.onnx.OnnxExporterError as error:
        cause = error.__cause__ or error
        said = str(cause).strip().partition("\n")[0]
        raise UserError(
            f"PyTorch cannot trace this model: {type(cause).__name__}: {said}",
            fix="a step must not ask for numbers or sizes of tensors; taps may, so try it without them",
        ) from error
    assert program is not None
    inliner = optional("onnx.inliner", extra="onnx", needed_by="ONNX graphs")
    model = inliner.inline_local_functions(program.model_proto)
    _name_sizes(model.graph.input, [(port.name, port.axes) for port in ports])
    _name_sizes(model.graph.output, outputs)
    del model.graph.value_info[:]
    onnx.checker.check_model(model, full_check=True)
    return model


def _takes_any(module: nn.Module) -> bool:
    """Whether all inputs but the first are one argument to PyTorch's exporter."""
    return any(
        parameter.kind == parameter.VAR_POSITIONAL
        for parameter in inspect.signature(module.forward).parameters.values()
    )


def _name_sizes(values: Any, expected: Sequence[tuple[str, Axes]]) -> None:
    names = [value.name for value in values]
    assert names == [name for name, _ in expected], f"the graph has {names}, expected {expected}"
    for value, (_, axes) in zip(values, expected):
        for axis, name in axes.items():
            value.type.tensor_type.shape.dim[axis].dim_param = name


def _searchsorted(sorted_C: Any, key_N: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    """ONNX has no such op. Each level compares all keys with `_BRANCHES` places; few levels find any place."""
    op = optional("onnxscript", extra="onnx", needed_by="ONNX graphs").opset20
    last = int(sorted_C.shape[0]) - 1
    stride = 1
    while stride * _BRANCHES <= last:
        stride *= _BRANCHES
    inner = op.Constant(value_ints=[-1])
    below_N = op.Sub(key_N, key_N)  # how many are known to be smaller
    while stride:
        ends_J = op.Constant(value_ints=[stride * (j + 1) - 1 for j in range(_BRANCHES)])
        at_NJ = op.Add(op.Unsqueeze(below_N, inner), ends_J)
        entry_NJ = op.Gather(sorted_C, op.Min(at_NJ, op.Constant(value_int=last)))
        smaller_NJ = op.And(
            op.LessOrEqual(at_NJ, op.Constant(value_int=last)), op.Less(entry_NJ, op.Unsqueeze(key_N, inner))
        )
        whole_N = op.ReduceSum(op.Cast(smaller_NJ, to=7), inner, keepdims=0)
        below_N = op.Add(below_N, op.Mul(whole_N, op.Constant(value_int=stride)))
        stride //= _BRANCHES
    return below_N


@contextmanager
def quiet() -> Iterator[None]:
    """PyTorch's exporter and onnxruntime's quantiser warn of what is no problem, and print whole programs if one is."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    aside = io.StringIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(aside), redirect_stderr(aside):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
