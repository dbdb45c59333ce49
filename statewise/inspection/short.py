"""Names that fit beside a picture."""

from collections.abc import Sequence


def short_names(names: Sequence[str]) -> list[str]:
    """Of names with dots the last word, and of the words before it those in which two of them differ."""
    split = [_words(name) for name in names]
    kept = [
        [word for at, word in enumerate(words[:-1]) if any(_only_there(words, other, at) for other in split)]
        for words in split
    ]
    short = [" ".join([*some, words[-1]]) for some, words in zip(kept, split)]
    return [name if short.count(one) > 1 else one for one, name in zip(short, names)]


def _words(name: str) -> list[str]:
    """A number at the end alone says nothing: it stays with the word before it."""
    words = name.split(".")
    return [*words[:-2], ".".join(words[-2:])] if words[-1].isdigit() else words


def _only_there(one: Sequence[str], other: Sequence[str], at: int) -> bool:
    """Whether two names differ in this word and in no other."""
    return len(one) == len(other) and [i for i, (a, b) in enumerate(zip(one, other)) if a != b] == [at]
