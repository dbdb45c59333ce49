"""`statewise` without the seconds that PyTorch takes to be imported: a server imports it once and forks for each call.

A call is a process of its own, with the caller's arguments, folder, environment and streams.
`python warm.py serve SOCKET` until its standard input ends; `python warm.py call SOCKET WORDS...` is
`statewise WORDS...`, and `python warm.py page SOCKET PAGE` runs the blocks of a page.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from pathlib import Path


def serve(path: str) -> None:
    import torch._dynamo  # noqa: F401 (what counting FLOPs loads)

    import statewise.comparison
    import statewise.inspection
    import statewise.tasks  # noqa: F401 (what most verbs need)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                answer(connection)
            connection.close()


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
            code = _page(*words) if verb == "page" else _command(words)
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


def _page(name: str) -> int:
    from page import run_page

    return run_page(Path(name))


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
