"""`statewise verify`: do all implementations of a model compute the same?"""

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from statewise.cli.option import Json, MixerOption
from statewise.cli.output import make_table, print_json, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from statewise.tasks import Finding


def verify(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL|RUN|FILE.py", help="A model, a trained folder, or the file of your own mixer class."
        ),
    ] = None,
    mixer: MixerOption = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="PATH=VALUE", help="A setting of your own class: model.options.NAME=…"),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every listed model, in every variant.")] = False,
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="Where to compute: cpu, cuda, cuda:1.")
    ] = "cpu",
    json_: Json = False,
) -> int:
    """Test that the parallel, chunked, stepped, padded and saved forms agree: values and gradients, per dtype.

    Example: statewise verify lstm
    Example: statewise verify my_mixer.py --set model.options.decay=0.5
    """
    from statewise.specs import UserError
    from statewise.tasks import verify as findings_of

    if target is None and not all_:
        raise UserError("nothing to verify", fix="name a model (lstm) or a run folder, or use --all")
    if target is not None and all_:
        raise UserError(f"--all and {target!r} exclude each other", fix="leave one of them out")
    findings = list(_followed(findings_of(target, device=device, mixer=mixer, settings=set_ or ()), progress=all_))
    failed = [finding for finding in findings if not finding.passed]
    if json_:
        print_json([finding._asdict() for finding in findings])
        return 1 if failed else 0

    from rich.markup import escape

    from statewise.display import make_console

    table = make_table(
        title="Largest error over outputs, final state and gradients",
        title_justify="left",
        caption="relative; ! marks what is beyond the dtype's bound",
        caption_justify="left",
        padding=0,
    )
    laws = list(dict.fromkeys(finding.law for finding in findings))
    table.add_column("model", overflow="fold")
    table.add_column("dtype", no_wrap=True)
    for law in laws:
        table.add_column(law, justify="right", no_wrap=True)
    named = ""
    for model, dtype in dict.fromkeys((finding.model, finding.dtype) for finding in findings):
        by_law = {f.law: f for f in findings if (f.model, f.dtype) == (model, dtype)}
        table.add_row(escape(model) if model != named else "", dtype, *(_cell(by_law.get(law)) for law in laws))
        named = model
    console = make_console()
    console.print(table)
    console.print(
        f"{len(findings) - len(failed)} of {len(findings)} checks passed"
        + ("" if not failed else f"; broken: {', '.join(sorted({f.law for f in failed}))}"),
        highlight=False,
    )
    for message in dict.fromkeys(f"{f.model}, {f.law}: {f.raised}" for f in failed if f.raised):
        console.print(message, highlight=False, markup=False, soft_wrap=True)
    return 1 if failed else 0


def _followed(findings: "Iterator[Finding]", *, progress: bool) -> "Iterator[Finding]":
    """The findings; with `progress`, also a line on standard error after each model."""
    for number, (model, of_model) in enumerate(groupby(findings, key=lambda finding: finding.model), 1):
        checked = list(of_model)
        yield from checked
        if progress:
            broken = [f"{finding.law} ({finding.dtype})" for finding in checked if not finding.passed]
            verdict = f"BROKEN: {', '.join(broken)}" if broken else f"{len(checked)} checks passed"
            tell(f"{number:3}  {model}: {verdict}", error=True)


def _cell(finding: "Finding | None") -> str:
    if finding is None:
        return ""
    return f"[green]{finding.error:.0e}[/]" if finding.passed else f"[bold red]{finding.error:.0e}![/]"
