"""Every figure of a forecasting run, of several series, channels and holes at once, against utilsforecast.

T time, H steps ahead, C channels, Q levels.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from utilsforecast import losses

from statewise.data.series import make_series
from statewise.data.split import split_rows
from statewise.specs import ForecastingSpec
from statewise.tasks.forecasting.ahead import go_on
from statewise.tasks.forecasting.evaluation import evaluate_windows
from statewise.tasks.forecasting.examples import as_read
from statewise.tasks.forecasting.job import build_of
from statewise.tasks.forecasting.known import Known, learn

CONTEXT, HORIZON, PERIOD = 8, 4, 3
LEVELS = (0.1, 0.5, 0.9)
SIZES = {"small": (0.01, 60), "large": (1000.0, 80), "middling": (7.0, 45)}
DEVICE = torch.device("cpu")


def made(*, scaling: str, channels: str) -> tuple[ForecastingSpec, Any, Known]:
    random = np.random.default_rng(0)
    series = []
    for name, (size, rows) in SIZES.items():
        values_TC = size * (5 + random.standard_normal((rows, 2)).cumsum(0) * [1, 30])
        values_TC[random.random(values_TC.shape) < 0.1] = np.nan
        series.append(make_series(values_TC, id=name))
    spec = ForecastingSpec.model_validate(
        {
            "data": {"scaling": scaling, "channels": channels, "period": PERIOD},
            "forecast": {"context": CONTEXT, "horizon": HORIZON, "stride": 3},
            "model": {"kind": "elman", "width": 4},
            "objective": {"kind": "quantile", "levels": LEVELS},
        }
    )
    parts = split_rows(series, "0.6/0.1/0.3")
    return spec, parts, learn(spec, parts)


def tables(spec: ForecastingSpec, parts: Any, known: Known, model: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row for every value that is forecast, in the data's own units, and one for every value that was learnt from."""
    ahead, train = [], []
    for span, learnt in zip(parts.test, parts.train, strict=True):
        series = span.series
        for channel in range(2):
            name = f"{series.id} {channel}"
            for t in range(learnt.begin, learnt.end):
                train.append({"unique_id": name, "ds": t, "y": series.values_TC[t, channel]})
        for origin in range(span.begin, span.end - HORIZON + 1, spec.forecast.stride):
            found = go_on(model, spec, known, series, origin=origin, horizon=HORIZON, levels=LEVELS, device=DEVICE)
            before = series.values_TC[origin - CONTEXT : origin]
            for channel in range(2):
                seen = before[~np.isnan(before[:, channel]), channel]
                for k in range(HORIZON):
                    quantiles = dict(zip(("low", "middle", "high"), found.quantile_HCQ[k, channel], strict=True))
                    ahead.append(
                        {
                            "unique_id": f"{series.id} {channel}",
                            "cutoff": origin - 1,
                            "y": series.values_TC[origin + k, channel],
                            "model": found.mean_HC[k, channel],
                            "repeat last": seen[-1],
                            **quantiles,
                        }
                    )
    return pd.DataFrame(ahead), pd.DataFrame(train)


def mean_of(loss: Callable[..., pd.DataFrame], table: pd.DataFrame, *columns: Any, **options: Any) -> list[float]:
    """Over all values that are known: they give a mean a series and origin."""
    per = loss(table, *columns, **options).set_index(["unique_id", "cutoff"])
    known = table.dropna(subset="y").groupby(["unique_id", "cutoff"]).size()
    return [float((per[name] * known).sum() / known[per[name].notna()].sum()) for name in per.columns]


def scaled(table: pd.DataFrame, train: pd.DataFrame, *, scaling: str) -> pd.DataFrame:
    """In deviations of the training part: of each series, or of a channel of all."""
    if scaling == "none":
        return table
    by = (lambda name: name) if scaling == "standard" else (lambda name: name[-1])
    scale = train.groupby(train["unique_id"].map(by))["y"].agg([np.nanmean, lambda y: np.nanstd(y, ddof=0)])
    mean, std = (table["unique_id"].map(by).map(scale.iloc[:, column]) for column in (0, 1))
    values = [name for name in table.columns if name not in ("unique_id", "cutoff")]
    return table.assign(**{name: (table[name] - mean) / std for name in values})


@pytest.mark.parametrize("channels", ["joint", "shared"])
@pytest.mark.parametrize("scaling", ["standard", "pooled", "none"])
def test_every_metric_is_that_of_utilsforecast(scaling: str, channels: str) -> None:
    spec, parts, known = made(scaling=scaling, channels=channels)
    model = build_of(spec, known).eval()
    read = parts.mapped(lambda series: as_read(series, spec.data, known))
    found = evaluate_windows(model, spec, known, spans=read.test, part="test part", device=DEVICE)
    own, train = tables(spec, parts, known, model)
    assert own["y"].isna().any(), "no hole was tried"
    both = ["model", "repeat last"]
    expected = {
        "mse_original": mean_of(losses.mse, own, both),
        "mae_original": mean_of(losses.mae, own, both),
        "smape": [200 * one for one in mean_of(losses.smape, own, both)],
        "mase": mean_of(losses.mase, own, both, seasonality=PERIOD, train_df=train),
    }
    in_deviations = scaled(own, train, scaling=scaling)
    expected |= {"mse": mean_of(losses.mse, in_deviations, both), "mae": mean_of(losses.mae, in_deviations, both)}
    for name, (of_model, of_last) in expected.items():
        assert getattr(found, name) == pytest.approx(of_model, rel=1e-5), name  # the model reads 32 bits
        assert found.baselines["repeat last"][name] == pytest.approx(of_last, rel=1e-12), name
    names = ("low", "middle", "high")
    pinball = [mean_of(losses.quantile_loss, in_deviations, {name: name}, q=q)[0] for name, q in zip(names, LEVELS)]
    assert found.pinball == pytest.approx(np.mean(pinball), rel=1e-5)
    assert found.crps == pytest.approx(2 * np.mean(pinball), rel=1e-5)
    ends = in_deviations.rename(columns={"low": "model-lo-80", "high": "model-hi-80"}).dropna(subset="y")
    inside = mean_of(losses.coverage, ends, ["model"], level=80)
    assert found.coverage["80%"]["share"] == pytest.approx(inside[0], rel=1e-12)
