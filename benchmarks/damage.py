"""Kinds of damage to a run folder, accidental or by someone who knows the format. Used by `fault_folders.py`."""

import json
import os
import pickle
import random
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from statewise.training.checkpoint import sha256
from statewise.training.folder import step_folders


class Payload:
    """What a hostile pickle would do."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (os.system, (f"touch {self.marker}",))


def plain_bytes(path: Path) -> bytes:
    """Not of a pipe or of /dev/zero, which an earlier damage may have put there."""
    if path.is_symlink() or not path.is_file():
        raise OSError(f"{path} is no file")
    return path.read_bytes()


def vouch(folder: Path, *names: str) -> None:
    """Make the manifest agree with files that were changed: damage by someone who knows the format."""
    manifest = folder / "manifest.json"
    try:
        table = json.loads(plain_bytes(manifest))
        for name in names:
            path = folder / name
            table["files"][name] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
        manifest.write_text(json.dumps(table))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return  # an earlier damage took the manifest itself


def damage(run: Path, dice: random.Random, marker: Path) -> str:
    """Harm one place of a run folder; the name of what was done."""
    folders = [run, *(path for path, _ in step_folders(run / "checkpoints"))]
    weights = [1, *(3 - min(i, 2) for i in range(len(folders) - 1))]
    folder = run if dice.random() < 0.5 else dice.choices(folders, weights)[0]
    names = ["run.toml", "tokenizer.json", "unigram.safetensors", "model.safetensors", "manifest.json"]
    names += [] if folder == run else ["optimizer.safetensors", "carried.safetensors", "progress.json"]
    path = folder / dice.choice(names)
    tensors = folder / dice.choice([name for name in names if name.endswith(".safetensors")])
    kind = dice.choice(list(DAMAGES))
    if any(entry.is_symlink() or not entry.is_file() for entry in (folder / name for name in names)):
        return "nothing: an earlier damage is in the way"
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # where an earlier damage is in the way
        DAMAGES[kind](folder, path, tensors, dice, marker)
    return f"{kind}: {path.relative_to(run)}, {tensors.name}"


def _truncate(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    os.truncate(path, dice.randrange(path.stat().st_size + 1))


def _flip(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


def _flip_vouched(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    # Weights that someone changed and vouched for are other weights: nothing can tell. So not those.
    if path.name not in ("model.safetensors", "manifest.json"):
        _flip(folder, path, tensors, dice, marker)
        vouch(folder, path.name)


def _swap(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    first, second = path.read_bytes(), tensors.read_bytes()
    path.write_bytes(second)
    tensors.write_bytes(first)
    if dice.random() < 0.5 and path.name != "manifest.json":
        vouch(folder, path.name, tensors.name)


def _delete(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    path.unlink()


def _empty(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    path.write_bytes(b"")
    vouch(folder, path.name)


def _huge_header(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    size = dice.choice([1 << 27, 1 << 40, 2**63 - 1, 2**64 - 1, 100_000_001])
    tensors.write_bytes(struct.pack("<Q", size) + tensors.read_bytes()[8:])
    vouch(folder, tensors.name)


def _bad_header(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    header = dice.choice(
        [
            b"[" * 50_000,
            b"null",
            b'{"a":{"dtype":"F32","shape":[1e9],"data_offsets":[0,4]}}',
            b'{"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}}',
            b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,99999999]}}',
            b'{"a":{"dtype":"OBJECT","shape":[1],"data_offsets":[0,4]}}',
            b'{"__metadata__":{"state":"[[[["}}',
        ]
    )
    tensors.write_bytes(struct.pack("<Q", len(header)) + header + b"\0\0\0\0")
    vouch(folder, tensors.name)


def _other_tensors(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    """Another shape, dtype, name or number of tensors, with a manifest that agrees."""
    try:
        content = load_file(tensors)
    except (SafetensorError, OSError):
        return
    if not content:
        return
    name = dice.choice(sorted(content))
    value = content[name]
    match dice.randrange(6):
        case 0:
            content[name] = torch.cat([value.flatten(), value.flatten()[:1]])
        case 1:
            content[name] = value.reshape(-1, 1)[:, None] if value.dim() < 3 else value.flatten()
        case 2:
            content[name] = value.to(dice.choice([torch.float64, torch.int8, torch.bool, torch.bfloat16]))
        case 3:
            content[f"{name}.more"] = value.clone()
        case 4:
            del content[name]
        case _:
            content[name] = value.new_zeros(0)
    save_file(content, tensors, metadata={"state": json.dumps("LSTMState(2, 2)")} if dice.random() < 0.3 else None)
    vouch(folder, tensors.name)


def _link(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    target = dice.choice(["/dev/zero", "/etc/hostname", str(marker.parent / path.name), path.name, "."])
    Path(marker.parent / path.name).write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(target)


def _not_a_file(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    path.unlink()
    if dice.random() < 0.5:
        os.mkfifo(path)
    else:
        path.mkdir()


def _pickle(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    target = tensors if dice.random() < 0.7 else path
    if dice.random() < 0.5:
        torch.save(Payload(marker), target)
    else:
        target.write_bytes(pickle.dumps(Payload(marker)))
    if target.name != "manifest.json":
        vouch(folder, target.name)


def _manifest(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    content = dice.choice(
        [
            b"",
            b"{}",
            b"null",
            b'{"files": null}',
            b'{"files": {}}',
            bytes(dice.randrange(256) for _ in range(200)),
            b"[" * 200_000,
            b'{"files":' * 100_000,
            b" " * (2 << 20),
            b'{"files": {"run.toml": {"bytes": 1e999, "sha256": []}}}',
        ]
    )
    (folder / "manifest.json").write_bytes(content)


def _outside(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    table = json.loads(plain_bytes(folder / "manifest.json"))
    entry = table["files"].pop("model.safetensors")
    name = dice.choice(
        ["../model.safetensors", "/etc/passwd", "model.safetensors\0", "x/../model.safetensors", "a" * 999]
    )
    table["files"][name] = entry
    (folder / "manifest.json").write_text(json.dumps(table))


def _absurd_spec(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    spec = folder / "run.toml"
    text = spec.read_text(errors="replace")
    line = dice.choice(
        [
            "width = 10000000",
            "width = -1",
            "width = 1e300",
            f"width = {'9' * 5000}",
            "depth = 1000000000",
            "width = 9",
            'kind = "elman"',
            "embedding = 7",
            "tie = true",
            "unknown = 1",
            "width = " + "[" * 20_000,
            "\0",
        ]
    )
    key = line.split(" ")[0]
    text = re.sub(rf"(?m)^{re.escape(key)} = .*$", "", text, count=1) if dice.random() < 0.8 else text
    spec.write_text(text.replace("[model]", f"[model]\n{line}", 1))
    vouch(folder, "run.toml")


def _absurd_record(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    record = folder / "progress.json"
    if not record.is_file():
        return
    contents = ['{"step": 3}', '{"step": "3"}', "[]", "[" * 50_000, '{"step": ' + "9" * 5000 + "}", "null"]
    try:
        table = json.loads(record.read_text())
        table[dice.choice(sorted(table))] = dice.choice([None, "x", [], {}, -1, 1e400])
        contents.append(json.dumps(table))
    except (ValueError, TypeError, IndexError):
        pass
    record.write_text(dice.choice(contents))
    vouch(folder, "progress.json")


def _uninvited(folder: Path, path: Path, tensors: Path, dice: random.Random, marker: Path) -> None:
    """A file that the manifest knows nothing of, under a name that is looked for."""
    try:
        content = load_file(folder / "model.safetensors")
    except (SafetensorError, OSError):
        return
    save_file({name: torch.full_like(value, 0.5) for name, value in content.items()}, folder / "average.safetensors")


DAMAGES: dict[str, Callable[[Path, Path, Path, random.Random, Path], None]] = {
    "truncated": _truncate,
    "bit flipped": _flip,
    "bit flipped, vouched": _flip_vouched,
    "two swapped": _swap,
    "deleted": _delete,
    "emptied, vouched": _empty,
    "huge header, vouched": _huge_header,
    "bad header, vouched": _bad_header,
    "other tensors, vouched": _other_tensors,
    "link": _link,
    "not a file": _not_a_file,
    "pickle, vouched": _pickle,
    "manifest garbage": _manifest,
    "manifest points outside": _outside,
    "absurd spec, vouched": _absurd_spec,
    "absurd record, vouched": _absurd_record,
    "uninvited file": _uninvited,
}
