"""Tagged sentences that lie on disk: their words and tags as numbers, one after the other.

N words, F different ones, S sentences, P parts of them, U different words of a batch, C characters of the longest.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self, final

import numpy as np

from statewise.data import (
    AT_ONCE,
    Coded,
    DiskRows,
    ExampleFolder,
    ExampleWriter,
    HeldOut,
    Ids,
    Places,
    Tagged,
    Where,
    hold_out,
    open_examples,
    some_at_once,
    tagged_rows,
)
from statewise.specs import TaggingSpec
from statewise.tasks.tagging.examples import (
    Index,
    Known,
    Sentences,
    broken_span,
    in_parts,
    layout_at,
    refuse_standard_input,
    sentences_sha256,
)

_DISTINCT = 1 << 16  # words whose text is kept


@final
class StoredSentences(DiskRows[Tagged]):
    """Sentences as numbers of words and of tags, and the texts of both."""

    def __init__(
        self, words: Ids, tags: Ids, where: Places, *, text_of: Callable[[int], str], tag_names: Sequence[str]
    ) -> None:
        self._words, self._tags, self._where = words, tags, where
        self._text_of, self._tag_names = text_of, tag_names

    def __len__(self) -> int:
        return len(self._words)

    def __iter__(self) -> Iterator[Tagged]:
        return map(self._made, self._words, self._tags, self._where)

    def chosen(self, index: Sequence[int] | Index) -> Self:
        parts = self._words.chosen(index), self._tags.chosen(index), self._where.chosen(index)
        return type(self)(*parts, text_of=self._text_of, tag_names=self._tag_names)

    @property
    def lengths_N(self) -> Index:
        return self._words.lengths_N

    @property
    def begins_N(self) -> Index:
        """Where each begins, in the column of all words."""
        return self._words.begins_N

    def numbers(self) -> Iterator[Index]:
        """Of the words of each sentence."""
        return iter(self._words)

    def _row(self, at: int) -> Tagged:
        return self._made(self._words[at], self._tags[at], self._where[at])

    def _made(self, words: Index, tags: Index, where: Where) -> Tagged:
        return Tagged(
            tuple(map(self._text_of, words.tolist())), tuple(self._tag_names[tag] for tag in tags.tolist()), where
        )


class Learned(NamedTuple):
    """What a folder knows of the sentences that are learned from."""

    sentences: StoredSentences
    folder: ExampleFolder
    known: Known
    sha256: str
    broken: str  # a span that begins with I-, in words; or nothing

    def rows(self, longest: int) -> Sentences:
        """As a model reads them."""
        begin_P, length_P = in_parts(self.sentences.lengths_N, longest, self.sentences.begins_N)
        rank_F, word_F = self.folder.numbers("rank")[:], self.folder.numbers("form_word")[:]
        vocab = self.known.encoding.characters.vocab
        words_N = Coded(self.folder.numbers("word", below=len(rank_F)), rank_F.__getitem__)
        return Sentences(words_N, begin_P, length_P, word_F, self.folder.ids("form_letters", below=vocab))

    def tags(self) -> Coded:
        """The number of each word's tag among those learned."""
        names = list(self.folder.texts("tag_names"))
        id_K = np.array([self.known.tags.find(name) for name in names], dtype=np.int64)
        return Coded(self.folder.numbers("tag", below=len(names)), id_K.__getitem__)


def open_stored(spec: TaggingSpec) -> tuple[Learned, list[Tagged]]:
    """The sentences to learn from, on disk, and those held out, in memory."""
    folder = open_examples(Path(spec.data.train[0]), "tagging")
    forms, names = folder.texts("forms"), list(folder.texts("tag_names"))
    columns = folder.ids("word", below=len(forms)), folder.ids("tag", below=len(names)), folder.places()
    whole = StoredSentences(*columns, text_of=lru_cache(_DISTINCT)(forms.__getitem__), tag_names=names)
    known = Known.load(spec.words, folder.path)
    facts = folder.fact("sha256", str), folder.fact("broken", str)
    learned = Learned(whole.chosen(folder.part("train")), folder, known, *facts)
    return learned, list(whole.chosen(folder.part("validation")))


def store_sentences(spec: TaggingSpec, writer: ExampleWriter) -> None:
    """Tagged sentences of any number in columns. Every different word is held in memory meanwhile."""
    data = spec.data
    refuse_standard_input(data)
    numbers: dict[str, int] = {}
    kinds: dict[str, int] = {}

    def put(paths: Sequence[str]) -> int:
        rows = (
            sentence
            for path in paths
            for sentence in tagged_rows(path, Counter(), layout=layout_at(data, path), scheme=data.scheme)
        )
        for some in some_at_once(rows):
            words = [[numbers.setdefault(word, len(numbers)) for word in sentence.words] for sentence in some]
            tags = [[kinds.setdefault(tag, len(kinds)) for tag in sentence.tags] for sentence in some]
            writer.ids("word", list(map(np.array, words)), vocab=1 << 32)
            writer.ids("tag", list(map(np.array, tags)), vocab=1 << 32)
            writer.places(sentence.where for sentence in some)
        return writer.rows("word")

    count = first = put(data.train)
    if data.validation:
        count = put(data.validation)
    forms, names = list(numbers), list(kinds)
    for some in some_at_once(forms):
        writer.texts("forms", some)
    writer.texts("tag_names", names)
    read = writer.read()
    columns = read.ids("word", below=len(forms)), read.ids("tag", below=len(names)), read.places()
    whole = StoredSentences(*columns, text_of=forms.__getitem__, tag_names=names)
    if data.validation:
        split = HeldOut(np.arange(first), np.arange(first, count))
    else:
        split = hold_out(count, share=data.held_out, seed=spec.seed)
    writer.parts(*split)
    train = whole.chosen(split.train_N)
    known = Known.learn(spec.words, train)
    order_F = _by_appearance(train.numbers(), len(forms))
    rank_F = np.empty(len(forms), dtype=np.int64)
    rank_F[order_F] = np.arange(len(forms))
    writer.numbers("rank", rank_F)
    for begin in range(0, len(forms), AT_ONCE):
        some = [forms[number] for number in order_F[begin : begin + AT_ONCE]]
        writer.numbers("form_word", known.encoding.words.encode_words(some))
        writer.ids("form_letters", known.encoding.spelled(some), vocab=known.encoding.characters.vocab)
        writer.encoded(begin + len(some), len(forms))
    for name, content in known.files().items():
        writer.file(name, str(content))
    writer.facts |= {"rows": count, "sha256": sentences_sha256(train), "broken": broken_span(train)}


def _by_appearance(sentences: Iterable[Index], count: int) -> Index:
    """The numbers of all words: those of the sentences in order of first appearance, then the others."""
    first_F = np.arange(count) + (1 << 62)
    done = 0
    for some in some_at_once(sentences):
        line = np.concatenate(some)
        number_U, at_U = np.unique(line, return_index=True)
        first_F[number_U] = np.minimum(first_F[number_U], done + at_U)
        done += len(line)
    return np.argsort(first_F, kind="stable")
