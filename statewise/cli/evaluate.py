"""`statewise evaluate`: how good is a trained model, beside what is trivial?"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from statewise.cli.output import print_json
from statewise.cli.run_argument import MixerOption, open_run

if TYPE_CHECKING:
    from statewise.tasks.report import Evaluation, Report

_SIDE_BY_SIDE = 5  # figures that fit beside each other on a narrow terminal


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A trained folder.")],
    text: Annotated[
        list[str] | None,
        typer.Option("--text", "--data", "-t", help="File or folder. Default: what training held out."),
    ] = None,
    mixer: MixerOption = None,
    json_: Annotated[bool, typer.Option("--json", help="The result for machines.")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="PATH=VALUE", help="A setting of the search, e.g. decoding.beam=10."),
    ] = None,
    exposure: Annotated[
        bool, typer.Option("--exposure", help="What it costs the model to read its own output, along the position.")
    ] = False,
    folds: Annotated[
        int | None,
        typer.Option("--folds", min=1, help="Of forecasts: the rolling origin in so many stretches of time."),
    ] = None,
    stationarity: Annotated[
        bool,
        typer.Option("--stationarity", help="Of forecasts: does the law behind the series change with time?"),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Of forecasts: draw one (.svg, .png, .pdf), or its numbers (.csv).")
    ] = None,
    plot_error: Annotated[
        Path | None, typer.Option("--plot-error", help="Of forecasts: the error against the steps ahead, likewise.")
    ] = None,
) -> None:
    """The figures of the run's task, beside what trivial predictors reach on the same data.

    Example: statewise evaluate runs/lstm --text other.txt
    Example: statewise evaluate runs/lstm --exposure
    Example: statewise evaluate runs/forecasting --folds 5 --plot forecast.svg
    """
    from statewise.specs import UserError
    from statewise.tasks.forecasting import ForecastingRun
    from statewise.tasks.run import SelfReadingRun

    opened = open_run(run, set_ or (), mixer=mixer)
    read = ", ".join(text) if text else "what training held out"
    files = [Path(name) for name in text] if text else None

    def forecaster() -> ForecastingRun:
        if not isinstance(opened, ForecastingRun):
            raise UserError(
                f"a {opened.spec.task} run has no forecasts",
                fix="leave out --folds, --stationarity, --plot and --plot-error",
            )
        return opened

    if exposure:
        from statewise.tasks.exposure import exposure_figures, exposure_report

        if not isinstance(opened, SelfReadingRun):
            raise UserError(
                f"a {opened.spec.task} run never reads its own output, so it has no exposure gap",
                fix="language models, translations and recursive forecasts have one",
            )
        gap, unit = opened.exposure_gap(files), opened.spec.loss_name
        if json_:
            print_json(exposure_figures(gap, unit=unit))
        else:
            report = exposure_report(gap, unit=unit)
            _print(report, title=f"{run} on {read}: reading itself", first="position")
        return
    if stationarity:
        if text or folds or plot or plot_error:
            raise UserError(
                "--stationarity trains small models of its own on the run's series", fix="leave the other options out"
            )
        tested = forecaster().stationarity()
        if json_:
            print_json(tested._asdict())
        else:
            _print(tested.report("its series"), title=f"{run}: does time itself matter?", first="small models")
        return
    if text and (folds or plot or plot_error):
        raise UserError("--folds, --plot and --plot-error look at what training held out", fix="leave out --data")
    if plot is not None:
        forecaster().plot(plot)
    if plot_error is not None:
        forecaster().plot(plot_error, what="error")
    results: Sequence[Evaluation] = [opened.evaluate(files)] if folds is None else forecaster().backtest(folds=folds)
    if json_:
        found = [result._asdict() for result in results]
        print_json(found[0] if folds is None else found)
        return
    for number, result in enumerate(results, start=1):
        part = read if folds is None else f"{read}: stretch {number} of {folds}"
        _print(result.report(opened.spec.name), title=f"{run} on {part}", first="predictor")


def _print(report: "Report", *, title: str, first: str) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    table = Table(title=escape(title), title_justify="left")
    table.add_column(first)
    for column in report.columns:
        table.add_column(column, justify="right")
    for number, row in enumerate(report.rows):
        table.add_row(*(escape(cell) for cell in row), style="bold" if number == report.own else None)
    console.print(table)
    console.print(report.note, highlight=False, markup=False)
    for more in report.more:
        table = Table(title=escape(more.title), title_justify="left")
        for number, column in enumerate(more.columns):
            table.add_column(column, justify="right" if number else "left")
        for row in more.rows:
            table.add_row(*(escape(cell) for cell in row))
        console.print(table)
