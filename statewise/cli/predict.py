"""`statewise predict`: predictions for every row of a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from statewise.cli.option import DecodingSettings, Device, MixerOption, RunFolder, open_run, option
from statewise.cli.output import put


def predict(
    run: RunFolder,
    file: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Rows to predict, in the format of the training data.")
    ],
    out: Annotated[Path | None, option("--out -o FILE", "A file to write. Default: standard output.")] = None,
    device: Device = None,
    json_: Annotated[bool, option("--json", "One JSON object per row, with probabilities and line numbers.")] = False,
    fill: Annotated[bool, option("--fill", "Series: fill the missing values inside, instead of forecasting.")] = False,
    set_: DecodingSettings = None,
    mixer: MixerOption = None,
) -> None:
    """Predict classes, tags, translations, tree labels or forecasts, one for each row, in the order of the input.

    Example: statewise predict runs/classification reviews.tsv --json
    """
    import json

    from statewise.disk import replacing
    from statewise.specs import UserError
    from statewise.tasks import PredictingRun
    from statewise.tasks.forecasting import ForecastingRun

    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise UserError(f"--out {str(out)!r} cannot be written", fix="name a file in a folder that exists")
    opened = open_run(run, set_ or (), device=device, mixer=mixer)
    lines: Iterator[str]
    files = [Path(name) for name in file]
    if fill:
        series = opened.able(ForecastingRun, lacks="has no missing values to fill in", fix="leave out --fill")
        rows = series.interpolate(files)
        names = ("series", "time", "channel", "mean")
        lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows) if json_ else _table(rows, names)
    else:
        labels = opened.able(PredictingRun, lacks="does not predict rows", fix="it can evaluate and generate")
        if json_:
            lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in labels.predict_rows(files))
        else:
            lines = labels.predict_lines(files)
    if out is None:
        for line in lines:
            put(line)
        return
    with replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        for line in lines:
            stream.write(f"{line}\n")


def _table(rows: Iterator[dict[str, Any]], names: tuple[str, ...]) -> Iterator[str]:
    """Some columns of the rows as CSV."""
    from statewise.figures import csv_text

    yield ",".join(names)
    for row in rows:
        yield csv_text([[row[name] for name in names]]).removesuffix("\r\n")
