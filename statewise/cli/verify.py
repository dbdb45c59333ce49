"""`statewise verify`: do all implementations of a model compute the same?"""

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from statewise.cli.option import Json, MixerOption, option
from statewise.cli.output import print_json, tell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from statewise.tasks import Finding

_DTYPE = 10  # letters of the first column


def verify(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL|RUN|FILE.py", help="A model, a trained folder, or the file of your own mixer class."
        ),
    ] = None,
    mixer: MixerOption = None,
    set_: Annotated[
        list[str] | None, option("--set -s PATH=VALUE", "A setting of your own class: model.options.NAME=…")
    ] = None,
    all_: Annotated[bool, option("--all", "Every listed model, in every variant.")] = False,
    device: Annotated[str, option("--device DEVICE", "Where to compute: cpu, cuda, cuda:1.")] = "cpu",
    json_: Json = False,
) -> int:
    """Test that the parallel, chunked, stepped, padded and saved forms agree: values and gradients, per dtype.

    What reads whole inputs (bidirectional, grid, tree, Transformer encoder) has laws of its own.

    Example: statewise verify lstm
    Example: statewise verify tree
    Example: statewise verify my_mixer.py --set model.options.decay=0.5
    """
    from statewise.specs import UserError
    from statewise.tasks import count_forms
    from statewise.tasks import verify as findings_of

    if target is None and not all_:
        raise UserError("nothing to verify", fix="name a model (lstm) or a run folder, or use --all")
    if target is not None and all_:
        raise UserError(f"--all and {target!r} exclude each other", fix="leave one of them out")
    unfinished = findings_of(target, device=device, mixer=mixer, settings=set_ or ())
    findings = list(_followed(unfinished, models=count_forms() if all_ else None))
    failed = [finding for finding in findings if not finding.passed]
    if json_:
        print_json([finding._asdict() for finding in findings])
        return 1 if failed else 0

    from statewise.display import make_console

    console = make_console()
    say = partial(console.print, highlight=False, soft_wrap=True)
    say("Largest error over outputs, final state and gradients, relative; ! marks what is beyond the dtype's bound")
    for line in _lines(findings):
        say(line)
    say(
        f"{len(findings) - len(failed)} of {len(findings)} checks passed"
        + ("" if not failed else f"; broken: {', '.join(sorted({f.law for f in failed}))}"),
    )
    for message in dict.fromkeys(f"{f.model}, {f.law}: {f.raised}" for f in failed if f.raised):
        console.say(message)
    return 1 if failed else 0


def _followed(findings: "Iterator[Finding]", *, models: int | None) -> "Iterator[Finding]":
    """The findings; where `models` says how many there are, also a line on standard error after each."""
    for number, (model, of_model) in enumerate(groupby(findings, key=lambda finding: finding.model), 1):
        checked = list(of_model)
        yield from checked
        if models is not None:
            broken = [f"{finding.law} ({finding.dtype})" for finding in checked if not finding.passed]
            verdict = f"BROKEN: {', '.join(broken)}" if broken else f"{len(checked)} checks passed"
            tell(f"{number:{len(str(models))}} of {models}  {model}: {verdict}", error=True, flush=True)


def _lines(findings: "Sequence[Finding]") -> "Iterator[str]":
    """A line for each model, and below it one for each dtype; headings again where other laws follow."""
    from rich.markup import escape

    laws: list[str] = []
    for model, grouped in groupby(findings, key=lambda finding: finding.model):
        of_model = list(grouped)
        if not {finding.law for finding in of_model} <= set(laws):
            laws = list(dict.fromkeys(finding.law for finding in of_model))
            yield ""
            yield f"{'':{_DTYPE}}" + "".join(f"{law:>{_width(law)}}" for law in laws)
        yield f"[bold]{escape(model)}[/]"
        for dtype in dict.fromkeys(finding.dtype for finding in of_model):
            by_law = {finding.law: finding for finding in of_model if finding.dtype == dtype}
            yield f"  {dtype:{_DTYPE - 2}}" + "".join(_cell(by_law.get(law), _width(law)) for law in laws).rstrip()
    yield ""


def _width(law: str) -> int:
    return max(len(law), len("1e-16!")) + 1


def _cell(finding: "Finding | None", width: int) -> str:
    if finding is None:
        return " " * width
    text = f"{finding.error:.0e}{'' if finding.passed else '!'}"
    return " " * (width - len(text)) + (f"[green]{text}[/]" if finding.passed else f"[bold red]{text}[/]")
