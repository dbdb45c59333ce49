"""`statewise` without the seconds that PyTorch takes to be imported: a server imports it once and forks for each call.

A call is a process of its own, with the caller's arguments, folder, environment and streams.
`python warm.py serve SOCKET` until its standard input ends; `python warm.py call SOCKET WORDS...` is
`statewise WORDS...`, `python warm.py page SOCKET PAGE` runs the blocks of a page, and `python warm.py worker SOCKET` is
a worker of a study, as which the studies of all these run their trials.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path


def serve(path: str) -> None:
    import torch._dynamo  # noqa: F401 (what counting FLOPs loads)

    import statewise.inspection
    import statewise.tasks  # noqa: F401 (what most verbs need)
    from statewise.comparison import pool, worker

    worker._import_what_trainings_want()
    pool.COMMAND = worker_command(sys.executable, path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        signal.signal(signal.SIGCHLD, reap)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                answer(connection)
            connection.close()


def reap(*_: object) -> None:
    """Wait for the forks that have ended, so that their CPU seconds count."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def answer(connection: socket.socket) -> None:
    """In a fork: become the caller, run, and say how it ended."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        header, streams, _, _ = socket.recv_fds(connection, 4, 3)
        size = int.from_bytes(header, "big")
        told = b""
        while len(told) < size:
            told += connection.recv(size - len(told))
        verb, words, folder, environment = json.loads(told)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        try:
            code = {"call": _command, "page": _page, "worker": _worker}[verb](words)
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        connection.sendall(bytes([code]))
        os._exit(code)


def _command(words: list[str]) -> int:
    sys.argv = ["statewise", *words]
    from statewise.cli import main

    main()
    return 0


def _page(words: list[str]) -> int:
    sys.path.insert(0, str(Path(__file__).with_name("docs")))
    from page import run_page

    return run_page(Path(*words))


def _worker(_: list[str]) -> int:
    from statewise.comparison.worker import main

    main()
    return 0


def worker_command(python: str | Path, path: str | Path) -> tuple[str, ...]:
    """-S and -E: the caller needs nothing that is installed."""
    return (str(python), "-S", "-E", __file__, "worker", str(path))


@contextlib.contextmanager
def serving(python: str | Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """A server in a process of its own, and where it listens."""
    with tempfile.TemporaryDirectory() as short:  # the name of a socket must be
        place = Path(short) / "warm"
        command = [str(python), __file__, "serve", str(place)]
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as server:
            try:
                while not place.exists():
                    assert server.poll() is None, "the server ended"
                    time.sleep(0.05)
                yield place
            finally:
                assert server.stdin is not None
                server.stdin.close()


def call(verb: str, path: str, words: list[str]) -> int:
    told = json.dumps([verb, words, os.getcwd(), dict(os.environ)]).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        socket.send_fds(connection, [len(told).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(told)
        return (connection.recv(1) or b"\1")[0]


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(call(sys.argv[1], sys.argv[2], sys.argv[3:]))
