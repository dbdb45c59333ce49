"""The one exception people are meant to read."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """Something the reader can mend. `what` was wrong (with its value), and `fix` is what to do."""

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
