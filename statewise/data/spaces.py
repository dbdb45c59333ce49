"""Scripts that put no spaces between words: there a character counts as one, for tokenizers and for figures."""

import re
from collections.abc import Iterable

# For the tokenizers library, whose expressions know scripts by name, and for Python's, which does not.
NO_SPACES = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
NEVER_APART = rf"[{NO_SPACES}\u3000-\u303F\uFF01-\uFF0F\uFF1A-\uFF20\uFF3B-\uFF40\uFF5B-\uFF65]"
_EAST = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_SOUTH_EAST = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_MARKS = "\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
_OF_THE_EAST, _OF_THE_SOUTH_EAST = re.compile(f"[{_EAST}]"), re.compile(f"[{_SOUTH_EAST}]")
_KANA = re.compile("[\u3040-\u30ff\uff66-\uff9f]")
_ALONE = re.compile(f"([{_EAST}{_SOUTH_EAST}{_MARKS}])")
# Words have about two characters in the mean; vowels and tones of South East Asia are characters of their own.
_LONGEST_MEAN, _ALONE_ON_A_LINE = 5.0, 2.0
_SHARE = 0.3  # of all that shows; less are names and quotations in another script
_ENOUGH = 1 << 20  # characters that are looked at


def unsegmented(texts: Iterable[str]) -> str | None:
    """A sentence that stands between two spaces as if it were a word, where most such pieces of the texts are."""
    pieces: set[str] = set()
    lines = count = seen = 0
    for text in texts:
        for line in text.splitlines():
            found = [piece for piece in line.split() if _such(piece)]
            lines, count = lines + bool(found), count + len(found)
            pieces.update(line.split())
        seen += len(text)
        if seen >= _ENOUGH:
            break
    longest_mean = _LONGEST_MEAN if count > 1.5 * lines else _ALONE_ON_A_LINE
    such = [piece for piece in pieces if _such(piece)]
    letters = sum(len(_ALONE.findall(piece)) for piece in such)
    if letters < _SHARE * sum(map(len, pieces)) or sum(map(_such, such)) <= longest_mean * len(such):
        return None
    return max(such, key=lambda piece: (_such(piece), piece))


def _such(piece: str) -> float:
    """How long a piece is in such a script, in characters of the East."""
    return len(_OF_THE_EAST.findall(piece)) + len(_OF_THE_SOUTH_EAST.findall(piece)) / 2


def apart(text: str) -> str:
    """The text with spaces around each character of such a script, and around the marks that go with them."""
    return " ".join(_ALONE.sub(r" \1 ", text).split())


def chinese(texts: Iterable[str]) -> bool:
    """Whether, of such scripts, only the Chinese one is in these texts."""
    found = False
    for text in texts:
        if _KANA.search(text) or _OF_THE_SOUTH_EAST.search(text):
            return False
        found = found or _OF_THE_EAST.search(text) is not None
    return found
