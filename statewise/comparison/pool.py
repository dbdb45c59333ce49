"""The worker processes of one machine. Each runs one trial at a time and ends with the parent process."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from statewise.comparison.trial import Trial
from statewise.disk import open_to_append
from statewise.specs import from_json

_PACKAGE = Path(__file__).parents[2]  # where this statewise is, whether or not it is installed
COMMAND = (sys.executable, "-m", "statewise.comparison.worker")
_GRACE = 20.0  # seconds a trial may take to save itself when it is asked to stop


class News(NamedTuple):
    """`told`: progress of a running trial. `done`: the trial ended. `lost`: the worker process ended."""

    kind: Literal["told", "done", "lost"]
    trial: Trial | None
    words: dict[str, Any]


class Worker:
    """A process that forks for each trial, and the pipes to it."""

    def __init__(
        self, log: Path, *, threads: int, device: str | None, keep: Sequence[int], mixers: Sequence[Mapping[str, str]]
    ) -> None:
        self.threads = threads
        self._mixers = list(mixers)  # as `worker.sent` writes them
        self.trial: Trial | None = None
        self.ready = False
        self.pid: int | None = None  # of the trial's own process
        self._rest = b""
        with os.fdopen(open_to_append(log), "ab") as errors:
            self.process = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(threads, device),
                # Ctrl-C on a terminal goes to everybody; what it means is ours to say.
                start_new_session=True,
                pass_fds=tuple(keep),
                bufsize=0,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._orders, self.answers = self.process.stdin, self.process.stdout

    def give(self, trial: Trial, path: Path) -> None:
        assert self.trial is None
        self.trial = trial
        order = {"path": str(path.absolute()), "threads": self.threads, "mixers": self._mixers}
        try:
            self._orders.write((json.dumps(order) + "\n").encode())
        except BrokenPipeError:
            return  # it has died: its answers end, and that is news

    def hear(self) -> Iterator[News]:
        """What it has said since; to be called when there is something."""
        chunk = os.read(self.answers.fileno(), 1 << 16)
        if not chunk:
            trial, self.trial = self.trial, None
            yield News("lost", trial, {"code": self.process.wait(), "ready": self.ready})
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            words = from_json(line)
            self.ready = self.ready or "ready" in words
            self.pid = words.get("pid", self.pid)
            if "done" in words:
                trial, self.trial, self.pid = self.trial, None, None
                yield News("done", trial, words)
            elif self.trial is not None and not {"pid", "ready"} & words.keys():
                yield News("told", self.trial, words)

    def ask_to_stop(self) -> None:
        """A training saves itself and ends; whatever else it does simply ends."""
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def hang_up(self) -> None:
        """Its trial sees that and ends, then the worker does."""
        self._orders.close()

    def close(self) -> None:
        self.hang_up()
        try:
            self.process.wait(timeout=_GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.answers.close()


class Pool:
    """Workers, started when there is something to do for them."""

    def __init__(
        self,
        *,
        workers: int,
        threads: int,
        log: Path,
        devices: Sequence[str] = (),
        keep: Sequence[int] = (),
        mixers: Sequence[Mapping[str, str]] = (),
    ) -> None:
        self._most, self._threads, self._log, self._keep = workers, threads, log, keep
        self._mixers = mixers
        self._devices = devices
        self._workers: list[Worker] = []
        self._selector = selectors.DefaultSelector()
        self._number = 0

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:  # all of them first: they end side by side
            worker.hang_up()
        for worker in self._workers:
            worker.close()
        self._selector.close()

    @property
    def busy(self) -> int:
        return sum(worker.trial is not None for worker in self._workers)

    def room(self) -> bool:
        return self.busy < self._most

    def give(self, trial: Trial, path: Path) -> None:
        free = next((worker for worker in self._workers if worker.trial is None), None) or self._start()
        free.give(trial, path)

    def _start(self) -> Worker:
        device = self._devices[self._number % len(self._devices)] if self._devices else None
        self._number += 1
        worker = Worker(self._log, threads=self._threads, device=device, keep=self._keep, mixers=self._mixers)
        self._workers.append(worker)
        self._selector.register(worker.answers, selectors.EVENT_READ, worker)
        return worker

    def news(self, timeout: float) -> Iterator[News]:
        """What has happened, waiting at most so long for something to happen."""
        for key, _ in self._selector.select(timeout):
            worker: Worker = key.data
            for news in worker.hear():
                if news.kind == "lost":
                    self._selector.unregister(worker.answers)
                    self._workers.remove(worker)
                    worker.close()
                yield news

    def stop(self) -> Iterator[News]:
        """Ask all trials to stop and wait until they have."""
        for worker in self._workers:
            worker.ask_to_stop()
        until = time.monotonic() + _GRACE
        while any(worker.pid is not None for worker in self._workers) and time.monotonic() < until:
            yield from self.news(0.1)


def _environment(threads: int, device: str | None) -> dict[str, str]:
    """Threads are said before any library counts the cores; nothing of a parallel run of our own is passed on."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    path = os.pathsep.join(filter(None, [str(_PACKAGE), inherited.get("PYTHONPATH", "")]))
    pinned = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
    # (A worker forks: a library that has threads of its own by then would be cut in two.)
    visible = {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
    return {**inherited, "PYTHONPATH": path, **pinned, "TOKENIZERS_PARALLELISM": "false", **visible}
