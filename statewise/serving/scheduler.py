"""Continuous batching for one language model: admit, read prompts in chunks, one step for all rows, hand over.

A turn reads at most one chunk of each of some prompts and then takes one step, so that running texts do not wait for a
long prompt. Prompts of different lengths are read side by side.

T time, V vocabulary.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch

from statewise.core import State, rows
from statewise.decoding import Continuation, TextStream
from statewise.serving.job import Event, Finish, Job, Refused, Scored, Tokens
from statewise.serving.metrics import Metrics
from statewise.serving.pool import NewRow, Pool, cut
from statewise.serving.prompt import TAIL, Group, PromptReader, Text
from statewise.tasks import LanguageModelRun

_IDLE_BYTES = 256 << 20  # of states that are kept for the next text; more is given back when the last text ends
_SWEEP = 0.25  # seconds between two looks for texts that have waited or run too long

Deliver = Callable[[Job, Event], None]
Save = Callable[[Job, Continuation, Event], None]  # keeps the continuation and then delivers the event


class Scheduler:
    """The texts of one model. Only the engine's thread may call it."""

    def __init__(
        self,
        run: LanguageModelRun,
        *,
        slots: int,
        prefix_bytes: int,
        shared: bool,
        alone: bool,
        queue_seconds: float,
        deliver: Deliver,
        deliver_tokens: Callable[[Tokens], None],
        save: Save,
        metrics: Metrics,
        context: int | None,
    ) -> None:
        """`shared`: prompts of all owners are known to all. `alone`: each text is a batch of its own, its prompt read
        at once: what `generate` computes, bit for bit.
        """
        self.run, self.model, self.device = run, run.model, run.device
        self._slots, self._alone, self._queue_seconds, self._context = slots, alone, queue_seconds, context
        self._deliver, self._deliver_tokens, self._save, self._metrics = deliver, deliver_tokens, save, metrics
        self._reader = PromptReader(run, alone=alone, prefix_bytes=prefix_bytes, shared=shared)
        self._first, self._end = run.begin_id, run.tokenizer.end_id
        self._never = () if run.tokenizer.unknown_id is None else (run.tokenizer.unknown_id,)
        self.waiting = 0  # texts in `_waiting`, for whoever asks from another thread
        self._waiting: deque[Group] = deque()
        self._pools: list[tuple[Pool, list[Text]]] = []  # the texts of each in the order of its rows
        self._of: dict[int, tuple[Group, Text]] = {}  # by job
        self._next_sweep = 0.0

    # ---------------------------------------------------------------- what comes in

    @property
    def held(self) -> int:
        """Texts that wait, are read or run."""
        return len(self._of)

    @property
    def running(self) -> int:
        return len(self._of) - self.waiting

    @property
    def state_bytes(self) -> int:
        """Memory for the states of running texts and of known prompts."""
        return sum(pool.state_bytes for pool, _ in list(self._pools)) + self._reader.prefixes.bytes

    def add(self, jobs: Sequence[Job], start: Continuation | None, arrived: float) -> None:
        """Texts with the same prompt and the same start."""
        given = list(jobs[0].prompt)
        if start is None:
            begun = given[:1] == [self._first] or (jobs[0].whole and bool(given))
            prompt = given if begun else [self._first, *given]
            before, position = prompt[-TAIL:], 0
        else:
            read = jobs[0].read
            if read is not None and read.last[-TAIL:] == tuple(start.tail_BK[0].tolist())[-len(read.last) :]:
                given = given[read.length :]
            prompt = [int(start.token_B), *given]
            before = [token for token in [*start.tail_BK[0].tolist(), *given[-TAIL:]] if token >= 0]
            position = int(start.position_B)
        decode, pieces = self.run.tokenizer.decode, self.run.tokenizer.pieces
        texts = [
            Text(job, arrived, TextStream(decode, before=before[-TAIL:], stop=job.stop, pieces=pieces)) for job in jobs
        ]
        group = Group(texts, start, np.array(prompt, dtype=np.int64), position)
        self._waiting.append(group)
        self.waiting += len(texts)
        self._of.update((id(text.job), (group, text)) for text in texts)

    def cancel(self, jobs: Sequence[Job]) -> None:
        """Forget these jobs; their rows are free for the next turn."""
        for job in jobs:
            if id(job) in self._of:
                self._remove(*self._of[id(job)])
                self._metrics.finished("cancelled")

    def _remove(self, group: Group, text: Text) -> None:
        del self._of[id(text.job)]
        for pool, texts in self._pools:
            if text in texts:
                self._leave(pool, texts, [texts.index(text)])
                return
        group.texts.remove(text)
        queued = group in self._waiting
        self.waiting -= queued
        if not group.texts:
            (self._waiting if queued else self._reader.groups).remove(group)

    def fail(self, error: Refused) -> None:
        """End every text with an error: something broke, and nobody knows whose fault it was."""
        for _, text in list(self._of.values()):
            self._fail(text, error)
        self.waiting = 0
        self._waiting.clear()
        self._reader.groups.clear()
        self._pools.clear()

    def _fail(self, text: Text, error: Refused) -> None:
        del self._of[id(text.job)]
        self._metrics.finished("error")
        self._deliver(text.job, Event(finish="error", error=error))

    def rest(self) -> None:
        """Nothing is to be done for a while: give back the memory for texts."""
        for pool, texts in self._pools:
            if not texts:
                pool.give_back()

    # ---------------------------------------------------------------- a turn

    def turn(self) -> bool:
        """Admit, read, step. False if there is nothing to do."""
        if not self._of:
            return False
        now = time.monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + _SWEEP
            self._sweep(now)
        self._admit(now)
        for groups, state in self._reader.read() if self._reader.groups else ():
            self._begin(groups, state)
        for pool, texts in list(self._pools):
            self._step(pool, texts)
        self._pools = [
            (pool, texts) for pool, texts in self._pools if texts or not (self._alone or pool.state_bytes > _IDLE_BYTES)
        ]
        return True

    def _sweep(self, now: float) -> None:
        """Give up what has waited or run too long."""
        for group, text in list(self._of.values()):
            late = text.job.deadline is not None and now > text.job.deadline
            if late or (now - text.arrived > self._queue_seconds and group in self._waiting):
                self._remove(group, text)
                self._of[id(text.job)] = group, text
                self._fail(text, Refused("deadline", "it took too long" if late else "no place was free in time"))

    def _admit(self, now: float) -> None:
        used = len(self._of) - self.waiting
        while self._waiting:
            group = self._waiting[0]
            if used and used + len(group.texts) > self._slots:
                return
            used += len(group.texts)
            self._waiting.popleft()
            self.waiting -= len(group.texts)
            self._metrics.queue(now - group.texts[0].arrived)
            self._metrics.prompt_tokens(len(group.prompt) - 1)
            self._reader.groups.append(group)

    # ---------------------------------------------------------------- reading prompts

    def _begin(self, groups: Sequence[Group], state: State) -> None:
        """These prompts are read: their texts become rows, or end here if nothing is to be generated."""
        new: list[NewRow] = []
        texts: list[Text] = []
        place: list[int] = []  # of each text's group among the rows of `state`
        for row, group in enumerate(groups):
            token, position = int(group.prompt[-1]), group.position + len(group.prompt) - 1
            for text in list(group.texts):
                if group.scored is not None:
                    text.first = Event(prompt=tuple(group.scored))
                if text.job.max_tokens == 0:
                    mine = cut(rows(state, slice(row, row + 1)), self._reader.initial, position)
                    self._finish(group, text, "length", "", (), mine)
                    continue
                new.append(NewRow(token, position, text.job.sampling, self._seen(group, text)))
                texts.append(text)
                place.append(row)
        if not texts:
            return
        if self._alone:
            for text, row, each in zip(texts, place, new):
                pool = Pool(self.model, never=self._never, context=self._context)
                pool.join([each], rows(state, slice(row, row + 1)))
                self._pools.append((pool, [text]))
            return
        if not self._pools:
            self._pools.append((Pool(self.model, never=self._never, context=self._context), []))
        pool, together = self._pools[0]
        if place != list(range(len(groups))):
            state = rows(state, torch.tensor(place, device=self.device))
        pool.join(new, state)
        together += texts

    def _seen(self, group: Group, text: Text) -> Any:
        """Tokens that the repetition penalty knows."""
        if text.job.sampling.repetition == 1.0:
            return ()
        if group.start is None:
            return group.prompt
        return np.concatenate([group.prompt, group.start.seen_BV[0].nonzero()[:, 0].cpu().numpy()])

    # ---------------------------------------------------------------- steps

    def _step(self, pool: Pool, texts: list[Text]) -> None:
        if not texts:
            return
        begun = time.perf_counter()
        scored = [(row, text.job.logprobs) for row, text in enumerate(texts) if text.job.logprobs is not None]
        forbid = [
            (row, token)
            for row, text in enumerate(texts)
            if len(text.ids) < text.job.min_tokens
            for token in (self._end, *text.job.stop_ids)
        ]
        stepped = pool.step(forbid=forbid, scored=scored)
        now = time.monotonic()
        broken = set(stepped.broken)
        over: dict[int, tuple[Finish, str, tuple[Scored, ...]]] = {}  # by row
        plain = Tokens([], [], [])
        for before, count in Counter([text.last for text in texts]).items():
            if before:
                self._metrics.token_gap(now - before, count)
        for row, (text, token) in enumerate(zip(texts, stepped.tokens)):
            if row in broken:
                continue
            job, ids = text.job, text.ids
            ids.append(token)
            if not text.last:
                self._metrics.first_token(now - text.arrived)
            text.last = now
            rated: tuple[Scored, ...] = ()
            if row in stepped.chosen:
                rated = (Scored(token, stepped.chosen[row], tuple(stepped.top.get(row, ()))),)
            if (token == self._end and not job.ignore_end) or token in job.stop_ids:
                over[row] = "stop", text.stream.finish(), rated
                continue
            piece = text.stream.feed(token)
            if text.stream.stopped:
                over[row] = "stop", piece, rated
            elif len(ids) == job.max_tokens:
                over[row] = "length", piece + text.stream.finish(), rated
            elif text.first is not None or rated:
                self._deliver(job, (text.first or Event())._replace(text=piece, ids=(token,), scored=rated))
                text.first = None
            else:
                plain.jobs.append(job)
                plain.texts.append(piece)
                plain.ids.append(token)
        if plain.jobs:
            self._deliver_tokens(plain)
        self._metrics.generated(len(texts) - len(broken))
        for row in (gone := {*over, *broken}):
            text = texts[row]
            if row in broken:
                self._fail(text, Refused("failed", "the model's outputs are not numbers"))
            else:
                state = pool.row(row) if text.job.save is not None else None
                self._finish(self._of[id(text.job)][0], text, *over[row], state)
        if gone:
            self._leave(pool, texts, gone)
        self._metrics.observe_step(time.perf_counter() - begun, len(stepped.tokens))

    def _leave(self, pool: Pool, texts: list[Text], gone: Collection[int]) -> None:
        for into, last in pool.leave(gone):
            texts[into] = texts[last]
        del texts[pool.count :]

    def _finish(
        self,
        group: Group,
        text: Text,
        finish: Finish,
        piece: str,
        rated: tuple[Scored, ...],
        state: "State | None",
    ) -> None:
        """Deliver the last event; what it saves comes first."""
        job = text.job
        del self._of[id(job)]
        ended = bool(text.ids) and ((text.ids[-1] == self._end and not job.ignore_end) or text.ids[-1] in job.stop_ids)
        ids = () if ended or not text.ids else (text.ids[-1],)
        event = (text.first or Event())._replace(text=piece, ids=ids, scored=rated, finish=finish)
        self._metrics.finished(finish)
        self._metrics.request(time.monotonic() - text.arrived)
        if job.save is None or state is None:
            self._deliver(job, event)
            return
        self._save(job, self._reader.continuation(group, text, state), event)
