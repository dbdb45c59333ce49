"""A tagger's sentences under a lens.

N copies of a sentence (of all answers: words), P parts, B of them in a batch, T words, E width, K tags.
"""

from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from torch import Tensor

from statewise.data import Tagged, evaluation_batches
from statewise.models import Tagger
from statewise.specs import TaggingSpec
from statewise.tasks.specimen import (
    Choices,
    Floats,
    Index,
    Poll,
    ReaderParts,
    Specimen,
    Specimens,
    Words,
    choices,
    chosen_nats,
    position,
    seen_order,
)
from statewise.tasks.tagging.examples import Known, tags_of
from statewise.tasks.tagging.job import encode

_WORDS = 1 << 14  # in a batch
_LEAST = 1e-12  # a constraint can make a tag impossible


@final
class TaggingSpecimens(Specimens):
    """A sentence that is longer than what is read at once is several rows."""

    model: Tagger
    words = Words("word", "word", "nats", "words before the word (below 0: after it)", "word", text=True, spaced=True)

    def __init__(
        self,
        model: Tagger,
        sentences: Sequence[Tagged],
        *,
        spec: TaggingSpec,
        known: Known,
        source: str,
        device: torch.device,
    ) -> None:
        self.model, self.source, self._tags, self._device = model, source, known.tags, device
        self.has_truth = all(sentence.tags for sentence in sentences)
        self._parts = encode(spec, known, sentences)
        self._word_W = [word for sentence in sentences for word in sentence.words]
        lines = np.repeat(np.arange(len(sentences)), [len(sentence.words) for sentence in sentences])
        self._where_P = [str(sentences[int(lines[begin])].where) for begin in self._parts.begin_P]
        self._tag_W = (
            known.tags.encode(list(tags_of(sentences)), unseen="wrong").ids_N
            if self.has_truth
            else np.full(len(self._word_W), -1, dtype=np.int64)
        )

    def __len__(self) -> int:
        return len(self._parts)

    def length(self, number: int) -> int:
        return int(self._parts.length_P[number])

    def at(self, number: int) -> Specimen:
        model, parts = self.model, ReaderParts(self.model.reader)
        batch = self._parts.batch(np.array([number])).to(self._device)
        with torch.no_grad():
            x_TE = model.reader.entry(batch.words)[0]
        begin, places = int(self._parts.begin_P[number]), self.length(number)

        def answer(y_NTC: Tensor, x_NTE: Tensor) -> Tensor:
            lengths_N = torch.full((len(y_NTC),), places, device=y_NTC.device)
            return model.head.tags(y_NTC, lengths_N).p_BTK

        tag_T = torch.from_numpy(self._tag_W[begin : begin + places]).to(self._device)
        if bool((tag_T < 0).any()):
            with torch.no_grad():
                own_T = answer(parts.read(parts.enter(x_TE[None])), x_TE[None])[0].argmax(-1)
            tag_T = torch.where(tag_T < 0, own_T, tag_T)
        pieces = tuple(self._word_W[begin : begin + places])
        tags = self._tags.decode(tag_T.tolist())
        return Specimen(
            name=self._where_P[number],
            pieces=pieces,
            x_TE=x_TE,
            enter=parts.enter,
            read=parts.read,
            judge=lambda y_NTC, x_NTE: chosen_nats(answer(y_NTC, x_NTE), tag_T),
            answer=answer,
            questions=tuple(f"{word} as {tag}" for word, tag in zip(pieces, tags)),
            distance=lambda question: (question - np.arange(places)).astype(np.float64),
            machine=parts.machine,
            readers=parts.readers,
            signals={"position": position(places), "letters": np.array([len(piece) for piece in pieces], np.float32)},
            seen_order=seen_order,
        )

    @torch.no_grad()
    def answers(self, poll: Poll) -> Choices:
        log_WK = np.empty((len(self._word_W), len(self._tags)))
        row_W, place_W, best_W = (np.empty(len(self._word_W), dtype=np.int64) for _ in range(3))
        longest = int(self._parts.length_P.max(initial=1))
        for part_B in evaluation_batches(self._parts.length_P, batch=max(1, _WORDS // longest)):
            poll()
            at_BT, inside_BT = self._parts.places(part_B)
            batch = self._parts.batch(part_B).to(self._device)
            best_BT, p_BTK = self.model(batch.words, batch.lengths_B)
            at_M: Index = at_BT[inside_BT]
            log_WK[at_M] = p_BTK.double().clamp(min=_LEAST).log().cpu().numpy()[inside_BT]
            best_W[at_M] = best_BT.cpu().numpy()[inside_BT]  # of a chain, the best path and not the likeliest tags
            row_W[at_M] = np.broadcast_to(part_B[:, None], at_BT.shape)[inside_BT]
            place_W[at_M] = np.broadcast_to(np.arange(at_BT.shape[1]), at_BT.shape)[inside_BT]
        along_W: Floats = place_W.astype(np.float64)
        return choices(
            tuple(self._tags.names),
            log_WK,
            self._tag_W,
            row_N=row_W,
            place_N=place_W,
            along_N=along_W,
            along="words before it in its sentence",
            guess_N=best_W,
        )
