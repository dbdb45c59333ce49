"""From pieces of text to one stream of tokens: `[end] document [end] document ... [end]`."""

import mmap
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from statewise.data.text import Piece, num_bytes
from statewise.data.tokenizer import Tokenizer

Direction = Literal["forward", "reverse"]
_BLOCK = 1 << 20


class Count(NamedTuple):
    """What was written: the UTF-8 bytes of the text, and how many tokens stand for unknown ones."""

    bytes: int
    unknown: int


def token_dtype(tokenizer: Tokenizer) -> np.dtype[np.unsignedinteger]:
    return np.dtype(np.uint16 if tokenizer.vocab < 1 << 16 else np.uint32)


def write_tokens(
    pieces: Iterable[Piece], tokenizer: Tokenizer, *, file: BinaryIO, direction: Direction = "forward"
) -> Count:
    """Append the stream to an empty `file`; reversed, each document is, and not their order.

    A document without a token leaves no trace, so two ends never meet.
    """
    dtype = token_dtype(tokenizer)
    end = np.array([tokenizer.end_id], dtype).tobytes()
    text_bytes, unknown = 0, 0
    begin = stop = file.write(end) // dtype.itemsize
    # The last document has an end too, even where the text was cut off inside it.
    for (text, ends), ids in _encoded(chain(pieces, [Piece("", True)]), tokenizer):
        file.write(ids.astype(dtype).tobytes())
        stop += len(ids)
        text_bytes += num_bytes(text)
        if tokenizer.unknown_id is not None:
            unknown += int(np.count_nonzero(ids == tokenizer.unknown_id))
        if ends and stop > begin:
            if direction == "reverse":
                _reverse(file, begin, stop, dtype=dtype)
            file.write(end)
            begin = stop = stop + 1
    file.flush()
    return Count(text_bytes, unknown)


def _encoded(pieces: Iterable[Piece], tokenizer: Tokenizer) -> Iterator[tuple[Piece, NDArray[np.int64]]]:
    """Each piece with its ids; short documents are handed to the tokenizer many at a time."""
    group: list[Piece] = []
    waiting = 0
    for piece in pieces:
        group.append(piece)
        waiting += len(piece.text)
        if waiting >= _BLOCK:
            yield from zip(group, tokenizer.encode_many([text for text, _ in group]))
            group, waiting = [], 0
    yield from zip(group, tokenizer.encode_many([text for text, _ in group]))


def _reverse(file: BinaryIO, begin: int, stop: int, *, dtype: np.dtype[np.unsignedinteger]) -> None:
    """Turn round the tokens from `begin` to `stop` in place, swapping blocks from both sides."""
    size = dtype.itemsize
    while begin < stop:
        length = min(_BLOCK, (stop - begin + 1) // 2)
        sides = (begin * size, (stop - length) * size)
        blocks = []
        for side in sides:
            file.seek(side)
            blocks.append(np.frombuffer(file.read(length * size), dtype))
        for side, block in zip(sides, reversed(blocks)):
            file.seek(side)
            file.write(block[::-1].tobytes())
        begin, stop = begin + length, stop - length
    file.seek(0, 2)


def release(tokens: NDArray[np.unsignedinteger]) -> None:
    """Let go of the pages of a mapped file that were read; they count as memory of the process until then."""
    if isinstance(tokens, np.memmap) and hasattr(mmap, "MADV_DONTNEED"):
        getattr(tokens, "_mmap").madvise(mmap.MADV_DONTNEED)  # noqa: B009 (NumPy's name for it, untyped)
