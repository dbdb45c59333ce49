"""`statewise bench`: the benchmarks, and which kernels run on this machine, and why."""

import ast
import subprocess
import sys
from typing import Annotated, Any

import typer

from statewise.cli.option import Json, option
from statewise.cli.output import make_table, print_json, tell


def bench(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="BENCHMARK", help="Default: list them.")] = None,
    explain: Annotated[
        bool, option("--explain", "Which kernel of each op a model uses on this machine, and why.")
    ] = False,
    model: Annotated[list[str] | None, option("--model NAME", "--explain: only this model. Can be repeated.")] = None,
    width: Annotated[int, option("--width N", "--explain: units per layer.", min=1)] = 256,
    batch: Annotated[int, option("--batch N", "--explain: rows.", min=1)] = 16,
    time: Annotated[int, option("--time N", "--explain: tokens per row.", min=1)] = 64,
    json_: Json = False,
) -> int:
    """Run the benchmarks behind the documentation's speed claims: both sides in one run, checked, interleaved, medians.

    Options after the benchmark's name are its own; --help there lists them.

    Example: statewise bench tree --leaves 16
    """
    from statewise.specs import UserError, nearest, shipped_folder

    if explain:
        if name is not None:
            raise UserError(f"--explain runs no benchmark, but {name!r} was given", fix="leave one of them out")
        return _explain(tuple(model or ()), width=width, batch=batch, time=time, json_=json_)
    known = _benchmarks()
    _refuse_early(context, name)
    if name is None:
        _list(known, json_=json_)
        return 0
    if name not in known:
        raise UserError(f"{name!r} is not a benchmark", fix=nearest(name, known))
    return subprocess.call([sys.executable, str(shipped_folder("benchmarks") / f"{name}.py"), *context.args])


def _refuse_early(context: typer.Context, name: str | None) -> None:
    """Refuse options before the benchmark's name that only --explain has."""
    from statewise.specs import UserError

    for parameter in ("model", "width", "batch", "time", *(("json_",) if name else ())):
        source = context.get_parameter_source(parameter)
        if source is not None and source.name == "COMMANDLINE":
            flag = f"--{parameter.rstrip('_')}"
            fix = f"options of a benchmark follow its name: statewise bench {name} {flag} ..."
            raise UserError(f"{flag} does not apply here", fix=fix if name else "use it with --explain")


def _benchmarks() -> dict[str, str]:
    """Name and first docstring line of each benchmark."""
    from statewise.specs import shipped_folder

    sentences = {}
    for path in sorted(shipped_folder("benchmarks").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        if "__main__" in source:
            sentences[path.stem] = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
    return sentences


def _list(known: dict[str, str], *, json_: bool) -> None:
    if json_:
        print_json([{"name": name, "measures": sentence} for name, sentence in known.items()])
        return
    _print(["benchmark", "what it measures"], [[name, sentence] for name, sentence in known.items()])
    tell("run one: statewise bench tree; its options: statewise bench tree --help")


def _explain(names: tuple[str, ...], *, width: int, batch: int, time: int, json_: bool) -> int:
    import torch

    from statewise.models import explain

    cuda = torch.cuda.is_available()
    device, dtype = (torch.device("cuda"), torch.bfloat16) if cuda else (torch.device("cpu"), torch.float32)
    choices = explain(names, width=width, batch=batch, time=time, device=device, dtype=dtype)
    shape: dict[str, Any] = {"device": str(device), "dtype": str(dtype).removeprefix("torch.")}
    shape |= {"width": width, "batch": batch, "time": time}
    if json_:
        print_json({**shape, "choices": [choice._asdict() for choice in choices]})
        return 0
    tell(f"{device}, {shape['dtype']}, width {width}, {batch} rows of {time} tokens, one training step each:")
    _print(
        ["model", "op", "runs as", "because"],
        [[choice.model, choice.op, choice.implementation or "refused", choice.reason] for choice in choices],
    )
    tell("to force one: --set model.kernel=naive, or STATEWISE_KERNEL=naive")
    return 0


def _print(titles: list[str], rows: list[list[str]]) -> None:
    from rich.markup import escape

    from statewise.display import make_console

    table = make_table(*titles)
    for row in rows:
        table.add_row(*map(escape, row))
    make_console().print(table)
