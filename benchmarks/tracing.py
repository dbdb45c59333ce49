"""PyTorch's own tools on each model: torch.func, torch.export, torch.compile, torch.jit.trace and others.

    python benchmarks/tracing.py [--models lstm gru ...] [--tools export compile ...] [--json FILE]
    python benchmarks/tracing.py --ratio [--models lstm gru ...] [--json FILE]

Each cell compares with the model itself, in float64: values and gradients, also for batch sizes and lengths that were
not traced. It is "yes", or what differs, or the first line of the error. docs/tracing.md shows the table.

With `--ratio`: how many times as fast `torch.compile` (Inductor, `fullgraph=True`) is as the model called as it is, for
a training step (loss and gradients, 16 rows of 32 tokens) and for one step of decoding (one row), in float32, two
layers of 64; and how long it compiles. Both are called in turns, and medians are compared.
"""

import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from command_line import console, options, write
from rich.table import Table
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import Dim, export
from torch.func import functional_call, grad, jacrev, jvp, vmap
from torch.nn import functional as F

from statewise.core import State, fork, leaves, map_state
from statewise.models import LINEAGE, build

VOCAB, ROWS, TIME = 7, 3, 6
ROUNDS, COLUMNS = 20, ("ms", "compiled_ms", "ratio")
OTHERS = ((2, 9), (5, 2), (1, 1), (4, 1), (1, 40))  # rows and lengths that nobody traced; 40 is more than one chunk


def tokens(rows: int, time: int) -> Tensor:
    return torch.randint(VOCAB, (rows, time), generator=torch.Generator().manual_seed(rows + 100 * time))


def sizes(name: str) -> dict[str, int]:
    return {} if name == "markov" else {"width": 8, "depth": 2}


def made(name: str) -> Any:
    """A small model that differs from its start everywhere; of a counted one, counts."""
    torch.manual_seed(0)
    model = build(name, vocab=VOCAB, **sizes(name)).double().eval()
    model.listed = name
    if name == "markov":
        model.count(tokens(1, 300)[0].numpy())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def state_after(model: Any, rows: int, time: int = 5) -> Any:
    """In memory of its own: of a view, `torch.export` would note what it is a view of."""
    with torch.no_grad():
        return fork(model(tokens(rows, time))[1])


def flat(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [leaf for _, leaf in leaves(tuple(result))]


def _cut(mine: Tensor, other: Tensor) -> Tensor:
    """A list that was traced keeps empty slots where all rows ended early."""
    return mine[:, : other.shape[1]] if mine.dim() > 1 else mine


def same(found: Any, expected: Any) -> None:
    for mine, other in zip(flat(found), flat(expected), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def gradients(model: nn.Module, result: Any) -> list[Tensor]:
    """Of everything that comes out, by every weight; zeros where there is no way."""
    loss = sum((part.square().sum() for part in flat(result) if part.is_floating_point()), torch.zeros(()))
    inner = list(weights(model).values())
    found = torch.autograd.grad(loss, inner, allow_unused=True) if inner else ()
    return [torch.zeros_like(w) if g is None else g for w, g in zip(inner, found, strict=True)]


class Step(nn.Module):
    """A step with a state, as the `forward` of a module."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, token_B: Tensor, state: State) -> Any:
        return self.model.step(token_B, state)


# torch.func


def transforms(model: Any) -> None:
    """grad, vmap, per-sample gradients, jacrev and jvp."""
    x_BT, inner = tokens(ROWS, TIME), weights(model)
    if not inner:
        same(vmap(lambda x_T: model(x_T[None])[0][0])(x_BT), model(x_BT)[0])
        return

    def loss(values: dict[str, Tensor], x_BT: Tensor) -> Tensor:
        return functional_call(model, values, (x_BT,))[0].square().sum()

    one = grad(loss)(inner, x_BT)
    same(tuple(one.values()), torch.autograd.grad(loss(inner, x_BT), list(inner.values())))
    each = vmap(grad(lambda values, x_T: loss(values, x_T[None])), (None, 0))(inner, x_BT)
    alone = [torch.autograd.grad(loss(inner, x_1T), list(inner.values())) for x_1T in x_BT.split(1)]
    same(tuple(each.values()), tuple(torch.stack(parts) for parts in zip(*alone, strict=True)))
    same(vmap(model)(torch.stack([x_BT, x_BT.flip(0)]))[0], torch.stack([model(x_BT)[0], model(x_BT.flip(0))[0]]))

    name, weight = next(iter(inner.items()))

    def logits(value: Tensor) -> Tensor:
        return functional_call(model, {name: value}, (x_BT[:1, :3],))[0]

    columns = torch.autograd.functional.jacobian(logits, weight)
    same(jacrev(logits)(weight.detach()), columns)
    along = torch.linspace(-1, 1, weight.numel(), dtype=weight.dtype).view_as(weight)
    same(jvp(logits, (weight.detach(),), (along,))[1], torch.tensordot(columns, along, weight.dim()))


def jacobian(model: Any) -> None:
    """`torch.autograd.functional.jacobian(vectorize=True)` by the state's largest part."""
    x_BT = tokens(2, 3)
    state = state_after(model, 2)
    if not any(leaf.is_floating_point() for _, leaf in leaves(state)):
        return

    def f(scale: Tensor) -> Tensor:
        scaled = map_state(lambda leaf: leaf * scale[0] if leaf.is_floating_point() else leaf, state)
        return torch.as_tensor(model(x_BT, scaled)[0])

    at = torch.ones(2, dtype=torch.float64)
    plain = torch.autograd.functional.jacobian(f, at)
    same(torch.autograd.functional.jacobian(f, at, vectorize=True), plain)


# torch.export


def agrees(program: Any, model: Any, call: Callable[[int, int], tuple[Any, ...]], run: Callable[..., Any]) -> None:
    """On rows and lengths of all kinds; values, states and gradients."""
    exported = program.module()
    for rows, time_ in ((ROWS, TIME), *OTHERS):
        arguments = call(rows, time_)
        found, expected = exported(*arguments), run(*arguments)
        found = found[0], map_state(_cut, found[1], expected[1])
        same(found, expected)
        if (rows, time_) in OTHERS[:2]:
            same(tuple(gradients(exported, found)), tuple(gradients(model, expected)))


def free(model: Any) -> Any:
    """For `dynamic_shapes`: what may be any number is the rows of a state, and the length of a list that grows."""
    return map_state(
        lambda leaf: {axis: Dim.DYNAMIC for axis, size in enumerate(leaf.shape) if axis == 0 or size == 0},
        model.init_state(1),
    )


def exported_sequence(model: Any) -> None:
    """`forward` from the beginning."""
    program = export(model, (tokens(ROWS, TIME),), dynamic_shapes=({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},))
    agrees(program, model, lambda rows, time_: (tokens(rows, time_),), model)


def exported_continuation(model: Any) -> None:
    """`forward` from a state."""
    state = state_after(model, ROWS)
    spec = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, free(model))
    program = export(model, (tokens(ROWS, TIME), state), dynamic_shapes=spec)
    agrees(program, model, lambda rows, time_: (tokens(rows, time_), state_after(model, rows, time_ + 1)), model)


def exported_ragged(model: Any) -> None:
    """`forward` of rows of different lengths."""

    def call(rows: int, time_: int) -> tuple[Any, ...]:
        return tokens(rows, time_), None, torch.arange(rows) % (time_ + 1)

    spec = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC}, None, {0: Dim.DYNAMIC})
    program = export(model, call(ROWS, TIME), dynamic_shapes=spec)
    agrees(program, model, call, model)


def exported_step(model: Any) -> None:
    """`step` with a state, driven by a loop outside."""
    state = state_after(model, ROWS)
    spec = ({0: Dim.DYNAMIC}, free(model))
    program = export(Step(model), (tokens(ROWS, 1)[:, 0], state), dynamic_shapes=spec)
    agrees(program, model, lambda rows, time_: (tokens(rows, 1)[:, 0], state_after(model, rows, time_ + 1)), model.step)
    run, x_BT = program.module(), tokens(2, 8)
    after = state_after(model, 2)
    expected, _ = model(x_BT, after)
    for t in range(8):
        y_BV, after = run(x_BT[:, t], after)
        same(y_BV, expected[:, t])


# The others


def compiled(model: Any, backend: str = "aot_eager") -> None:
    """`torch.compile(fullgraph=True)`: one graph, no break; `forward` with gradients, and `step`."""
    torch._dynamo.reset()
    run = torch.compile(model, fullgraph=True, backend=backend)
    for rows, time_ in ((ROWS, TIME), *OTHERS[:2]):
        found, expected = run(tokens(rows, time_)), model(tokens(rows, time_))
        same(found, expected)
        same(tuple(gradients(model, found)), tuple(gradients(model, expected)))
    ragged = tokens(ROWS, TIME), None, torch.arange(ROWS)
    same(run(*ragged)[0], model(*ragged)[0])
    state = state_after(model, ROWS)
    token_B = tokens(ROWS, 1)[:, 0]
    same(torch.compile(Step(model), fullgraph=True, backend=backend)(token_B, state), model.step(token_B, state))
    torch._dynamo.reset()


def traced(model: Any) -> str:
    """`torch.jit.trace`: other rows always; other lengths where the whole of time is one op."""
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")  # that sizes become constants, and that TorchScript is deprecated
        run = torch.jit.trace(model, (tokens(ROWS, TIME),), strict=False)
    for rows in (ROWS, 2, 5, 1):
        same(run(tokens(rows, TIME)), model(tokens(rows, TIME)))
    try:
        for time_ in (9, 40):
            same(run(tokens(2, time_)), model(tokens(2, time_)))
    except Exception:
        return "yes, one length"
    return "yes"


def meta(model: Any) -> None:
    """Shapes alone, on the meta device."""
    expected = model(tokens(ROWS, TIME))
    found = model.to("meta")(tokens(ROWS, TIME).to("meta"))
    assert [part.shape for part in flat(found)] == [part.shape for part in flat(expected)]


def fake(model: Any) -> None:
    """Shapes alone, in FakeTensorMode, where it is built too."""
    expected = model(tokens(ROWS, TIME))
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = build(model.listed, vocab=VOCAB, **sizes(model.listed))(torch.zeros(ROWS, TIME, dtype=torch.int64))
    assert [part.shape for part in flat(found)] == [part.shape for part in flat(expected)]


TOOLS: dict[str, Callable[[Any], str | None]] = {
    "func": transforms,
    "jacobian": jacobian,
    "export": exported_sequence,
    "export state": exported_continuation,
    "export ragged": exported_ragged,
    "export step": exported_step,
    "compile": compiled,
    "jit.trace": traced,
    "meta": meta,
    "fake": fake,
}


def cell(name: str, tool: str) -> str:
    try:
        return TOOLS[tool](made(name)) or "yes"
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()] or [""]
        return f"{type(error).__name__}: {re.sub(r' +', ' ', lines[0])}"


# How fast torch.compile is


def in_turns(plain: Callable[[], object], compiled: Callable[[], object]) -> tuple[float, float]:
    """The median milliseconds of each."""
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for call, times in zip((plain, compiled), taken):
            begin = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - begin))
    return median(taken[0]), median(taken[1])


def ratios(name: str) -> dict[str, float]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = build(name, vocab=VOCAB, **({} if name == "markov" else {"width": 64, "depth": 2}))
    if name == "markov":
        model.count(tokens(1, 300)[0].numpy())
    x_BT, token_B = tokens(16, 33), tokens(1, 1)[:, 0]
    state = state_after(model, 1)

    def learn(machine: Callable[[Tensor], Any]) -> None:
        loss = F.cross_entropy(machine(x_BT[:, :-1])[0].flatten(0, 1), x_BT[:, 1:].flatten())
        if loss.requires_grad:
            loss.backward()

    def decode(machine: Callable[[Tensor, Any], Any]) -> None:
        with torch.no_grad():
            machine(token_B, state)

    whole, one = torch.compile(model, fullgraph=True), torch.compile(Step(model), fullgraph=True)
    begin = time.perf_counter()
    learn(whole)
    decode(one)
    seconds = time.perf_counter() - begin
    found = {"compiles_s": seconds}
    for what, (plain, compiled) in {
        "training": in_turns(lambda: learn(model), lambda: learn(whole)),
        "step": in_turns(lambda: decode(model.step), lambda: decode(one)),
    }.items():
        found |= {f"{what}_ms": plain, f"{what}_compiled_ms": compiled, f"{what}_ratio": plain / compiled}
    return found


def print_ratios(names: list[str], json: Path | None) -> None:
    table = Table(
        "model", "training", "compiled", "ratio", "step", "compiled", "ratio", "compiles", title="ms, medians"
    )
    rows = []
    for name in names:
        found = ratios(name)
        rows.append({"model": name, **found})
        figures = [f"{found[f'{what}_{column}']:.2f}" for what in ("training", "step") for column in COLUMNS]
        table.add_row(name, *figures, f"{found['compiles_s']:.0f} s")
    console().print(table)
    write(json, rows, rounds=ROUNDS)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--models", nargs="+", default=[entry.name for entry in LINEAGE], metavar="NAME")
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), choices=list(TOOLS), metavar="TOOL")
    parser.add_argument("--ratio", action="store_true", help="measure torch.compile instead")
    asked = parser.parse_args()
    if asked.ratio:
        return print_ratios(asked.models, asked.json)
    table = Table(title=f"PyTorch {torch.__version__}")
    for heading in ("model", *asked.tools):
        table.add_column(heading)
    rows = []
    for name in asked.models:
        cells = {}
        for tool in asked.tools:
            begin = time.perf_counter()
            cells[tool] = cell(name, tool)
            print(name, tool, cells[tool], round(time.perf_counter() - begin, 1), flush=True)
        table.add_row(name, *cells.values())
        rows.append({"model": name, **cells})
    console().print(table)
    write(asked.json, rows)


if __name__ == "__main__":
    main()
