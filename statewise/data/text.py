"""Text in pieces: decoded, with `\\n` line ends, cut into documents, never whole in memory.

Each function is a stage of one stream, so where the pieces of a file happen to be cut changes
nothing that comes out: neither the text, nor its documents, nor (short of a word longer than a
piece) its tokens.
"""

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from statewise.specs import UserError

PIECE = 1 << 22

# Greedy, so each finds the last place it can match. A border falls *before* white space that
# follows a word: no tokenizer of ours joins characters across such a place.
_BORDERS = (re.compile(r".*\S(?=\n)", re.DOTALL), re.compile(r".*\S(?=\s)", re.DOTALL))


class Piece(NamedTuple):
    """Some text, and whether its document ends right after it."""

    text: str
    ends: bool


def read_text(path: Path, *, piece: int = PIECE) -> Iterator[str]:
    """The characters of a UTF-8 file; no byte-order mark, CRLF and CR as `\\n`."""
    utf8 = codecs.getincrementaldecoder("utf-8")()
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    offset, at_start = 0, True
    try:
        with path.open("rb") as file:
            while True:
                block = file.read(piece)
                _refuse_binary(block, path=path, offset=offset)
                waiting = len(utf8.getstate()[0])
                try:
                    text = decoder.decode(block, final=not block)
                except UnicodeDecodeError as error:
                    raise UserError(
                        f"{str(path)!r} is not UTF-8 text: byte offset {offset - waiting + error.start} "
                        f"holds 0x{error.object[error.start]:02x} ({error.reason})",
                        fix=f"convert it first, for example: iconv -f LATIN1 -t UTF-8 {path.name} > utf8.txt",
                    ) from None
                offset += len(block)
                if text and at_start:
                    text, at_start = text.removeprefix("\ufeff"), False
                if text:
                    yield text
                if not block:
                    return
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None


def _refuse_binary(block: bytes, *, path: Path, offset: int) -> None:
    if offset == 0 and block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(
            f"{str(path)!r} is not UTF-8 text: it begins with the UTF-16 byte-order mark",
            fix=f"convert it first: iconv -f UTF-16 -t UTF-8 {path.name} > utf8.txt",
        )
    nul = block.find(b"\0")
    if nul >= 0:
        raise UserError(
            f"{str(path)!r} is a binary file, not text: byte offset {offset + nul} is zero",
            fix="name plain UTF-8 text files, or a folder that holds nothing else",
        )


def split_documents(chunks: Iterable[str], *, separator: str | None) -> Iterator[Piece]:
    """Cut one file's text at each separator, exactly as `str.split` would cut the whole of it."""
    rest = ""
    for chunk in chunks:
        if separator is None:
            yield Piece(chunk, False)
            continue
        *documents, rest = (rest + chunk).split(separator)
        yield from (Piece(document, True) for document in documents)
        # The separator's beginning may be the last thing seen: keep as much as it could take.
        safe = max(0, len(rest) - len(separator) + 1)
        yield Piece(rest[:safe], False)
        rest = rest[safe:]
    yield Piece(rest, True)


def at_borders(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Move the cuts inside documents to a line's end, else to white space, else leave them."""
    held = ""
    for text, ends in pieces:
        held += text
        cut = len(held) if ends else _last_border(held)
        if cut or ends:
            yield Piece(held[:cut], ends)
        held = held[cut:]
    if held:
        yield Piece(held, False)


def slices(text: str, *, length: int) -> Iterator[str]:
    """`text` in parts of about `length` characters, cut at borders."""
    chunks = (text[start : start + length] for start in range(0, len(text), length))
    return (piece.text for piece in at_borders(Piece(chunk, False) for chunk in chunks))


def between(pieces: Iterable[Piece], *, start: int, stop: int) -> Iterator[Piece]:
    """The part of the stream from byte `start` to byte `stop`, both moved on to a character's border."""
    here = 0
    for text, ends in pieces:
        size = num_bytes(text)
        first, last = (_character_at(text, byte - here, size=size) for byte in (start, stop))
        # A document that ends before the part begins, or after it is over, is none of its business.
        if here + size > start and here < stop:
            yield Piece(text[first:last], ends and last == len(text))
        here += size
        if here >= stop:
            return


def num_bytes(text: str) -> int:
    """Length in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def _last_border(text: str) -> int:
    for border in _BORDERS:
        if found := border.match(text):
            return found.end()
    return len(text)


def _character_at(text: str, byte: int, *, size: int) -> int:
    """Index of the first character that begins at `byte` of the text's UTF-8, or after it."""
    if byte <= 0 or byte >= size:
        return 0 if byte <= 0 else len(text)
    data = text.encode()
    while byte < size and data[byte] & 0xC0 == 0x80:
        byte += 1
    return len(data[:byte].decode())
