"""What a translator reads and writes: pairs of texts (or what stands for them) as tokens.

B batch, S source time, T target time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from statewise.core import onto
from statewise.data import (
    Texts,
    Tokenizer,
    Where,
    chosen,
    lengths_of,
    limit_length,
    mapped,
    pad,
    space_characters,
    unsegmented,
)
from statewise.specs import PairDataSpec, UserError, from_json
from statewise.tasks.folder import fingerprint
from statewise.tasks.metric.translation import Parting, sacre_tokens
from statewise.tasks.translation.sides import (
    ClassSource,
    Levels,
    Source,
    SourceRow,
    TextSource,
    VectorSource,
    learn_levels,
    load_source,
    padded,
)
from statewise.training import Payload

Ids = NDArray[np.int64]

_IGNORED = -100  # what `cross_entropy` passes over


class Encoded(NamedTuple):
    """Both sides as ids, by the vocabularies of `made_by`; and what was found of the training pairs."""

    sources: Sequence[SourceRow]
    targets: Sequence[Ids]
    made_by: str  # sha256
    sha256: str
    frequent: str


@dataclass(frozen=True)
class Pairs:
    """Sources, targets and their places, as they were read: lists, or rows on disk with their ids."""

    sources: Sequence[str]
    targets: Sequence[str]
    where: Sequence[Where]
    left_out: Mapping[str, int] = field(default_factory=dict)  # what of the files is not among them
    encoded: Encoded | None = None

    def __len__(self) -> int:
        return len(self.sources)

    def chosen(self, index: Sequence[int] | Ids) -> "Pairs":
        sources, targets = chosen(self.sources, index), chosen(self.targets, index)
        encoded = self.encoded and self.encoded._replace(
            sources=chosen(self.encoded.sources, index), targets=chosen(self.encoded.targets, index)
        )
        return Pairs(sources, targets, chosen(self.where, index), self.left_out, encoded)

    @property
    def sha256(self) -> str:
        return self.encoded.sha256 if self.encoded else fingerprint(self.sources, self.targets)


class Batch(NamedTuple):
    """A start symbol stands before the target that is read, and an end symbol after the one that is written."""

    source: Tensor  # [B, S] tokens, or [B, S, I] numbers
    source_length_B: Tensor
    input_BT: Tensor
    target_BT: Tensor  # past a row's end: passed over by the loss
    length_B: Tensor
    whole_B: Tensor  # words of the whole target, however much of it is read

    def chosen(self, some: slice) -> "Batch":
        return Batch(*(part[some] for part in self))

    def to(self, device: torch.device) -> "Batch":
        return Batch(*(onto(device, part) for part in self))


@dataclass(frozen=True)
class Rows:
    """Pairs as ids, each side with the end symbol after it. `cut` of them were longer than is read.

    A target that was cut has no end: where it would have ended is not known.
    """

    sources: Sequence[SourceRow]
    targets: Sequence[Ids]
    whole: Ids  # words of each target, before it was cut
    cut: int

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def lengths(self) -> Ids:
        return lengths_of(self.sources) + lengths_of(self.targets)

    def first(self, tokens: int | None) -> "Rows":
        """As many of the first rows as have no more than so many target tokens; at least one."""
        if tokens is None:
            return self
        total_N = np.cumsum(lengths_of(self.targets))
        count = max(1, int(np.searchsorted(total_N, tokens, side="right")))
        return replace(self, sources=self.sources[:count], targets=self.targets[:count], whole=self.whole[:count])

    def batch(self, index: Ids, start_id: int) -> Batch:
        source, source_length_B = padded([self.sources[i] for i in index])
        targets = [self.targets[i] for i in index]
        input_BT, length_B = pad([np.append(start_id, target[:-1]) for target in targets], value=start_id)
        target_BT, _ = pad(targets, value=_IGNORED)
        whole_B = torch.from_numpy(self.whole[index])
        return Batch(source, source_length_B, input_BT, target_BT, length_B, whole_B)


class Languages(NamedTuple):
    """How sources are read and targets written; kept with the weights."""

    source: Source
    target: Tokenizer
    longest: int
    levels: Levels | None  # where targets are series

    @classmethod
    def learn(cls, spec: PairDataSpec, train: Pairs) -> "Languages":
        """From the training part alone."""
        if train.encoded is not None:
            return cls.load(spec, Path(spec.train[0]))
        if spec.shared_vocab:
            both = chain(train.sources, train.targets)
            one = _tokenizer(
                spec.tokenizer, both, spec.vocab, spec.lower, spec.min_count, side="both sides (data.tokenizer)"
            )
            return cls.of(spec, TextSource(one, longest=spec.longest, reverse=spec.reverse), one)
        if spec.target_kind == "series":
            return cls.of(spec, _learn_source(spec, train), learn_levels(train.targets, train.where, spec.levels))
        target = _tokenizer(
            spec.target_tokenizer or spec.tokenizer,
            train.targets,
            spec.vocab if spec.target_vocab is None else spec.target_vocab,
            spec.lower if spec.target_lower is None else spec.target_lower,
            spec.min_count if spec.target_min_count is None else spec.target_min_count,
            side="the targets (data.target_tokenizer)",
        )
        return cls.of(spec, _learn_source(spec, train), target)

    @classmethod
    def of(cls, spec: PairDataSpec, source: Source, target: Tokenizer) -> "Languages":
        return cls(source, target, spec.longest, Levels(target) if spec.target_kind == "series" else None)

    @classmethod
    def load(cls, spec: PairDataSpec, folder: Path) -> "Languages":
        """What `files` left in a folder."""
        source = load_source(spec, folder)
        if spec.shared_vocab:
            assert isinstance(source, TextSource)
            return cls.of(spec, source, source.tokenizer)
        return cls.of(spec, source, Tokenizer.load(folder / "target.json"))

    @property
    def source_vocab(self) -> int:
        return self.source.inputs()["source_vocab"]

    @property
    def shared(self) -> bool:
        """Whether both sides have one vocabulary."""
        return isinstance(self.source, TextSource) and self.source.tokenizer is self.target

    def files(self) -> dict[str, Payload]:
        if self.shared:
            return {"tokenizer.json": self.target.to_json()}
        return {**self.source.files(), "target.json": self.target.to_json()}

    @property
    def sha256(self) -> str:
        return fingerprint([f"{name}\n{content!s}" for name, content in sorted(self.files().items())])

    def encode(self, pairs: Pairs) -> Rows:
        """Of every pair, what is read of it."""
        return self.rows(*self.sides(pairs))

    def sides(self, pairs: Pairs) -> tuple[Sequence[SourceRow], Sequence[Ids]]:
        """All ids of sources and of targets."""
        if pairs.encoded is not None and pairs.encoded.made_by == self.sha256:
            return pairs.encoded.sources, pairs.encoded.targets
        return self.source.encode(pairs.sources, pairs.where), self.encode_targets(pairs.targets, pairs.where)

    def encode_targets(self, texts: Sequence[str], where: Sequence[object] | None = None) -> list[Ids]:
        if self.levels is not None:
            places = where or [f"target {number}" for number in range(len(texts))]
            texts = [self.levels.rounded(text, place) for text, place in zip(texts, places)]
        return self.target.encode_many(list(texts))

    def rows(self, sources: Sequence[SourceRow], targets: Sequence[Ids]) -> Rows:
        """From whole sources and the ids of whole targets to what is read of them."""
        whole_N = lengths_of(targets)
        cut = int((np.maximum(lengths_of(sources), whole_N) > self.longest).sum())
        ended = mapped(
            targets,
            lambda target: np.append(target, self.target.end_id)[: self.longest + 1],
            lambda length_N: np.minimum(length_N, self.longest) + 1,
        )
        return Rows(mapped(sources, self.source.as_read, self.source.length_as_read), ended, whole_N, cut)

    def parting(self, spec: PairDataSpec, targets: Sequence[str]) -> Parting:
        """What counts as a word of these targets, for figures: what the vocabulary takes for one, if it knows words.

        Otherwise what spaces part, or a character where there are none. A vocabulary that parts marks and characters
        writes its words otherwise than the targets have them, so both are parted alike.
        """
        again = (self.target.decode(self.target.encode(text)) for text in targets)
        characters = unsegmented(targets) is not None or unsegmented(again) is not None
        tokenize = sacre_tokens(spec.bleu, targets, characters=characters)
        if (spec.target_tokenizer or spec.tokenizer) == "wordpunct":
            return Parting(tokenize, self.target.part, "words parted from marks, as the vocabulary has them")
        return (
            Parting(tokenize, space_characters, "each character counts as a word") if characters else Parting(tokenize)
        )

    def encode_sources(self, texts: Sequence[str]) -> list[SourceRow]:
        return [self.source.as_read(source) for source in self.source.encode(texts)]


def _learn_source(spec: PairDataSpec, train: Pairs) -> Source:
    match spec.source_kind:
        case "class":
            return ClassSource.learn(train.sources)
        case "vector":
            return VectorSource.learn(train.sources, train.where)
        case "text":
            side = "the sources (data.tokenizer, and data.target_tokenizer if the targets keep theirs)"
            made = _tokenizer(spec.tokenizer, train.sources, spec.vocab, spec.lower, spec.min_count, side=side)
            return TextSource(made, longest=spec.longest, reverse=spec.reverse)


def _tokenizer(
    kind: str, texts: Iterable[str], vocab: int | None, lower: bool, min_count: int, *, side: str
) -> Tokenizer:
    named = Path(kind)
    if named.suffix == ".json":
        return Tokenizer.load(named)
    try:
        return Tokenizer.train(kind, texts, vocab=vocab, lower=lower, min_count=min_count)
    except UserError as error:
        what, fix = error.marked
        raise UserError(f"{side}: {what}", fix=fix) from None


def learnable(spec: PairDataSpec, languages: Languages, pairs: Pairs) -> tuple[Rows, int]:
    """The training pairs that stay, and how many were too long."""
    sources, targets = languages.sides(pairs)
    length_N = np.maximum(lengths_of(sources), lengths_of(targets))
    found = limit_length(length_N, longest=spec.longest, beyond=spec.beyond, where=pairs.where)
    if not len(found.kept):
        raise UserError(
            f"all {len(pairs)} pairs are longer than data.longest = {spec.longest}",
            fix=f"raise it (the longest has {length_N.max()} tokens), or set data.beyond = cut",
        )
    if len(found.kept) < len(pairs):
        sources, targets = chosen(sources, found.kept), chosen(targets, found.kept)
    return languages.rows(sources, targets), found.beyond


def most_frequent(targets: Sequence[str]) -> str:
    """What to write without having read anything; of several, the one that came first."""
    if isinstance(targets, Texts):
        return targets.most_frequent()
    return Counter(targets).most_common(1)[0][0]


def load_frequent(text: str) -> str:
    try:
        found = from_json(text)
    except ValueError:
        found = None
    if not isinstance(found, str):
        raise UserError("frequent.json does not hold a text")
    return found


def batches_of(lengths_N: ArrayLike, *, tokens: int) -> Iterator[Ids]:
    """Every row once, the shortest first, in batches of at most so many tokens, padding included."""
    length_N = np.asarray(lengths_N, dtype=np.int64)
    order_N = np.argsort(length_N, kind="stable")
    begin = 0
    while begin < len(order_N):
        sizes = length_N[order_N[begin:]] * np.arange(1, len(order_N) - begin + 1)  # never falls: the order is sorted
        count = max(1, int(np.searchsorted(sizes, tokens, side="right")))
        yield order_N[begin : begin + count]
        begin += count
