"""Pairs under a lens: a row is a source and, after it, the target that is written.

N copies of a row, S tokens of its source, T of its target with the symbol before it, E width of what enters, V symbols,
B rows of a batch, M answers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import State
from statewise.data import END, Tokenizer
from statewise.models import ConditionalMachine, Terminating, with_vector_input
from statewise.specs import UserError
from statewise.tasks.loss import within
from statewise.tasks.specimen import (
    UNKNOWN,
    Choices,
    Floats,
    Index,
    Part,
    Poll,
    Specimen,
    Specimens,
    Words,
    chosen_nats,
    machines_in,
    position,
    seen_order,
)
from statewise.tasks.translation.examples import Batch, Ids, Languages, Rows, batches_of
from statewise.tasks.translation.sides import spelled

START = "→"  # stands for the symbol before a target
_NUMBERS = 1 << 24  # probabilities that are held at once

Translating = ConditionalMachine[Any] | Terminating[Any]


class Given(NamedTuple):
    """Rows, where each is from, and whether its target is a true one or the model's own."""

    rows: Rows
    where: list[str]
    has_truth: list[bool]
    source: str  # of all of them, in words


@final
class TranslationSpecimens(Specimens):
    """Each target token, the end symbol included, is predicted from the source and the tokens before it."""

    model: Translating

    def __init__(self, model: Translating, given: Given, *, languages: Languages, device: torch.device) -> None:
        self.model, self.source, self.has_truth = model, given.source, all(given.has_truth)
        self._rows, self._where, self._has_truth = given.rows, given.where, given.has_truth
        self._languages, self._device = languages, device
        self._names: tuple[str, ...] | None = None
        self._knows_the_end = isinstance(model, Terminating) and model.told(1, 1) is not None
        spaced = _spaced(languages.target, given.rows.targets)
        self.words = Words(
            *("token", "token", "nats", "tokens between it and the answer", "token"),
            text=True,
            spaced=spaced,
            label="token",
            labels="tokens",
            writes=True,
        )

    def __len__(self) -> int:
        return len(self._rows)

    def length(self, number: int) -> int:
        return len(self._rows.sources[number]) + len(self._rows.targets[number])

    @property
    def names(self) -> tuple[str, ...]:
        """Of all symbols that can be written; one more, the end, where that is none of the vocabulary's."""
        if self._names is None:
            names = spelled(self._languages.target, range(self._languages.target.vocab))
            self._names = (*names, END) if isinstance(self.model, Terminating) else names
        return self._names

    # ---------------------------------------------------------------- one pair

    def at(self, number: int) -> Specimen:
        source_S, target_T = (torch.from_numpy(one[number]) for one in (self._rows.sources, self._rows.targets))
        source, target = self._languages.source.spelled(self._rows.sources[number]), self._written(number)
        row = _Row(
            self._where[number],
            (*source, START, *target[:-1]),
            target[: self._asked(number)],
            (Part("source", 0, len(source)), Part("target", len(source), len(source) + len(target))),
        )
        if isinstance(self.model, Terminating):
            return _along(self.model, row, *self._there(source_S, target_T), whole=int(self._rows.whole[number]))
        return _in_two(self.model, row, *self._there(source_S, target_T), start_id=self._languages.target.end_id)

    def _there(self, *ids: Tensor) -> list[Tensor]:
        return [token.to(self._device) for token in ids]

    def _written(self, number: int) -> tuple[str, ...]:
        return spelled(self._languages.target, self._rows.targets[number].tolist())

    def _asked(self, number: int) -> int:
        """With a given length, the end symbol is not predicted."""
        length = len(self._rows.targets[number])
        return length - 1 if self._knows_the_end and length > self._rows.whole[number] else length

    # ---------------------------------------------------------------- all answers

    @torch.no_grad()
    def answers(self, poll: Poll) -> Choices:
        asked_P = np.array([self._asked(number) for number in range(len(self))], dtype=np.int64)
        first_P = np.cumsum(asked_P) - asked_P
        total = int(asked_P.sum())
        truth_M, guess_M, row_M, place_M = (np.empty(total, dtype=np.int64) for _ in range(4))
        sure_M, nats_M, entropy_M, along_M = (np.empty(total) for _ in range(4))
        for index in batches_of(self._rows.lengths, tokens=max(1, _NUMBERS // len(self.names))):
            poll()
            batch = self._rows.batch(
                index, self.model.edge if isinstance(self.model, Terminating) else self._languages.target.end_id
            ).to(self._device)
            found = self._answered(batch)
            for at, number in enumerate(index):
                asked = int(asked_P[number])
                some = slice(int(first_P[number]), int(first_P[number]) + asked)
                truth_M[some] = found.truth_BT[at, :asked] if self._has_truth[number] else UNKNOWN
                guess_M[some], sure_M[some] = found.guess_BT[at, :asked], found.sure_BT[at, :asked]
                nats_M[some] = found.nats_BT[at, :asked] if self._has_truth[number] else np.nan
                entropy_M[some] = found.entropy_BT[at, :asked]
                row_M[some], along_M[some] = number, np.arange(asked)
                place_M[some] = len(self._rows.sources[number]) + np.arange(asked)
        along = "tokens of the target before it"
        return Choices(self.names, truth_M, guess_M, sure_M, nats_M, entropy_M, row_M, place_M, along_M, along)

    def _answered(self, batch: Batch) -> "_Answered":
        truth_BT = batch.target_BT.clamp(min=0)
        if isinstance(self.model, Terminating):
            summary_BD, state = self.model.condition(batch.source, batch.source_length_B)
            state = self.model.begin(summary_BD, state, length_B=batch.whole_B)
            outputs_BTV, _ = self.model(batch.input_BT, state)
            p_BTV = self.model.chances(outputs_BTV)
            nats_BT = self.model.nats(summary_BD, outputs_BTV, truth_BT, batch.whole_B)
            over_BT = torch.arange(truth_BT.shape[1], device=truth_BT.device) == batch.whole_B[:, None]
            truth_BT = truth_BT.masked_fill(over_BT, self.model.edge)
        else:
            state = self.model.condition(batch.source, batch.source_length_B)
            logits_BTV, _ = self.model(batch.input_BT, state)
            p_BTV = logits_BTV.float().softmax(-1)
            nats_BT = F.cross_entropy(logits_BTV.float().mT, truth_BT, reduction="none")
        sure_BT, guess_BT = p_BTV.max(-1)
        entropy_BT = torch.special.entr(p_BTV).sum(-1)
        nats_BT = nats_BT.masked_fill(~within(batch.length_B, nats_BT.shape[1]), 0.0)
        found = (truth_BT, guess_BT, sure_BT.double(), nats_BT.double(), entropy_BT.double())
        return _Answered(*(pair.cpu().numpy() for pair in found))


class _Answered(NamedTuple):
    truth_BT: Index
    guess_BT: Index
    sure_BT: Floats
    nats_BT: Floats
    entropy_BT: Floats


class _Row(NamedTuple):
    name: str
    pieces: tuple[str, ...]
    asked: tuple[str, ...]
    parts: tuple[Part, Part]

    def specimen(self, x_TE: Tensor, **how: Any) -> Specimen:
        size, asked_at = len(self.pieces), self.parts[1].begin

        def distance(question: int) -> Floats:
            away: Floats = asked_at + question - np.arange(size, dtype=np.float64)
            return np.where(away >= 0, away, np.nan)  # what is written later has no say

        along = np.concatenate([position(len(part)) for part in self.parts])
        left = np.concatenate([position(len(part))[::-1] for part in self.parts])
        return Specimen(
            name=self.name,
            pieces=self.pieces,
            x_TE=x_TE,
            questions=self.asked,
            distance=distance,
            parts=self.parts,
            signals={"position": along, "places left": left},
            **how,
        )


def _in_two(
    model: ConditionalMachine[Any], row: _Row, source_S: Tensor, target_T: Tensor, *, start_id: int
) -> Specimen:
    """One part reads the source, another goes on from what it left."""
    reader, machine = model.reader, with_vector_input(model)
    source, target = row.parts
    input_T = torch.cat([target_T.new_tensor([start_id]), target_T[:-1]])
    with torch.no_grad():
        read_S = source_S.to(model.like.dtype) if source_S.is_floating_point() else source_S
        x_SE, x_TE = reader.entry(read_S[None])[0], model.embed(input_T[None])[0]
    width = max(x_SE.shape[1], x_TE.shape[1])
    entered = x_SE.shape[1]

    def begin(z_NTI: Tensor) -> State:
        state: State = model.begin(reader.read(reader.admit(z_NTI[:, : source.end, :entered])))
        return state

    def answer(y_NTV: Tensor, x_NTE: Tensor) -> Tensor:
        return y_NTV.softmax(-1)

    def seen_by(name: str) -> Part:
        return source if name.startswith("reader.") else target

    return row.specimen(
        torch.cat([F.pad(one_TE, (0, width - one_TE.shape[1])) for one_TE in (x_SE, x_TE)]),
        enter=lambda x_NTE: x_NTE,
        read=lambda z_NTI: machine(z_NTI[:, source.end :], begin(z_NTI))[0],
        judge=lambda y_NTV, x_NTE: chosen_nats(answer(y_NTV, x_NTE), target_T),
        answer=answer,
        machine=machine,
        first=source.end,
        begin=begin,
        readers=machines_in(reader),
        looks=model.looks,
        seen_by=seen_by,
        seen_order=seen_order,
    )


def _along(model: Terminating[Any], row: _Row, source_S: Tensor, target_T: Tensor, *, whole: int) -> Specimen:
    """One machine reads the source and goes on with the target."""
    before, asked = row.parts[0].end, len(row.asked)
    content_T = target_T[:whole]
    ids_T = torch.cat([source_S, source_S.new_tensor([model.edge]), target_T[: len(row.parts[1]) - 1]])
    told_TE = model.told(before, whole)
    with torch.no_grad():
        x_TE = model.body.embedding(ids_T[None])[0]

    def enter(x_NTE: Tensor) -> Tensor:
        return x_NTE if told_TE is None else x_NTE + told_TE[: len(ids_T)]

    def outputs(y_NTD: Tensor) -> Tensor:
        return model.outputs(y_NTD[:, before:], model.init_state(len(y_NTD)))

    def judge(y_NTD: Tensor, x_NTE: Tensor) -> Tensor:
        whole_N = torch.full((len(y_NTD),), whole, device=y_NTD.device)
        content_NT = content_T.expand(len(y_NTD), -1)
        return model.nats(y_NTD[:, before - 1], outputs(y_NTD), content_NT, whole_N)[:, :asked]

    machine = model.body.machine
    return row.specimen(
        x_TE,
        enter=enter,
        read=lambda z_NTI: machine(z_NTI)[0],
        judge=judge,
        answer=lambda y_NTD, x_NTE: model.chances(outputs(y_NTD))[:, :asked],
        machine=machine,
    )


def _spaced(tokenizer: Tokenizer, rows: Sequence[Ids]) -> bool:
    """Whether a text has spaces between its tokens, and not in them."""
    for ids in rows:
        words = [tokenizer.decode([token]) for token in ids if token != tokenizer.end_id]
        if len(words) > 1:
            return tokenizer.decode(ids) == " ".join(words)
    return False


def pairs_in(text: str, write: Callable[[list[str]], list[str]], languages: Languages) -> Given:
    """Lines of a text, each a source, or a source, a tab and its target. `write` translates those that have none."""
    numbers, sources, targets = [], [], []
    for number, line in enumerate(text.splitlines(), 1):
        source, *rest = line.split("\t")
        if len(rest) > 1:
            raise UserError(
                f"line {number} of the text has {len(rest)} tabs: {line[:60]!r}",
                fix="write a source, or a source, a tab and its target",
            )
        if not source.strip():
            if rest:
                raise UserError(
                    f"line {number} of the text has no source: {line[:60]!r}", fix="write one before the tab"
                )
            continue
        numbers.append(number)
        sources.append(source)
        targets.append(rest[0] if rest else None)
    written = iter(write([source for source, target in zip(sources, targets) if target is None]))
    filled = [next(written) if target is None else target for target in targets]
    return Given(
        languages.rows(languages.source.encode(sources), languages.encode_targets(filled)),
        [f"line {number} of the text" for number in numbers],
        [target is not None for target in targets],
        "the given text",
    )
