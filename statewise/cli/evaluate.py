"""`statewise evaluate`: the metrics of a trained model, beside trivial baselines."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from statewise.cli.option import DecodingSettings, Device, Json, MixerOption, RunFolder, Text, joined, open_run, option
from statewise.cli.output import print_json, print_report, tell

if TYPE_CHECKING:
    from statewise.tasks import Evaluation, Run


def evaluate(
    run: RunFolder,
    data: Annotated[
        list[str] | None, option("--data -d FILE", "File or folder. Default: the held-out part of the data.")
    ] = None,
    text: Text = None,
    mixer: MixerOption = None,
    device: Device = None,
    json_: Json = False,
    set_: DecodingSettings = None,
    reference: Annotated[
        list[str] | None,
        option("--reference FILE", "Translations: a file with one more reference a line. Can be repeated."),
    ] = None,
    exposure: Annotated[
        bool, option("--exposure", "Loss by position when the model reads its own output (exposure bias).")
    ] = False,
    folds: Annotated[int | None, option("--folds N", "Forecasts: backtest over N consecutive periods.", min=1)] = None,
    stationarity: Annotated[
        bool, option("--stationarity", "Test whether the series or the text is stationary.")
    ] = False,
    tasks: Annotated[
        list[str] | None, option("--tasks NAME", "Language models: a task of lm_eval. Can be repeated.")
    ] = None,
    task_folder: Annotated[Path | None, option("--task-folder DIR", "Task files of your own for --tasks.")] = None,
    plot: Annotated[
        Path | None, option("--plot FILE", "Forecasts: plot one (.svg, .png, .pdf), or its numbers (.csv).")
    ] = None,
    plot_error: Annotated[Path | None, option("--plot-error FILE", "Forecasts: plot the error by steps ahead.")] = None,
) -> None:
    """Compute the metrics of the run's task, beside those of trivial baselines on the same data.

    Example: statewise evaluate runs/lstm --data other.txt
    Example: statewise evaluate runs/lstm --exposure
    Example: statewise evaluate runs/translation --data test.de --data test.en --reference more.en
    Example: statewise evaluate runs/forecasting --folds 5 --plot forecast.svg
    """
    from statewise.specs import UserError
    from statewise.tasks import OrderedRun, SelfReadingRun
    from statewise.tasks.forecasting import ForecastingRun
    from statewise.tasks.translation import TranslationRun

    data = joined(data, text)
    opened = open_run(run, set_ or (), device=device, mixer=mixer)
    if tasks:
        _harness(opened, tasks, task_folder, json_=json_)
        return
    read = ", ".join(data) if data else "the held-out part"
    files = [Path(name) for name in data] if data else None

    def forecaster() -> ForecastingRun:
        return opened.able(ForecastingRun, lacks="has no forecasts", fix="leave out --folds, --plot and --plot-error")

    if exposure:
        from statewise.tasks import exposure_figures, exposure_report

        reader = opened.able(
            SelfReadingRun,
            lacks="never reads its own output, so it has no exposure gap",
            fix="language models, translations and recursive forecasts have one",
        )
        gap, unit = reader.exposure_gap(files), opened.spec.loss_name
        if json_:
            print_json(exposure_figures(gap, unit=unit))
        else:
            report = exposure_report(gap, unit=unit)
            print_report(report, title=f"{run} on {read}: reading its own output", first="position")
        return
    if stationarity:
        if folds or plot or plot_error:
            raise UserError("--stationarity prints its own table", fix="leave the other options out")
        ordered = opened.able(
            OrderedRun,
            lacks="has rows with no order in time, so there is nothing to test",
            fix="leave out --stationarity; series and texts of language models can be tested",
        )
        tested = ordered.stationarity(files)
        if json_:
            print_json(tested.as_dict())
        else:
            words = tested.words
            print_report(tested.report(words.subject), title=f"{run}: {words.question}", first=words.rows)
        return
    if data and (folds or plot or plot_error):
        raise UserError("--folds, --plot and --plot-error use the held-out part of the data", fix="leave out --data")
    if plot is not None:
        forecaster().plot(plot)
    if plot_error is not None:
        forecaster().plot(plot_error, what="error")
    results: Sequence[Evaluation]
    if reference:
        translator = opened.able(TranslationRun, lacks="has no references", fix="leave out --reference")
        results = [translator.evaluate(files, references=reference)]
    else:
        results = [opened.evaluate(files)] if folds is None else forecaster().backtest(folds=folds)
    if json_:
        metrics = [result._asdict() for result in results]
        print_json(metrics[0] if folds is None else metrics)
        return
    for number, result in enumerate(results, start=1):
        part = read if folds is None else f"{read}: period {number} of {folds}"
        print_report(result.report(opened.spec.name), title=f"{run} on {part}", first="predictor")


def _harness(run: "Run", tasks: list[str], folder: Path | None, *, json_: bool) -> None:
    """The metrics of lm_eval, as it names them."""
    from statewise.interop import lm_eval

    by_task = lm_eval.evaluate_tasks(run, tasks, folder=folder)
    if json_:
        print_json(by_task)
        return
    for name, metrics in by_task.items():
        for metric, value in metrics.items():
            if isinstance(value, float) and "stderr" not in metric:
                tell(f"{name}: {metric.partition(',')[0]} {value:.4f}")
