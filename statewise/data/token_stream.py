"""Pieces of text as one stream of tokens, `[end] document [end] ... [end]`, encoded by one process or several."""

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing import connection, get_context, parent_process
from tempfile import SpooledTemporaryFile
from typing import Literal, NamedTuple

import numpy as np
import tokenizers
from numpy.typing import NDArray

from statewise.data.text import Piece, num_bytes
from statewise.data.tokenizer import Tokenizer
from statewise.specs import UserError, option

Direction = Literal["forward", "reverse"]
Progress = Callable[[str, int, int], None]  # what is read, how many bytes are done, and of how many

_GROUP = 1 << 20  # characters that are encoded together
_HELD = 1 << 26  # bytes of a document that is reversed in memory
_AHEAD = 3  # groups that wait for each process


class Block(NamedTuple):
    """The next tokens of the stream, of so many UTF-8 bytes of text; `open`: a document has begun and not ended."""

    tokens: NDArray[np.unsignedinteger]
    bytes: int
    unknown: int
    open: bool


class Begun(NamedTuple):
    """So many blocks are known already; `open` is that of the last one."""

    blocks: int = 0
    open: bool = False


def token_dtype(tokenizer: Tokenizer) -> np.dtype[np.unsignedinteger]:
    return np.dtype("<u2" if tokenizer.vocab < 1 << 16 else "<u4")


def token_stream(
    pieces: Iterable[Piece],
    tokenizer: Tokenizer,
    *,
    direction: Direction = "forward",
    workers: int = 1,
    begun: Begun = Begun(),  # noqa: B008 (immutable)
) -> Generator[Block, None, None]:
    """In reverse, each document is reversed; their order stays.

    A document without tokens is skipped, so there are never two ends in a row. The last document has an end too, even
    if the text is cut off inside it. The blocks are the same for any number of processes; all after `begun` are given.
    """
    blocks = _forward(pieces, tokenizer, workers=workers, begun=begun)
    if direction == "forward":
        return blocks
    assert begun == Begun()
    return _reversed(blocks, end_id=tokenizer.end_id)


def reported(
    blocks: Iterator[Block], what: str, total: int, progress: Progress | None, *, done: int = 0
) -> Iterator[Block]:
    """The same blocks; `progress` hears of the bytes of their text."""
    for block in blocks:
        yield block
        done += block.bytes
        if progress is not None:
            progress(what, min(done, total), total)


def _forward(
    pieces: Iterable[Piece], tokenizer: Tokenizer, *, workers: int, begun: Begun
) -> Generator[Block, None, None]:
    end = np.array([tokenizer.end_id], token_dtype(tokenizer))
    first, is_open = begun.blocks == 0, begun.open
    groups = islice(_groups(pieces), begun.blocks, None)
    for group in _encoded(groups, tokenizer, workers):
        ends = [end] * (first + (is_open and group.ends_another))
        is_open = group.open or (is_open and not group.ends)
        yield Block(np.concatenate([*ends, group.tokens]), group.bytes, group.unknown, is_open)
        first = False
    if first or is_open:
        yield Block(np.concatenate([end] * (first + is_open)), 0, 0, False)


class _Group(NamedTuple):
    """Encoded pieces, with an end after each document that has a token here.

    `ends_another`: before its first token, a document ends that began earlier. `ends`: any document ends here.
    `open`: after the last end there are tokens.
    """

    tokens: NDArray[np.unsignedinteger]
    ends_another: bool
    ends: bool
    open: bool
    bytes: int
    unknown: int


def _groups(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Short documents are encoded together."""
    group: list[Piece] = []
    waiting = 0
    for piece in pieces:
        group.append(piece)
        waiting += len(piece.text)
        if waiting >= _GROUP:
            yield group
            group, waiting = [], 0
    if group:
        yield group


def _encode(group: list[Piece], tokenizer: Tokenizer) -> _Group:
    dtype = token_dtype(tokenizer)
    end = np.array([tokenizer.end_id], dtype)
    parts: list[NDArray[np.unsignedinteger]] = []
    begun = ends = ends_another = False
    unknown = 0
    for piece, ids in zip(group, tokenizer.encode_many([piece.text for piece in group])):
        if len(ids):
            parts.append(ids.astype(dtype))
            begun = True
            unknown += 0 if tokenizer.unknown_id is None else int(np.count_nonzero(ids == tokenizer.unknown_id))
        if piece.ends:
            if begun:
                parts.append(end)
            ends_another |= not ends and not begun
            begun, ends = False, True
    tokens = np.concatenate(parts) if parts else end[:0]
    return _Group(tokens, ends_another, ends, begun, sum(num_bytes(piece.text) for piece in group), unknown)


def _encoded(groups: Iterator[list[Piece]], tokenizer: Tokenizer, workers: int) -> Iterator[_Group]:
    if workers == 1:
        yield from (_encode(group, tokenizer) for group in groups)
        return
    # Forking a process that has used threads can hang.
    pool = ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_begin_work, initargs=(tokenizer.to_json(),)
    )
    waiting: deque[Future[_Group]] = deque()
    try:
        for group in groups:
            waiting.append(pool.submit(_work, group))
            if len(waiting) >= _AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise UserError(
            "a process that encodes text has ended; perhaps memory ran out",
            fix=f"run it again with {option('workers', 1)}; what is finished is kept",
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_tokenizer: Tokenizer  # of a worker process


def _begin_work(tokenizer: str) -> None:
    """In a worker: one thread, and no life after the parent's."""
    global _tokenizer
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _tokenizer = Tokenizer(tokenizers.Tokenizer.from_str(tokenizer))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _work(group: list[Piece]) -> _Group:
    return _encode(group, _tokenizer)


def _reversed(blocks: Iterable[Block], *, end_id: int) -> Generator[Block, None, None]:
    """Each document from its end; a long one waits in a file."""
    with SpooledTemporaryFile(max_size=_HELD) as held:
        for block in blocks:
            dtype, parts = block.tokens.dtype, []
            for part in np.split(block.tokens, np.flatnonzero(block.tokens == end_id) + 1):
                if not len(part) or part[-1] != end_id:
                    held.write(part.tobytes())
                    continue
                parts.append(part[-2::-1] if len(part) > 1 else part[:0])
                for stop in range(held.tell(), 0, -_HELD):
                    held.seek(max(0, stop - _HELD))
                    parts.append(np.frombuffer(held.read(stop - held.tell()), dtype)[::-1])
                parts.append(part[-1:])
                held.seek(0)
                held.truncate()
            yield block._replace(tokens=np.concatenate([block.tokens[:0], *parts]))
