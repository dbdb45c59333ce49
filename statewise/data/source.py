"""Where text comes from: files, folders, standard input, or the corpus inside Python itself."""

import hashlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from statewise.data.columnar import read_texts, text_bytes
from statewise.data.compressed import is_compressed, needed_zstd, needs_zstd
from statewise.data.dataset import HUB, HubName, hub_name, is_columnar
from statewise.data.file import STDIN, files_at
from statewise.data.json_lines import is_json_lines, json_texts
from statewise.data.table import Column
from statewise.data.text import PIECE, Piece, at_borders, between, num_bytes, read_text, split_documents
from statewise.disk import replacing
from statewise.specs import UserError

EMBEDDED = "pydoc_data.topics"
_UNPACKED = 4  # about as many times as large is a compressed text


class Origin(NamedTuple):
    """One file, one column of a file of rows or of a dataset, or one text in memory (`path` is None)."""

    size: int
    path: Path | HubName | None = None
    text: str = ""
    column: Column | None = None

    def texts(self, *, piece: int) -> Iterator[Iterator[str]]:
        """Each text in parts: a file is one, a column has one in each row."""
        if self.path is None:
            yield iter((self.text,))
        elif self.column is None:
            assert isinstance(self.path, Path)
            yield read_text(self.path, piece=piece)
        else:
            if isinstance(self.path, Path) and is_json_lines(self.path):
                texts = json_texts(self.path, self.column)
            else:
                texts = read_texts(self.path, self.column)
            for text in texts:
                yield (text[start : start + piece] for start in range(0, len(text), piece))


class Source(NamedTuple):
    """Origins in reading order; each of their texts is a document, or several with a `separator`."""

    name: str
    origins: tuple[Origin, ...]
    separator: str | None = None

    @property
    def size(self) -> int:
        """Bytes before normalisation: known without reading, close to those of the text."""
        return sum(origin.size for origin in self.origins)

    def pieces(self, *, start: int = 0, stop: int = sys.maxsize, piece: int = PIECE) -> Iterator[Piece]:
        """The text from byte `start` to byte `stop`, separators not counted; it can be read again."""
        return between(self._documents(piece), start=start, stop=stop)

    def _documents(self, piece: int) -> Iterator[Piece]:
        for origin in self.origins:
            for chunks in origin.texts(piece=piece):
                yield from at_borders(split_documents(chunks, separator=self.separator))

    def fingerprint(self) -> str:
        """sha256 of the stored bytes, without decoding: a fast check for changes."""
        digest = hashlib.sha256()
        for origin in self.origins:
            digest.update(b"%d:" % origin.size)
            if origin.path is None:
                digest.update(origin.text.encode())
            elif isinstance(origin.path, Path):
                digest.update(file_sha256(origin.path).encode())
            else:
                for chunks in origin.texts(piece=PIECE):
                    digest.update(measure(Piece(chunk, False) for chunk in chunks).sha256.encode())
            if origin.column is not None:
                digest.update(f":{origin.column}:".encode())
        return digest.hexdigest()


class Measure(NamedTuple):
    """UTF-8 bytes of a text, and the sha256 of its documents joined by \\0."""

    bytes: int
    sha256: str


def measure(pieces: Iterator[Piece]) -> Measure:
    digest, count, between_documents = hashlib.sha256(), 0, False
    for text, ends in pieces:
        if text:
            # Text never contains \0, so the separator is unambiguous; for a single document this is `sha256sum`.
            digest.update(b"\0" * (between_documents and count > 0))
            data = text.encode()
            digest.update(data)
            count, between_documents = count + len(data), False
        between_documents |= ends
    return Measure(count, digest.hexdigest())


def file_sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None


def open_source(
    paths: Sequence[str], *, separator: str | None = None, text_column: Column = "text", spool: Path | None = None
) -> Source:
    """Find the files of `paths`; texts are not read yet, except standard input, which is copied to `spool`.

    Of a Parquet or Arrow file, of JSON lines, or of a dataset (`hub:NAME:SPLIT`), each row of `text_column` is a text.
    No paths at all: the embedded corpus. A `spool` that exists already is read instead of standard input, so that a
    resumed run sees the same text.
    """
    if separator is not None:
        separator = separator.replace("\r\n", "\n").replace("\r", "\n")
    if not paths:
        return Source(EMBEDDED, _embedded(), separator)
    if paths.count(STDIN) > 1:
        raise UserError("standard input '-' is named twice", fix="it can be read only once; name it once")
    origins: list[Origin] = []
    for path in paths:
        if path == STDIN:
            origins += _spooled(spool)
        elif path.startswith(HUB):
            name = hub_name(path)
            assert name is not None
            origins.append(Origin(text_bytes(name, text_column), name, column=text_column))
        else:
            origins += [_origin(file, text_column) for file in files_at(Path(path))]
    source = Source(", ".join(paths), tuple(origins), separator)
    if not source.size:
        raise UserError(f"{source.name!r} holds no text", fix="name a file or a folder with UTF-8 text in it")
    return source


def _origin(path: Path, column: Column) -> Origin:
    if is_columnar(path):
        return Origin(text_bytes(path, column), path, column=column)
    if needs_zstd(path):
        needed_zstd()  # refused before work begins
    size = path.stat().st_size * (_UNPACKED if is_compressed(path) else 1)
    return Origin(size, path, column=column if is_json_lines(path) else None)


def _embedded() -> tuple[Origin, ...]:
    """Python's own help topics, one document each: about 450 kB of English."""
    from pydoc_data.topics import topics

    return tuple(Origin(num_bytes(text), text=text) for _, text in sorted(topics.items()))


def _spooled(spool: Path | None) -> list[Origin]:
    if spool is None:
        raise UserError("standard input cannot be read here: text is read twice", fix="name a file instead")
    if not spool.exists() or not spool.stat().st_size:
        try:
            spool.parent.mkdir(parents=True, exist_ok=True)
            with replacing(spool) as temporary, temporary.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file, PIECE)
        except OSError as error:
            raise UserError(f"standard input cannot be kept in {str(spool)!r}: {error.strerror or error}") from None
    return [Origin(spool.stat().st_size, spool)]
