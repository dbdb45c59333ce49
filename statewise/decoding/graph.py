"""Decoding on a GPU by replaying captured CUDA graphs: one for a prompt (prefill), one for a step.

Launched from Python, a step of a small model costs far more than its arithmetic. A captured step is one launch for any
model: it reads its token, makes the next state, chooses the next token, and leaves all of that in place for the next
step. Random numbers are a table by (seed, position), made on the device before. So the host waits for the device only
when it looks at a token, and the tokens are those of the loop without a graph. A prompt is captured when its shape
comes a second time: a shape that is read once costs nothing extra.

B batch, T time, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from statewise.core import Machine, Replay, State, is_observed, leaves, map_state
from statewise.decoding.sampling import RowSampling, draw, has_best, uniforms
from statewise.kernels.few_rows import packed_products, prepare_cpu, prepare_gpu

T = TypeVar("T")

_IDLE = 4  # captured steps that a model keeps for later, with the memory they hold
_PREFILLS = 4  # captured prompts that a model keeps, likewise
_PREFILL_TOKENS = 16_384  # of all rows; for more, launching costs less than computing
_SHAPES = 64  # prompt shapes that are remembered


def obstacle(model: Machine[Any], device: torch.device) -> str | None:
    """Why a step cannot be captured, or None."""
    if device.type != "cuda":
        return f"graphs are for CUDA, and this model is on {device.type}"
    if model.training:
        return "the model is in training mode: its dropout would draw the same numbers at every token"
    if is_observed():
        return "a lens is open, and what it sees would be seen once, at the capture"
    if torch.is_autocast_enabled(device.type):
        return "inside autocast, whose casts of weights are not where a graph would look for them"
    if torch.cuda.is_current_stream_capturing():
        return "somebody else's graph is being captured"
    return _failed.get(model)


def addresses(model: Machine[Any]) -> object:
    """Address and dtype of every weight, for every text: `model.parameters()` would take as long as some tokens."""
    known: list[tuple[int, torch.dtype]] = []
    waiting: list[nn.Module] = [model]
    while waiting:
        module = waiting.pop()
        for part in (*module._parameters.values(), *module._buffers.values()):
            if part is not None:
                known.append((part.data_ptr(), part.dtype))
        waiting += [child for child in module._modules.values() if child is not None]
    return tuple(known)


def copy_(into: State, values: State) -> None:
    """Copy a state into the memory of another: one launch for many leaves."""
    to, given = ([leaf for _, leaf in leaves(state)] for state in (into, values))
    torch._foreach_copy_(to, given)


def overwrite(old: State, new: State) -> None:
    """Copy a new state over the old one; a list that was extended in place is there already."""
    mine = [leaf for _, leaf in leaves(old)]
    held = {leaf.untyped_storage().data_ptr() for leaf in mine}
    moves = []
    for before, after in zip(mine, (leaf for _, leaf in leaves(new)), strict=True):
        assert before.shape == after.shape, "a state in a loop keeps its shapes"
        if after.data_ptr() == before.data_ptr() and after.stride() == before.stride():
            continue
        # A view of an old leaf is cloned before any old leaf is overwritten.
        moves.append((before, after.clone() if after.untyped_storage().data_ptr() in held else after))
    if moves:  # one launch for many
        torch._foreach_copy_([before for before, _ in moves], [after for _, after in moves])


def _drop_oldest(kept: dict[object, T], most: int) -> None:
    while len(kept) > most:
        del kept[next(iter(kept))]


# -------------------------------------------------------------------- a step


class Start(NamedTuple):
    """Where decoding continues."""

    state: State
    token_B: Tensor
    position_B: Tensor
    seen_BV: Tensor
    count_BV: Tensor | None = None


class Loop:
    """One step in memory of its own, with room for `room` tokens."""

    def __init__(self, model: Machine[Any], start: Start, ways: RowSampling, never: Sequence[int], room: int) -> None:
        device = start.token_B.device
        self.ways = RowSampling._make(part.clone() if isinstance(part, Tensor) else part for part in ways)
        self.room, self.count = room, 0
        self.never_N = torch.tensor(list(never), dtype=torch.int64, device=device)
        self.state = map_state(lambda leaf: leaf.clone(), start.state)
        self.token_B, self.seen_BV = start.token_B.clone(), start.seen_BV.clone()
        self.count_BV = None if start.count_BV is None else start.count_BV.clone()
        self.sound = torch.ones((), dtype=torch.bool, device=device)  # whether all tokens so far could be chosen
        self.done_B1 = torch.zeros(len(self.token_B), 1, dtype=torch.int64, device=device)
        self.noise_BT = torch.zeros(len(self.token_B), room, dtype=torch.float64, device=device)
        self.run: Callable[[], None] = Replay(lambda: self._step(model), device, reset=lambda: self._rewind(start))

    def load(self, start: Start, ways: RowSampling, tokens: int) -> None:
        """Go to `start`, with random numbers for `tokens` tokens: any position, and any numbers in the same filters."""
        assert tokens <= self.room
        for mine, given in zip(self.ways, ways, strict=True):
            if isinstance(mine, Tensor) and isinstance(given, Tensor):
                mine.copy_(given)
        if ways.temperature_B1 is not None:
            ahead_T = torch.arange(tokens, device=start.position_B.device)
            self.noise_BT[:, :tokens] = uniforms(ways.seed_B[:, None], start.position_B[:, None] + ahead_T)
        self._rewind(start)

    def _rewind(self, start: Start) -> None:
        copy_(self.state, start.state)
        self.token_B.copy_(start.token_B)
        self.seen_BV.copy_(start.seen_BV)
        if self.count_BV is not None and start.count_BV is not None:
            self.count_BV.copy_(start.count_BV)
        self.done_B1.zero_()
        self.sound.fill_(True)
        self.count = 0

    @torch.no_grad()
    def _step(self, model: Machine[Any]) -> None:
        with packed_products(len(self.token_B), {}, prepare_gpu if self.token_B.is_cuda else prepare_cpu):
            logits_BV, after = model.step_(self.token_B, self.state)
        if len(self.never_N):
            logits_BV = logits_BV.index_fill(1, self.never_N, -torch.inf)
        self.sound &= has_best(logits_BV)
        below_B1 = None if self.ways.temperature_B1 is None else self.noise_BT.gather(1, self.done_B1)
        token_B = draw(logits_BV, self.ways, below_B1=below_B1, seen_BV=self.seen_BV, count_BV=self.count_BV)
        if below_B1 is not None:
            self.done_B1 += 1
        overwrite(self.state, after)
        self.token_B.copy_(token_B)
        if self.ways.repetition_B1 is not None:
            self.seen_BV.scatter_(1, token_B[:, None], True)
        if self.count_BV is not None:
            self.count_BV.scatter_add_(1, token_B[:, None], torch.ones_like(self.count_BV[:, :1]))

    def step(self) -> Tensor:
        """One more token of each row."""
        assert self.count < self.room
        self.run()
        self.count += 1
        return self.token_B.clone()


class Borrowed(NamedTuple):
    """A loop for the borrower alone, until it is given back."""

    loop: Loop
    key: object


_failed: WeakKeyDictionary[Machine[Any], str] = WeakKeyDictionary()
_idle: WeakKeyDictionary[Machine[Any], dict[object, Loop]] = WeakKeyDictionary()


def borrow(
    model: Machine[Any], start: Start, ways: RowSampling, never: Sequence[int], *, room: int, tokens: int
) -> Borrowed | None:
    """A loop at `start`: an idle one of this model, or a new one. None where a step cannot be captured."""
    shapes = tuple((leaf.shape, leaf.stride(), leaf.dtype) for _, leaf in leaves(start.state))
    filters = tuple(part is None if part is None or isinstance(part, Tensor) else part for part in ways)
    key = (shapes, start.token_B.shape, filters, tuple(never), room, addresses(model))
    loop = _idle.setdefault(model, {}).pop(key, None)
    if loop is None:
        try:
            loop = Loop(model, start, ways, never, room)
        except RuntimeError as error:  # CUDA's message about a step that waits for the host
            _failed[model] = _uncaptured(model, "step_", error)
            return None
    loop.load(start, ways, tokens)
    return Borrowed(loop, key)


def give_back(model: Machine[Any], borrowed: Borrowed) -> None:
    """Keep the loop for the next text; the oldest beyond `_IDLE` goes."""
    idle = _idle.setdefault(model, {})
    idle[borrowed.key] = borrowed.loop
    _drop_oldest(idle, _IDLE)


def _uncaptured(model: Machine[Any], method: str, error: RuntimeError) -> str:
    return f"{type(model).__name__}.{method} cannot be captured: {str(error).splitlines()[0]}"


# -------------------------------------------------------------------- a prompt


class Prefill:
    """`absorb` of one prompt shape in memory of its own."""

    def __init__(self, model: Machine[Any], tokens_BT: Tensor, state: "State | None") -> None:
        self.tokens_BT = tokens_BT.clone()
        self.state = None if state is None else map_state(Tensor.clone, state)
        self.after: State = ()
        # This shape was read once before, so its kernels are compiled.
        self.run = Replay(lambda: self._absorb(model), tokens_BT.device, warm_up=1, compiled=True)

    def _absorb(self, model: Machine[Any]) -> None:
        self.after = model.absorb(self.tokens_BT, self.state)

    def read(self, tokens_BT: Tensor, state: "State | None") -> State:
        self.tokens_BT.copy_(tokens_BT)
        if self.state is not None and state is not None:
            copy_(self.state, state)
        self.run()
        return map_state(Tensor.clone, self.after)


_prefills: WeakKeyDictionary[Machine[Any], dict[object, Prefill]] = WeakKeyDictionary()
# Shapes that were read before, each with the reason why it cannot be captured, if there is one.
_shapes: WeakKeyDictionary[Machine[Any], dict[object, str | None]] = WeakKeyDictionary()


@torch.no_grad()
def prefill(model: Machine[Any], tokens_BT: Tensor, state: "State | None") -> State:
    """The state after these tokens; without a state, from the initial one."""
    if tokens_BT.numel() > _PREFILL_TOKENS or obstacle(model, tokens_BT.device) is not None:
        return _absorb(model, tokens_BT, state)
    shapes = None if state is None else tuple((leaf.shape, leaf.dtype) for _, leaf in leaves(state))
    key = (tokens_BT.shape, shapes, addresses(model))
    captured = _borrow_prefill(model, key, tokens_BT, state)
    if captured is None:
        return _absorb(model, tokens_BT, state)
    after = captured.read(tokens_BT, state)
    kept = _prefills.setdefault(model, {})
    kept[key] = captured
    _drop_oldest(kept, _PREFILLS)
    return after


def _absorb(model: Machine[Any], tokens_BT: Tensor, state: "State | None") -> State:
    after: State = model.absorb(tokens_BT, state)
    return after


def _borrow_prefill(model: Machine[Any], key: object, tokens_BT: Tensor, state: "State | None") -> Prefill | None:
    """For the caller alone until it is put back. None: the shape is new, or cannot be captured."""
    shapes = _shapes.setdefault(model, {})
    new, reason = key not in shapes, shapes.get(key)
    shapes[key] = reason
    _drop_oldest(shapes, _SHAPES)
    if new or reason is not None:
        return None
    captured = _prefills.setdefault(model, {}).pop(key, None)
    if captured is None:
        try:
            captured = Prefill(model, tokens_BT, state)
        except RuntimeError as error:  # CUDA's message about a pass that waits for the host
            shapes[key] = _uncaptured(model, "absorb", error)
    return captured
