"""The generation loop over any machine. A continuation is itself a state: it can be saved and forked.

B batch, T time, V vocabulary.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from statewise.core import Machine, State, map_state, state_type
from statewise.decoding import graph
from statewise.decoding.sampling import Sampling, by_row, draw, uniforms
from statewise.decoding.search import broken_outputs, check_bias, check_never
from statewise.kernels import threads_for
from statewise.kernels.few_rows import LARGE, Product, packed_products
from statewise.runtime import STREAM
from statewise.specs import UserError

_TAIL = 8  # tokens remembered for the decoder: more than any character or word takes
_AHEAD = 64  # tokens whose random numbers are made at once
_ROOM = 256  # tokens reserved at once: a list is copied so rarely that the cost does not matter


@state_type
class Continuation(NamedTuple):
    """Everything a text needs to be continued exactly, here or after it was saved and loaded."""

    state: State
    token_B: Tensor  # generated but not yet read by the machine
    position_B: Tensor  # tokens read and generated so far, plus `STREAM` for each seed that the row is ahead
    seen_BV: Tensor  # which tokens occurred, for the repetition penalty
    tail_BK: Tensor  # the last tokens, for decoding text across the seam; -1 before the beginning


@torch.no_grad()
def begin(model: Machine[Any], prompt_BT: Tensor, *, vocab: int) -> Continuation:
    """Read a prompt (all but its last token) from the initial state.

    Rows with the same prompt are samples of it: the first uses the seed, the next one the seed after it, and so on. So
    each is what it would be alone with its seed.
    """
    batch, read_BT = len(prompt_BT), prompt_BT[:, :-1]
    start = Continuation(
        state=graph.prefill(model, read_BT, None) if read_BT.shape[1] else model.init_state(batch),
        token_B=prompt_BT[:, 0],
        position_B=STREAM * torch.tensor(_repeated(prompt_BT), device=prompt_BT.device),
        seen_BV=torch.zeros(batch, vocab, dtype=torch.bool, device=prompt_BT.device).scatter(1, prompt_BT[:, :1], True),
        tail_BK=torch.full((batch, _TAIL), -1, dtype=torch.int64, device=prompt_BT.device),
    )
    return _after(start, prompt_BT[:, 1:]) if read_BT.shape[1] else start


def _repeated(prompt_BT: Tensor) -> list[int]:
    """How many rows before each have the same prompt."""
    before: Counter[tuple[int, ...]] = Counter()
    repeated = []
    for prompt in map(tuple, prompt_BT.tolist()) if len(prompt_BT) > 1 else [()]:
        repeated.append(before[prompt])
        before[prompt] += 1
    return repeated


@torch.no_grad()
def read(model: Machine[Any], at: Continuation, more_BT: Tensor) -> Continuation:
    """Continue with given tokens, in one parallel pass."""
    if more_BT.shape[1] == 0:
        return at
    inputs_BT = torch.cat([at.token_B[:, None], more_BT[:, :-1]], dim=1)
    return _after(at, more_BT)._replace(state=graph.prefill(model, inputs_BT, at.state))


def _after(at: Continuation, more_BT: Tensor) -> Continuation:
    """The continuation after these tokens, but for its state."""
    return Continuation(
        at.state,
        more_BT[:, -1],
        at.position_B + more_BT.shape[1],
        at.seen_BV.scatter(1, more_BT, True),
        torch.cat([at.tail_BK, more_BT], dim=1)[:, -_TAIL:],
    )


class _Decoder:
    """Decodes in reserved memory of its own, so that it never overwrites what it has returned."""

    def __init__(
        self,
        model: Machine[Any],
        at: Continuation,
        sampling: Sampling,
        never: Sequence[int],
        *,
        tokens: int | None = None,
    ) -> None:
        self.model = model
        self.tokens = tokens  # to generate in all, if known
        self.sampling = sampling.check()
        batch, vocab = at.seen_BV.shape
        check_bias(sampling, vocab=vocab)
        self.ways = by_row([sampling] * batch, vocab=vocab, device=at.token_B.device)
        self.count_BV = at.seen_BV.new_zeros(batch, vocab, dtype=torch.int32) if self.ways.counts else None
        self.noise_BT: Tensor | None = None  # random numbers of the next tokens, and how many of them are used
        self.used = 0
        check_never(never, vocab=at.seen_BV.shape[1])
        self.never = torch.tensor(list(never), dtype=torch.int64, device=at.token_B.device)
        self.begun = at.state
        self.count = 0  # tokens generated since then
        self.room = 0  # tokens until the state needs more memory
        self.at = at  # without its state and without these tokens, which are added when they are needed
        self.pending: list[Tensor] = []
        self.state = at.state
        self.captured = graph.obstacle(model, at.token_B.device) is None
        self.borrowed: graph.Borrowed | None = None
        self.products: dict[int, Product | None] = {}
        self.highest: list[Tensor] = []  # the largest logit of each row, per token, until they are checked

    @cached_property
    def largest(self) -> int:
        """Multiplications in the largest matrix product of a step."""
        matrices = (p.numel() for p in self.model.parameters() if p.dim() == 2)
        return len(self.at.token_B) * max(matrices, default=0)

    @cached_property
    def initial(self) -> State:
        first: State = self.model.init_state(1)
        return first

    def threads(self) -> AbstractContextManager[None]:
        """One thread, unless a product of a step is large enough for more."""
        return threads_for(self.largest, enough=LARGE) if self.at.token_B.device.type == "cpu" else nullcontext()

    def step(self) -> Tensor:
        """One more token."""
        if self.sampling.repetition != 1.0 and self.borrowed is None:
            self._flush()
        if self.room == 0:
            self._make_room()
        token_B = self.borrowed.loop.step() if self.borrowed is not None else self._step()
        self.room = max(0, self.room - 1)
        self.pending.append(token_B)
        self.count += 1
        return token_B

    def _step(self) -> Tensor:
        token_B = self.pending[-1] if self.pending else self.at.token_B
        # Where nothing could be reserved, the pure step says why.
        step = self.model.step_ if self.room else self.model.step
        with packed_products(len(token_B), self.products):
            logits_BV, self.state = step(token_B, self.state)
        if len(self.never):
            logits_BV.index_fill_(1, self.never, -torch.inf)
        self.highest.append(logits_BV.amax(-1))
        chosen_B = draw(logits_BV, self.ways, below_B1=self._noise(), seen_BV=self.at.seen_BV, count_BV=self.count_BV)
        if self.count_BV is not None:
            self.count_BV.scatter_add_(1, chosen_B[:, None], torch.ones_like(self.count_BV[:, :1]))
        return chosen_B

    def _noise(self) -> Tensor | None:
        """The random number of each row's next token."""
        if self.ways.temperature_B1 is None:
            return None
        if self.noise_BT is None or self.used == self.noise_BT.shape[1]:
            ahead_T = torch.arange(_AHEAD, device=self.at.token_B.device) + len(self.pending)
            self.noise_BT = uniforms(self.ways.seed_B[:, None], self.at.position_B[:, None] + ahead_T)
            self.used = 0
        self.used += 1
        return self.noise_BT[:, self.used - 1 : self.used]

    def _make_room(self) -> None:
        """Reserve memory. For a captured loop whole blocks, so that texts of similar length share one shape."""
        self._flush()
        if self.borrowed is not None:
            self._refuse_broken()
            self.state = map_state(Tensor.clone, self.borrowed.loop.state)
            if self.count_BV is not None and self.borrowed.loop.count_BV is not None:
                self.count_BV = self.borrowed.loop.count_BV.clone()
            self.finish()
        wanted = _ROOM if self.tokens is None else max(1, min(_ROOM, self.tokens - self.count))
        if self.captured:
            wanted += -(int((self.at.position_B % STREAM).max()) + wanted) % _ROOM
        self.state, self.room = self.model.reserve(self.state, wanted)
        if self.captured and self.room:
            start = graph.Start(self.state, self.at.token_B, self.at.position_B, self.at.seen_BV, self.count_BV)
            never = self.never.tolist()
            tokens = self.room if self.tokens is None else min(self.room, self.tokens - self.count)
            self.borrowed = graph.borrow(self.model, start, self.ways, never, room=self.room, tokens=tokens)
            self.captured = self.borrowed is not None

    def finish(self) -> None:
        """Give a captured loop back."""
        if self.borrowed is not None:
            graph.give_back(self.model, self.borrowed)
            self.borrowed = None

    def continuation(self) -> Continuation:
        """Where decoding can continue; later steps do not change it."""
        self._refuse_broken()
        self._flush()
        state = self.state if self.borrowed is None else self.borrowed.loop.state
        trimmed = map_state(self._without_room, state, self.begun, self.initial)
        return self.at._replace(state=trimmed if self.borrowed is None else map_state(Tensor.clone, trimmed))

    def _refuse_broken(self) -> None:
        """Raise if a logit was NaN or infinite, or all tokens were forbidden. Rarely called: it waits for a GPU."""
        sound = [] if self.borrowed is None else [self.borrowed.loop.sound]
        if self.highest:
            sound.append(torch.stack(self.highest).isfinite().all())
            self.highest = []
        if not all(sound):
            raise broken_outputs()

    def _flush(self) -> None:
        if self.pending:
            self.at = _after(self.at, torch.stack(self.pending, dim=1))
            self.pending = []

    def _without_room(self, leaf: Tensor, begun: Tensor, initial: Tensor) -> Tensor:
        """Cut the unused end of a list: it was empty initially and has grown by one slot a token."""
        for axis, size in enumerate(initial.shape[1:], start=1):
            if size == 0 and leaf.shape[axis] > begun.shape[axis] + self.count:
                leaf = leaf.narrow(axis, 0, begun.shape[axis] + self.count)
        return leaf


@torch.no_grad()
def generate(
    model: Machine[Any], at: Continuation, sampling: Sampling, *, never: Sequence[int] = ()
) -> Iterator[tuple[Tensor, Continuation]]:
    """Token after token, without end; each with the continuation after it. Tokens in `never` are not chosen."""
    decoder = _Decoder(model, at, sampling, never)
    try:
        while True:
            with decoder.threads():
                token_B = decoder.step()
            yield token_B, decoder.continuation()
    finally:
        decoder.finish()


@torch.no_grad()
def extend(
    model: Machine[Any], at: Continuation, sampling: Sampling, *, tokens: int, never: Sequence[int] = ()
) -> tuple[Tensor, Continuation]:
    """`tokens` tokens `[B, T]` and the continuation after the last: the same as `generate`, with less overhead."""
    if tokens < 1:
        raise UserError(f"tokens = {tokens} is not valid, expected at least 1")
    decoder = _Decoder(model, at, sampling, never, tokens=tokens)
    try:
        with decoder.threads():
            chosen = [decoder.step() for _ in range(tokens)]
        after = decoder.continuation()
    finally:
        decoder.finish()
    return torch.stack(chosen, dim=1), after
