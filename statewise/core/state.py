"""What can be done with a state, whatever the state is.

A state is a tensor, or a (named) tuple of states; axis 0 of every leaf is the batch. Everything here
is `map_state` plus one idea, so a new architecture gets all of it by naming its state type.
"""

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load
from torch import Tensor
from torch.nn import functional as F

from statewise.disk import write
from statewise.runtime import safetensors_content
from statewise.specs import UserError, either, from_json

State: TypeAlias = "Tensor | tuple[State, ...]"
S = TypeVar("S", bound=State)

_KINDS = {  # as the safetensors format calls them
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def map_state(f: Callable[..., Tensor], state: S, *others: S) -> S:
    """Apply `f` to every tensor of a state; returns a state of the same type.

    With `others`, `f` also gets the tensors at the same place in these states.

    >>> state = sw.LSTM(16).init_state(batch=2)
    >>> sw.map_state(torch.Tensor.half, state)
    LSTMState(h_BP=[2, 16] float16, c_BD=[2, 16] float16; 128 bytes)
    """
    if isinstance(state, Tensor):
        return cast(S, f(state, *others))
    parts = [map_state(f, *parts) for parts in zip(state, *cast("tuple[tuple[State, ...], ...]", others), strict=True)]
    return _rebuild(state, parts)


def _rebuild(like: S, parts: Sequence[State]) -> S:
    make = getattr(type(like), "_make", tuple)  # a NamedTuple is rebuilt as itself
    return cast(S, make(parts))


def leaves(state: State) -> Iterator[tuple[str, Tensor]]:
    """Every leaf with its path: `layers.0.c_BD`."""
    if isinstance(state, Tensor):
        yield "", state
        return
    names = getattr(state, "_fields", range(len(state)))
    for name, part in zip(names, state, strict=True):
        for path, leaf in leaves(part):
            yield f"{name}.{path}" if path else str(name), leaf


def detach(state: S) -> S:
    """The same values, cut from the graph: what truncated BPTT does between segments."""
    return map_state(Tensor.detach, state)


def fork(state: S) -> S:
    """A copy with memory of its own: both continue, neither feels the other."""
    return map_state(Tensor.clone, state)


def rows(state: S, index: Tensor | slice) -> S:
    """Some rows, in the given order: beams, slices of a batch, one session out of many."""
    return map_state(lambda leaf: leaf[index], state)


def concat(states: Sequence[S]) -> S:
    """Rows of several states, one below the other. A list that grew longer in one is padded in the others."""
    return map_state(lambda *parts: torch.cat(_aligned(parts)), *states)


def where(mask_B: Tensor, yes: S, no: S) -> S:
    """Row by row: `yes` where the mask is true, `no` elsewhere."""

    def choose(a: Tensor, b: Tensor) -> Tensor:
        a, b = _aligned((a, b))
        return torch.where(mask_B.view(-1, *[1] * (a.dim() - 1)), a, b)

    return map_state(choose, yes, no)


def _aligned(parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """States that grow keep, beside the list, how much of it each row uses; so zeros at its end change nothing."""
    if all(part.shape[1:] == parts[0].shape[1:] for part in parts):
        return parts
    longest = [max(sizes) for sizes in zip(*(part.shape[1:] for part in parts), strict=True)]
    return tuple(
        F.pad(part, [n for size, most in zip(part.shape[:0:-1], longest[::-1]) for n in (0, most - size)])
        for part in parts
    )


def hold(active_B: Tensor, *, new: S, old: S) -> S:
    """Rows that are past their end keep the old state."""
    return where(active_B, new, old)


def within_rows(t: int | Tensor, lengths_B: Tensor | None, result: tuple[Tensor, S], *, before: S) -> tuple[Tensor, S]:
    """The `result` of a step at time step t; past a row's end its output is 0, and its state what it was `before`."""
    if lengths_B is None:
        return result
    y, after = result
    active_B = t < lengths_B
    return where(active_B, y, torch.zeros_like(y)), hold(active_B, new=after, old=before)


def past_end(x: Tensor, lengths_B: Tensor | None, value: float = 0.0) -> Tensor:
    """`x` with `value` past each row's end: the number there that leaves a state at rest. Without lengths, `x`."""
    if lengths_B is None:
        return x
    past_BT = torch.arange(x.shape[1], device=x.device) >= lengths_B[:, None]
    return x.masked_fill(past_BT[(..., *[None] * (x.dim() - 2))], value)


def reset_rows(state: S, mask_B: Tensor, *, initial: S) -> S:
    """Rows of the mask start afresh: a document ended there."""
    return where(mask_B, initial, state)


def to(state: S, target: torch.device | torch.dtype | str) -> S:
    """Move to a device, or convert floating leaves to a dtype; whole numbers stay whole."""
    if isinstance(target, torch.dtype):
        return map_state(lambda leaf: leaf.to(target) if leaf.is_floating_point() else leaf, state)
    return map_state(lambda leaf: leaf.to(target), state)


def onto(device: torch.device, tensor: Tensor) -> Tensor:
    """`tensor` on a device. To a GPU it goes through pinned memory, so that the host does not wait for the copy."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def state_bytes(state: State) -> int:
    """The memory that a state takes: bytes of all its tensors.

    >>> sw.state_bytes(sw.LSTM(16).init_state(batch=2))
    256
    """
    return sum(leaf.numel() * leaf.element_size() for _, leaf in leaves(state))


def _signature(state: State) -> str:
    """The type as text, leaves by their number of axes: `LSTMState(2, 2)`."""
    if isinstance(state, Tensor):
        return str(state.dim())
    return f"{type(state).__name__}({', '.join(_signature(part) for part in state)})"


def pack_state(state: State, *, weights: str = "") -> bytes:
    """The content of the file that `save_state` writes."""
    # Not by the format's own library: it makes two ctypes types for each length of a tensor, and Python keeps them for
    # ever. A server that saves lists of all lengths would grow by 6 KB for each of them.
    parts = {
        name or "state": (_KINDS[leaf.dtype], leaf.shape, _numbers(leaf.detach().cpu())) for name, leaf in leaves(state)
    }
    return safetensors_content(parts, {"state": json.dumps(_signature(state)), "weights": weights})


def _numbers(tensor: Tensor) -> NDArray[Any]:
    """Its bytes in order. (NumPy has no bfloat16; bits are bits.)"""
    return np.ascontiguousarray((tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy())


def save_state(state: State, path: str | Path, *, weights: str = "") -> None:
    """Write a state to a safetensors file, with its type in the header, and the sha256 of its model's weights if given.

    >>> mixer = sw.GRU(8)
    >>> _, state = mixer(torch.randn(1, 5, 8))
    >>> sw.save_state(state, "state.safetensors")
    """
    write(Path(path), pack_state(state, weights=weights))


def load_state(path: str | Path, *, like: S, weights: str = "") -> S:
    """Read a state from a file. `like` is a state of the same type: an initial state of the model that continues.

    The tensors come back on the device of `like`. A file of another model's state raises an error; with the sha256 of
    its `weights`, so does that of a model with other weights.

    >>> mixer = sw.GRU(8)
    >>> _, state = mixer(torch.randn(1, 5, 8))
    >>> sw.save_state(state, "state.safetensors")
    >>> torch.equal(sw.load_state("state.safetensors", like=mixer.init_state(1)).h_BD, state.h_BD)
    True
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"there is no state file {str(path)!r}")
    if not path.is_file():
        raise UserError(f"{str(path)!r} is not a saved state: it is not a file")
    try:
        with safe_open(path, framework="pt"):  # its header fits its size, so that it is worth reading
            pass
        content = path.read_bytes()
    except (SafetensorError, OSError) as error:
        raise _not_saved(str(path), error) from None
    return unpack_state(content, like=like, weights=weights, name=str(path))


def unpack_state(content: bytes, *, like: S, weights: str = "", name: str = "state", strict: bool = False) -> S:
    """`load_state` of a file's content; messages call it `name`. Strictly, it must say which weights it belongs to."""
    try:
        tensors = load(content)
        metadata = from_json(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__") or {}
        signature = from_json(metadata.get("state", '"no state"'))
    except (SafetensorError, ValueError) as error:
        raise _not_saved(name, error) from None
    if signature != _signature(like):
        raise UserError(
            f"{name!r} holds {' '.join(str(signature).split())[:200]}, but this model's state is {_signature(like)}",
            fix="load it with the model that saved it",
        )
    if weights and weights != (belongs := metadata.get("weights", "")):
        if belongs or strict:
            raise UserError(
                f"{name!r} belongs to a model with other weights "
                f"(sha256 {belongs[:12] or 'unknown'}, expected {weights[:12]})",
                fix="load it with the model that saved it",
            )
        warnings.warn(f"{name!r} does not say which weights it belongs to", stacklevel=2)
    wanted = dict(leaves(like))
    for leaf_name, leaf in wanted.items():
        loaded = tensors.get(leaf_name or "state")
        if loaded is None or loaded.dtype != leaf.dtype or not _fits(loaded, leaf):
            raise UserError(
                f"{name!r}: leaf {leaf_name!r} is missing, or is not {leaf.dtype} of the shape {list(leaf.shape)[1:]}",
                fix="load it with the model that saved it",
            )
    if extra := sorted(set(tensors) - {leaf_name or "state" for leaf_name in wanted}):
        raise UserError(f"{name!r}: leaves {extra[:3]} are not of this state")
    batches = {len(tensor) for tensor in tensors.values()}
    if len(batches) > 1:
        raise UserError(f"{name!r}: its leaves disagree on the batch: {sorted(batches)}")
    names = iter(wanted)
    return map_state(lambda leaf: tensors[next(names) or "state"].to(leaf.device), like)


def _not_saved(name: str, error: Exception) -> UserError:
    return UserError(
        f"{name!r} is not a saved state: {error}",
        fix=f"make one with {either('statewise generate RUN --save-state FILE', 'run.save_state(state, FILE)')}",
    )


def _fits(loaded: Tensor, initial: Tensor) -> bool:
    """The same shape but for the batch, and for axes that are empty at the beginning: those grow."""
    if loaded.dim() != initial.dim() or loaded.dim() == 0:
        return False
    return all(a == b or b == 0 for a, b in zip(loaded.shape[1:], initial.shape[1:]))


def state_problem(state: State, *, initial: State, read: int) -> str:
    """What no state can hold after `read` tokens, in words; empty where there is nothing. A file can hold anything."""
    for (_, leaf), (_, first) in zip(leaves(state), leaves(initial), strict=True):
        lists = [held for size, held in zip(first.shape[1:], leaf.shape[1:]) if size == 0]
        if any(held != read for held in lists):
            return f"it has read {read} tokens, but holds a list of {lists[0]}"
        if leaf.is_floating_point():
            if bool(first.isfinite().all()) and not bool(leaf.isfinite().all()):
                return "it holds values that are not finite numbers"
            continue
        # Whole numbers count what was read, from 0, or what is left, down from where they begin.
        least, most = (torch.where(first == 0, read, end) for end in (0, first))
        if bool(((leaf < least) | (leaf > most)).any()):
            return f"it has read {read} tokens, but holds a count of {int(leaf.flatten()[0])}"
    return ""
