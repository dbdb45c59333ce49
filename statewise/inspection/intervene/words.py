"""What acts cost, in words that say no more than the moments at which they were tried allow.

P moments.
"""

from collections.abc import Mapping

from torch import Tensor

from statewise.display import with_interval
from statewise.inspection.intervene.measure import WORDS, Deed
from statewise.inspection.lens import half_width


def sure(added_P: Tensor) -> str:
    """A mean over moments with its 95 % interval."""
    values = [float(one) for one in added_P]
    return with_interval(sum(values) / len(values), half_width(values))


def without(added_P: Tensor, unit: str) -> str:
    """What is paid without something: more or less, with its interval."""
    less = float(added_P.mean()) < 0
    return f"{sure(-added_P if less else added_P)} {unit} {'less' if less else 'more'}"


def worst_part(parts: Mapping[Deed, Tensor], of: str, unit: str) -> tuple[Deed, str]:
    """Of parts that were all touched in the same way: the one that is missed most, and a sentence without its end."""
    worst = max(parts, key=lambda deed: float(parts[deed].mean()))
    costs = f"{sure(parts[worst])} {unit}"
    if len(parts) == 1:
        return worst, f"{worst.address} {WORDS[worst.act]} costs {costs}"
    if float(parts[worst].mean()) <= 0:
        return worst, f"None of {len(parts)} parts of {of}, each {WORDS[worst.act]}, is missed"
    return worst, f"Of {len(parts)} parts of {of}, each {WORDS[worst.act]}, {worst.address} costs most: {costs}"


def beside_none(other_P: Tensor, none_P: Tensor) -> str:
    """Whether another memory is worse than none at the same moments; what chance could have done is not said."""
    apart_P = other_P - none_P
    half, mean = half_width([float(one) for one in apart_P]), float(apart_P.mean())
    if half is None or abs(mean) <= half:
        return "not surely better or worse than none"
    return f"{'worse' if mean > 0 else 'better'} than none"
