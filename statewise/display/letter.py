"""Characters as they are seen: visible signs for invisible ones, grapheme clusters, and their width in columns."""

import re
import unicodedata
from collections.abc import Sequence

_SIGNS = {
    "\n": "⏎",
    "\t": "⇥",
    "\x7f": "␡",
    **{chr(code): chr(0x2400 + code) for code in range(32) if code not in (9, 10)},
}
# C0, DEL and C1; marks of direction; separators; halves of letters.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_VIRAMA = 9  # the class of marks that join two consonants
_JOINS = "\u200c\u200d"  # shape what stands beside them
_PICTURES = ((0x1F300, 0x1FAFF), (0x2600, 0x27BF), (0x1F1E6, 0x1F1FF))  # what a joiner or a selector makes one sign of
_FLAGS = (0x1F1E6, 0x1F1FF)  # two of them are one
_JAMO, _LATER_JAMO = (0x1100, 0x11FF), (0x1160, 0x11FF)  # parts of a Korean syllable
_TONES = (0x1F3FB, 0x1F3FF)  # go with the sign before them


def visible(text: str) -> str:
    """Line ends, tabs, control and direction characters as signs; letters and spaces as they are."""
    if text.isprintable():
        return text
    return "".join(_SIGNS.get(char) or (coded(char) if _unseen(char) else char) for char in text)


def safe(text: str) -> str:
    """For a terminal: a sign for each control or direction character; line ends and tabs stay.

    >>> from statewise.display.letter import safe
    >>> safe("a \\x1b[2J b")
    'a ␛[2J b'
    """
    return text if text.isascii() and text.isprintable() else _CONTROL.sub(lambda match: visible(match[0]), text)


def alone(piece: str) -> str:
    """A token shown alone, as a name: spaces at its ends are visible, a combining mark gets a base."""
    if not piece:
        return "…"  # part of a character: the rest is in the next tokens
    if all(char in _JOINS or unicodedata.category(char) == "Cf" or 0xFE00 <= ord(char) <= 0xFE0F for char in piece):
        return "".join(map(coded, piece))
    inner = piece.strip(" ")
    before, _, after = piece.partition(inner) if inner else (piece, "", "")
    text = "".join(coded(c) if c != " " and unicodedata.category(c) == "Zs" else c for c in visible(inner))
    text = f"{'␣' * len(before)}{text}{'␣' * len(after)}"
    return f"◌{text}" if _extends(piece[0]) else text


def coded(char: str) -> str:
    return f"⟨{ord(char):04X}⟩"


def clusters(text: str) -> list[str]:
    """Grapheme clusters: a base with its marks, joined emoji, a flag."""
    parts: list[str] = []
    for char in text:
        if parts and _goes_with(parts[-1], char):
            parts[-1] += char
        else:
            parts.append(char)
    return parts


def whole_letters(pieces: Sequence[str]) -> list[tuple[int, ...]]:
    """Tokens grouped so that each group shows whole letters: a token that adds none joins the one before it."""
    groups: list[tuple[int, ...]] = []
    last = ""
    for at, piece in enumerate(pieces):
        together = clusters(last + piece)
        if groups and last and piece and len(together) == 1:
            groups[-1] = (*groups[-1], at)
        else:
            groups.append((at,))
        last = together[-1] if together else last
    return groups


def columns(text: str) -> int:
    """Columns in a fixed-pitch font: two for East Asian letters and emoji, none for marks."""
    return sum(2 if _is_wide(cluster) else 1 for cluster in clusters(text))


def _goes_with(before: str, char: str) -> bool:
    if _within(char, _FLAGS):
        return len(before) == 1 and _within(before, _FLAGS)
    if before in ("⏎", "⇥"):
        return False
    if unicodedata.combining(before[-1]) == _VIRAMA and unicodedata.category(char) == "Lo":
        return True
    if _within(char, _LATER_JAMO) and _within(before[-1], _JAMO):
        return True
    return _extends(char) or _within(char, _TONES) or (before[-1] == "\u200d" and _is_picture(char))


def _is_wide(cluster: str) -> bool:
    if unicodedata.east_asian_width(cluster[0]) in "WF" or "\ufe0f" in cluster or _within(cluster[0], _FLAGS):
        return True
    return any(unicodedata.category(char) in ("Lo", "Mc") for char in cluster[1:])


def _extends(char: str) -> bool:
    # Marks that have a place of their own belong to the letter before them all the same.
    return unicodedata.category(char) in ("Mn", "Me", "Mc") or char in _JOINS or char == "\u0e33"


def _unseen(char: str) -> bool:
    kind = unicodedata.category(char)
    return char not in _JOINS and (
        kind in ("Cc", "Cf", "Cs", "Zl", "Zp") or (kind == "Cn" and ord(char) & 0xFFFE == 0xFFFE)
    )


def _is_picture(char: str) -> bool:
    return any(_within(char, some) for some in _PICTURES)


def _within(char: str, some: tuple[int, int]) -> bool:
    return some[0] <= ord(char) <= some[1]
