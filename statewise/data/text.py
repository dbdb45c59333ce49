"""Text in pieces: decoded, with `\\n` line ends, cut into documents, never whole in memory; and scripts without spaces.

Each function is a stage of one stream. Where the pieces of a file are cut does not change the text, its documents or
(short of a word longer than a piece) its tokens.
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


# For the tokenizers library, whose expressions know scripts by name, and for Python's, which does not.
NO_SPACES = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
NEVER_SPACED = rf"[{NO_SPACES}\u3000-\u303F\uFF01-\uFF0F\uFF1A-\uFF20\uFF3B-\uFF40\uFF5B-\uFF65]"
_EAST = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_SOUTH_EAST = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_MARKS = "\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
_OF_THE_EAST, _OF_THE_SOUTH_EAST = re.compile(f"[{_EAST}]"), re.compile(f"[{_SOUTH_EAST}]")
_KANA = re.compile("[\u3040-\u30ff\uff66-\uff9f]")
_ALONE = re.compile(f"([{_EAST}{_SOUTH_EAST}{_MARKS}])")
# Words have about two characters in the mean; vowels and tones of South East Asia are characters of their own.
_LONGEST_MEAN, _ALONE_ON_A_LINE = 5.0, 2.0
_SHARE = 0.3  # of all that shows; less are names and quotations in another script
_ENOUGH = 1 << 20  # characters that are looked at


def unsegmented(texts: Iterable[str]) -> str | None:
    """A sentence that stands between two spaces as if it were a word, where most such pieces of the texts are."""
    pieces: set[str] = set()
    lines = count = seen = 0
    for text in texts:
        for line in text.splitlines():
            found = [piece for piece in line.split() if _such(piece)]
            lines, count = lines + bool(found), count + len(found)
            pieces.update(line.split())
        seen += len(text)
        if seen >= _ENOUGH:
            break
    longest_mean = _LONGEST_MEAN if count > 1.5 * lines else _ALONE_ON_A_LINE
    such = [piece for piece in pieces if _such(piece)]
    letters = sum(len(_ALONE.findall(piece)) for piece in such)
    if letters < _SHARE * sum(map(len, pieces)) or sum(map(_such, such)) <= longest_mean * len(such):
        return None
    return max(such, key=lambda piece: (_such(piece), piece))


def _such(piece: str) -> float:
    """How long a piece is in such a script, in characters of the East."""
    return len(_OF_THE_EAST.findall(piece)) + len(_OF_THE_SOUTH_EAST.findall(piece)) / 2


def space_characters(text: str) -> str:
    """The text with spaces around each character of such a script, and around the marks that go with them."""
    return " ".join(_ALONE.sub(r" \1 ", text).split())


def only_chinese(texts: Iterable[str]) -> bool:
    """Whether, of such scripts, only the Chinese one is in these texts."""
    found = False
    for text in texts:
        if _KANA.search(text) or _OF_THE_SOUTH_EAST.search(text):
            return False
        found = found or _OF_THE_EAST.search(text) is not None
    return found
