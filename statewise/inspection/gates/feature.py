"""Features of a text that a unit may follow, each a number for every character.

Users add their own: `name=regular expression` is 1 inside every match, and 0 elsewhere.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.data import END, UNKNOWN
from statewise.specs import UserError
from statewise.tasks import TextSpecimens

Values = NDArray[np.float32]

_PAIRS = dict(zip(")]}）】》〉", "([{（【《〈"))
_QUOTES = dict(zip("“„«「『", "”“»」』"))
_SENTENCE_ENDS = ".!?。！？．…؟۔।॥"
_VOWELS = frozenset("aeiouαεηιουωаеиоуыэюя")  # of alphabets that write them as letters


class Feature(NamedTuple):
    name: str
    what: str
    of: Callable[[str], Values]  # a number for each character


def _marks(test: Callable[[str], bool]) -> Callable[[str], Values]:
    return lambda text: np.array([test(character) for character in text], dtype=np.float32)


def _since(test: Callable[[str], bool]) -> Callable[[str], Values]:
    """Characters since the last one that passes the test."""

    def of(text: str) -> Values:
        values, count = np.zeros(len(text), dtype=np.float32), 0
        for at, character in enumerate(text):
            count = 0 if test(character) else count + 1
            values[at] = count
        return values

    return of


def _quoted(text: str) -> Values:
    values, closing = np.zeros(len(text), dtype=np.float32), ""  # closing: what the open quotation ends with
    for at, character in enumerate(text):
        if closing and character in (closing, "”"):
            closing = ""
        elif not closing and character == '"':
            closing = '"'
        elif character in _QUOTES:
            closing = _QUOTES[character]
        values[at] = bool(closing)
    return values


def _nesting(text: str) -> Values:
    """Open brackets. A closing one without its opening one is ignored."""
    values = np.zeros(len(text), dtype=np.float32)
    opened: list[str] = []
    for at, character in enumerate(text):
        if character in _PAIRS.values():
            opened.append(character)
        elif opened and opened[-1] == _PAIRS.get(character):
            opened.pop()
        values[at] = len(opened)
    return values


def _indented(text: str) -> Values:
    """White space at the beginning of a line."""
    values, leading = np.zeros(len(text), dtype=np.float32), True
    for at, character in enumerate(text):
        leading = character == "\n" or (leading and character in " \t")
        values[at] = leading and character != "\n"
    return values


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PS"


def _is_vowel(character: str) -> bool:
    return unicodedata.normalize("NFD", character)[0].lower() in _VOWELS


def _is_of_a_word(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character)[0] == "M"  # a mark is a part of its letter


FEATURES: tuple[Feature, ...] = (
    Feature("capital", "a capital letter", _marks(str.isupper)),
    Feature("digit", "a digit", _marks(str.isdigit)),
    Feature("space", "white space", _marks(str.isspace)),
    Feature("line end", "the end of a line", _marks("\n".__eq__)),
    Feature("punctuation", "a mark of punctuation, or a sign", _marks(_is_punctuation)),
    Feature("vowel", "a vowel", _marks(_is_vowel)),
    Feature("quotes", "between quotation marks", _quoted),
    Feature("nesting", "brackets that are open", _nesting),
    Feature("indentation", "white space that begins a line", _indented),
    Feature("line position", "characters since the line began", _since("\n".__eq__)),
    Feature("word position", "letters since a space or a sign", _since(lambda character: not _is_of_a_word(character))),
    Feature("sentence position", "characters since a sentence ended", _since(_SENTENCE_ENDS.__contains__)),
)


def parse_features(written: Sequence[str]) -> tuple[Feature, ...]:
    """A user's own features, each `name=regular expression`."""
    return tuple(_parsed(feature) for feature in written)


def _parsed(written: str) -> Feature:
    name, equals, pattern = written.partition("=")
    name = name.strip()
    if not equals or not name or not pattern:
        raise UserError(f"{written!r} is not a feature", fix="write it as NAME=REGEX, for example 'year=[12][0-9]{3}'")
    if name in {feature.name for feature in FEATURES}:
        raise UserError(f"there is a feature {name!r} already", fix="choose another name for yours")
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UserError(f"feature {name!r}: {pattern!r} is not a regular expression: {error}") from None

    def of(text: str) -> Values:
        values = np.zeros(len(text), dtype=np.float32)
        for match in expression.finditer(text):
            values[match.start() : match.end()] = 1
        return values

    return Feature(name, f"inside a match of {pattern}", of)


def at_pieces(features: Sequence[Feature], pieces: Sequence[str]) -> dict[str, Values]:
    """Each feature at each piece of a text: the mean over its characters. An empty piece, an end symbol or an unknown
    word has the value before it.
    """
    pieces = ["" if piece.strip() in (END, UNKNOWN) else piece for piece in pieces]
    text = "".join(pieces)
    length_T = np.array([len(piece) for piece in pieces], dtype=np.int64)
    end_T = np.cumsum(length_T)
    begin_T = np.where(length_T > 0, end_T - length_T, np.maximum(end_T - 1, 0))
    by_feature = {}
    for feature in features:
        sums = np.concatenate([[0.0], np.cumsum(feature.of(text), dtype=np.float64)])
        by_feature[feature.name] = ((sums[end_T] - sums[begin_T]) / np.maximum(length_T, 1)).astype(np.float32)
    return by_feature


def at_tokens(features: Sequence[Feature], text: TextSpecimens) -> dict[str, Values]:
    """Each feature at each token of a text. Documents are independent, and end symbols have no letters."""
    names = text.names()
    ends = [at for at, token in enumerate(text.tokens_T.tolist()) if token == text.end_id]
    by_feature = {feature.name: np.zeros(len(names), dtype=np.float32) for feature in features}
    for begin, stop in zip([0, *(at + 1 for at in ends)], [*ends, len(names)]):
        pieces = names[begin:stop]
        for name, values in at_pieces(features, pieces[::-1] if text.backwards else pieces).items():
            by_feature[name][begin:stop] = values[::-1] if text.backwards else values
    return by_feature
