"""Two models on one text, whatever their tokens: what each paid between the ends that both have."""

from typing import NamedTuple

from statewise.figures import between, shared_ends, text_of

_BEFORE, _AFTER = 32, 12  # characters around a piece


class Place(NamedTuple):
    before: str
    piece: str
    after: str
    first: float  # bits
    second: float

    @property
    def gap(self) -> float:
        """Above 0: the second model paid less."""
        return self.first - self.second


def places(first: list[tuple[str, float]], second: list[tuple[str, float]]) -> list[Place]:
    """Every shared piece of the text, in its order."""
    text = text_of(first)
    assert text_of(second) == text
    at = shared_ends([first, second])
    spans = zip([0, *at[:-1]], at)
    return [
        Place(text[max(start - _BEFORE, 0) : start], text[start:end], text[end : end + _AFTER], one, other)
        for (start, end), one, other in zip(spans, between(first, at), between(second, at))
    ]
