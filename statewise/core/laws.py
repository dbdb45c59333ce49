"""The laws of the contract, as functions that measure by how much a machine breaks them.

Each law takes a machine and a `Case` (inputs and a non-zero state) and returns the largest error, relative
to the size of what is compared, over outputs, final state and gradients. The test suite and
`statewise verify` run the same functions; a law is kept when the error is within the dtype's bound.
"""

import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from statewise.core.machine import Machine, unroll
from statewise.core.state import concat, fork, leaves, load_state, map_state, past_end, rows, save_state, to
from statewise.specs import UserError

# Relative to float64 (or, for the exact laws, to the same dtype): what rounding alone may do over a few steps.
BOUNDS = {torch.float64: 1e-10, torch.float32: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}


class Case(NamedTuple):
    """What a law is tried on: inputs `[B, T, ...]`, a non-zero state, and a direction to weigh gradients."""

    x: Tensor
    state: Any
    seed: int = 0

    @property
    def batch(self) -> int:
        return self.x.shape[0]

    @property
    def time(self) -> int:
        return self.x.shape[1]


Start = Callable[[Machine[Any], int], Any]  # a machine and a number of rows to the state they begin from


def make_case(
    machine: Machine[Any], *, batch: int = 3, time: int = 7, seed: int = 0, start: Start | None = None
) -> Case:
    """Random inputs, and a state that was reached (rows after different lengths) and then shaken: no zero in it.

    `start` is for machines that begin from what they were given, not from nothing.
    """
    generator = torch.Generator().manual_seed(seed)
    before = machine.sample_input(batch, 3, generator=generator)
    lengths_B = torch.tensor([1 + i % 3 for i in range(batch)], device=before.device)
    with torch.no_grad():
        begun = machine.init_state(batch) if start is None else start(machine, batch)
        _, reached = machine(before, begun, lengths_B)

    def shake(leaf: Tensor) -> Tensor:
        if not leaf.is_floating_point():
            return leaf
        return leaf + 0.5 * torch.randn(leaf.shape, dtype=torch.float64, generator=generator).to(leaf)

    return Case(machine.sample_input(batch, time, generator=generator), map_state(shake, reached), seed)


def distance(got: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Largest difference, relative to the largest expected value (or absolute where that is below 1)."""
    worst = 0.0
    for a, b in zip(got, expected, strict=True):
        if a.shape != b.shape:
            return float("inf")
        if a.numel() == 0:
            continue
        difference = (a.double() - b.double()).abs().max().item()
        if difference != difference:
            return float("inf")
        worst = max(worst, difference / max(1.0, b.double().abs().max().item()))
    return worst


def _differentiable(case: Case) -> Case:
    def leaf(value: Tensor) -> Tensor:
        return value.detach().clone().requires_grad_() if value.is_floating_point() else value

    return Case(leaf(case.x), map_state(leaf, case.state), case.seed)


Run = Callable[[Case], tuple[Tensor, Any]]


def evaluate(machine: nn.Module, case: Case, run: Run) -> list[Tensor]:
    """Outputs, final state, and the gradients of a fixed random sum of them by input, state and weights."""
    case = _differentiable(case)
    y, after = run(case)
    results = [y, *(leaf for _, leaf in leaves(after))]
    generator = torch.Generator().manual_seed(case.seed + 1)
    total = y.new_zeros(())
    for result in results:
        if result.is_floating_point():
            weight = torch.randn(result.shape, dtype=torch.float64, generator=generator)
            total = total + (result * weight.to(result)).sum()
    inputs = [case.x, *(leaf for _, leaf in leaves(case.state)), *machine.parameters()]
    inputs = [value for value in inputs if value.requires_grad]
    nothing = [None] * len(inputs)
    gradients = torch.autograd.grad(total, inputs, allow_unused=True) if total.requires_grad else nothing
    filled = [torch.zeros_like(v) if g is None else g for g, v in zip(gradients, inputs, strict=True)]
    return [result.detach() for result in [*results, *filled]]


def split(machine: Machine[Any], case: Case, *, cuts: Sequence[int] | None = None) -> float:
    """forward(a ++ b, s) equals forward(a, s) then forward(b, s'), for every cut."""
    whole = evaluate(machine, case, lambda c: machine(c.x, c.state))

    def in_two(c: Case, cut: int) -> tuple[Tensor, Any]:
        first, between = machine(c.x[:, :cut], c.state)
        second, after = machine(c.x[:, cut:], between)
        return torch.cat([first, second], dim=1), after

    return max(
        distance(evaluate(machine, case, lambda c, cut=cut: in_two(c, cut)), whole)  # type: ignore[misc]  # a default in a lambda has no type
        for cut in (cuts or range(1, case.time))
    )


def step(machine: Machine[Any], case: Case) -> float:
    """forward(x, s) equals step over x[:, 0], x[:, 1], ..."""
    parallel = evaluate(machine, case, lambda c: machine(c.x, c.state))
    stepped = evaluate(machine, case, lambda c: unroll(machine.step, c.x, c.state))
    return distance(stepped, parallel)


def causal(machine: Machine[Any], case: Case) -> float:
    """y[:, :t] does not change when x[:, t:] does, and has no gradient there."""
    worst = 0.0
    for t in range(1, case.time):
        changed = case.x.clone()
        changed[:, t:] = case.x.flip(1)[:, t:] if not case.x.is_floating_point() else -3 * case.x[:, t:] + 1
        with torch.no_grad():
            y, _ = machine(case.x, case.state)
            y_changed, _ = machine(changed, case.state)
        worst = max(worst, distance([y_changed[:, :t]], [y[:, :t]]))
        if case.x.is_floating_point():
            x = case.x.detach().clone().requires_grad_()
            y, _ = machine(x, case.state)
            (gradient,) = torch.autograd.grad(y[:, :t].sum(), x)
            worst = max(worst, gradient[:, t:].abs().max().item())
    return worst


def rows_law(machine: Machine[Any], case: Case, *, order: Sequence[int] | None = None) -> float:
    """Row i of the result depends on row i of the inputs alone: any choice of rows commutes with the machine."""
    index = torch.tensor(list(order) if order is not None else list(range(case.batch))[::-1][: case.batch - 1 or 1])

    def chosen_before(c: Case) -> tuple[Tensor, Any]:
        return machine(c.x[index], rows(c.state, index))

    def chosen_after(c: Case) -> tuple[Tensor, Any]:
        y, after = machine(c.x, c.state)
        return y[index], rows(after, index)

    index = index.to(case.x.device)
    return distance(evaluate(machine, case, chosen_before), evaluate(machine, case, chosen_after))


def ragged(machine: Machine[Any], case: Case, *, lengths: Sequence[int] | None = None) -> float:
    """With lengths, every row's outputs equal that row run alone, unpadded; past it, 0; and it goes on the same.

    The padding is NaN, or tokens that do not exist. States are compared as they are, and by what follows from them.
    """
    wanted = list(lengths) if lengths is not None else [(3 * i + 2) % (case.time + 1) for i in range(case.batch)]
    lengths_B = torch.tensor(wanted, device=case.x.device)
    later = machine.sample_input(case.batch, 2, generator=torch.Generator().manual_seed(case.seed + 2))

    def together(c: Case) -> tuple[Tensor, Any]:
        padded = past_end(c.x, lengths_B, float("nan") if c.x.is_floating_point() else -1)
        y, after = machine(padded, c.state, lengths_B)
        more, _ = machine(later, after)
        return torch.cat([y, more], dim=1), after

    def alone(c: Case) -> tuple[Tensor, Any]:
        ys, afters = [], []
        for i, length in enumerate(wanted):
            row, after = slice(i, i + 1), rows(c.state, slice(i, i + 1))
            parts = []
            if length > 0:
                y, after = machine(c.x[row, :length], after)
                parts.append(y)
            more, _ = machine(later[row], after)
            ys.append(torch.cat([*parts, more.new_zeros(1, case.time - length, *more.shape[2:]), more], dim=1))
            afters.append(after)
        return torch.cat(ys), concat(afters)

    # What grows is padded differently in the two, so it is judged by what follows from it alone.
    grows = any(leaf.numel() == 0 for _, leaf in leaves(machine.init_state(1)))
    first, second = (lambda c, run=run: (run(c)[0], ()) if grows else run(c) for run in (together, alone))
    return distance(evaluate(machine, case, first), evaluate(machine, case, second))


def pure(machine: Machine[Any], case: Case) -> float:
    """The state passed in is never written to, by forward or by step."""
    before = fork(case.state)
    with torch.no_grad():
        machine(case.x, case.state)
        machine.step(case.x[:, 0], case.state)
    return distance([leaf for _, leaf in leaves(case.state)], [leaf for _, leaf in leaves(before)])


def fork_law(machine: Machine[Any], case: Case) -> float:
    """A saved, loaded, moved or copied state continues exactly as the original."""
    half = max(1, case.time // 2)
    with torch.no_grad():
        _, state = machine(case.x[:, :half], case.state)
        expected = [result.clone() for result in _flat(machine(case.x[:, -half:], state))]
        state = fork(state)  # a part that never changes may be the case's own memory
        copied = fork(state)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state.safetensors"
            save_state(state, path)
            loaded = load_state(path, like=machine.init_state(1))
        moved = to(to(state, "cpu"), case.x.device)
        map_state(lambda leaf: leaf.zero_(), state)  # the copies must not notice
        others = [_flat(machine(case.x[:, -half:], other)) for other in (copied, loaded, moved)]
    if case.x.device.type == "cpu":
        others.pop()  # moving to the same device is no copy, so it was zeroed with the original
    return max(distance(other, expected) for other in others)


def refuses(machine: Machine[Any], case: Case) -> float:
    """A state of other rows, width, type, device or structure is refused by every form; counts those that were not."""
    forms: dict[str, Callable[[Any], object]] = {
        "forward": lambda state: machine(case.x, state),
        "absorb": lambda state: machine.absorb(case.x, state),
        "step": lambda state: machine.step(case.x[:, 0], state),
        "step_": lambda state: machine.step_(case.x[:, 0], state),
    }
    accepted = 0
    with torch.no_grad():
        for state in wrong_states(machine, case):
            for run in forms.values():
                try:
                    run(state)
                except UserError as error:
                    accepted += "state" not in error.what
                except Exception:
                    accepted += 1  # refused by something further down, in words nobody can use
                else:
                    accepted += 1
    return float(accepted)


def wrong_states(machine: Machine[Any], case: Case) -> Iterator[Any]:
    """The case's state with one thing wrong: all that a caller can mistake."""
    index = torch.arange(case.batch, device=case.x.device)
    yield rows(case.state, index[:1])
    yield rows(case.state, index[:-1])
    yield rows(case.state, torch.cat([index, index[:1]]))
    yield map_state(lambda leaf: leaf.to("meta" if leaf.device.type == "cpu" else "cpu"), case.state)
    yield map_state(lambda leaf: leaf.long() if leaf.is_floating_point() else leaf.double(), case.state)
    yield (case.state,)
    yield tuple(part for _, part in leaves(case.state))  # the right tensors in a type that says nothing
    initial = machine.init_state(1)
    for path, leaf in leaves(initial):
        for axis in range(1, leaf.dim()):
            if leaf.shape[axis]:  # where it is empty, it may have any length
                yield _changed(case.state, path, partial(_twice, axis=axis))
        yield _changed(case.state, path, lambda part: ())
        yield _changed(case.state, path, lambda part: part[..., None])


def _twice(leaf: Tensor, *, axis: int) -> Tensor:
    return torch.cat([leaf, leaf], dim=axis)


def _changed(state: Any, path: str, change: Callable[[Tensor], Any]) -> Any:
    """The state with one leaf changed, named by its path."""
    if not path:
        return change(state)
    name, _, rest = path.partition(".")
    names = list(map(str, getattr(state, "_fields", range(len(state)))))
    parts = [_changed(part, rest, change) if name == key else part for key, part in zip(names, state)]
    return getattr(type(state), "_make", tuple)(parts)


def _flat(result: tuple[Tensor, Any]) -> list[Tensor]:
    y, state = result
    return [y, *(leaf for _, leaf in leaves(state))]


EXACT: dict[str, Callable[[Machine[Any], Case], float]] = {
    "split": split,
    "step": step,
    "causal": causal,
    "rows": rows_law,
    "ragged": ragged,
    "pure": pure,
    "fork": fork_law,
    "refuses": refuses,
}


def precision(machine: Machine[Any], dtype: torch.dtype, *, time: int = 7, start: Start | None = None) -> float:
    """The outputs, state and gradients in `dtype` against the same machine in float64."""
    return rounding(machine, dtype, partial(make_case, time=time, start=start), lambda model, c: model(c.x, c.state))


M = TypeVar("M", bound=nn.Module)


def rounding(
    model: M, dtype: torch.dtype, case_of: Callable[[M], Case], run: Callable[[M, Case], tuple[Tensor, Any]]
) -> float:
    """What `run` gives in `dtype`, with gradients, against the same model in float64.

    Rounding is judged by the norm of the difference, tensor by tensor: a single small entry may be all noise.
    """
    reference = copy.deepcopy(model).double()
    low = copy.deepcopy(model).to(dtype)
    case = case_of(low)
    wide = Case(case.x.double() if case.x.is_floating_point() else case.x, to(case.state, torch.float64))
    with torch.no_grad():  # the same numbers on both sides: what is measured is the arithmetic
        for a, b in zip(reference.parameters(), low.parameters(), strict=True):
            a.copy_(b)
    rounded = evaluate(low, case, partial(run, low))
    exact = evaluate(reference, wide, partial(run, reference))
    pairs = [(a.double(), b.double()) for a, b in zip(rounded, exact, strict=True)]  # whole numbers are among them
    errors = [(a - b).norm().item() / max(1.0, b.norm().item()) for a, b in pairs]
    return max(error if error == error else float("inf") for error in errors)
