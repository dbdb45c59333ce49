"""Numbers for people. Each kind has one format, so that all parts of a report agree."""

import math
from collections.abc import Callable

Format = Callable[[float], str]

_THOUSANDS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
NONE = "–"


def count(value: float) -> str:
    """Three digits and a prefix: 51.2k."""
    for size, prefix in _THOUSANDS:
        if abs(value) >= size * 0.9995:
            return f"{_three(value / size)}{prefix}"
    return _three(value)


def size(value: float) -> str:
    """Bytes by powers of 1024."""
    for unit, name in _BINARY:
        if abs(value) >= unit * 0.9995:
            return f"{_three(value / unit)} {name}"
    return f"{_three(value)} B"


def duration(value: float) -> str:
    """Seconds, in a suitable unit."""
    if value == 0:
        return "0 s"
    if abs(value) < 1e-3:
        return f"{_three(value * 1e6)} µs"
    if abs(value) < 1:
        return f"{_three(value * 1e3)} ms"
    if abs(value) < 120:
        return f"{_three(value)} s"
    minutes = value / 60
    return f"{_three(minutes)} min" if minutes < 120 else f"{_three(minutes / 60)} h"


def plain(value: float) -> str:
    """Four digits: a metric."""
    if value == 0 or not math.isfinite(value):
        return f"{value + 0.0:g}"  # no minus before zero
    return f"{value:.{_places(value, 4)}f}" if 1e-4 <= abs(value) < 1e6 else f"{value:.3e}"


def rough(value: float) -> str:
    """Two digits: a difference."""
    if value == 0 or not math.isfinite(value):
        return f"{value + 0.0:g}"  # no minus before zero
    return f"{value:.{_places(value, 2)}f}" if 1e-5 <= abs(value) < 1e6 else f"{value:.1e}"


def whole(value: float) -> str:
    return f"{value:,.0f}"


def share(value: float) -> str:
    """A ratio as a percentage."""
    return f"{value * 100:.{1 if abs(value) >= 0.01 else 2}f} %"


def with_interval(mean: float, half: float | None) -> str:
    """`2.314 ± 0.021`: as many places as two digits of the interval need."""
    if half is None or not math.isfinite(half):
        return plain(mean)
    largest = max(abs(mean), half)
    if not (largest == 0 or 1e-4 <= largest < 1e6):
        power = math.floor(math.log10(largest))
        return f"({with_interval(mean / 10.0**power, half / 10.0**power)})e{power:+03d}"
    places = max(_places(half, 2), 0) if half > 0 else max(_places(mean, 4), 0)
    return f"{mean:.{min(places, 6)}f} ± {half:.{min(places, 6)}f}"


def _three(value: float) -> str:
    if value == 0:
        return "0"
    text = f"{value:.{_places(value, 3)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _places(value: float, digits: int) -> int:
    """Decimal places that show `digits` digits of `value`."""
    if value == 0 or not math.isfinite(value):
        return digits - 1
    return max(digits - 1 - math.floor(math.log10(abs(value))), 0)
