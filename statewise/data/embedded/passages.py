"""Memory as plain English: "I grew up in Italy . … I speak fluent" is `Italian`, many words later."""

from functools import lru_cache, partial

from statewise.data.embedded.parts import Parts, Rng, distinct
from statewise.data.embedded.probes import drawn
from statewise.data.labelled import Labelled
from statewise.data.lines import Where
from statewise.specs import SHORTEST_PASSAGE

_STREAM = 11
_LANGUAGES = {
    "Italy": "Italian",
    "France": "French",
    "Spain": "Spanish",
    "Germany": "German",
    "Poland": "Polish",
    "Japan": "Japanese",
    "Greece": "Greek",
    "Turkey": "Turkish",
}
_COUNTRIES = tuple(_LANGUAGES)
_NAMES = ("Anna", "Peter", "Maria", "Tom", "Clara", "David")
_OPENINGS = ("I grew up in", "I was raised in", "I was born in")
_ENDINGS = ("I speak fluent", "I still speak", "I write good")
# Of 3 to 9 words, the stop counted, so that any number of words but 1 and 2 can be filled exactly.
_SENTENCES = (
    "it rained .",
    "{name} laughed .",
    "time passed .",
    "nobody was surprised .",
    "{name} baked bread .",
    "we moved twice .",
    "the house was small .",
    "{name} played the piano .",
    "our winters were cold .",
    "our garden had two trees .",
    "{name} taught me to swim .",
    "on Sundays the shops were closed .",
    "we had a dog and two cats .",
    "at night {name} read us a story .",
    "every morning {name} walked to the market .",
    "later {name} moved to a town by the sea .",
)
# Another country, which is not the answer.
_OTHERS = (
    "{name} came from {country} .",
    "my aunt lived in {country} .",
    "the coffee was from {country} .",
    "a letter from {country} arrived .",
    "once we took the train to {country} .",
    "{name} sold shoes in {country} for a year .",
)
_OTHER_SHARE = 3  # one sentence in so many names another country
_FIXED = 5  # words from the country to the answer without a sentence between


@lru_cache(maxsize=1)  # a trial reads the same rows to train, to evaluate and to show answers
def passages(*, distance: int = 64, count: int = 20_000, held: int = 250, seed: int = 0) -> Parts[Labelled]:
    """Passages that begin with a country; the label is its language, the next word of the passage.

    The distance is the number of words from the country to the label. There are `held` held-out rows of each of
    `distance`, half of it, a quarter, and so on; training rows have all distances between, each half as often as each
    half as long. Other countries are named in between, so counting words is not enough.
    """
    assert distance >= SHORTEST_PASSAGE
    rng = Rng(seed, stream=_STREAM)
    name = f"passages, distance {distance}, seed {seed}"

    def draw(words: int) -> Labelled:
        country = rng.choice(_COUNTRIES)
        sentences = [f"{rng.choice(_OPENINGS)} {country} ."]
        left = words - _FIXED
        while left:
            kinds = _OTHERS if rng.below(_OTHER_SHARE) == 0 else _SENTENCES
            fitting = _fitting(kinds, left) or _fitting(_SENTENCES, left)
            sentence = rng.choice(fitting)
            left -= len(sentence.split())
            sentences.append(sentence.format(name=rng.choice(_NAMES), country=rng.choice(_COUNTRIES)))
        text = " ".join([*sentences, rng.choice(_ENDINGS)])
        return Labelled(text, _LANGUAGES[country], Where(name, 0, "example"))

    halves = [distance >> shift for shift in range(distance.bit_length()) if distance >> shift >= SHORTEST_PASSAGE]
    asked = [row for words in halves for row in distinct(partial(draw, words), lambda row: row.text, held)]

    def draw_train() -> Labelled:
        longest = rng.choice(halves)
        return draw(rng.between(longest // 2 + 1, longest) if longest > halves[-1] else longest)

    return drawn(name, iter(asked).__next__, len(asked), draw_train, count)


def distance_of(passage: str) -> int:
    """Words from the first country to the answer.

    >>> distance_of("I grew up in Italy . it rained . I speak fluent")
    8
    """
    words = passage.split()
    return len(words) - next(place for place, word in enumerate(words) if word in _LANGUAGES)


@lru_cache(maxsize=1024)
def _fitting(sentences: tuple[str, ...], left: int) -> tuple[str, ...]:
    """Those after which what is left can be filled too."""
    rest = {sentence: left - len(sentence.split()) for sentence in sentences}
    return tuple(sentence for sentence in sentences if rest[sentence] == 0 or rest[sentence] >= 3)
