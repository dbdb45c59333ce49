"""Files are written whole or not at all, and never through a link; one process works in a folder."""

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from statewise.core import load_state, save_state
from statewise.disk import append, locked, make_folder, replacing, write
from statewise.disk.lock import LOCK
from statewise.specs import UserError


@contextmanager
def full_disk(left: int) -> Iterator[None]:
    """No file grows beyond `left` bytes: the write fails half-way, as on a full disk."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_file_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a power cut could leave a name without its content."""
    calls, fsync, replace = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: calls.append("fsync") or fsync(handle))
    monkeypatch.setattr(os, "replace", lambda *paths: calls.append("replace") or replace(*paths))
    write(tmp_path / "file.txt", "content")
    assert calls[:2] == ["fsync", "replace"]


def test_a_full_disk_leaves_a_saved_state_as_it_was(tmp_path: Path) -> None:
    path, state = tmp_path / "state.safetensors", torch.ones(1, 4)
    save_state(state, path)
    with full_disk(20), pytest.raises(OSError, match="File too large") as caught:
        save_state(state * 2, path)
    assert caught.value.filename == str(path)
    assert torch.equal(load_state(path, like=state), state)
    assert os.listdir(tmp_path) == [path.name]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("mine")
    link.symlink_to(target)
    write(link, "new")
    assert (target.read_text(), link.read_text(), link.is_symlink()) == ("mine", "new", False)


@pytest.mark.parametrize("exists", [True, False])
def test_nothing_is_appended_through_a_link(exists: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    if exists:
        target.write_text("mine")
    with pytest.raises(UserError, match="link' is not a plain file"):
        append(link, "line\n")
    assert target.exists() == exists
    assert not exists or target.read_text() == "mine"


def test_a_pipe_is_neither_waited_for_nor_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for attempt in (write, append):
        with pytest.raises(UserError, match="pipe' is not a plain file"):
            attempt(tmp_path / "pipe", "text")
    assert (tmp_path / "pipe").is_fifo()


def test_a_folder_below_another_is_no_link(tmp_path: Path) -> None:
    outside, run = tmp_path / "outside", tmp_path / "run"
    outside.mkdir()
    make_folder(run / "a/b", inside=run)
    (run / "link").symlink_to(outside)
    (tmp_path / "named").symlink_to(run)
    with pytest.raises(UserError, match="link' is a link, expected a folder"):
        make_folder(run / "link/c", inside=run)
    assert not list(outside.iterdir())
    make_folder(tmp_path / "named/d", inside=tmp_path / "named")  # the folder that a person named may be one


def test_who_may_read_a_file_stays_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "file", "a")
    (tmp_path / "plain").touch()
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "file").chmod(0o600)
    write(tmp_path / "file", "b")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_what_fails_inside_is_not_said_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, replacing(tmp_path / "file"):
        (tmp_path / "absent").read_bytes()
    assert caught.value.filename == str(tmp_path / "absent")
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------ locks

HOLD = """
import sys, time
from pathlib import Path
from statewise.disk import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_told_who_is_at_work(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        try:
            with pytest.raises(UserError, match=rf"process {child.pid} on \S+, since 20\d\d-"), locked(tmp_path):
                pass
        finally:
            child.kill()
    assert (tmp_path / LOCK).exists()
    with locked(tmp_path, patience=0):  # the lock died with the process
        pass
    assert not list(tmp_path.iterdir())


def test_one_after_the_other(tmp_path: Path) -> None:
    """The file goes away with its lock; whoever waited for it must not hold the old one."""
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(20):
            with locked(tmp_path, wait=True):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="is not a plain file"), locked(tmp_path / "run"):
        pass
    assert not (tmp_path / "outside").exists()
