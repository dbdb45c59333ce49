"""The data that is always there: right by other means, disjoint, repeatable."""

import ast
import io
import operator
import statistics
import sysconfig
import tokenize
from pathlib import Path
from typing import Any

import nltk
import pytest

from statewise.data import LabelledTree
from statewise.data.embedded import (
    Parts,
    ast_trees,
    docstrings,
    german,
    operations,
    phrases,
    probe_pairs,
    source_tags,
)
from statewise.specs import UserError


@pytest.fixture(scope="module")
def made() -> dict[str, Parts[Any]]:
    return {
        "docstrings": docstrings(),
        "source tags": source_tags(),
        "phrases": phrases(),
        "listops": operations("listops", count=800, held=100),
        "ast": ast_trees(),
        "copy": probe_pairs("copy"),
    }


def test_the_same_every_time(made: dict[str, Parts[Any]]) -> None:
    assert phrases().sha256 == made["phrases"].sha256 != phrases(seed=1).sha256
    assert source_tags().sha256 == made["source tags"].sha256
    # Of a generator it is also the same on every machine and with every Python.
    assert made["phrases"].sha256.startswith("92ea0413")
    assert made["listops"].sha256.startswith("8836c3e3")
    assert made["copy"].sha256.startswith("67b360c1")


def test_what_is_read_is_split_by_file(made: dict[str, Parts[Any]]) -> None:
    for name in ("docstrings", "source tags", "ast"):
        train, held = ({one.where.path for one in part} for part in (made[name].train, made[name].held))
        assert train
        assert held
        assert not train & held
        share = len(made[name].held) / (len(made[name].train) + len(made[name].held))
        assert 0.05 < share < 0.35


def test_what_is_made_is_disjoint_by_source(made: dict[str, Parts[Any]]) -> None:
    for name in ("phrases", "copy"):
        assert not {one.source for one in made[name].train} & {one.source for one in made[name].held}
    texts = [{str(one.tree) for one in part} for part in (made["listops"].train, made["listops"].held)]
    assert not texts[0] & texts[1]
    assert (len(made["listops"].train), len(made["listops"].held)) == (800, 100)


def test_docstring_lines_stand_where_they_say(made: dict[str, Parts[Any]]) -> None:
    library = Path(sysconfig.get_path("stdlib"))
    right = 0
    for one in made["docstrings"].held[::40]:
        with tokenize.open(library / one.where.path) as file:
            line = file.read().splitlines()[one.where.line - 1]
        right += one.text in " ".join(line.split())
        assert one.where.path.startswith(f"{one.label}/")
    assert right >= 0.9 * len(made["docstrings"].held[::40])  # an escape in a docstring moves it
    assert len({one.label for one in made["docstrings"].train}) >= 10


def test_tags_are_those_of_tokenize(made: dict[str, Parts[Any]]) -> None:
    kinds = {"KEYWORD", "DEFINITION", "ATTRIBUTE", "METHOD", "CALL", "ARGUMENT", "NAME"}
    for one in made["source tags"].train[::200]:
        assert len(one.words) == len(one.tags)
        for word, tag in zip(one.words, one.tags):
            assert word.isidentifier() or tag not in kinds
            assert not word.isidentifier() or tag in kinds or tag.startswith("FSTRING")
    tags = {tag for one in made["source tags"].train for tag in one.tags}
    assert kinds < tags


def test_a_line_of_source_by_hand() -> None:
    from statewise.data.embedded.standard_library import tags_of

    line = list(tokenize.generate_tokens(io.StringIO("def f(x): return a.b(c, d=len(x.y), e=1)").readline))
    words = [token for token in line if token.string]
    assert " ".join(tags_of(words)) == (
        "KEYWORD DEFINITION OP NAME OP OP KEYWORD NAME OP METHOD OP NAME OP ARGUMENT OP CALL OP NAME OP ATTRIBUTE OP "
        "OP ARGUMENT OP NUMBER OP"
    )


COMPUTE = {
    "MIN": min,
    "MAX": max,
    "MED": statistics.median_low,
    "SM": lambda values: sum(values) % 10,
    "not": lambda values: int(not values[0]),
    "and": lambda values: int(all(values)),
    "or": lambda values: int(any(values)),
    "xor": lambda values: int(values[0] != values[1]),
}
ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def computed(tree: Any) -> int:
    """The value of a tree, from its words alone."""
    if len(tree) == 1:
        return int(tree[0])
    word, *inside = tree
    values = [computed(child) for child in inside]
    if word in "+-*":
        return int(ARITHMETIC[word](*values)) % 10
    return int(COMPUTE[word](values))


@pytest.mark.parametrize("kind", ["listops", "boolean", "arithmetic"])
def test_every_node_has_its_value(kind: Any) -> None:
    found = operations(kind, count=300, held=50, depth=3, held_depth=6, seed=5)
    for one in [*found.train, *found.held]:
        for node in in_nltk(one).subtrees():
            assert int(node.label()) == computed(node)
    assert max(in_nltk(one).height() for one in found.train) == 3 + 2
    assert max(in_nltk(one).height() for one in found.held) > 3 + 2


def in_nltk(one: LabelledTree) -> nltk.Tree:
    return nltk.Tree.fromstring(one.written_with(one.labels()))


def test_syntax_trees_say_what_ast_says(made: dict[str, Parts[Any]]) -> None:
    for one in made["ast"].train[::100]:
        assert all(hasattr(ast, label) for label in one.labels())
        assert 3 <= len(one.words()) <= 40


def test_probes() -> None:
    copy, reverse = probe_pairs("copy", seed=3), probe_pairs("reverse", lengths=(2, 4), held_lengths=(8, 9), seed=3)
    assert all(pair.source == pair.target for pair in copy.train)
    assert all(pair.source.split()[::-1] == pair.target.split() for pair in [*reverse.train, *reverse.held])
    assert {len(pair.source.split()) for pair in reverse.train} == {2, 3, 4}
    assert {len(pair.source.split()) for pair in reverse.held} == {8, 9}
    with pytest.raises(UserError, match="2 letters make only 12 sequences"):
        probe_pairs("copy", symbols=2, lengths=(2, 3), held=10)


@pytest.mark.parametrize(
    ("n", "english", "deutsch"),
    [
        (0, "zero", "null"),
        (1, "one", "eins"),
        (12, "twelve", "zwölf"),
        (17, "seventeen", "siebzehn"),
        (20, "twenty", "zwanzig"),
        (21, "twenty one", "ein und zwanzig"),
        (70, "seventy", "siebzig"),
        (100, "one hundred", "ein hundert"),
        (101, "one hundred and one", "ein hundert eins"),
        (342, "three hundred and forty two", "drei hundert zwei und vierzig"),
        (1016, "one thousand and sixteen", "ein tausend sechzehn"),
        (9999, "nine thousand nine hundred and ninety nine", "neun tausend neun hundert neun und neunzig"),
    ],
)
def test_numbers(n: int, english: str, deutsch: str) -> None:
    assert german.number(n) == (english, deutsch)


def test_numbers_are_all_different() -> None:
    for side in (0, 1):
        assert len({german.number(n)[side] for n in range(10_000)}) == 10_000


@pytest.mark.parametrize(
    ("hour", "minutes", "english", "deutsch"),
    [
        (1, 0, "one o'clock", "ein Uhr"),
        (7, 30, "half past seven", "halb acht"),
        (12, 30, "half past twelve", "halb eins"),
        (7, 15, "quarter past seven", "viertel nach sieben"),
        (12, 45, "quarter to one", "viertel vor eins"),
        (7, 25, "twenty five past seven", "fünf vor halb acht"),
        (7, 35, "twenty five to eight", "fünf nach halb acht"),
        (7, 50, "ten to eight", "zehn vor acht"),
    ],
)
def test_times(hour: int, minutes: int, english: str, deutsch: str) -> None:
    assert german.time_of_day(hour, minutes) == (english, deutsch)


def test_ordinals_years_and_agreement() -> None:
    wanted = {1: ("first", "ersten"), 3: ("third", "dritten"), 7: ("seventh", "siebten"), 8: ("eighth", "achten")}
    wanted |= {12: ("twelfth", "zwölften"), 20: ("twentieth", "zwanzigsten"), 19: ("nineteenth", "neunzehnten")}
    wanted |= {21: ("twenty first", "ein und zwanzigsten"), 5: ("fifth", "fünften"), 9: ("ninth", "neunten")}
    assert {n: german.ordinal(n) for n in wanted} == wanted
    assert german.year(1987) == ("nineteen eighty seven", "neunzehn hundert sieben und achtzig")
    assert german.year(1702) == ("seventeen oh two", "siebzehn hundert zwei")
    assert german.year(1800) == ("eighteen hundred", "achtzehn hundert")
    small = ("small", "kleine")
    table, lamp, book = (next(noun for noun in german.NOUNS if noun.one == word) for word in ("table", "lamp", "book"))
    assert german.the(table, small).german == "den kleinen Tisch"
    assert german.the(lamp, small).german == "die kleine Lampe"
    assert german.the(book, small).german == "das kleine Buch"
    assert german.the(book, small, plural=True) == ("the small books", "die kleinen Bücher")
    assert german.the(table, None).german == "den Tisch"


def test_phrases_are_many_and_of_few_words(made: dict[str, Parts[Any]]) -> None:
    pairs = [*made["phrases"].train, *made["phrases"].held]
    assert len({pair.source for pair in pairs}) == len(pairs) == 8800
    assert len({word for pair in pairs for word in pair.source.split()}) < 200
    known = {word for pair in made["phrases"].train for word in pair.target.split()}
    assert {word for pair in made["phrases"].held for word in pair.target.split()} <= known
    assert not any("  " in side or side != side.strip() for pair in pairs for side in pair[:2])
