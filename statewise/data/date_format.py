"""The date format of a column: inferred once from all its cells, used again to write the dates that come next."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, get_args

import numpy as np

from statewise.specs import UserError

_CLOCK = r"(?:[ T]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,6})\d*)?)?)?"
_YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})(?:\2(\d{1,2}))?" + _CLOCK, re.ASCII)
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})" + _CLOCK, re.ASCII)
_QUARTER = re.compile(r"(\d{4})([- ]?)Q([1-4])", re.ASCII)

Order = Literal["year", "day", "month", "quarter"]


class DateFormat(NamedTuple):
    """`order`: what comes first. `like`: a cell of the column, the last one."""

    order: Order
    like: str

    def moment(self, cell: str) -> datetime | None:
        """What a cell says, with its zone where it says one; None if that is no date in this style."""
        clock: list[str | None] = [None] * 4
        match self.order:
            case "year":
                try:
                    return datetime.fromisoformat(cell)
                except ValueError:
                    pass
                if not (found := _YEAR_FIRST.fullmatch(cell)):
                    return None
                year, _, month, day, *clock = found.groups()
            case "quarter":
                if not (found := _QUARTER.fullmatch(cell)):
                    return None
                year, month, day = found[1], str(3 * int(found[3]) - 2), "1"
            case _:
                if not (found := _YEAR_LAST.fullmatch(cell)):
                    return None
                first, _, second, year, *clock = found.groups()
                day, month = (first, second) if self.order == "day" else (second, first)
        hour, minute, seconds, fraction = clock
        try:
            return datetime(
                int(year),
                int(month),
                int(day or 1),
                int(hour or 0),
                int(minute or 0),
                int(seconds or 0),
                int((fraction or "").ljust(6, "0")),
            )
        except ValueError:
            return None

    def written(self, moment: np.datetime64) -> str:
        """A moment (in UTC where cells have a zone) as the column would write it."""
        when = moment.astype("datetime64[us]").item()
        if self.order == "quarter":
            found = _QUARTER.fullmatch(self.like)
            return f"{when.year}{found[2] if found else ''}Q{(when.month + 2) // 3}"
        date, clock = self._date(when), self._clock(when)
        seen = self.moment(self.like)
        if seen is not None and seen.tzinfo is not None:
            when = when.replace(tzinfo=UTC).astimezone(seen.tzinfo)
            zone = "Z" if self.like.endswith("Z") else when.isoformat()[-6:]
            date, clock = self._date(when), f"{self._clock(when)}{zone}"
        return f"{date}{'T' if 'T' in self.like else ' '}{clock}" if clock else date

    def _date(self, when: datetime) -> str:
        if self.order == "year":
            if self.like.isdigit():
                return f"{when:%Y%m%d}"
            found = _YEAR_FIRST.match(self.like)
            mark, of_day = (found[2], found[4] is not None) if found else ("-", True)
            return f"{when:%Y}{mark}{when:%m}{f'{mark}{when:%d}' if of_day or when.day > 1 else ''}"
        found = _YEAR_LAST.match(self.like)
        mark = found[2] if found else "/"
        return (
            f"{when:%d}{mark}{when:%m}{mark}{when:%Y}"
            if self.order == "day"
            else f"{when:%m}{mark}{when:%d}{mark}{when:%Y}"
        )

    def _clock(self, when: datetime) -> str:
        """With seconds where the cells have them, or where the moment needs them; none where all is midnight."""
        said = self.like.count(":") - (1 if re.search(r"[+-]\d\d:\d\d$", self.like) else 0)
        if said < 1 and (when.hour, when.minute, when.second, when.microsecond) == (0, 0, 0, 0):
            return ""
        clock = when.time().isoformat()
        return clock.removesuffix(":00") if said == 1 and not when.second else clock


def date_format(cells: Sequence[str], *, lines: Sequence[int] | None = None, where: str = "") -> DateFormat:
    """The style of a column's cells, of which there is one at least.

    Year last: with points the day comes first, else whichever of the two is ever more than 12 is the day.
    """
    like = cells[-1]
    if _QUARTER.fullmatch(cells[0]):
        return DateFormat("quarter", like)
    if not _YEAR_LAST.fullmatch(cells[0]):
        return DateFormat("year", like)
    found = [match for cell in cells if (match := _YEAR_LAST.fullmatch(cell))]
    largest = [max(int(match[side]) for match in found) for side in (1, 3)]
    if largest[0] > 12 or found[0][2] == ".":
        return DateFormat("day", like)
    if largest[1] > 12:
        return DateFormat("month", like)
    line = f":{lines[0]}" if lines is not None else ""
    raise UserError(
        f"{where}{line}: time {cells[0]!r} may have its day first or its month, and no other row tells",
        fix="write dates year first, 2016-07-31",
    )


def is_date(cell: str) -> bool:
    """Whether a cell is a date in some style, and no number."""
    try:
        float(cell)
    except ValueError:
        return any(DateFormat(order, cell).moment(cell) is not None for order in get_args(Order))
    return False
