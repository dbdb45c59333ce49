"""A full disk, and one that is read-only. A part of `faults.py`."""

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fault_trial import Child, Row, again, fresh, litter, say
from safetensors import SafetensorError

from statewise import load
from statewise.training import checkpoint as checkpoint_module
from statewise.training.folder import newest_verified, weights_sha256


def failing(k: int, code: int) -> Callable[[], None]:
    """In the child: the k-th write and all after it fail, as on a full or read-only disk."""

    def prepare() -> None:
        left = [k]

        def due() -> bool:
            left[0] -= 1
            return left[0] < 0

        def plain(honest: Callable[..., Any]) -> Callable[..., Any]:
            def write(first: Any, *arguments: Any, **options: Any) -> Any:
                if due():
                    raise OSError(code, os.strerror(code), str(first))
                return honest(first, *arguments, **options)

            return write

        def tensors(honest: Callable[..., Any]) -> Callable[..., Any]:
            def write(content: Any, path: Path, **options: Any) -> None:
                if due():
                    path.write_bytes(b"\x40")
                    raise SafetensorError(f"I/O error: {os.strerror(code)} (os error {code})")
                honest(content, path, **options)

            return write

        def opened(honest: Callable[..., Any]) -> Callable[..., Any]:
            def open_(path: Any, flags: int, *arguments: Any, **options: Any) -> Any:
                if flags & os.O_CREAT and due():
                    raise OSError(code, os.strerror(code), str(path))
                return honest(path, flags, *arguments, **options)

            return open_

        def made(honest: Callable[..., Any]) -> Callable[..., Any]:
            def mkdir(self: Path, *arguments: Any, **options: Any) -> None:
                if not self.exists() and due():
                    raise OSError(code, os.strerror(code), str(self))
                honest(self, *arguments, **options)

            return mkdir

        checkpoint_module.save_file = tensors(checkpoint_module.save_file)
        os.open = opened(os.open)
        Path.write_bytes = plain(Path.write_bytes)
        Path.mkdir = made(Path.mkdir)
        os.replace, os.fsync = plain(os.replace), plain(os.fsync)

    return prepare


def full_disk(text: Path, home: Path, *, every: int) -> Iterator[Row]:
    """Each write point in turn: the command says so and leaves with 1; what was saved before stays whole."""
    before = home / "disk"
    Child(fresh("gru", text, before, train__steps=2), home / "log").wait()
    for fault, code in (("disk full", errno.ENOSPC), ("disk read-only", errno.EROFS)):
        began, passed, trials, finished, out = time.monotonic(), 0, 0, False, home / "disk-failing"
        while not finished:
            shutil.copytree(before, out)
            child = Child(again(out, steps=3), home / "log", prepare=failing(trials * every, code))
            ended = child.wait()
            finished = ended == 0
            checkpoint, _ = newest_verified(out)
            whole = checkpoint is not None and checkpoint.step in (2, 3) and weights_sha256(load(out).model) != ""
            spoke = os.strerror(code) in child.said() and "Traceback" not in child.said()
            mended = Child(again(out, steps=3), home / "log-after").wait() == 0 and not litter(out)
            good = whole and mended and (finished or (ended == 1 and spoke))
            trials += 1
            passed += good
            if not good:
                say(f"{fault}, write {trials}: code {ended}, whole {whole}, mended {mended}: {child.said()}")
            shutil.rmtree(out)
        say(f"{fault}: {passed} of {trials} write points")
        seen = "exit 1 with the reason; the checkpoint before is whole; resumed without litter"
        yield Row(f"{fault}, at each write", trials, passed, seen, time.monotonic() - began)
