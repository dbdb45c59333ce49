"""`statewise evaluate`: how good is a trained model, beside what is trivial?"""

from pathlib import Path
from typing import Annotated

import typer

from statewise.cli.output import print_json
from statewise.cli.run_argument import open_run

_SIDE_BY_SIDE = 5  # figures that fit beside each other on a narrow terminal


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A trained folder.")],
    text: Annotated[
        list[str] | None,
        typer.Option("--text", "--data", "-t", help="File or folder. Default: what training held out."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="The result for machines.")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="PATH=VALUE", help="A setting of the search, e.g. decoding.beam=10."),
    ] = None,
) -> None:
    """The figures of the run's task, beside what trivial predictors reach on the same data.

    Example: statewise evaluate runs/lstm --text other.txt
    """
    opened = open_run(run).with_settings(set_ or ())
    result = opened.evaluate(text)
    if json_:
        print_json(result._asdict())
        return

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    read = ", ".join(text) if text else "what training held out"
    report = result.report(opened.spec.name)
    table = Table(title=escape(f"{run} on {read}"), title_justify="left")
    if len(report.columns) <= _SIDE_BY_SIDE:
        table.add_column("predictor")
        for column in report.columns:
            table.add_column(column, justify="right")
        for number, row in enumerate(report.rows):
            table.add_row(*(escape(cell) for cell in row), style="bold" if number == report.own else None)
    else:  # many figures read better one below the other
        table.add_column("")
        for number, row in enumerate(report.rows):
            table.add_column(
                escape(row[0]), justify="right", overflow="fold", style="bold" if number == report.own else None
            )
        for place, column in enumerate(report.columns, start=1):
            table.add_row(column, *(escape(row[place]) for row in report.rows))
    console = Console()
    console.print(table)
    console.print(report.note, highlight=False, markup=False)
