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
    """`order`: what comes first. `example`: the last cell of the column."""

    order: Order
    example: str

    def parse(self, cell: str) -> datetime | None:
        """The time of a cell, with its zone if it has one; None if it is not a date in this format."""
        clock: list[str | None] = [None] * 4
        match self.order:
            case "year":
                try:
                    return datetime.fromisoformat(cell)
                except ValueError:
                    pass
                if not (match := _YEAR_FIRST.fullmatch(cell)):
                    return None
                year, _, month, day, *clock = match.groups()
            case "quarter":
                if not (match := _QUARTER.fullmatch(cell)):
                    return None
                year, month, day = match[1], str(3 * int(match[3]) - 2), "1"
            case _:
                if not (match := _YEAR_LAST.fullmatch(cell)):
                    return None
                first, _, second, year, *clock = match.groups()
                day, month = (first, second) if self.order == "day" else (second, first)
        *clock, fraction = clock
        try:
            hour, minute, second = (int(part or 0) for part in clock)
            fraction = (fraction or "").ljust(6, "0")
            return datetime(int(year), int(month), int(day or 1), hour, minute, second, int(fraction))
        except ValueError:
            return None

    def format(self, time: np.datetime64) -> str:
        """A time (in UTC where cells have a zone) as the column would write it."""
        when = time.astype("datetime64[us]").item()
        if self.order == "quarter":
            match = _QUARTER.fullmatch(self.example)
            return f"{when.year}{match[2] if match else ''}Q{(when.month + 2) // 3}"
        date, clock = self._date(when), self._clock(when)
        parsed = self.parse(self.example)
        if parsed is not None and parsed.tzinfo is not None:
            when = when.replace(tzinfo=UTC).astimezone(parsed.tzinfo)
            zone = "Z" if self.example.endswith("Z") else when.isoformat()[-6:]
            date, clock = self._date(when), f"{self._clock(when)}{zone}"
        return f"{date}{'T' if 'T' in self.example else ' '}{clock}" if clock else date

    def _date(self, when: datetime) -> str:
        if self.order == "year":
            if self.example.isdigit():
                return f"{when:%Y%m%d}"
            match = _YEAR_FIRST.match(self.example)
            mark, of_day = (match[2], match[4] is not None) if match else ("-", True)
            return f"{when:%Y}{mark}{when:%m}{f'{mark}{when:%d}' if of_day or when.day > 1 else ''}"
        match = _YEAR_LAST.match(self.example)
        mark = match[2] if match else "/"
        return when.strftime(mark.join(("%d", "%m") if self.order == "day" else ("%m", "%d"))) + f"{mark}{when:%Y}"

    def _clock(self, when: datetime) -> str:
        """With seconds where the cells have them or the time needs them; empty if cells have no clock at midnight."""
        colons = self.example.count(":") - (1 if re.search(r"[+-]\d\d:\d\d$", self.example) else 0)
        if colons < 1 and (when.hour, when.minute, when.second, when.microsecond) == (0, 0, 0, 0):
            return ""
        clock = when.time().isoformat()
        return clock.removesuffix(":00") if colons == 1 and not when.second else clock


def date_format(cells: Sequence[str], *, lines: Sequence[int] | None = None, where: str = "") -> DateFormat:
    """The format of a column's cells, at least one.

    Year last: with points the day comes first; else the one of the two that is ever more than 12 is the day.
    """
    example = cells[-1]
    if _QUARTER.fullmatch(cells[0]):
        return DateFormat("quarter", example)
    if not _YEAR_LAST.fullmatch(cells[0]):
        return DateFormat("year", example)
    matches = [match for cell in cells if (match := _YEAR_LAST.fullmatch(cell))]
    largest = [max(int(match[side]) for match in matches) for side in (1, 3)]
    if largest[0] > 12 or matches[0][2] == ".":
        return DateFormat("day", example)
    if largest[1] > 12:
        return DateFormat("month", example)
    line = f":{lines[0]}" if lines is not None else ""
    raise UserError(
        f"{where}{line}: time {cells[0]!r} may have its day first or its month, and no other row tells",
        fix="write dates year first, 2016-07-31",
    )


def is_date(cell: str) -> bool:
    """Whether a cell is a date in some format, and not a number."""
    try:
        float(cell)
    except ValueError:
        return any(DateFormat(order, cell).parse(cell) is not None for order in get_args(Order))
    return False
