"""Files of examples, line by line: every line keeps its number, and every error names it."""

import codecs
import io
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from statewise.data.compressed import opened, plain_name, unpacked
from statewise.data.file import STDIN, files_at
from statewise.specs import UserError, setting

E = TypeVar("E")
Paths = str | Path | Sequence[str | Path]

UTF8 = "utf-8"
_BLOCK = 1 << 20  # bytes of a file that are held at a time


class Where(NamedTuple):
    """Where an example was read: `reviews.tsv line 17`; arrays and datasets have rows instead of lines."""

    path: str
    line: int
    unit: str = "line"

    def __str__(self) -> str:
        name = "standard input" if self.path == STDIN else self.path
        return f"{name} {self.unit} {self.line}"


class Line(NamedTuple):
    """The text of a line without its end."""

    text: str
    where: Where


class Examples(list[E], Generic[E]):
    """Examples in order, and counts of what was left out: `counts["empty lines"]`."""

    def __init__(self, examples: Iterable[E] = (), counts: Counter[str] | None = None) -> None:
        super().__init__(examples)
        self.counts: Counter[str] = Counter() if counts is None else counts


def left_out_note(counts: Mapping[str, int]) -> str:
    """For messages: ", 3 empty lines left out", or an empty string."""
    parts = [f"{count:,} {what}" for what, count in counts.items() if count]
    return f", {' and '.join(parts)} left out" if parts else ""


def path_list(paths: Paths) -> list[Path]:
    """The paths as a list of at least one."""
    named = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if not named:
        raise UserError("no data file is named", fix="name at least one")
    return named


def refuse_empty(count: int, paths: Paths, what: str) -> None:
    if not count:
        names = ", ".join(map(str, path_list(paths)))
        raise UserError(f"{names!r} holds no {what}", fix="check that it is the right file")


def read_lines(path: Path, *, encoding: str = UTF8, takes: str = "name the files in it one by one") -> Iterator[Line]:
    """The lines of a UTF-8 file, or of another `encoding`, gzipped or not, a block at a time; no byte-order mark.

    A line ends at `\\n` or `\\r\\n`, or at `\\r` in a file without any `\\n`. Nothing else ends a line: splitting at a
    lone `\\r`, a form feed or U+2028 would misalign parallel files. A folder is refused; `takes` is the advice.
    """
    blocks = _blocks(path, takes)
    if encoding != UTF8:
        blocks = _transcoded(blocks, encoding, path)
    for number, line in enumerate(_split(_without_mark(blocks, path)), start=1):
        where = Where(str(path), number)
        yield Line(_decoded(line.removesuffix(b"\r"), where), where)


def _blocks(path: Path, takes: str) -> Iterator[bytes]:
    """The content of a file, decompressed, some at a time."""
    if str(path) == STDIN:
        yield read_bytes(path)
        return
    _refuse_folder(path, takes)
    with opened(path) as file:
        try:
            while block := file.read(_BLOCK):
                yield block
        except OSError as error:
            raise UserError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None


def _refuse_folder(path: Path, takes: str) -> None:
    files = files_at(path)
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder of {len(files)} files, not a file", fix=takes)


def _without_mark(blocks: Iterator[bytes], path: Path) -> Iterator[bytes]:
    first = next(blocks, b"")
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(
            f"{str(path)!r} is not UTF-8 text: it begins with the UTF-16 byte-order mark",
            fix=f"name it: {setting('data.encoding', 'utf-16')}",
        )
    yield first.removeprefix(codecs.BOM_UTF8)
    yield from blocks


def _split(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The lines, without the byte that ends them. A file without any line end is held until it has been read."""
    before: list[bytes] = []
    ends = False
    for block in blocks:
        first, *rest = block.split(b"\n")
        before.append(first)
        if rest:
            ends = True
            yield b"".join(before)
            before = [rest.pop()]
            yield from rest
    last = b"".join(before)
    if ends:
        lines = [last]
    else:
        lines = last.replace(b"\r", b"\n").split(b"\n")
    if not lines[-1]:
        lines.pop()  # nothing follows the last line end
    yield from lines


def _decoded(line: bytes, where: Where) -> str:
    if b"\0" in line:
        raise UserError(
            f"{where}: byte {line.index(0) + 1} is zero, so this is a binary file, not text",
            fix="name UTF-8 text files (or gzipped ones)",
        )
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where}: byte {error.start + 1} is 0x{line[error.start]:02x}, which is not UTF-8 ({error.reason})",
            fix=f"name the encoding the file was written in, for example {setting('data.encoding', 'latin-1')}",
        ) from None


def _transcoded(blocks: Iterator[bytes], encoding: str, path: Path) -> Iterator[bytes]:
    """As UTF-8."""
    lines = 0
    try:
        decoder = _decoder(encoding)
        for block in blocks:
            yield decoder.decode(block).encode()
            lines += block.count(b"\n")
        block = b""
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        where = Where(str(path), lines + block[:start].count(b"\n") + 1)
        raise UserError(
            f"{where}: not {encoding}: {error}", fix=f"name the right one: {setting('data.encoding', 'latin-1')}"
        ) from None


def _decoder(encoding: str) -> Any:
    try:
        with suppress(UnicodeError):
            b" ".decode(encoding)  # what is no encoding of text is refused here
        return codecs.getincrementaldecoder(encoding)()
    except LookupError:
        raise UserError(
            f"encoding {encoding!r} is not known", fix="for example utf-8, latin-1, cp1251, utf-16"
        ) from None


def read_bytes(path: Path, *, takes: str = "name the files in it one by one") -> bytes:
    """The content of a file, decompressed if it is gzipped or Zstandard's."""
    if str(path) == STDIN:
        data = sys.stdin.buffer.read()
    else:
        _refuse_folder(path, takes)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UserError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None
    return unpacked(io.BytesIO(data), size=len(data), name=str(path)).read()


def suffix(path: Path) -> str:
    """`.tsv` of `reviews.TSV.gz`."""
    return Path(plain_name(path)).suffix


@contextmanager
def spooled(path: str, *, ending: str = "") -> Iterator[str]:
    """A file that can be read twice; standard input is spooled to a temporary file with this `ending`."""
    if path != STDIN:
        yield path
        return
    with temporary_file(f"standard input{ending}", read_bytes(Path(path))) as file:
        yield str(file)


@contextmanager
def temporary_file(name: str, content: str | bytes) -> Iterator[Path]:
    """A temporary file of this name. Errors about it mention the name only, not the temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        try:
            yield file
        except UserError as error:
            what, fix = (part.replace(str(file), name) for part in error.marked)
            raise UserError(what, fix=fix) from None
