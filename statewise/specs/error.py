"""The one exception people are meant to read."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """A mistake in what was given: `what` was wrong, with its value, and `fix` says what to do.

    >>> sw.build("lstn", vocab=5)
    Traceback (most recent call last):
        ...
    statewise.specs.error.UserError: ...
    >>> try:
    ...     sw.build("lstm", vocab=0)
    ... except sw.UserError as error:
    ...     print(error.what)
    vocab is 0, expected at least 1
    """

    def __init__(self, what: str, *, fix: str = "") -> None:
        super().__init__(f"{what}\n{fix}" if fix else what)
        self.what = what
        self.fix = fix


def nearest(word: str, valid: Iterable[str]) -> str:
    """`did you mean 'lstm'? valid: elman, gru, lstm` — the close match first, then all of them."""
    names = sorted(valid)
    spelled = {name.lower(): name for name in names}
    close = get_close_matches(word.lower(), spelled, n=1, cutoff=0.5)
    guess = f"did you mean {spelled[close[0]]!r}? " if close else ""
    return f"{guess}valid: {', '.join(names)}"
