"""Translation: commands, counts, dates and times in English, with the one right German for each."""

from collections.abc import Callable

from statewise.data.embedded import german
from statewise.data.embedded.german import Phrase, Verb
from statewise.data.embedded.parts import Parts, Rng, distinct, parts
from statewise.data.lines import Examples, Where
from statewise.data.pairs import Pair

_STREAM, _KINDS_STREAM = 1, 11


def phrases(*, count: int = 8000, held: int = 800, seed: int = 0) -> Parts[Pair]:
    """Different English sentences, none of those held out among those learned from. Words stand apart."""
    rng = Rng(seed, stream=_STREAM)
    name = f"phrases, seed {seed}"
    sentences = list(distinct(lambda: _sentence(rng), lambda phrase: phrase.english, count + held))
    pairs = [
        Pair(phrase.english, phrase.german, Where(name, number, "example")) for number, phrase in enumerate(sentences)
    ]
    return parts(name, Examples(pairs[:count]), Examples(pairs[count:]))


def kinds_of_phrases(*, count: int = 4000, held: int = 400, seed: int = 0) -> Parts[Pair]:
    """Pairs of a class, such as `german date`, and one of its many sentences; all sentences are different."""
    rng = Rng(seed, stream=_KINDS_STREAM)
    name = f"kinds of phrases, seed {seed}"

    def draw() -> tuple[str, str]:
        kind, german_side = rng.choice(list(_KINDS)), rng.below(2)
        phrase = _KINDS[kind](rng)
        return (f"german {kind}", phrase.german) if german_side else (f"english {kind}", phrase.english)

    rows = list(distinct(draw, lambda row: row[1], count + held))
    pairs = [Pair(*row, Where(name, number, "example")) for number, row in enumerate(rows)]
    return parts(name, Examples(pairs[:count]), Examples(pairs[count:]))


def _sentence(rng: Rng) -> Phrase:
    return rng.choice(list(_KINDS.values()))(rng)


def _command(rng: Rng) -> Phrase:
    verb, (what, was), around = rng.choice(german.VERBS), _object(rng), _around(rng)
    english = _joined(verb.english, what, verb.english_particle, around.english)
    return Phrase(f"{english} !", f"{_joined(verb.imperative, was, around.german, verb.particle)} !")


def _request(rng: Rng) -> Phrase:
    verb, (what, was), around = rng.choice(german.VERBS), _object(rng), _around(rng)
    request, bitte = rng.choice([("could you please", "könntest du bitte"), ("can you", "kannst du")])
    english = _joined(request, verb.english, what, verb.english_particle, around.english)
    return Phrase(f"{english} ?", f"{_joined(bitte, was, around.german, _infinitive(verb))} ?")


def _sequence(rng: Rng) -> Phrase:
    """The clause with `before` may come first in both languages, and its German verb is its last word."""
    first, second = rng.choice(german.VERBS), rng.choice(german.VERBS)
    (what, was), (other, anderes) = _object(rng), _object(rng)
    clause = Phrase(
        _joined("before you", second.english, other, second.english_particle),
        _joined("bevor du", anderes, second.particle + second.du),
    )
    command = Phrase(
        _joined(first.english, what, first.english_particle), _joined(first.imperative, was, first.particle)
    )
    if rng.below(2):
        return Phrase(f"{clause.english} , {command.english} !", f"{clause.german} , {command.german} !")
    return Phrase(f"{command.english} {clause.english} !", f"{command.german} , {clause.german} !")


def _count(rng: Rng) -> Phrase:
    count = rng.between(2, 999)
    # German bends a last `ein` to the noun, which no other number does; the next one will do.
    n = german.number(count + (count % 100 == 1))
    noun, place = rng.choice(german.NOUNS), rng.choice(german.PLACES)
    adjective = rng.choice((("", ""), *german.ADJECTIVES))
    english = _joined("there are", n.english, adjective[0], noun.many, place[0])
    return Phrase(f"{english} .", f"{_joined(place[1], 'gibt es', n.german, adjective[1], noun.dinge)} .")


def _date(rng: Rng) -> Phrase:
    (day, tag), (month, monat) = rng.choice(german.WEEKDAYS), rng.choice(german.MONTHS)
    nth, year = german.ordinal(rng.between(1, 28)), german.year(rng.between(1100, 1999))
    return Phrase(
        f"on {day} , the {nth.english} of {month} {year.english} .",
        f"am {tag} , dem {nth.german} {monat} {year.german} .",
    )


def _appointment(rng: Rng) -> Phrase:
    time = german.time_of_day(rng.between(1, 12), 5 * rng.below(12))
    (day, tag), (place, ort) = rng.choice(german.WEEKDAYS), rng.choice(german.PLACES)
    verb, (what, was) = rng.choice(german.VERBS), _object(rng)
    english = _joined("we will", verb.english, what, verb.english_particle, place, f"on {day} at {time.english}")
    return Phrase(f"{english} .", f"{_joined('wir werden am', tag, 'um', time.german, was, ort, _infinitive(verb))} .")


def _infinitive(verb: Verb) -> str:
    return verb.particle + verb.infinitive


def _object(rng: Rng) -> Phrase:
    adjective = rng.choice((None, *german.ADJECTIVES))
    return german.the(rng.choice(german.NOUNS), adjective, plural=rng.below(3) == 0)


def _around(rng: Rng) -> Phrase:
    """Perhaps a place, perhaps a time; German says the time first."""
    place = rng.choice((("", ""), *german.PLACES))
    if rng.below(2):
        return Phrase(*place)
    time = german.time_of_day(rng.between(1, 12), 5 * rng.below(12))
    return Phrase(_joined(place[0], f"at {time.english}"), _joined(f"um {time.german}", place[1]))


def _joined(*words: str) -> str:
    return " ".join(word for word in words if word)


_KINDS: dict[str, Callable[[Rng], Phrase]] = {
    "command": _command,
    "request": _request,
    "sequence": _sequence,
    "count": _count,
    "date": _date,
    "appointment": _appointment,
}
