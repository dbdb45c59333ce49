"""What every metric returns: a figure that knows what it is, so that unlike figures are never ranked together."""

from collections.abc import Mapping
from typing import NamedTuple

from statewise.specs import UserError


class Score(NamedTuple):
    """`signature` holds all that changes the figure's meaning: tokenisation, case, period, bins, levels."""

    name: str
    value: float
    higher_is_better: bool | None  # None: neither; a coverage should be what was promised
    signature: str
    count: int  # type: ignore[assignment]  # hides tuple.count; of what the figure is a mean or a sum over: lines, tokens, values

    @property
    def kind(self) -> tuple[str, str]:
        """Only figures of one kind compare."""
        return self.name, self.signature


def rank(scores: Mapping[str, Score]) -> list[str]:
    """The names, best first. Refuses figures of different kinds, or of different amounts of data."""
    if not scores:
        return []
    first_name, first = next(iter(scores.items()))
    if first.higher_is_better is None:
        raise UserError(f"{first.name} has no better or worse, so it cannot rank")
    for name, score in scores.items():
        if score.kind != first.kind:
            raise UserError(
                f"{name} was measured by {score.name} ({score.signature}), "
                f"{first_name} by {first.name} ({first.signature}): these do not compare",
                fix="measure both in the same way",
            )
        if score.count != first.count:
            raise UserError(
                f"{name} was measured on {score.count}, {first_name} on {first.count}: these do not compare",
                fix="measure both on the same data",
            )
        if score.value != score.value:
            raise UserError(f"the {score.name} of {name} is not a number, so it has no rank")
    return sorted(scores, key=lambda name: scores[name].value, reverse=first.higher_is_better)


def check_pairs(left: int, right: int, *, of: str) -> None:
    """As many answers as truths, and at least one."""
    if left != right:
        raise UserError(f"{left} predicted {of}, but {right} true ones", fix="predict each one exactly once")
    if left == 0:
        raise UserError(f"there are no {of} to measure")
