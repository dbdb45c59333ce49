"""Time as an input: the hour, the day, the month, and t itself, each brought to about one unit.

Given t, a model can follow dynamics that change with t. Where that helps, they are not stationary.

T time.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statewise.data.series import Series
from statewise.specs import UserError, nearest


def _within(time_T: NDArray[Any], whole: str, part: str) -> NDArray[np.float64]:
    """How many `part`s of its `whole` have passed at each time."""
    passed_T: NDArray[Any] = time_T.astype(f"datetime64[{part}]") - time_T.astype(f"datetime64[{whole}]")
    return passed_T.astype(np.float64)


# From -1/2 to 1/2 over the range that the calendar allows.
_CALENDAR: dict[str, Callable[[NDArray[Any]], NDArray[np.float64]]] = {
    "minute": lambda time_T: _within(time_T, "h", "m") / 59 - 0.5,
    "hour": lambda time_T: _within(time_T, "D", "h") / 23 - 0.5,
    # The first day of the epoch was a Thursday; Monday is 0.
    "weekday": lambda time_T: (time_T.astype("datetime64[D]").astype(np.int64) + 3) % 7 / 6 - 0.5,
    "day": lambda time_T: _within(time_T, "M", "D") / 30 - 0.5,
    "month": lambda time_T: _within(time_T, "Y", "M") / 11 - 0.5,
}
TIME_FEATURES = ("t", *_CALENDAR)


def with_time_features(series: Series, features: Sequence[str], *, until: int | None = None) -> Series:
    """The same series with `features` as further covariates.

    `t` is 0 at the first row and 1 at row `until` (default: the last), which should be the end of what is
    trained on: then its scale says nothing of what comes later, and later it is larger than 1.
    """
    added = []
    for name in features:
        if name not in TIME_FEATURES:
            raise UserError(f"there is no time feature {name!r}", fix=nearest(name, TIME_FEATURES))
        if name in series.covariates:
            raise UserError(f"{series.where or series.id!r} already has a covariate called {name!r}")
        if name == "t":
            added.append(np.arange(len(series)) / max(1, (len(series) - 1) if until is None else until))
        elif series.time_T.dtype.kind != "M":
            raise UserError(
                f"{series.where or series.id!r} has no calendar, so no {name!r}: its times are numbers",
                fix="use t, or a time column with dates",
            )
        else:
            added.append(_CALENDAR[name](series.time_T))
    covariates_TX = np.column_stack([series.covariates_TX, *added])
    return replace(series, covariates_TX=covariates_TX, covariates=(*series.covariates, *features))
