"""From a spec to tagged sentences, what is learned of their words, and sentences as a tagger reads them.

All words of all sentences stand in one line; a batch is cut out of it without a loop over its rows.
N words, F different ones, P parts of sentences, B of them in a batch, T words of the longest, U different words of
a batch, C characters of the longest.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from statewise.core import onto
from statewise.data import (
    STDIN,
    Coded,
    Ids,
    Labels,
    Layout,
    Tagged,
    Tokenizer,
    format_of,
    hold_out,
    mapped,
    read_tagged,
)
from statewise.data.embedded import source_tags
from statewise.models import Words
from statewise.specs import TaggedDataSpec, UserError, WordsSpec, from_json
from statewise.tasks.baseline import FrequentTag, fit_frequent_tag
from statewise.tasks.folder import fingerprint
from statewise.training import Payload

Index = NDArray[np.int64]


class Batch(NamedTuple):
    words: Words
    lengths_B: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.words.to(device), onto(device, self.lengths_B))


class Letters(NamedTuple):
    """The characters of different words."""

    char_FC: Index
    spelled_F: Index  # how many of each

    def padded(self, different_U: Index) -> tuple[Index, Index]:
        """Of some words, with zeros after their ends."""
        spelled_U = self.spelled_F[different_U]
        return self.char_FC[different_U, : spelled_U.max(initial=1)], spelled_U


class Sentences(NamedTuple):
    """`form_N` is the number of each word among the different ones; a part is `form_N[begin : begin + length]`."""

    form_N: Index | Coded
    begin_P: Index
    length_P: Index
    word_F: Index  # in the vocabulary
    letters: Letters | Ids

    def __len__(self) -> int:
        return len(self.length_P)

    def places(self, part_B: Index) -> tuple[Index, NDArray[np.bool_]]:
        """Where in the line each word of these parts stands, `[B, T]`, and which of them are there at all."""
        length_B = self.length_P[part_B]
        at_T = np.arange(length_B.max(initial=0))
        inside_BT = at_T < length_B[:, None]
        return np.where(inside_BT, self.begin_P[part_B][:, None] + at_T, 0), inside_BT

    def batch(self, part_B: Index) -> Batch:
        place_BT, inside_BT = self.places(part_B)
        # A place that is past a row's end holds the row's first word: no different word is spelled for its sake.
        place_BT = np.where(inside_BT, place_BT, self.begin_P[part_B][:, None])
        form_BT = self.form_N[place_BT]
        different_U, slot_N = np.unique(form_BT, return_inverse=True)
        char_UC, spelled_U = self.letters.padded(different_U)
        words = (self.word_F[form_BT], slot_N.reshape(form_BT.shape), char_UC, spelled_U)
        return Batch(Words(*map(torch.from_numpy, words)), torch.from_numpy(self.length_P[part_B]))


class Encoding(NamedTuple):
    """From words to ids, learned from training sentences alone; kept with the weights."""

    words: Tokenizer
    characters: Tokenizer
    longest: int  # characters of a word

    @property
    def unknown_id(self) -> int:
        assert self.words.unknown_id is not None
        return self.words.unknown_id

    def encode(self, sentences: Sequence[Tagged], parts: tuple[Index, Index]) -> Sentences:
        numbers: dict[str, int] = {}
        form_N = np.array(
            [numbers.setdefault(word, len(numbers)) for sentence in sentences for word in sentence.words],
            dtype=np.int64,
        )
        forms = list(numbers)
        spelled = self.spelled(forms)
        spelled_F = np.array([len(ids) for ids in spelled], dtype=np.int64)
        char_FC = np.zeros((len(forms), spelled_F.max(initial=1)), dtype=np.int64)
        char_FC[np.arange(char_FC.shape[1]) < spelled_F[:, None]] = np.concatenate([np.zeros(0, np.int64), *spelled])
        return Sentences(form_N, *parts, self.words.encode_words(forms), Letters(char_FC, spelled_F))

    def spelled(self, forms: Sequence[str]) -> list[Index]:
        """The characters of words that are read."""
        return [self._ends(ids) for ids in self.characters.encode_many(forms)]

    def _ends(self, ids: Index) -> Index:
        """Of a long word its beginning and its end, where affixes are."""
        if len(ids) <= self.longest:
            return ids
        return np.concatenate([ids[: self.longest // 2], ids[len(ids) - (self.longest - self.longest // 2) :]])


def in_parts(lengths: ArrayLike, longest: int, first_S: Index | None = None) -> tuple[Index, Index]:
    """Where the parts of sentences begin, and how long they are: as few and as equal as `longest` allows.

    `first_S`: where sentences begin, if one does not begin where the one before it ends.
    """
    length_S = np.asarray(lengths, dtype=np.int64)
    count_S = -(-length_S // longest)
    sentence_P = np.repeat(np.arange(len(length_S)), count_S)
    number_P = np.arange(len(sentence_P)) - np.repeat(np.cumsum(count_S) - count_S, count_S)
    count_P, of_P = count_S[sentence_P], length_S[sentence_P]
    begin_P, end_P = of_P * number_P // count_P, of_P * (number_P + 1) // count_P
    first_S = np.cumsum(length_S) - length_S if first_S is None else first_S
    return first_S[sentence_P] + begin_P, end_P - begin_P


# A character that only one word has tells no more than that word does: it is unknown, and so the vector of
# characters that training never showed is learnt.
_CHARACTER_COUNT = 2


def layout_at(spec: TaggedDataSpec, path: str) -> Layout:
    """Standard input has no ending to tell its format by: it is that of the training data."""
    layout = Layout(spec.format, spec.word, spec.tag, spec.comment, spec.encoding)
    if path != STDIN or not spec.train:
        return layout
    return layout._replace(format=format_of(Path(spec.train[0]), layout))


def read_sentences(spec: TaggedDataSpec, paths: Sequence[str]) -> list[Tagged]:
    return [
        sentence for path in paths for sentence in read_tagged(path, layout=layout_at(spec, path), scheme=spec.scheme)
    ]


def read_split(spec: TaggedDataSpec, *, seed: int) -> tuple[list[Tagged], list[Tagged]]:
    """What is learned from and what is held out."""
    refuse_standard_input(spec)
    if not spec.train:
        embedded = source_tags()
        return embedded.train, embedded.held
    sentences = read_sentences(spec, spec.train)
    if spec.validation:
        return sentences, read_sentences(spec, spec.validation)
    split = hold_out(len(sentences), share=spec.held_out, seed=seed)
    return [sentences[i] for i in split.train_N], [sentences[i] for i in split.held_M]


def refuse_standard_input(spec: TaggedDataSpec) -> None:
    if STDIN in (*spec.train, *spec.validation):
        raise UserError("tags cannot be learned from standard input: it is read again later", fix="name files")


def words_of(sentences: Iterable[Tagged]) -> Iterator[str]:
    return (word for sentence in sentences for word in sentence.words)


def tags_of(sentences: Iterable[Tagged]) -> Iterator[str]:
    return (tag for sentence in sentences for tag in sentence.tags)


def sentences_sha256(sentences: Sequence[Tagged]) -> str:
    return fingerprint(words_of(sentences), tags_of(sentences), (str(len(sentence.words)) for sentence in sentences))


def broken_span(sentences: Iterable[Tagged]) -> str:
    """The first word that goes on with a span that has not begun, in words; or nothing."""
    for sentence in sentences:
        for number, (before, tag) in enumerate(zip(("O", *sentence.tags), sentence.tags), start=1):
            if tag.startswith("I-") and before[2:] != tag[2:]:
                return (
                    f"{sentence.where}: word {number} of the sentence has {tag!r} after {before!r}, "
                    "where no span has begun"
                )
    return ""


def learn_encoding(spec: WordsSpec, train: Sequence[Tagged]) -> Encoding:
    vocabulary = Tokenizer.train("whole", words_of(train), vocab=spec.vocab, lower=spec.lower, min_count=spec.min_count)
    alphabet = Tokenizer.train("char", sorted(set(words_of(train))), min_count=_CHARACTER_COUNT)
    return Encoding(vocabulary, alphabet, spec.longest)


class Known(NamedTuple):
    """What is saved with a tagger's weights: vocabularies and tags."""

    encoding: Encoding
    tags: Labels
    lexicon: FrequentTag

    @classmethod
    def learn(cls, spec: WordsSpec, train: Sequence[Tagged]) -> "Known":
        lexicon = fit_frequent_tag(
            *(mapped(train, attrgetter(part), lambda length_N: length_N) for part in ("words", "tags"))
        )
        return cls(learn_encoding(spec, train), Labels.of(tags_of(train)), lexicon)

    @classmethod
    def load(cls, spec: WordsSpec, folder: Path) -> "Known":
        """What `files` left in a folder."""
        words, characters = (Tokenizer.load(folder / name) for name in ("words.json", "characters.json"))
        tags, lexicon = (_text(folder / name) for name in ("labels.json", "lexicon.json"))
        if words.unknown_id is None:
            raise UserError(f"{str(folder / 'words.json')!r} has no unknown word", fix="copy the folder again")
        return cls(Encoding(words, characters, spec.longest), Labels.from_json(tags), lexicon_from_json(lexicon))

    def files(self) -> dict[str, Payload]:
        return {
            "words.json": self.encoding.words.to_json(),
            "characters.json": self.encoding.characters.to_json(),
            "labels.json": self.tags.to_json(),
            "lexicon.json": lexicon_to_json(self.lexicon),
        }


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{str(path)!r} cannot be read: {error}") from None


def lexicon_to_json(lexicon: FrequentTag) -> str:
    return json.dumps({"otherwise": lexicon.otherwise, "words": dict(lexicon.of_word)}, ensure_ascii=False)


def lexicon_from_json(text: str) -> FrequentTag:
    try:
        table = from_json(text)
        return FrequentTag({str(word): str(tag) for word, tag in table["words"].items()}, str(table["otherwise"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError("lexicon.json is not that of a run", fix="the file is damaged: copy it again") from None
