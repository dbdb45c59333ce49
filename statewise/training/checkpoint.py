"""Folders that are complete or absent.

Save: write everything to a temporary sibling, fsync, the manifest (sha256 of every file) last, rename,
then prune. Load: only a folder whose manifest agrees with every byte. Nothing here unpickles.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeAlias, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

import statewise
from statewise.disk import TEMPORARY, is_plain, replacing, sync, write
from statewise.specs import UserError, from_json, read_small

MANIFEST = "manifest.json"
FORMAT = 2  # of a folder: 1 had no version of statewise in its manifest
_LARGEST_MANIFEST = 1 << 20
# Errors that the names and kinds of files in a folder can cause.
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.EFBIG}

# Text, tensors, or a function that writes the file itself.
Payload: TypeAlias = "str | Mapping[str, Tensor] | Callable[[Path], None]"


def write_folder(target: Path, files: Mapping[str, Payload]) -> None:
    """All of `files` appear at `target` at once, or nothing does."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target.parent)
    temporary = target.parent / f"{TEMPORARY}{target.name}-{uuid.uuid4().hex[:8]}"
    temporary.mkdir()
    try:
        write_files(temporary, files)
        aside = target.with_name(f"{target.name}~")
        if target.exists():  # moved aside, under a name that is still read if the process is killed here
            remove(aside)
            os.replace(target, aside)
        os.replace(temporary, target)
        sync(target.parent)
        remove(aside)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_files(folder: Path, files: Mapping[str, Payload]) -> None:
    """Replace each file atomically, then the manifest that vouches for all of them."""
    _sweep(folder)
    entries = {}
    for name, payload in files.items():
        with replacing(folder / name) as temporary:
            _write(temporary, payload)
            entries[name] = {"bytes": temporary.stat().st_size, "sha256": sha256(temporary)}
    manifest = {"format": FORMAT, "statewise": statewise.__version__, "files": entries}
    write(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    sync(folder)


def _write(path: Path, payload: Payload) -> None:
    if isinstance(payload, str):
        path.write_bytes(payload.encode())
    elif callable(payload):
        payload(path)
    else:
        write_tensors(path, payload)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    try:
        save_file({key: value.detach().contiguous().cpu() for key, value in tensors.items()}, path)
    except SafetensorError as error:  # a full disk, as that library says it: "... (os error 28)"
        match = re.search(r"os error (\d+)", str(error))
        code = int(match[1]) if match else errno.EIO
        raise OSError(code, os.strerror(code), str(path)) from error


def _sweep(folder: Path) -> None:
    """Remove what a killed save left behind."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        remove(leftover)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flaw(folder: Path, *, needs: Iterable[str]) -> str | None:
    """Why the folder cannot be trusted, or None if every byte is as it was written.

    A file that cannot be read (no permission, a failing disk) may be intact: that is an OSError, not a flaw.
    """
    try:
        manifest = folder / MANIFEST
        if not is_plain(manifest):
            return f"no {MANIFEST}"
        if manifest.stat().st_size > _LARGEST_MANIFEST:
            return f"{MANIFEST} is far too large"
        table = from_json(read_small(manifest))
        _refuse_newer(folder, table)
        entries = table["files"]
        for name in needs:
            if not parts_of(name, entries):
                return f"{name} is not in {MANIFEST}"
        for name, entry in entries.items():
            path = folder / name
            if Path(name).name != name or not is_plain(path):
                return f"{name} is missing or is not a plain file"
            if path.stat().st_size != entry["bytes"]:
                return f"{name} has {path.stat().st_size} bytes, {entry['bytes']} were written"
            if sha256(path) != entry["sha256"]:
                return f"{name} was changed after it was written"
    except UserError:
        raise
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return f"{Path(error.filename or MANIFEST).name} cannot be read ({error.strerror})"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return f"{MANIFEST} cannot be read ({type(error).__name__})"
    return None


def _refuse_newer(folder: Path, table: Mapping[str, Any]) -> None:
    """Older formats can be read, newer ones cannot."""
    if not isinstance(table["format"], int) or table["format"] < 1:
        raise ValueError
    if table["format"] > FORMAT:
        raise UserError(
            f"{str(folder)!r} has format {table['format']}, "
            f"and statewise {statewise.__version__} reads formats up to {FORMAT}",
            fix=f"install statewise {table.get('statewise', 'in a newer version')!s:.20} or newer",
        )


def advice_for_newer(folder: Path) -> str:
    """What to do with a folder that a newer version of statewise wrote; empty for any other."""
    written = "0"  # format 1 did not record it
    with suppress(OSError, ValueError, AttributeError):
        written = str(from_json(read_small(folder / MANIFEST)).get("statewise", written))[:20]
    if _numbers(written) <= _numbers(statewise.__version__):
        return ""
    return f"it was written by statewise {written}, this is {statewise.__version__}: install {written} or newer"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def vouched_for(folder: Path, name: str) -> bool:
    """Whether the manifest of a verified folder lists the file."""
    return bool(files_of(folder, name))


def files_of(folder: Path, name: str) -> list[Path]:
    """The file of this name, or its parts in order; empty if the manifest of a verified folder does not list them."""
    return [folder / part for part in parts_of(name, from_json(read_small(folder / MANIFEST))["files"])]


def part_name(name: str, part: int, parts: int) -> str:
    """One part's file: `optimizer-00001-of-00004.safetensors` holds the first rows of every tensor."""
    stem, _, kind = name.rpartition(".")
    return f"{stem}-{part + 1:05d}-of-{parts:05d}.{kind}"


def parts_of(name: str, names: Iterable[str]) -> list[str]:
    """`name` itself, or the names of all its parts; empty where one is missing."""
    known = set(names)
    if name in known:
        return [name]
    stem, _, kind = name.rpartition(".")
    numbers = [re.fullmatch(rf"{re.escape(stem)}-\d{{5}}-of-(\d{{5}})\.{kind}", other) for other in known]
    counts = {int(number[1]) for number in numbers if number}
    if len(counts) != 1:
        return []
    wanted = [part_name(name, part, *counts) for part in range(*counts)]
    return wanted if known.issuperset(wanted) else []


def read_parts(paths: Sequence[Path], *, some: Callable[[int], slice | None] = lambda count: None) -> dict[str, Tensor]:
    """Tensors whose rows lie in several files, one after the other; of `count` rows, `some` of them."""
    try:
        with ExitStack() as stack:
            files = [stack.enter_context(safe_open(path, framework="pt")) for path in paths]
            names = set(files[0].keys())
            if any(set(file.keys()) != names for file in files):
                raise ValueError("its parts hold different tensors")
            return {name: _rows(name, [file.get_slice(name) for file in files], some) for name in names}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{str(paths[0])!r} cannot be read: {error}") from None


def _rows(name: str, parts: Sequence[Any], some: Callable[[int], slice | None]) -> Tensor:
    if len({(part.get_dtype(), *part.get_shape()[1:]) for part in parts}) > 1 or len({*map(_is_number, parts)}) > 1:
        raise ValueError(f"its parts hold {name} in different shapes or precisions")
    if _is_number(parts[0]):
        number, *others = (part[...] for part in parts)
        if not all(torch.equal(number, other) for other in others):
            raise ValueError(f"its parts disagree about {name}: they are not of one step")
        return cast(Tensor, number)
    counts = [part.get_shape()[0] for part in parts]
    start, stop, _ = (some(sum(counts)) or slice(None)).indices(sum(counts))
    begins = [sum(counts[:number]) for number in range(len(counts))]
    pieces = [part[max(start - begin, 0) : max(stop - begin, 0)] for part, begin in zip(parts, begins, strict=True)]
    return torch.cat(pieces)


def _is_number(part: Any) -> bool:
    return not part.get_shape()


def read_tensors(
    path: Path,
    *,
    like: Mapping[str, Tensor] | None = None,
    rows_of: Callable[[Tensor], slice | None] = lambda tensor: None,
) -> dict[str, Tensor]:
    """The tensors of a safetensors file; with `like`, an error unless names, shapes and dtypes fit.

    `rows_of`: which rows to read of the tensor that is like one of `like`.
    """
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            if like is not None:
                if names != set(like):
                    odd = sorted(names ^ set(like))[:3]
                    raise UserError(f"{str(path)!r} holds other tensors than this model has: {', '.join(odd)}")
                for name, tensor in like.items():
                    shape = list(file.get_slice(name).get_shape())
                    if shape != list(tensor.shape):
                        raise UserError(f"{str(path)!r}: {name} has shape {shape}, expected {list(tensor.shape)}")
            tensors = {}
            for name in names:
                rows = None if like is None else rows_of(like[name])
                tensors[name] = file.get_tensor(name) if rows is None else file.get_slice(name)[rows]
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{str(path)!r} is not a safetensors file: {error}") from None
    for name, tensor in (like or {}).items():
        if tensors[name].dtype != tensor.dtype:
            raise UserError(f"{str(path)!r}: {name} is {tensors[name].dtype}, expected {tensor.dtype}")
    return tensors
