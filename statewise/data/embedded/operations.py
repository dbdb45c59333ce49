"""Trees: nested operations with the value at every node (ListOps, boolean, arithmetic)."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from statewise.data.embedded.parts import Parts, Rng, distinct, parts
from statewise.data.lines import Examples, Where
from statewise.data.trees import LabelledTree, parse_tree

_STREAM = 2
_DIGITS = tuple(range(10))


class _Language(NamedTuple):
    """Operations with the fewest and most values they take, and the values."""

    operations: Mapping[str, tuple[int, int, Callable[[list[int]], int]]]
    values: tuple[int, ...]


def _median(values: list[int]) -> int:
    """The lower of the two in the middle, so that it is one of the values."""
    return sorted(values)[(len(values) - 1) // 2]


_LANGUAGES = {
    "listops": _Language(
        {
            "MIN": (2, 4, min),
            "MAX": (2, 4, max),
            "MED": (2, 4, _median),
            "SM": (2, 4, lambda values: sum(values) % 10),
        },
        _DIGITS,
    ),
    "boolean": _Language(
        {
            "not": (1, 1, lambda values: 1 - values[0]),
            "and": (2, 3, min),
            "or": (2, 3, max),
            "xor": (2, 2, lambda values: values[0] ^ values[1]),
        },
        (0, 1),
    ),
    "arithmetic": _Language(
        {
            "+": (2, 2, lambda values: (values[0] + values[1]) % 10),
            "-": (2, 2, lambda values: (values[0] - values[1]) % 10),
            "*": (2, 2, lambda values: (values[0] * values[1]) % 10),
        },
        _DIGITS,
    ),
}


class _Expression(NamedTuple):
    """Its value, and the tree as brackets: `(7 MAX (3 3) (7 7))`."""

    value: int
    text: str


def operations(
    kind: Literal["listops", "boolean", "arithmetic"] = "listops",
    *,
    count: int = 4000,
    held: int = 500,
    depth: int = 4,
    held_depth: int | None = None,
    seed: int = 0,
) -> Parts[LabelledTree]:
    """Different expressions of at most `depth` operations inside one another. Arithmetic is modulo 10.

    A node's label is its value, its first word the operation. `held_depth` beyond `depth` asks for more
    than was trained.
    """
    assert depth >= 1
    language = _LANGUAGES[kind]
    rng = Rng(seed, stream=_STREAM)
    name = f"{kind}, seed {seed}"
    # Each part is drawn until it is full; what is held out comes first, and is then not learned from.
    held_out = list(distinct(lambda: _operation(rng, language, held_depth or depth), lambda e: e.text, held))
    taken = {expression.text for expression in held_out}
    learned = distinct(lambda: _operation(rng, language, depth), lambda e: e.text, count + held)
    kept = [expression for expression in learned if expression.text not in taken][:count]

    def trees(expressions: list[_Expression], first: int) -> Examples[LabelledTree]:
        examples: Examples[LabelledTree] = Examples()
        for number, expression in enumerate(expressions, start=first):
            where = Where(name, number, "example")
            examples.append(LabelledTree(parse_tree(expression.text, where), where))
        return examples

    return parts(
        name, trees(kept, 0), trees(held_out, count), text=lambda example: example.written_with(example.labels())
    )


def _operation(rng: Rng, language: _Language, depth: int) -> _Expression:
    word = rng.choice(tuple(language.operations))
    least, most, compute = language.operations[word]
    arguments = [_expression(rng, language, depth - 1) for _ in range(rng.between(least, most))]
    value = compute([argument.value for argument in arguments])
    return _Expression(value, f"({value} {word} {' '.join(argument.text for argument in arguments)})")


def _expression(rng: Rng, language: _Language, depth: int) -> _Expression:
    """At each place an operation or, as often, a value; at the bottom always a value."""
    if depth and rng.below(2):
        return _operation(rng, language, depth)
    value = rng.choice(language.values)
    return _Expression(value, f"({value} {value})")
