"""Folders that are whole or not there, whatever fails while they are written."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from statewise.specs import UserError
from statewise.training import RunFolder
from statewise.training import checkpoint as module
from statewise.training.checkpoint import flaw, read_tensors, write_files, write_folder
from statewise.training.folder import find_published, newest_verified, step_folders
from statewise.training.parallel import Parallel
from statewise.training.saving import Writes

FILES = {"a.txt": "one\n", "b.safetensors": {"x": torch.arange(4.0)}}


class Full:
    """The k-th write of any kind fails, as a full disk makes it fail; the write may have begun."""

    def __init__(self, patch: pytest.MonkeyPatch, k: int) -> None:
        self.left = k
        patch.setattr(module, "save_file", self._safetensors(module.save_file))
        patch.setattr(Path, "write_text", self._plain(Path.write_text))
        for name in ("replace", "fsync"):
            patch.setattr(os, name, self._plain(getattr(os, name)))
        patch.setattr(Path, "mkdir", self._plain(Path.mkdir))

    def _due(self) -> bool:
        self.left -= 1
        return self.left == -1

    def _plain(self, honest: Callable[..., Any]) -> Callable[..., Any]:
        def write(first: Any, *arguments: Any, **options: Any) -> Any:
            if self._due():
                if honest is original_write_text:
                    honest(first, "{", encoding="utf-8")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(first))
            return honest(first, *arguments, **options)

        return write

    def _safetensors(self, honest: Callable[..., Any]) -> Callable[..., Any]:
        def write(tensors: Any, path: Path, **options: Any) -> None:
            if self._due():
                path.write_bytes(b"\x08\x00")
                raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
            honest(tensors, path, **options)

        return write


original_write_text = Path.write_text


def fail_at_every_write(action: Callable[[], None]) -> Iterator[OSError | None]:
    """What `action` raises when its first write fails, then its second, … until it succeeds."""
    for k in range(100):
        with pytest.MonkeyPatch.context() as patch:
            Full(patch, k)
            try:
                action()
                yield None
                return
            except OSError as error:
                yield error
    raise AssertionError("never succeeded")


def test_what_was_written_is_vouched_for(tmp_path: Path) -> None:
    write_folder(tmp_path / "whole", FILES)
    assert flaw(tmp_path / "whole", needs=FILES) is None
    assert flaw(tmp_path / "whole", needs=["c.txt"]) == "c.txt is not in manifest.json"
    assert sorted(p.name for p in (tmp_path / "whole").iterdir()) == ["a.txt", "b.safetensors", "manifest.json"]
    assert torch.equal(read_tensors(tmp_path / "whole/b.safetensors")["x"], torch.arange(4.0))


def test_a_full_disk_leaves_the_folder_before_and_no_half_one(tmp_path: Path) -> None:
    write_folder(tmp_path / "step-1", FILES)
    failures = 0
    for error in fail_at_every_write(lambda: write_folder(tmp_path / "step-2", FILES)):
        assert flaw(tmp_path / "step-1", needs=FILES) is None
        if error is not None:
            failures += 1
            assert error.errno == errno.ENOSPC
            assert error.strerror == "No space left on device"
            # Only the last sync, of the parent, comes after the rename.
            assert not (tmp_path / "step-2").exists() or flaw(tmp_path / "step-2", needs=FILES) is None
            shutil.rmtree(tmp_path / "step-2", ignore_errors=True)
    assert failures >= 12
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-1", "step-2"]


def test_replacing_a_folder_never_leaves_none(tmp_path: Path) -> None:
    """At every failure either the new folder, the old one, or the old one set aside is whole and found."""
    run = tmp_path / "run"
    folder = RunFolder(run, identity={})

    def save(content: int) -> None:
        folder.save(
            7,
            weights={"w": torch.full((2,), float(content))},
            optimizer={},
            average={},
            carried=torch.zeros(1, 1),
            progress={"step": 7},
            keep=2,
        )

    save(0)
    for error in fail_at_every_write(lambda: save(1)):
        checkpoint, _ = newest_verified(run)
        assert checkpoint is not None
        value = float(read_tensors(checkpoint.path / "model.safetensors")["w"][0])
        assert value == 1.0 if error is None else value in (0.0, 1.0)
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000007"]


def test_replacing_files_in_place_is_noticed_when_it_fails(tmp_path: Path) -> None:
    """The top of a run is replaced file by file: in between, the manifest does not vouch for it."""
    write_files(tmp_path, FILES)
    other = {"a.txt": "two\n", "b.safetensors": {"x": torch.arange(5.0)}}
    for error in fail_at_every_write(lambda: write_files(tmp_path, other)):
        reason = flaw(tmp_path, needs=FILES)
        texts = (tmp_path / "a.txt").read_text(), len(read_tensors(tmp_path / "b.safetensors")["x"])
        if error is None:
            assert reason is None
        if reason is None:
            assert texts in (("one\n", 4), ("two\n", 5))
    assert not list(tmp_path.glob(".tmp-*"))


def test_litter_of_a_killed_save_goes_with_the_next(tmp_path: Path) -> None:
    (tmp_path / ".tmp-step-1-abc").mkdir()
    (tmp_path / ".tmp-step-1-abc" / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".tmp-file").write_bytes(b"half")
    (tmp_path / ".tmp-link").symlink_to(tmp_path / "nowhere")
    write_folder(tmp_path / "step-2", FILES)
    assert [p.name for p in tmp_path.iterdir()] == ["step-2"]


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"garbage",
        b"\xff\xfe",
        b"[]",
        b'"files"',
        b'{"files": []}',
        b'{"files": 3}',
        b'{"files": {"a.txt": 3}}',
        b'{"files": {"a.txt": {"bytes": 4}}}',
        b'{"files": {"../a.txt": {"bytes": 4, "sha256": ""}}}',
        b'{"files": {"a.txt\\u0000": {}}}',
        b'{"files": {"' + b"a" * 5000 + b'": {}}}',
        b'{"files": {"\\ud800": {}}}',
        b'{"files": {"a.txt": {"bytes": ' + b"9" * 5000 + b"}}}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b" " * ((1 << 20) + 1),
    ],
    ids=range(17),
)
def test_a_bad_manifest_is_a_flaw_and_nothing_else(tmp_path: Path, manifest: bytes) -> None:
    write_folder(tmp_path / "folder", FILES)
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "folder/manifest.json").write_bytes(manifest)
    assert flaw(tmp_path / "folder", needs=()) is not None


@pytest.mark.parametrize("name", ["../a.txt", "b/../a.txt", "/etc/hostname", "..", ".", ""])
def test_a_manifest_cannot_point_outside(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path / "folder", FILES)
    (tmp_path / "a.txt").write_text("one\n")
    manifest = json.loads((tmp_path / "folder/manifest.json").read_text())
    manifest["files"][name] = manifest["files"]["a.txt"]
    (tmp_path / "folder/manifest.json").write_text(json.dumps(manifest))
    assert flaw(tmp_path / "folder", needs=()) == f"{name} is missing or is not a plain file"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for step in (1, 2):
        write_folder(run / f"checkpoints/step-{step}", FILES)
        os.mkfifo(run / f"checkpoints/step-{step}/progress.json")
    with pytest.raises(UserError, match=r"nothing in .* can be trusted"):
        find_published(run, needs=tuple(FILES))


def test_pruning_keeps_the_newest_and_the_best_and_forgets_a_damaged_future(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, identity={})

    def save(step: int, *, keep: int, best: int | None = None) -> list[int]:
        progress = {"step": step, "best_step": best}
        nothing = {"weights": {}, "optimizer": {}, "average": {}, "carried": torch.zeros(1, 1)}
        folder.save(step, **nothing, progress=progress, keep=keep)
        return [found for _, found in step_folders(folder.checkpoints)]

    assert save(10, keep=1, best=10) == [10]
    assert save(20, keep=1, best=10) == [20, 10]
    assert save(30, keep=2, best=10) == [30, 20, 10]
    # 30 was damaged, so the run went on from 20; keeping one must not mean keeping the damaged one.
    assert save(25, keep=1, best=10) == [25, 10]


def test_tensors_are_refused_unless_they_fit(tmp_path: Path) -> None:
    write_folder(tmp_path / "f", FILES)
    path = tmp_path / "f/b.safetensors"
    assert read_tensors(path, like={"x": torch.zeros(4)}).keys() == {"x"}
    with pytest.raises(UserError, match=r"x has shape \[4\], expected \[5\]"):
        read_tensors(path, like={"x": torch.zeros(5)})
    with pytest.raises(UserError, match=r"x is torch\.float32, expected torch\.float64"):
        read_tensors(path, like={"x": torch.zeros(4, dtype=torch.float64)})
    with pytest.raises(UserError, match="holds other tensors than this model has: y"):
        read_tensors(path, like={"x": torch.zeros(4), "y": torch.zeros(1)})
    with pytest.raises(UserError, match="is not a safetensors file"):
        read_tensors(tmp_path / "f/a.txt")
    with pytest.raises(UserError, match="is not a safetensors file"):
        read_tensors(tmp_path / "f/none")


def test_what_fails_in_the_background_is_told_at_the_next_step() -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device")

    done: list[str] = []
    writes = Writes(Parallel(), background=True)
    writes.begin_part(fail, then=lambda: done.append("rest"))
    while writes.look() == (0.0, 1.0):
        pass
    with pytest.raises(OSError, match="No space left"):
        writes.go_on(*writes.look())
    writes.finish()  # it is told once: a rescue may write again
    assert done == []  # nothing follows a part that failed
    writes.close()


def test_the_rest_of_a_checkpoint_follows_its_parts_and_what_is_published_follows_both() -> None:
    done: list[str] = []
    may_end = Event()
    writes = Writes(Parallel(), background=True)
    writes.begin_part(lambda: done.append("part") if may_end.wait(60) else None, then=lambda: done.append("rest"))
    writes.follow(lambda: done.append("published"))
    writes.go_on(*writes.look())
    assert done == []  # a step in between waits for nothing
    may_end.set()
    writes.finish()
    assert done == ["part", "rest", "published"]
    writes.close()
