"""Translation: commands, counts, dates and times in English, with the one right German for each."""

from statewise.data.embedded import german
from statewise.data.embedded.dice import Dice
from statewise.data.embedded.german import Phrase, Verb
from statewise.data.embedded.parts import Parts, distinct, parts
from statewise.data.lines import Examples, Where
from statewise.data.pairs import Pair

_STREAM = 1


def phrases(*, count: int = 8000, held: int = 800, seed: int = 0) -> Parts[Pair]:
    """Different English sentences, none of those held out among those learned from. Words stand apart."""
    dice = Dice(seed, stream=_STREAM)
    name = f"phrases, seed {seed}"
    made = list(distinct(lambda: _sentence(dice), lambda phrase: phrase.english, count + held))
    pairs = [Pair(phrase.english, phrase.german, Where(name, number, "example")) for number, phrase in enumerate(made)]
    return parts(name, Examples(pairs[:count]), Examples(pairs[count:]))


def _sentence(dice: Dice) -> Phrase:
    kind = dice.below(6)
    if kind == 0:
        return _command(dice)
    if kind == 1:
        return _request(dice)
    if kind == 2:
        return _sequence(dice)
    if kind == 3:
        return _count(dice)
    return _date(dice) if kind == 4 else _appointment(dice)


def _command(dice: Dice) -> Phrase:
    verb, (what, was), around = dice.choice(german.VERBS), _object(dice), _around(dice)
    english = _joined(verb.english, what, verb.english_particle, around.english)
    return Phrase(f"{english} !", f"{_joined(verb.imperative, was, around.german, verb.particle)} !")


def _request(dice: Dice) -> Phrase:
    verb, (what, was), around = dice.choice(german.VERBS), _object(dice), _around(dice)
    asked, gefragt = dice.choice([("could you please", "könntest du bitte"), ("can you", "kannst du")])
    english = _joined(asked, verb.english, what, verb.english_particle, around.english)
    return Phrase(f"{english} ?", f"{_joined(gefragt, was, around.german, _infinitive(verb))} ?")


def _sequence(dice: Dice) -> Phrase:
    """The clause with `before` may come first in both languages, and its German verb is its last word."""
    first, second = dice.choice(german.VERBS), dice.choice(german.VERBS)
    (what, was), (other, anderes) = _object(dice), _object(dice)
    clause = Phrase(
        _joined("before you", second.english, other, second.english_particle),
        _joined("bevor du", anderes, second.particle + second.du),
    )
    command = Phrase(
        _joined(first.english, what, first.english_particle), _joined(first.imperative, was, first.particle)
    )
    if dice.below(2):
        return Phrase(f"{clause.english} , {command.english} !", f"{clause.german} , {command.german} !")
    return Phrase(f"{command.english} {clause.english} !", f"{command.german} , {clause.german} !")


def _count(dice: Dice) -> Phrase:
    count = dice.between(2, 999)
    # German bends a last `ein` to the noun, which no other number does; the next one will do.
    n = german.number(count + (count % 100 == 1))
    noun, place = dice.choice(german.NOUNS), dice.choice(german.PLACES)
    adjective = dice.choice((("", ""), *german.ADJECTIVES))
    english = _joined("there are", n.english, adjective[0], noun.many, place[0])
    return Phrase(f"{english} .", f"{_joined(place[1], 'gibt es', n.german, adjective[1], noun.dinge)} .")


def _date(dice: Dice) -> Phrase:
    (day, tag), (month, monat) = dice.choice(german.WEEKDAYS), dice.choice(german.MONTHS)
    nth, year = german.ordinal(dice.between(1, 28)), german.year(dice.between(1100, 1999))
    return Phrase(
        f"on {day} , the {nth.english} of {month} {year.english} .",
        f"am {tag} , dem {nth.german} {monat} {year.german} .",
    )


def _appointment(dice: Dice) -> Phrase:
    time = german.time_of_day(dice.between(1, 12), 5 * dice.below(12))
    (day, tag), (place, ort) = dice.choice(german.WEEKDAYS), dice.choice(german.PLACES)
    verb, (what, was) = dice.choice(german.VERBS), _object(dice)
    english = _joined("we will", verb.english, what, verb.english_particle, place, f"on {day} at {time.english}")
    return Phrase(f"{english} .", f"{_joined('wir werden am', tag, 'um', time.german, was, ort, _infinitive(verb))} .")


def _infinitive(verb: Verb) -> str:
    return verb.particle + verb.infinitive


def _object(dice: Dice) -> Phrase:
    adjective = dice.choice((None, *german.ADJECTIVES))
    return german.the(dice.choice(german.NOUNS), adjective, plural=dice.below(3) == 0)


def _around(dice: Dice) -> Phrase:
    """Perhaps a place, perhaps a time; German says the time first."""
    place = dice.choice((("", ""), *german.PLACES))
    if dice.below(2):
        return Phrase(*place)
    time = german.time_of_day(dice.between(1, 12), 5 * dice.below(12))
    return Phrase(_joined(place[0], f"at {time.english}"), _joined(f"um {time.german}", place[1]))


def _joined(*words: str) -> str:
    return " ".join(word for word in words if word)
