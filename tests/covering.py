"""Parameters of which a few cover the many: the cover runs always, the rest of the product with `-m slow`."""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

Case = tuple[int, ...]


def by_day(listed: Iterable[Any], *day: Any) -> list[Any]:
    """All values, as parameters; those not named as `day` are `slow`."""
    values = list(listed)
    assert set(day) <= set(values), f"{set(day) - set(values)} are not listed"
    return [pytest.param(value, marks=() if value in day else pytest.mark.slow) for value in values]


def tuples(case: Case, strength: int) -> set[tuple[tuple[int, int], ...]]:
    """All combinations of `strength` of its (axis, value) pairs."""
    return set(itertools.combinations(enumerate(case), strength))


def cover(sizes: Iterable[int], strength: int) -> list[Case]:
    """Few cases of the product in which every `strength` values of different axes meet. The same ones every time."""
    product = list(itertools.product(*map(range, sizes)))
    missing = set().union(*(tuples(case, strength) for case in product))
    used: Counter[tuple[int, int]] = Counter()
    chosen = []
    while missing:  # the case that adds most, and of those one whose values were used least
        best = max(product, key=lambda c: (len(tuples(c, strength) & missing), -sum(used[v] for v in enumerate(c))))
        missing -= tuples(best, strength)
        used.update(enumerate(best))
        chosen.append(best)
    return chosen


def covered(names: str, *axes: Mapping[str, Any] | Iterable[Any], strength: int = 2) -> pytest.MarkDecorator:
    """Parametrise by the product of the axes; what is outside the cover is `slow`.

    With strength 2, every two values of different axes are seen together (pairwise testing). With strength 1, every
    value is seen. An axis is a mapping from names to values, or the values themselves.
    """
    named = [axis if isinstance(axis, Mapping) else {str(value): value for value in axis} for axis in axes]
    items = [list(axis.items()) for axis in named]
    chosen = set(cover(map(len, items), strength))
    return pytest.mark.parametrize(
        names,
        [
            pytest.param(
                *(items[axis][value][1] for axis, value in enumerate(case)),
                id="-".join(items[axis][value][0] for axis, value in enumerate(case)),
                marks=() if case in chosen else pytest.mark.slow,
            )
            for case in itertools.product(*(range(len(axis)) for axis in items))
        ],
    )
