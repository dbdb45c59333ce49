"""What grows with the length of a sequence: the memory that training keeps, and the path between two tokens."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from statewise.core import Composer, Machine, leaves, map_state
from statewise.kernels import force
from statewise.models.language_model import EmbeddedMachine

Path = Literal["1", "log N", "N", "none"]

_PIECE = 128  # tokens; lengths that are measured are multiples of it, so that chunks are full
_EVEN = 1.05  # between the largest and the smallest growth of what counts as a line
_LENGTHS, _LEAVES = (4, 8, 16), (8, 16, 32)  # tokens between which paths are measured: read in order, and in a tree
# Operations that only move numbers: they are no step of a path.
_MOVES = (
    *("Alias", "AsStrided", "Cat", "Clone", "CopyBackwards", "CopySlices", "Expand", "Index", "Permute", "Repeat"),
    *("Reshape", "Select", "Slice", "Split", "Squeeze", "Stack", "ToCopy", "Transpose", "Unbind", "UnsafeView"),
    *("Unsqueeze", "View"),
)


def training_bytes(machine: Machine[Any], tokens: int) -> int:
    """Bytes that a forward pass over one row of `tokens` keeps for its backward pass, weights not counted.

    Up to a few hundred tokens they are measured. For more, four lengths are, and extrapolated by a polynomial of second
    degree; by a line where chunk sizes depend on the length and the growth differs a little from piece to piece.
    """
    if not any(p.requires_grad for p in machine.parameters()):
        return 0
    if tokens <= 4 * _PIECE:
        return _kept(machine, tokens)
    measured = [_kept(machine, count * _PIECE) for count in (1, 2, 3, 4)]
    first, second, third = (after - before for before, after in pairwise(measured))
    more = (tokens - _PIECE) / _PIECE
    if third - second == second - first:
        return round(measured[0] + more * first + more * (more - 1) / 2 * (second - first))
    if max(first, second, third) > _EVEN * min(first, second, third):
        return _kept(machine, tokens)
    return round(measured[0] + more * (measured[3] - measured[0]) / 3)


def _kept(machine: Machine[Any], tokens: int) -> int:
    """Every saved tensor counts once, with all of the memory that it keeps from being freed."""
    own = {p.untyped_storage().data_ptr() for p in (*machine.parameters(), *machine.buffers())}
    kept: dict[int, int] = {}

    def pack(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return saved

    x = machine.sample_input(1, tokens, generator=torch.Generator().manual_seed(0))
    trained = machine.training
    try:
        with torch.enable_grad(), saved_tensors_hooks(pack, lambda saved: saved):
            graph = machine.train()(x)
    finally:
        machine.train(trained)
    del graph  # until here it kept the storages, so that no address was used twice
    return sum(kept.values())


def path(machine: Machine[Any]) -> Path:
    """How the longest path between two tokens grows with their distance N, measured step by step."""
    return _growth([path_length(machine, tokens) for tokens in _LENGTHS])


def tree_path(composer: Composer[Any]) -> Path:
    """The same for two leaves of a balanced binary tree."""
    return _growth([tree_path_length(composer, tokens) for tokens in _LEAVES])


def _growth(counts: Sequence[int | None]) -> Path:
    if counts[-1] is None:
        return "none"
    first, second, third = (operations for operations in counts if operations is not None)
    if first == second == third:
        return "1"
    if third - second == second - first:
        return "log N"
    assert third - second == 2 * (second - first), f"paths of {first}, {second} and {third} operations"
    return "N"


def path_length(machine: Machine[Any], tokens: int) -> int | None:
    """Operations on the shortest path from the first of `tokens` to the last output; None: there is no path.

    Each token is read by a step of its own, in the naive implementation. What only moves numbers (a list that grows,
    a view) is no operation.
    """
    step: Callable[[Tensor, Any], tuple[Tensor, Any]]
    if isinstance(machine, EmbeddedMachine):
        width, step = machine.embedding.weight.shape[1], machine.read_one
    else:
        x_BT = machine.sample_input(1, 1, generator=torch.Generator().manual_seed(0))
        if not x_BT.is_floating_point():
            return None  # tokens that are counted
        width, step = x_BT.shape[2], machine.step

    def read(tokens: int, carried: Collection[str]) -> tuple[Tensor, Tensor]:
        """The last output and the first token; other parts of the state pass no gradient on."""
        vectors, state = _vectors(machine, width, tokens), machine.eval().init_state(1)
        for x_BE in vectors:
            names = iter([name for name, _ in leaves(state)])
            state = map_state(lambda leaf: leaf if next(names) in carried else leaf.detach(), state)  # noqa: B023
            y_BD, state = step(x_BE, state)
        return y_BD, vectors[0]

    with torch.enable_grad(), force("naive"):
        carried = [name for name, leaf in leaves(machine.init_state(1)) if leaf.is_floating_point()]
        for part in tuple(carried):
            # In the graph, a list that is cut leads to what was cut off, too: such a part carries nothing by itself.
            others = [other for other in carried if other != part]
            if not _is_connected(*read(_LENGTHS[-1], [part])) and _is_connected(*read(_LENGTHS[-1], others)):
                carried = others
        return _shortest(*read(tokens, carried))


def tree_path_length(composer: Composer[Any], tokens: int) -> int | None:
    assert tokens & (tokens - 1) == 0, "the tree is balanced"
    with torch.enable_grad():
        vectors = _vectors(composer, composer.input_width, tokens)
        nothing = map_state(lambda leaf: torch.stack([leaf, leaf], dim=1), composer.absent())
        level = [composer(x_NI, nothing) for x_NI in vectors]
        x_NI = torch.zeros_like(vectors[0])  # inner nodes have no word
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=True)
            level = [composer(x_NI, map_state(lambda a, b: torch.stack([a, b], dim=1), *pair)) for pair in pairs]
        return _shortest(composer.shown(level[0]), vectors[0])


def _vectors(module: nn.Module, width: int, tokens: int) -> list[Tensor]:
    like = next(module.parameters())
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(1, width, dtype=torch.float64, generator=generator) for _ in range(tokens)]
    return [x_BE.to(like).requires_grad_() for x_BE in made]


def _is_connected(y: Tensor, x: Tensor) -> bool:
    weight = torch.linspace(-1, 2, y.numel(), dtype=y.dtype, device=y.device).view_as(y)  # a plain sum, norms undo
    (gradient,) = torch.autograd.grad((y * weight).sum(), x, retain_graph=True, allow_unused=True)
    return gradient is not None and bool(gradient.any())


def _shortest(y: Tensor, x: Tensor) -> int | None:
    """In the graph of operations behind `y`, those on the shortest path to `x`."""
    if not _is_connected(y, x):
        return None
    assert y.grad_fn is not None
    queue, done = deque([(y.grad_fn, 0)]), set()
    while queue:
        node, length = queue.popleft()
        if node in done:
            continue
        done.add(node)
        if getattr(node, "variable", None) is x:
            return length
        operation = node.name().partition("Backward")[0]
        moves = operation == "T" or operation.startswith(_MOVES)  # T: a transposed matrix; Tanh is another
        for following, _ in node.next_functions:
            if following is None or following in done:
                continue
            if moves:
                queue.appendleft((following, length))
            else:
                queue.append((following, length + 1))
    raise AssertionError("a gradient has a path")
