"""States of prompts that were read before: a prompt that begins like one of them goes on from its state.

A state of fixed size is kept at the end of a prompt, at every block of it, and where two prompts part. Of a list, the
state at the end holds those of all beginnings, so it is cut to what two prompts share. Either way any common beginning
is found, whatever its length.

Prompts are found by hashing blocks of tokens in a chain, one link a block.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from statewise.core import State, leaves, map_state, state_bytes
from statewise.serving.pool import cut

BLOCK = 64  # tokens of a link
_RECENT = 4  # continuations of a link that are compared with a new prompt
_OBJECT = 600  # bytes of a tensor, a link or an entry beside its numbers, measured

Tokens = NDArray[np.int64]


class Prompt:
    """The tokens of a prompt, and a key for the beginning that each of its blocks ends: a hash of all tokens before.

    Keys are made when they are asked for, once. `owner` separates those who must not notice each other.
    """

    __slots__ = ("_keys", "_numbers", "tokens")

    def __init__(self, tokens: Tokens, owner: str = "") -> None:
        self.tokens = tokens
        self._numbers = tokens.astype(np.int32).tobytes()
        self._keys = [hashlib.blake2b(owner.encode(), digest_size=16).digest()]

    def key(self, block: int) -> bytes:
        """Of the first so many blocks."""
        keys, size = self._keys, BLOCK * np.int32().nbytes
        while len(keys) <= block:
            numbers = self._numbers[(len(keys) - 1) * size : len(keys) * size]
            keys.append(hashlib.blake2b(keys[-1] + numbers, digest_size=16).digest())
        return keys[block]

    def keys(self, length: int) -> list[bytes]:
        """Of all whole blocks of the first `length` tokens, from the empty beginning on."""
        self.key(length // BLOCK)
        return self._keys[: length // BLOCK + 1]


class Found(NamedTuple):
    """What is known of a prompt: the state after `length` tokens, and how many tokens another prompt shares with it."""

    state: "State | None"
    length: int
    shared: int


@dataclass(eq=False, slots=True)
class _Kept:
    tokens: Tokens
    state: State
    size: int
    keys: list[bytes]  # of its links, from the first


@dataclass(eq=False, slots=True)
class _Link:
    """Prompts that agree up to here: those that end within the next block, and the last that passed."""

    ends: dict[bytes, _Kept] = field(default_factory=dict)  # by their tokens in that block
    passed: OrderedDict[int, _Kept] = field(default_factory=OrderedDict)
    users: int = 0


class PrefixCache:
    """Bounded by bytes; the least recently used goes first."""

    def __init__(self, initial: State, *, most_bytes: int) -> None:
        self._initial = initial
        self.most_bytes = most_bytes
        self._links: dict[bytes, _Link] = {}
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self.bytes = 0
        shapes = [leaf.shape[1:] for _, leaf in leaves(initial)]
        self.is_fixed = not any(0 in shape for shape in shapes)
        self._tensors = len(shapes)

    def find(self, prompt: Prompt, *, most: int) -> Found:
        """The longest known beginning of at most `most` tokens."""
        tokens, known = prompt.tokens, self._known(prompt)
        shared = self._shared(prompt, known, most)
        for number in reversed(range(known)):
            link, begin = self._links[prompt.key(number)], number * BLOCK
            if not self.is_fixed:
                for kept in reversed(link.passed.values()):
                    length = min(_common(kept.tokens, tokens, begin), most)
                    state = self._beginning(kept, length)
                    if length and state is not None:
                        self._touch(kept)
                        return Found(state, length, shared)
            for end in range(min(begin + BLOCK - 1, len(tokens), most), begin - 1, -1) if link.ends else ():
                exact = link.ends.get(tokens[begin:end].tobytes())
                if exact is not None and end:
                    self._touch(exact)
                    return Found(exact.state, end, shared)
        return Found(None, 0, shared)

    def keep(self, prompt: Prompt, length: int, state: State) -> None:
        """Remember the state (one row, nobody else's memory) after the first `length` tokens."""
        tokens, keys = prompt.tokens[:length], prompt.keys(length)
        size = state_bytes(state) + tokens.nbytes + _OBJECT * (1 + self._tensors + len(keys))
        if size > self.most_bytes or not length:
            return
        last = self._links.get(keys[-1])
        tail = tokens[(len(keys) - 1) * BLOCK :].tobytes()
        if last is not None and tail in last.ends:
            self._touch(last.ends[tail])
            return
        kept = _Kept(tokens.copy(), state, size, keys)
        for key in keys:
            link = self._links.setdefault(key, _Link())
            link.users += 1
            link.passed[id(kept)] = kept
            while len(link.passed) > _RECENT:
                link.passed.popitem(last=False)
        self._links[keys[-1]].ends[tail] = kept
        self._kept[id(kept)] = kept
        self.bytes += size
        while self.bytes > self.most_bytes:
            self._drop(next(iter(self._kept.values())))

    def _drop(self, kept: _Kept) -> None:
        del self._kept[id(kept)]
        self.bytes -= kept.size
        self._links[kept.keys[-1]].ends.pop(kept.tokens[(len(kept.keys) - 1) * BLOCK :].tobytes())
        for key in kept.keys:
            link = self._links[key]
            link.users -= 1
            link.passed.pop(id(kept), None)
            if not link.users:
                del self._links[key]

    def _touch(self, kept: _Kept) -> None:
        self._kept.move_to_end(id(kept))

    def _known(self, prompt: Prompt) -> int:
        """How many of the prompt's keys are known, from the first."""
        for number in range(len(prompt.tokens) // BLOCK + 1):
            if prompt.key(number) not in self._links:
                return number
        return len(prompt.tokens) // BLOCK + 1

    def _shared(self, prompt: Prompt, known: int, most: int) -> int:
        if not known:
            return 0
        passed, begin = self._links[prompt.key(known - 1)].passed.values(), (known - 1) * BLOCK
        return min(most, max((_common(kept.tokens, prompt.tokens, begin) for kept in passed), default=0))

    def _beginning(self, kept: _Kept, length: int) -> "State | None":
        """The state after the first tokens, if what is no list in it is nothing but the number of tokens read."""

        def is_count(leaf: Tensor, initial: Tensor) -> bool:
            return leaf.dtype == torch.int64 and leaf.dim() == 1 and int(leaf) == len(kept.tokens) and int(initial) == 0

        pairs = zip(leaves(kept.state), leaves(self._initial), strict=True)
        if not all(0 in initial.shape[1:] or is_count(leaf, initial) for (_, leaf), (_, initial) in pairs):
            return None
        short = cut(kept.state, self._initial, length)
        return map_state(lambda leaf, like: leaf if 0 in like.shape[1:] else leaf.fill_(length), short, self._initial)


def _common(a: Tokens, b: Tokens, begin: int) -> int:
    """How many first tokens are the same, if those before `begin` are."""
    end = min(len(a), len(b))
    differ = a[begin:end] != b[begin:end]
    return begin + int(differ.argmax()) if differ.any() else end
