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

from statewise.data.compressed import opened
from statewise.specs import UserError

PIECE = 1 << 22

# Greedy: each finds the last match. A border is *before* white space that follows a word: no tokenizer of ours joins
# characters across it.
_BORDERS = (re.compile(r".*\S(?=\n)", re.DOTALL), re.compile(r".*\S(?=\s)", re.DOTALL))

# Scripts without spaces: by name for regular expressions of the tokenizers library, by range for Python's.
NO_SPACES = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
NEVER_SPACED = rf"[{NO_SPACES}\u3000-\u303F\uFF01-\uFF0F\uFF1A-\uFF20\uFF3B-\uFF40\uFF5B-\uFF65]"
_EAST = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_SOUTH_EAST = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_MARKS = "\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
_EAST_ASIAN, _SOUTH_EAST_ASIAN = re.compile(f"[{_EAST}]"), re.compile(f"[{_SOUTH_EAST}]")
_KANA = re.compile("[\u3040-\u30ff\uff66-\uff9f]")
_UNSPACED = re.compile(f"([{_EAST}{_SOUTH_EAST}{_MARKS}])")
# Words have about two characters on average; South East Asian vowels and tones are separate characters.
_LONGEST_MEAN, _LONGEST_MEAN_ALONE = 5.0, 2.0
_SHARE = 0.3  # of all characters; less are names and quotations in another script
_ENOUGH = 1 << 20  # characters to look at


class Piece(NamedTuple):
    """Some text, and whether its document ends after it."""

    text: str
    ends: bool


def read_text(path: Path, *, piece: int = PIECE) -> Iterator[str]:
    """The characters of a UTF-8 file, compressed or not; no byte-order mark, CRLF and CR as `\\n`."""
    utf8 = codecs.getincrementaldecoder("utf-8")()
    decoder = io.IncrementalNewlineDecoder(utf8, translate=True)
    offset, at_start = 0, True
    try:
        with opened(path) as file:
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
    """Split one file's text at each separator, as `str.split` would split all of it."""
    rest = ""
    for chunk in chunks:
        if separator is None:
            yield Piece(chunk, False)
            continue
        *documents, rest = (rest + chunk).split(separator)
        yield from (Piece(document, True) for document in documents)
        # The text may end with the start of a separator: keep that much back.
        safe = max(0, len(rest) - len(separator) + 1)
        yield Piece(rest[:safe], False)
        rest = rest[safe:]
    yield Piece(rest, True)


def at_borders(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Move cuts inside documents to a line end, else to white space, else leave them."""
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
    """The part of the stream from byte `start` to byte `stop`, both moved to the next character."""
    here = 0
    for text, ends in pieces:
        size = num_bytes(text)
        first, last = (_character_at(text, byte - here, size=size) for byte in (start, stop))
        # Skip the ends of documents outside the part.
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
        if match := border.match(text):
            return match.end()
    return len(text)


def _character_at(text: str, byte: int, *, size: int) -> int:
    """Index of the first character that starts at or after `byte` of the text's UTF-8."""
    if byte <= 0 or byte >= size:
        return 0 if byte <= 0 else len(text)
    data = text.encode()
    while byte < size and data[byte] & 0xC0 == 0x80:
        byte += 1
    return len(data[:byte].decode())


def unsegmented(texts: Iterable[str]) -> str | None:
    """A sentence without spaces, if most pieces in unspaced scripts are sentences rather than words; else None."""
    pieces: set[str] = set()
    lines = count = seen = 0
    for text in texts:
        for line in text.splitlines():
            unspaced = [piece for piece in line.split() if _unspaced_length(piece)]
            lines, count = lines + bool(unspaced), count + len(unspaced)
            pieces.update(line.split())
        seen += len(text)
        if seen >= _ENOUGH:
            break
    longest_mean = _LONGEST_MEAN if count > 1.5 * lines else _LONGEST_MEAN_ALONE
    unspaced_pieces = [piece for piece in pieces if _unspaced_length(piece)]
    letters = sum(len(_UNSPACED.findall(piece)) for piece in unspaced_pieces)
    if letters < _SHARE * sum(map(len, pieces)) or sum(map(_unspaced_length, unspaced_pieces)) <= longest_mean * len(
        unspaced_pieces
    ):
        return None
    return max(unspaced_pieces, key=lambda piece: (_unspaced_length(piece), piece))


def _unspaced_length(piece: str) -> float:
    """Length of the unspaced script in a piece; a South East Asian character counts half."""
    return len(_EAST_ASIAN.findall(piece)) + len(_SOUTH_EAST_ASIAN.findall(piece)) / 2


def space_characters(text: str) -> str:
    """The text with spaces around each character and punctuation mark of an unspaced script."""
    return " ".join(_UNSPACED.sub(r" \1 ", text).split())


def only_chinese(texts: Iterable[str]) -> bool:
    """Whether Chinese is the only unspaced script in these texts."""
    any_chinese = False
    for text in texts:
        if _KANA.search(text) or _SOUTH_EAST_ASIAN.search(text):
            return False
        any_chinese = any_chinese or _EAST_ASIAN.search(text) is not None
    return any_chinese
