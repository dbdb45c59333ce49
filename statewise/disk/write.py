"""Every file is written here: to a temporary name, flushed and renamed when it is complete, never through a link.

A folder may come from somebody else, with links in it that lead out of it. So a link at the place of a file to write is
replaced, not followed; only plain files are appended to; and a folder inside another may not be a link.
"""

import errno
import math
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from statewise.specs import UserError, option

TEMPORARY = ".tmp-"  # prefix of a file that is not complete yet
_LONGEST = 200  # characters of a name that its temporary name repeats


def write(path: Path, content: str | bytes) -> None:
    """Write atomically: the whole content appears at once, or the file stays as it was."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path`. If nothing fails inside, the file is flushed and renamed to `path`."""
    _refuse_special(path)
    temporary = path.with_name(f"{TEMPORARY}{path.name[:_LONGEST]}-{secrets.token_hex(4)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        os.close(handle)
        yield temporary
        temporary.chmod(stat.S_IMODE(path.stat().st_mode) if is_plain(path) else mode)
        sync(temporary)
        os.replace(temporary, path)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary), temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # with the file's own name
    finally:
        temporary.unlink(missing_ok=True)


def append(path: Path, text: str) -> None:
    """Add to the end of a file, in one write: lines of several processes do not mix."""
    try:
        with os.fdopen(open_to_append(path), "ab") as file:
            file.write(text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def open_to_append(path: Path, *, flags: int = os.O_WRONLY | os.O_APPEND) -> int:
    """A handle of a plain file, created if missing. A link or a pipe is refused."""
    try:
        handle = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        plain = stat.S_ISREG(os.fstat(handle).st_mode)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        plain = False
    if not plain:
        raise _not_plain(path)
    return handle


def make_folder(path: Path, *, inside: Path | None = None) -> None:
    """Make the folder if it is missing. Below `inside`, a link is refused."""
    if inside is not None:
        refuse_links(path, inside=inside)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make the folder {str(path)!r}: {error.strerror}",
            fix=f"choose another folder: {option('out', 'DIR')}",
        ) from None


def refuse_links(path: Path, *, inside: Path) -> None:
    """Refuse a folder that is a link, or lies below one, inside `inside`: it may lead out of it."""
    for folder in (path, *path.parents)[: len(path.parts) - len(inside.parts)]:
        if folder.is_symlink():
            raise UserError(f"{str(folder)!r} is a link, expected a folder", fix="remove the link, or copy the folder")


def sync(path: Path) -> None:
    """fsync a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_plain(path: Path) -> bool:
    """A file, and not a link to one."""
    return path.is_file() and not path.is_symlink()


def _refuse_special(path: Path) -> None:
    """A device or a pipe would be replaced by a file, and no file can stand at the place of a folder."""
    if path.is_dir() and not path.is_symlink():
        raise UserError(f"{str(path)!r} is a folder, expected a file", fix="name a file")
    if path.exists() and not path.is_symlink() and not path.is_file():
        raise _not_plain(path)


def _not_plain(path: Path) -> UserError:
    return UserError(f"{str(path)!r} is not a plain file", fix="remove it, or name another file")


def for_json(value: Any) -> Any:
    """JSON has no infinity: what is not finite becomes null."""
    match value:
        case dict():
            return {str(key): for_json(inner) for key, inner in value.items()}
        case list() | tuple():
            return [for_json(inner) for inner in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
