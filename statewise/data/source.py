"""Where text comes from: files, folders, standard input, or the corpus inside Python itself."""

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from statewise.data.text import PIECE, Piece, at_borders, between, num_bytes, read_text, split_documents
from statewise.disk import replacing
from statewise.specs import UserError, nearest

STDIN = "-"
EMBEDDED = "pydoc_data.topics"


class Origin(NamedTuple):
    """One file, or one text in memory (`path` is None)."""

    size: int
    path: Path | None = None
    text: str = ""

    def chunks(self, *, piece: int) -> Iterator[str]:
        return iter((self.text,)) if self.path is None else read_text(self.path, piece=piece)


class Source(NamedTuple):
    """Origins in reading order; each is a document, or several with a `separator`."""

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
            yield from at_borders(split_documents(origin.chunks(piece=piece), separator=self.separator))

    def fingerprint(self) -> str:
        """sha256 of the stored bytes, without decoding: a fast check for changes."""
        digest = hashlib.sha256()
        for origin in self.origins:
            digest.update(b"%d:" % origin.size)
            if origin.path is None:
                digest.update(origin.text.encode())
            else:
                digest.update(file_sha256(origin.path).encode())
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


def open_source(paths: Sequence[str], *, separator: str | None = None, spool: Path | None = None) -> Source:
    """Find the files of `paths`; nothing is read yet, except standard input, which is copied to `spool`.

    No paths at all: the embedded corpus. A `spool` that exists already is read instead of standard
    input, so that a resumed run sees the same text.
    """
    if separator is not None:
        separator = separator.replace("\r\n", "\n").replace("\r", "\n")
    if not paths:
        return Source(EMBEDDED, _embedded(), separator)
    if paths.count(STDIN) > 1:
        raise UserError("standard input '-' is named twice", fix="it can be read only once; name it once")
    origins: list[Origin] = []
    for path in paths:
        origins += _spooled(spool) if path == STDIN else files_at(Path(path))
    source = Source(", ".join(paths), tuple(origins), separator)
    if not source.size:
        raise UserError(f"{source.name!r} holds no text", fix="name a file or a folder with UTF-8 text in it")
    return source


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


def files_at(path: Path) -> list[Origin]:
    """The file, or the files of the folder; a missing name is refused with the most similar one."""
    try:
        if path.is_dir():
            return [Origin(file.stat().st_size, file) for file in _files_below(path)]
        if path.is_file():
            return [Origin(path.stat().st_size, path)]
        if path.exists():
            raise UserError(
                f"{str(path)!r} is neither a file nor a folder, and text is read twice",
                fix="pipe it in as standard input: name it '-'",
            )
        if str(path).startswith("hub:"):
            raise UserError(
                f"{str(path)!r} names a dataset of rows, and one running text is read here",
                fix="write its texts to a file first, and name that",
            )
        beside = [entry.name for entry in path.parent.iterdir() if not entry.name.startswith(".")]
    except UserError:
        raise
    except (OSError, ValueError) as error:
        # The parent is absent or unreadable, or the name is too long or contains \0.
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{str(path)!r} cannot be read: {reason}", fix="check the path") from None
    hint = nearest(path.name, beside) if 0 < len(beside) <= 20 else _closest(path.name, beside)
    raise UserError(f"{str(path)!r} does not exist", fix=f"in {str(path.parent)!r}: {hint}")


def _closest(name: str, beside: Sequence[str]) -> str:
    """Only the close match: a list of a large folder would fill the screen."""
    guess, valid, _ = nearest(name, beside).partition("valid: ")
    return guess.strip() if guess and valid else f"{len(beside)} other names, none of them close"


def _files_below(folder: Path) -> list[Path]:
    """Regular files by relative path, without hidden ones and links out of the folder."""
    inside = folder.resolve()
    regular: list[Path] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files = [Path(parent, name) for name in names if not name.startswith(".")]
        regular += [file for file in files if file.is_file() and file.resolve().is_relative_to(inside)]
    return sorted(regular, key=lambda file: file.relative_to(folder).as_posix())
