"""From a spec to tagged sentences, and what is learned of their words before training."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from statewise.data import STDIN, Labels, Layout, Tagged, Tokenizer, format_of, hold_out, read_tagged
from statewise.data.embedded import source_tags
from statewise.specs import TaggedDataSpec, UserError, WordsSpec, from_json
from statewise.tasks.baseline import FrequentTag, fit_frequent_tag
from statewise.tasks.tagging.sentences import Encoding
from statewise.training import Payload

# A character that only one word has tells no more than that word does: it is unknown, and so the vector of
# characters that training never showed is learnt.
_CHARACTER_COUNT = 2


def layout_at(spec: TaggedDataSpec, path: str) -> Layout:
    """Standard input has no ending to tell its format by: it is that of the training data."""
    layout = Layout(spec.format, spec.word, spec.tag, spec.comment, spec.encoding)
    if path != STDIN or not spec.train:
        return layout
    return layout._replace(format=format_of(Path(spec.train[0]), layout))


def read_sentences(spec: TaggedDataSpec, paths: Sequence[str], *, tags: bool = True) -> list[Tagged]:
    return [
        sentence
        for path in paths
        for sentence in read_tagged(path, layout=layout_at(spec, path), scheme=spec.scheme, tags=tags)
    ]


def read_split(spec: TaggedDataSpec, *, seed: int) -> tuple[list[Tagged], list[Tagged]]:
    """What is learned from and what is held out."""
    if STDIN in (*spec.train, *spec.validation):
        raise UserError("tags cannot be learned from standard input: it is read again later", fix="name files")
    if not spec.train:
        embedded = source_tags()
        return embedded.train, embedded.held
    sentences = read_sentences(spec, spec.train)
    if spec.validation:
        return sentences, read_sentences(spec, spec.validation)
    split = hold_out(len(sentences), share=spec.held_out, seed=seed)
    return [sentences[i] for i in split.train_N], [sentences[i] for i in split.held_M]


def words_of(sentences: Sequence[Tagged]) -> list[str]:
    return [word for sentence in sentences for word in sentence.words]


def tags_of(sentences: Sequence[Tagged]) -> list[str]:
    return [tag for sentence in sentences for tag in sentence.tags]


def learn_encoding(spec: WordsSpec, train: Sequence[Tagged]) -> Encoding:
    words = words_of(train)
    vocabulary = Tokenizer.train("whole", words, vocab=spec.vocab, lower=spec.lower, min_count=spec.min_count)
    alphabet = Tokenizer.train("char", sorted(set(words)), min_count=_CHARACTER_COUNT)
    return Encoding(vocabulary, alphabet, spec.longest)


class Known(NamedTuple):
    """What is saved with a tagger's weights: vocabularies and tags."""

    encoding: Encoding
    tags: Labels
    lexicon: FrequentTag

    @classmethod
    def learn(cls, spec: WordsSpec, train: Sequence[Tagged]) -> "Known":
        lexicon = fit_frequent_tag([sentence.words for sentence in train], [sentence.tags for sentence in train])
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
