"""A series as somebody types it: the values of a moment, then those of the next."""

import re
from collections.abc import Sequence

import numpy as np

from statewise.data import Series, make_series
from statewise.specs import UserError, option

_BETWEEN = re.compile(r"[\s,;]+")


def series_of(prompt: str, channels: Sequence[str]) -> Series:
    """Numbers with blanks or commas between; of several channels all those of a moment stand together."""
    values = []
    for word in filter(None, _BETWEEN.split(prompt)):
        try:
            values.append(float(word))
        except ValueError:
            raise UserError(
                f"the prompt has {word!r}, which is not a number",
                fix=f"give values: {option('prompt', '20.1 21.5 22')}",
            ) from None
    if not values or len(values) % len(channels):
        raise UserError(
            f"the prompt holds {len(values)} values, but a time step of this series has {len(channels)}: "
            f"{', '.join(channels)}",
            fix="give all of them for each time step",
        )
    return make_series(np.array(values).reshape(-1, len(channels)), channels=channels, where="the prompt")
