"""Reading prompts in chunks, several of different lengths side by side, from states that are known where they are.

T time, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from statewise.core import State, concat, rows
from statewise.decoding import Continuation, TextStream, prefill
from statewise.serving.job import Event, Job, Scored
from statewise.serving.pool import cut
from statewise.serving.prefix import PrefixCache, Prompt, Tokens
from statewise.tasks import LanguageModelRun

_CHUNK = {"cpu": 64, "cuda": 512}  # tokens of a prompt that are read at once
_TOGETHER = 512  # prompts that are read at once; fewer where each may have a long list
_LISTS = 64
_CHUNKS = 64  # whole chunks that are read at once, or as many tokens of shorter prompts
_SCORED = 256  # tokens of a prompt that are scored at once
TAIL = 8  # tokens that the decoder of text looks back at, as in `Continuation`


@dataclass(eq=False, slots=True)
class Text:
    """A job on its way."""

    job: Job
    arrived: float
    stream: TextStream
    ids: list[int] = field(default_factory=list)  # all tokens that were chosen
    last: float = 0.0  # when the last of them came
    first: Event | None = None  # what the first event has beside its token


@dataclass(eq=False, slots=True)
class Group:
    """Texts of one request with the same prompt, which is read once for all of them."""

    texts: list[Text]
    start: Continuation | None
    prompt: (
        Tokens  # what is read: the beginning symbol first, or the token that was pending; the last one is pending then
    )
    position: int  # of its first token
    state: "State | None" = None  # one row, after `done` tokens; None: the initial state
    done: int = 0
    split: int = 0  # where another prompt parted from this one: the state there is worth keeping
    scored: list[Scored] | None = None  # of a prompt whose tokens are scored
    begun: bool = False
    known_as: Prompt | None = None  # for the cache; None: neither looked up nor kept


class PromptReader:
    """The prompts of one model that are being read. `alone`: each at once and by itself, as `generate` reads it."""

    def __init__(self, run: LanguageModelRun, *, alone: bool, prefix_bytes: int, shared: bool) -> None:
        self.model, self.device, self._alone, self._shared = run.model, run.device, alone, shared
        self.initial: State = self.model.init_state(1)
        self.prefixes = PrefixCache(self.initial, most_bytes=0 if alone else prefix_bytes)
        self._together = _TOGETHER if self.prefixes.is_fixed else _LISTS
        self.groups: list[Group] = []
        self._chunk = _CHUNK.get(self.device.type, _CHUNK["cpu"])

    def _begin(self, group: Group) -> None:
        """From where its beginning is known by now: it may be that of a prompt that came at the same time."""
        group.begun = True
        job = group.texts[0].job
        if job.echo and job.logprobs is not None:
            first = int(group.prompt[0])
            shown = group.start is None and list(job.prompt[:1]) == [first]
            group.scored = [Scored(first, None)] if shown else []
        if group.start is not None:
            group.state = group.start.state
        elif group.scored is None and self.prefixes.most_bytes:
            last = len(group.prompt) - 1
            group.known_as = Prompt(group.prompt, self._owner(job))
            prefix = self.prefixes.find(group.known_as, most=last)
            group.state, group.done, group.split = prefix.state, prefix.length, min(prefix.shared, last)
            for text in group.texts:
                text.first = Event(cached=max(0, prefix.length - 1))

    def _owner(self, job: Job) -> str:
        """Those with one owner may notice, by how fast a prompt is read, that another has sent it."""
        return "" if self._shared else job.owner

    @torch.no_grad()
    def read(self) -> list[tuple[list[Group], State]]:
        """One chunk more of some prompts. Returns the groups whose prompt is read, each batch with its rows of a state.

        They are forgotten here.
        """
        known: list[Group] = []
        scoring: list[Group] = []
        plain: list[Group] = []
        longest = 0
        for group in self.groups:
            if not group.begun:
                self._begin(group)
            if group.done == len(group.prompt) - 1:
                known.append(group)
            elif group.scored is not None:
                scoring.append(group)
            else:
                longest = max(longest, self._next_end(group) - group.done)
                if longest * (len(plain) + 1) > _CHUNKS * self._chunk:
                    break
                plain.append(group)
            if len(known) + len(plain) == self._together:
                break
        ready: list[tuple[list[Group], State]] = []
        if known:
            states = [self.initial if group.state is None else group.state for group in known]
            ready.append((known, states[0] if len(states) == 1 else concat(states)))
        if scoring:
            self._score(scoring[0])
        if self._alone:
            for group in plain:
                group.state = prefill(self.model, self.tensor(group.prompt[None, :-1]), group.state)
                group.done = len(group.prompt) - 1
        elif plain:
            ready += self._read_together(plain)
        gone = {id(group) for groups, _ in ready for group in groups}
        self.groups = [group for group in self.groups if id(group) not in gone]
        return ready

    def _read_together(self, groups: Sequence[Group]) -> list[tuple[list[Group], State]]:
        ends = [self._next_end(group) for group in groups]
        parts = [group.prompt[group.done : end] for group, end in zip(groups, ends)]
        if len(groups) == 1:
            after: State = self.model.absorb(self.tensor(parts[0][None]), groups[0].state)
        else:
            x_BT = np.zeros((len(parts), max(map(len, parts))), dtype=np.int64)
            for row, part in enumerate(parts):
                x_BT[row, : len(part)] = part
            before = None
            if any(group.state is not None for group in groups):
                before = concat([self.initial if group.state is None else group.state for group in groups])
            lengths_B = self.tensor(np.array([len(part) for part in parts]))
            after = self.model.absorb(self.tensor(x_BT), before, lengths_B)
        whole: list[int] = []
        for row, (group, end) in enumerate(zip(groups, ends)):
            group.done = end
            last = end == len(group.prompt) - 1
            keep = group.known_as is not None and (last or self.prefixes.is_fixed or end == group.split)
            if not last or keep:
                group.state = cut(rows(after, slice(row, row + 1)), self.initial, group.position + end)
                if keep and group.known_as is not None:
                    self.prefixes.keep(group.known_as, end, group.state)
            if last:
                whole.append(row)
        if len(whole) < len(groups):
            after = rows(after, self.tensor(np.array(whole, dtype=np.int64)))
        return [([groups[row] for row in whole], after)] if whole else []

    def _next_end(self, group: Group) -> int:
        """Where the next chunk ends: at a multiple of its size, where prompts parted, or before the pending token."""
        end = min(group.done + self._chunk - group.done % self._chunk, len(group.prompt) - 1)
        return group.split if group.done < group.split < end else end

    def _score(self, group: Group) -> None:
        """Read a chunk of a prompt and the probability of each of its tokens."""
        assert group.scored is not None
        number = group.texts[0].job.logprobs or 0
        end = min(group.done + _SCORED, len(group.prompt) - 1)
        logits_1TV, group.state = self.model(self.tensor(group.prompt[None, group.done : end]), group.state)
        log_p_TV = logits_1TV[0].float().log_softmax(-1)
        targets = group.prompt[group.done + 1 : end + 1]
        own_T = log_p_TV.gather(1, self.tensor(targets)[:, None])[:, 0].tolist()
        tops: Iterator[tuple[tuple[int, float], ...]] = iter([()] * len(targets))
        if number:
            best = log_p_TV.topk(min(number, log_p_TV.shape[-1]), dim=-1)
            tops = (tuple(zip(ids, values)) for ids, values in zip(best.indices.tolist(), best.values.tolist()))
        for token, own, top in zip(targets.tolist(), own_T, tops):
            group.scored.append(Scored(token, own, top) if group.scored else Scored(token, None))
        group.done = end

    def tensor(self, array: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def continuation(self, group: Group, text: Text, state: State) -> Continuation:
        """Where the text can go on, as `decoding.generate` has it."""
        prompt, ids, start = group.prompt, text.ids, group.start
        seen_V = np.zeros(self.model.vocab, dtype=np.bool_)
        seen_V[prompt] = True
        seen_V[ids] = True
        tail = ([-1] * TAIL if start is None else start.tail_BK[0].tolist()) + prompt[1:].tolist() + ids
        if start is not None:
            seen_V |= start.seen_BV[0].cpu().numpy()
        return Continuation(
            state,
            self.tensor(np.array([ids[-1] if ids else prompt[-1]])),
            self.tensor(np.array([group.position + len(prompt) - 1 + len(ids)])),
            self.tensor(seen_V[None]),
            self.tensor(np.array([tail[-TAIL:]])),
        )
