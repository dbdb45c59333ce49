"""Writing on a GPU as the replay of one captured step: what a step reads and writes stays where it is.

Launched from Python, a step of a small model costs far more than its arithmetic. Captured as a CUDA graph it is one
launch, whatever the model: it reads its token, makes the next state, chooses, and leaves all of that in place for the
next. Chance is a table by (seed, position), made before. So nobody waits for the device until somebody looks at a
token, and the tokens are those of the loop without a graph.

B batch, T tokens that there is room for, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from statewise.core import Machine, Replay, State, is_observed, leaves, map_state
from statewise.decoding.sampling import Sampling, best, drawn, has_best, uniforms
from statewise.kernels.few_rows import packed_products, prepare_cpu, prepare_gpu

_IDLE = 4  # graphs that a model keeps for later, with the memory they hold


class Start(NamedTuple):
    """Where a text is to go on."""

    state: State
    token_B: Tensor
    position_B: Tensor
    seen_BV: Tensor


class Loop:
    """One step in memory of its own. On CUDA it is captured; elsewhere it runs as it is written (for the tests)."""

    def __init__(self, model: Machine[Any], start: Start, sampling: Sampling, never: Sequence[int], room: int) -> None:
        device = start.token_B.device
        self.sampling, self.room, self.count = sampling, room, 0
        self.never_N = torch.tensor(list(never), dtype=torch.int64, device=device)
        self.state = map_state(lambda leaf: leaf.clone(), start.state)
        self.token_B, self.seen_BV = start.token_B.clone(), start.seen_BV.clone()
        self.sound = torch.ones((), dtype=torch.bool, device=device)  # whether all tokens so far could be chosen
        self.done_B1 = torch.zeros(len(self.token_B), 1, dtype=torch.int64, device=device)
        self.noise_BT = torch.zeros(len(self.token_B), room, dtype=torch.float64, device=device)
        self.run: Callable[[], None] = Replay(lambda: self._step(model), device, reset=lambda: self._rewind(start))

    def load(self, start: Start, sampling: Sampling, tokens: int) -> None:
        """Stand at `start`, with the chance of so many tokens: within the same shapes, any place and any seed."""
        assert tokens <= self.room
        self.sampling = sampling
        if sampling.temperature > 0:
            ages = start.position_B.tolist()
            noise_TB = [uniforms([age + t for age in ages], sampling.seed) for t in range(tokens)]
            self.noise_BT[:, :tokens] = torch.tensor(noise_TB, dtype=torch.float64).T.to(self.noise_BT.device)
        self._rewind(start)

    def _rewind(self, start: Start) -> None:
        copy_(self.state, start.state)
        self.token_B.copy_(start.token_B)
        self.seen_BV.copy_(start.seen_BV)
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
        if self.sampling.temperature == 0:
            token_B = best(logits_BV, self.seen_BV, self.sampling)
        else:
            token_B = drawn(logits_BV, self.seen_BV, self.noise_BT.gather(1, self.done_B1), self.sampling)
            self.done_B1 += 1
        self._keep(after)
        self.token_B.copy_(token_B)
        if self.sampling.repetition != 1.0:
            self.seen_BV.scatter_(1, token_B[:, None], True)

    def _keep(self, after: State) -> None:
        """The new state into the place of the old; a list that was written to in place is there already."""
        mine = [leaf for _, leaf in leaves(self.state)]
        held = {leaf.untyped_storage().data_ptr() for leaf in mine}
        moves = []
        for old, new in zip(mine, (leaf for _, leaf in leaves(after)), strict=True):
            assert old.shape == new.shape, "a state in a loop keeps its shapes"
            if new.data_ptr() == old.data_ptr() and new.stride() == old.stride():
                continue
            # What looks into an old leaf is copied before any of them is written.
            moves.append((old, new.clone() if new.untyped_storage().data_ptr() in held else new))
        if moves:  # one launch for many
            torch._foreach_copy_([old for old, _ in moves], [new for _, new in moves])

    def step(self) -> Tensor:
        """One more token of each row."""
        assert self.count < self.room
        self.run()
        self.count += 1
        return self.token_B.clone()


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


_failed: WeakKeyDictionary[Machine[Any], str] = WeakKeyDictionary()
_idle: WeakKeyDictionary[Machine[Any], dict[object, Loop]] = WeakKeyDictionary()


def _key(model: Machine[Any], start: Start, sampling: Sampling, never: Sequence[int], room: int) -> object:
    """What a captured step depends on: shapes, filters, and where the weights are."""
    shapes = tuple((leaf.shape, leaf.stride(), leaf.dtype) for _, leaf in leaves(start.state))
    return shapes, start.token_B.shape, sampling._replace(seed=0), tuple(never), room, weights(model)


def weights(model: Machine[Any]) -> object:
    """Where they are. Asked for with every text, and PyTorch's own way through a model takes as long as some tokens."""
    found: list[tuple[int, torch.dtype]] = []
    waiting: list[nn.Module] = [model]
    while waiting:
        module = waiting.pop()
        for part in (*module._parameters.values(), *module._buffers.values()):
            if part is not None:
                found.append((part.data_ptr(), part.dtype))
        waiting += [child for child in module._modules.values() if child is not None]
    return tuple(found)


def copy_(mine: State, given: State) -> None:
    """The values of a state into memory that stays where it is: one launch for many leaves."""
    into, out = ([leaf for _, leaf in leaves(state)] for state in (mine, given))
    torch._foreach_copy_(into, out)


class Borrowed(NamedTuple):
    """A loop that nobody else has until it is given back."""

    loop: Loop
    key: object


def borrow(
    model: Machine[Any], start: Start, sampling: Sampling, never: Sequence[int], *, room: int, tokens: int
) -> Borrowed | None:
    """A loop that stands at `start`: an idle one of this model, or a new one. None where a step cannot be captured."""
    key = _key(model, start, sampling, never, room)
    loop = _idle.setdefault(model, {}).pop(key, None)
    if loop is None:
        try:
            loop = Loop(model, start, sampling, never, room)
        except RuntimeError as error:  # what CUDA says of a step that waits for the host
            _failed[model] = f"{type(model).__name__}.step_ cannot be captured: {str(error).splitlines()[0]}"
            return None
    loop.load(start, sampling, tokens)
    return Borrowed(loop, key)


def give_back(model: Machine[Any], borrowed: Borrowed) -> None:
    """Kept for the next text; of those kept, the oldest goes."""
    idle = _idle.setdefault(model, {})
    idle[borrowed.key] = borrowed.loop
    while len(idle) > _IDLE:
        del idle[next(iter(idle))]
