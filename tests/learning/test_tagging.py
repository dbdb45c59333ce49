"""Taggers learn what they were made for: the embedded data, words never seen by their spelling, chains of tags."""

import random
from pathlib import Path
from typing import Any

import pytest

import statewise
from statewise.tasks.tagging import TaggingEvaluation
from statewise.training.progress import Silent

SMALL: dict[str, Any] = {
    "words.width": 8,
    "words.characters": 8,
    "words.character_width": 8,
    "model.width": 12,
    "train.batch": 16,
    "train.lr": 2e-2,
    "train.warmup": 10,
    "train.evaluate_every": 60,
}


def learn(settings: dict[str, Any], *, out: Path, **data: Path) -> TaggingEvaluation:
    given = {f"data.{name}": [str(path)] for name, path in data.items()}
    trained = statewise.train("tagging", settings={**settings, **given}, out=out, display=Silent())
    found = statewise.load(trained.path).evaluate()
    assert isinstance(found, TaggingEvaluation)
    return found


def write(path: Path, sentences: list[list[tuple[str, str]]]) -> Path:
    path.write_text("\n\n".join("\n".join(f"{word}\t{tag}" for word, tag in one) for one in sentences) + "\n")
    return path


@pytest.mark.slow
def test_the_recipe_beats_the_most_frequent_tag_on_the_embedded_data(tmp_path: Path) -> None:
    short = {"train.steps": 120, "train.evaluate_every": 120, "train.warmup": 20}
    found = learn(short, out=tmp_path / "run")
    assert found.accuracy > found.lexicon_accuracy + 0.1
    assert found.lexicon_accuracy > found.majority_accuracy
    assert found.new_word_accuracy is not None
    assert found.new_word_accuracy > 0.85
    assert found.macro_f1 > found.lexicon_macro_f1


def stems(count: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    return ["".join(dice.choices("abdeghlmnoprtuv", k=dice.randint(2, 5))) for _ in range(count)]


@pytest.mark.slow
def test_spelling_tags_words_that_training_never_showed(tmp_path: Path) -> None:
    """The ending is the tag, and every held-out stem is new. Without characters nothing is left to go by."""
    endings = {"ski": "ADJ", "je": "VERB", "ost": "NOUN", "no": "ADV"}

    def text(seed: int, count: int) -> list[list[tuple[str, str]]]:
        dice = random.Random(seed)
        words = [
            (stem + ending, endings[ending]) for stem in stems(4 * count, seed) for ending in [dice.choice([*endings])]
        ]
        return [words[i : i + 4] for i in range(0, len(words), 4)]

    train = write(tmp_path / "train.txt", text(1, 200))
    held = write(tmp_path / "held.txt", text(2, 60))
    figures = {}
    for characters in (8, 0):
        settings = {**SMALL, "train.steps": 120, "words.characters": characters}
        found = learn(settings, out=tmp_path / f"{characters}", train=train, validation=held)
        assert found.new_words > 0.9 * found.words
        figures[characters] = found.new_word_accuracy or 0.0
    assert figures[8] > 0.95
    assert figures[0] < 0.45


def test_a_chain_carries_what_the_reader_cannot_see(tmp_path: Path) -> None:
    """Tags alternate; one word of each sentence tells which way. This reader sees two words at a time."""

    def text(seed: int, count: int) -> list[list[tuple[str, str]]]:
        dice = random.Random(seed)
        found = []
        for _ in range(count):
            length, first = dice.randint(5, 9), dice.randrange(2)
            tags = ["AB"[(first + i) % 2] for i in range(length)]
            told = dice.randrange(length)
            found.append([(tag.lower() if i == told else "x", tag) for i, tag in enumerate(tags)])
        return found

    train, held = (write(tmp_path / f"{seed}.txt", text(seed, 150)) for seed in (1, 2))
    figures = {}
    for kind in ("categorical", "crf"):
        settings = {**SMALL, "train.steps": 120, "objective.kind": kind, "model.kind": "window", "model.order": 2}
        settings |= {"reader.bidirectional": False, "words.word_dropout": 0.0}
        found = learn(settings, out=tmp_path / kind, train=train, validation=held)
        figures[kind] = found.accuracy
    assert figures["crf"] > 0.99
    assert figures["categorical"] < 0.8
