"""A model whose states stay in this process: its steps, the numbers of a state that a page draws, its training.

A state of any size costs a few kilobytes on the way to the page: of each leaf the numbers that are drawn.

B batch, T time, V vocabulary or classes, K numbers of a leaf that the page draws.
"""

import base64
import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from statewise.core import leaves, lens, map_state
from statewise.layers import Embedding
from statewise.models import TokenMachine
from statewise.serving.http import Body
from statewise.specs import UserError

WINDOW = 256  # tokens of one update
_WHOLE, _SOME = 1024, 256  # numbers of a leaf that are sent all; of a larger one, so many


class Change(Body):
    """Numbers `begin` to `end` of a leaf become `value`."""

    leaf: str
    begin: int = Field(ge=0)
    end: int
    value: float


class Hold(Body):
    """One of `parts` equal stretches of an observed value (-1: all of it) is held at a number."""

    name: str
    value: float
    part: int = Field(ge=-1)
    parts: int = Field(ge=1)


class _Leaf(NamedTuple):
    """How a leaf is sent: the newest row of one that grows; the numbers at these places, or all."""

    path: str
    grows: bool
    known_K: Tensor | None

    def shown(self, leaf: Tensor) -> dict[str, Any]:
        row = leaf[:, -1:] if self.grows and leaf.shape[1] else leaf
        numbers = row.reshape(-1)[self.known_K] if self.known_K is not None and len(row) else row.reshape(-1)
        return {"dims": list(leaf.shape), "data": sent(numbers)}


@final
class Model:
    """A machine with its first state."""

    def __init__(self, machine: TokenMachine[Any], first: Any, vocab: int) -> None:
        self.machine, self.first, self.vocab = machine, first, vocab
        token_B = torch.zeros(1, dtype=torch.long, device=self.device)
        with torch.no_grad(), lens() as seen:
            _, after = machine.step(token_B, first)
        self.lens = [name for name in seen.names if seen.seen[name][-1].is_floating_point()]
        self.leaves = [_leaf(path, old, new) for (path, old), (_, new) in zip(leaves(first), leaves(after))]

    @property
    def device(self) -> torch.device:
        return next(leaf for _, leaf in leaves(self.first)).device

    def record(self) -> dict[str, Any]:
        kinds = {path: "f" if leaf.is_floating_point() else "i" for path, leaf in leaves(self.first)}
        known = {leaf.path: None if leaf.known_K is None else leaf.known_K.tolist() for leaf in self.leaves}
        return {
            "live": {"kinds": kinds, "known": known, "begin": self.shown(self.first)},
            "states": [],
            "lens": self.lens,
        }

    def shown(self, state: Any) -> dict[str, Any]:
        return {how.path: how.shown(leaf) for how, (_, leaf) in zip(self.leaves, leaves(state))}

    def step(self, token: int, state: Any, holds: Mapping[str, Hold], *, look: bool) -> tuple[Tensor, Any, list[Any]]:
        """Logits `[V]`, the state, and the sizes of what is observed, if asked for."""
        if not 0 <= token < self.vocab:
            raise UserError(f"token {token} is not in the vocabulary", fix=f"0 to {self.vocab - 1}")
        token_B = torch.tensor([token], device=self.device)
        if not holds and not look:
            logits_BV, state = self.machine.step(token_B, state)
            return logits_BV[0], state, []
        with lens(*(() if look else holds), edit=lambda name, value: _held(value, holds.get(name))) as seen:
            logits_BV, state = self.machine.step(token_B, state)
        return logits_BV[0], state, [[name, list(seen.seen[name][-1].shape)] for name in self.lens if name in seen.seen]

    def gradient(self, tokens: Sequence[int], target: int) -> list[float]:
        """Norms of the gradient of the loss after the last token, by the vector of each."""
        read: list[Tensor] = []

        def keep(_: Any, __: Any, y: Tensor) -> Tensor:
            read.append(y.detach().requires_grad_())
            return read[-1]

        hooks = [part.register_forward_hook(keep) for part in self.machine.modules() if isinstance(part, Embedding)]
        try:
            with torch.enable_grad():
                state = self.first
                for token in tokens:
                    logits_V, state, _ = self.step(token, state, {}, look=False)
                loss = F.cross_entropy(logits_V[None], torch.tensor([target], device=self.device))
                found = torch.autograd.grad(loss, read, allow_unused=True)
        finally:
            for hook in hooks:
                hook.remove()
        each = len(read) // len(tokens)  # tables that a token is looked up in
        norms = np.array([0.0 if one is None else float(one.double().norm()) for one in found])
        return [float(norm) for norm in np.sqrt((norms.reshape(len(tokens), each) ** 2).sum(1))]


@final
class Training:
    """A copy of a model that learns one text, by truncated backpropagation and AdamW."""

    def __init__(self, model: Model) -> None:
        self.model = Model(copy.deepcopy(model.machine), model.first, model.vocab)
        for part in self.model.machine.parameters():
            part.requires_grad_()
        self._update = torch.optim.AdamW(self.model.machine.parameters(), weight_decay=0.0)
        self._chance = np.random.default_rng(0)

    def learn(self, tokens: Sequence[int], *, rate: float, clip: float, cut: int) -> tuple[float, float]:
        """One update on a window of the text, with a cut every `cut` tokens: the loss, and the norm before clipping."""
        machine, device = self.model.machine, self.model.device
        begin = int(self._chance.integers(max(1, len(tokens) - WINDOW)))
        window_T = torch.tensor(tokens[begin : begin + WINDOW + 1], device=device)
        inputs_BT, targets_T = window_T[None, :-1], window_T[1:]
        self._update.zero_grad()
        state, total = self.model.first, 0.0
        with torch.enable_grad():
            for at in range(0, len(targets_T), cut):
                logits_BTV, state = machine(inputs_BT[:, at : at + cut], state)
                loss = F.cross_entropy(logits_BTV[0], targets_T[at : at + cut], reduction="sum") / len(targets_T)
                torch.autograd.backward(loss)
                total += float(loss.detach())
                state = map_state(lambda leaf: leaf.detach(), state)
        norm = torch.nn.utils.clip_grad_norm_(machine.parameters(), clip or float("inf"))
        for group in self._update.param_groups:
            group["lr"] = rate
        self._update.step()
        return total, float(norm)


def _leaf(path: str, old: Tensor, new: Tensor) -> _Leaf:
    grows = old.shape != new.shape
    numbers = new.numel() // new.shape[1] if grows else new.numel()
    some_K = torch.linspace(0, numbers - 1, _SOME).long() if numbers > _WHOLE else None
    return _Leaf(path, grows, some_K)


def sent(numbers: Tensor) -> Any:
    """Float32 in base64; whole numbers as they are."""
    if not numbers.is_floating_point():
        return numbers.tolist()
    return base64.b64encode(numbers.detach().float().cpu().numpy().astype("<f4").tobytes()).decode()


def _held(value: Tensor, hold: Hold | None) -> Tensor:
    if hold is None:
        return value
    if value.numel() % hold.parts or hold.part >= hold.parts:
        raise UserError(f"{hold.name} has no part {hold.part + 1} of {hold.parts}", fix="choose fewer parts")
    parts = value.clone().reshape(hold.parts, -1)
    parts[slice(None) if hold.part < 0 else hold.part] = hold.value
    return parts.reshape(value.shape)


def changed(state: Any, changes: Sequence[Change]) -> Any:
    if not changes:
        return state
    sizes = {path: leaf.numel() for path, leaf in leaves(state)}
    for change in changes:
        if not 0 <= change.begin < change.end <= sizes.get(change.leaf, 0):
            raise UserError(f"the state has no numbers {change.begin} to {change.end} of {change.leaf!r}", fix="reload")
    own = map_state(lambda leaf: leaf.clone(memory_format=torch.contiguous_format), state)
    by_path = dict(leaves(own))
    for change in changes:
        by_path[change.leaf].reshape(-1)[change.begin : change.end] = change.value
    return own


def greedy(
    model: Model, state: Any, token: int, length: int, never: int | None, holds: Mapping[str, Hold]
) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < length:
        logits_V, state, _ = model.step(token, state, holds, look=False)
        if never is not None and never < len(logits_V):
            logits_V = logits_V.index_fill(0, torch.tensor(never, device=logits_V.device), -torch.inf)
        tokens.append(token := int(logits_V.argmax()))
    return tokens
