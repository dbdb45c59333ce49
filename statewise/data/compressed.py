"""Files as bytes: plain, gzipped, or compressed by Zstandard (the extra `zst`), as their first bytes tell."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from statewise.specs import UserError, optional

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_LARGEST_WINDOW = 1 << 27  # bytes that unpacking may hold: what the program zstd allows by default
_BLOCK = 1 << 20
_PACKED_BLOCK = 1 << 12  # of Zstandard: one call unpacks all of it, up to 30,000 times as much
_COMPRESSED = (".gz", ".zst")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The content of a file as a stream."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror or error}") from None
    with file:
        yield unpacked(file, size=path.stat().st_size, name=str(path))


def unpacked(file: BinaryIO, *, size: int, name: str) -> BinaryIO:
    """The content of an open file of `size` bytes. A damaged one, and one that unpacks to far too much, is refused."""
    start = file.read(len(_ZSTD))
    file.seek(0)
    if start.startswith(_GZIP):
        chunks = _gzip_chunks(file, name)
    elif start.startswith(_ZSTD):
        chunks = _zstd_chunks(file, name, needed_zstd())
    else:
        return file
    return cast(BinaryIO, io.BufferedReader(_Unpacked(chunks, size=size, name=name), _BLOCK))


def plain_name(path: Path) -> str:
    """The name of a file without the ending of its compression, in lower case."""
    name = path.name.lower()
    return name.removesuffix(next((ending for ending in _COMPRESSED if name.endswith(ending)), ""))


def is_compressed(path: Path) -> bool:
    return path.name.lower().endswith(_COMPRESSED)


def needs_zstd(path: Path) -> bool:
    return path.name.lower().endswith(".zst")


def needed_zstd() -> Any:
    """The library; refused, with the command that installs it, where it is missing."""
    return optional("zstandard", extra="zst", needed_by="files compressed by Zstandard (.zst)")


def most_unpacked(size: int) -> int:
    """The largest allowed size in bytes of `size` compressed bytes: a bound against bombs."""
    return max(1 << 27, 100 * size)


def _gzip_chunks(file: BinaryIO, name: str) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file) as stream:
            while chunk := stream.read(_BLOCK):
                yield chunk
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(name, "gzip", error) from None


def _zstd_chunks(file: BinaryIO, name: str, zstandard: Any) -> Iterator[bytes]:
    """Frame by frame. The library's own stream ends without an error where a file is cut off."""
    library = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
    frame, packed = None, b""
    try:
        while packed := packed or file.read(_PACKED_BLOCK):
            frame = frame or library.decompressobj()
            yield frame.decompress(packed)
            packed = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    except zstandard.ZstdError as error:
        raise _damaged(name, "Zstandard", error) from None
    if frame is not None:
        raise _damaged(name, "Zstandard", "it is cut off")


def _damaged(name: str, kind: str, reason: object) -> UserError:
    return UserError(f"{name!r} is damaged {kind}: {reason}", fix="copy or download it again")


class _Unpacked(io.RawIOBase):
    """Chunks as a stream, of no more bytes in all than is allowed."""

    def __init__(self, chunks: Iterator[bytes], *, size: int, name: str) -> None:
        self._chunks, self._size, self._name = chunks, size, name
        self._left, self._chunk = most_unpacked(size), memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._chunk:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._chunk = memoryview(chunk)
            self._left -= len(chunk)
            if self._left < 0:
                raise UserError(
                    f"{self._name!r} has {self._size:,} bytes and unpacks to more than "
                    f"{most_unpacked(self._size):,}: far more than any text does",
                    fix="unpack it first, if it is to be trusted",
                )
        count = min(len(buffer), len(self._chunk))
        buffer[:count], self._chunk = self._chunk[:count], self._chunk[count:]
        return count
