"""Just enough English and German for exact translations: numbers, dates, times, and who does what to what.

German puts the ones before the tens, half past seven before eight, the second half of a verb at the end, and
bends articles and adjectives to the noun. Numbers are written apart, so that they are made of known words.
"""

from typing import NamedTuple


class Noun(NamedTuple):
    """`gender` is m, f or n; `the_many` is the German plural."""

    one: str
    many: str
    gender: str
    ding: str
    dinge: str


class Verb(NamedTuple):
    """`open … / öffne … particle`; in a clause that begins with `bevor`, `particle + öffnest`."""

    english: str
    english_particle: str
    imperative: str
    du: str
    infinitive: str
    particle: str = ""


class Phrase(NamedTuple):
    english: str
    german: str


def _listed(words: str) -> list[str]:
    return words.split()


NOUNS = (
    Noun("lamp", "lamps", "f", "Lampe", "Lampen"),
    Noun("door", "doors", "f", "Tür", "Türen"),
    Noun("window", "windows", "n", "Fenster", "Fenster"),
    Noun("table", "tables", "m", "Tisch", "Tische"),
    Noun("box", "boxes", "f", "Kiste", "Kisten"),
    Noun("book", "books", "n", "Buch", "Bücher"),
    Noun("letter", "letters", "m", "Brief", "Briefe"),
    Noun("clock", "clocks", "f", "Uhr", "Uhren"),
    Noun("picture", "pictures", "n", "Bild", "Bilder"),
    Noun("coat", "coats", "m", "Mantel", "Mäntel"),
    Noun("bottle", "bottles", "f", "Flasche", "Flaschen"),
    Noun("device", "devices", "n", "Gerät", "Geräte"),
    Noun("key", "keys", "m", "Schlüssel", "Schlüssel"),
    Noun("suitcase", "suitcases", "m", "Koffer", "Koffer"),
)
ADJECTIVES = (
    ("old", "alte"),
    ("new", "neue"),
    ("small", "kleine"),
    ("big", "große"),
    ("red", "rote"),
    ("green", "grüne"),
    ("heavy", "schwere"),
    ("beautiful", "schöne"),
    ("broken", "kaputte"),
    ("long", "lange"),
)
PLACES = (
    ("in the kitchen", "in der Küche"),
    ("in the garden", "im Garten"),
    ("in the house", "im Haus"),
    ("behind the school", "hinter der Schule"),
    ("next to the bed", "neben dem Bett"),
    ("under the roof", "unter dem Dach"),
    ("at the station", "am Bahnhof"),
    ("in the cellar", "im Keller"),
)
VERBS = (
    Verb("open", "", "öffne", "öffnest", "öffnen"),
    Verb("close", "", "schließe", "schließt", "schließen"),
    Verb("clean", "", "putze", "putzt", "putzen"),
    Verb("look for", "", "suche", "suchst", "suchen"),
    Verb("repair", "", "repariere", "reparierst", "reparieren"),
    Verb("carry", "away", "trage", "trägst", "tragen", "weg"),
    Verb("switch", "on", "schalte", "schaltest", "schalten", "ein"),
    Verb("switch", "off", "schalte", "schaltest", "schalten", "aus"),
    Verb("bring", "back", "bringe", "bringst", "bringen", "zurück"),
    Verb("pick", "up", "hebe", "hebst", "heben", "auf"),
    Verb("put", "down", "stelle", "stellst", "stellen", "ab"),
    Verb("take", "along", "nimm", "nimmst", "nehmen", "mit"),
)
WEEKDAYS = tuple(
    zip(
        _listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
        _listed("Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag"),
    )
)
MONTHS = tuple(
    zip(
        _listed("January February March April May June July August September October November December"),
        _listed("Januar Februar März April Mai Juni Juli August September Oktober November Dezember"),
    )
)

_ONES = _listed(
    "zero one two three four five six seven eight nine "
    "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
_TENS = _listed("_ _ twenty thirty forty fifty sixty seventy eighty ninety")
_EINER = _listed(
    "null eins zwei drei vier fünf sechs sieben acht neun "
    "zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
)
_ZEHNER = _listed("_ _ zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig")
_IRREGULAR_TH = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth"}
_IRREGULAR_TH |= {"nine": "ninth", "twelve": "twelfth"}
_IRREGULAR_TE = {"eins": "erste", "drei": "dritte", "sieben": "siebte", "acht": "achte"}
_ARTICLE = {"m": "den", "f": "die", "n": "das"}


def number(n: int) -> Phrase:
    """From 0 to 9999: `two hundred and forty one` is `zwei hundert ein und vierzig`."""
    assert 0 <= n < 10_000
    return Phrase(_english(n), _german(n))


def ordinal(n: int) -> Phrase:
    """From 1 to 99, the German one as after `dem`: `twenty first`, `ein und zwanzigsten`."""
    assert 1 <= n < 100
    *first, last = _english(n).split()
    ending = last[:-1] + "ieth" if last.endswith("y") else _IRREGULAR_TH.get(last, f"{last}th")
    german = _german(n)
    *vorn, letzte = german.split()
    te = f"{letzte}ste" if n >= 20 else _IRREGULAR_TE.get(letzte, f"{letzte}te")
    return Phrase(" ".join([*first, ending]), " ".join([*vorn, f"{te}n"]))


def year(n: int) -> Phrase:
    """From 1100 to 1999, as said: `nineteen eighty seven`, `neunzehn hundert sieben und achtzig`."""
    assert 1100 <= n < 2000
    century, rest = divmod(n, 100)
    english = f"{_english(century)} {_english(rest) if rest >= 10 else f'oh {_english(rest)}' if rest else 'hundred'}"
    return Phrase(english, f"{_german(century)} hundert {_german(rest)}" if rest else f"{_german(century)} hundert")


def time_of_day(hour: int, minutes: int) -> Phrase:
    """Hours from 1 to 12, minutes in fives. From twenty past to twenty to, German counts from the half hour."""
    assert 1 <= hour <= 12
    assert minutes in range(0, 60, 5)
    after = hour % 12 + 1
    this, following = number(hour), number(after)
    if minutes == 0:
        spoken = this.german if hour > 1 else "ein"
        return Phrase(f"{this.english} o'clock", f"{spoken} Uhr")
    if minutes == 30:
        return Phrase(f"half past {this.english}", f"halb {following.german}")
    past = minutes < 30
    gap = minutes if past else 60 - minutes
    english = "quarter" if gap == 15 else _english(gap)
    english = f"{english} {'past' if past else 'to'} {(this if past else following).english}"
    if gap == 25:
        return Phrase(english, f"fünf {'vor' if past else 'nach'} halb {following.german}")
    german = "viertel" if gap == 15 else _german(gap)
    return Phrase(english, f"{german} {'nach' if past else 'vor'} {(this if past else following).german}")


def the(noun: Noun, adjective: tuple[str, str] | None, *, plural: bool = False) -> Phrase:
    """The noun as the object of a verb: article and adjective in the accusative."""
    word, wort = (noun.many, noun.dinge) if plural else (noun.one, noun.ding)
    article = "die" if plural else _ARTICLE[noun.gender]
    if adjective is None:
        return Phrase(f"the {word}", f"{article} {wort}")
    weak = adjective[1] + ("n" if plural or noun.gender == "m" else "")
    return Phrase(f"the {adjective[0]} {word}", f"{article} {weak} {wort}")


def _english(n: int) -> str:
    if n < 20:
        return _ONES[n]
    if n < 100:
        return _TENS[n // 10] + (f" {_ONES[n % 10]}" if n % 10 else "")
    if n < 1000:
        return f"{_ONES[n // 100]} hundred" + (f" and {_english(n % 100)}" if n % 100 else "")
    rest = n % 1000
    return f"{_ONES[n // 1000]} thousand" + (f" {'and ' if rest < 100 else ''}{_english(rest)}" if rest else "")


def _german(n: int) -> str:
    if n < 20:
        return _EINER[n]
    if n < 100:
        ones = f"{_stem(n % 10)} und " if n % 10 else ""
        return ones + _ZEHNER[n // 10]
    if n < 1000:
        return f"{_stem(n // 100)} hundert" + (f" {_german(n % 100)}" if n % 100 else "")
    return f"{_stem(n // 1000)} tausend" + (f" {_german(n % 1000)}" if n % 1000 else "")


def _stem(digit: int) -> str:
    return "ein" if digit == 1 else _EINER[digit]
