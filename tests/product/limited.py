"""`statewise ...` within limits of time and memory: a process of its own each, forked from one that has imported it.

Run as a script it is that process: a request a line (the arguments, in JSON), an answer a line.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

from command import environment

SECONDS = 10
MEMORY = 1 << 30


class Ended(NamedTuple):
    """How a command ended: `code` is negative where a signal (a limit) ended it, 99 after a traceback."""

    code: int
    output: str
    megabytes: int


class Limited:
    """Calls commands in the forking process, which is started once."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__],
            env=environment(TOKENIZERS_PARALLELISM="false", RUST_BACKTRACE="0"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, *argv: str, cwd: Path) -> Ended:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([str(cwd), *argv]) + "\n")
        self._server.stdin.flush()
        return Ended(*json.loads(self._server.stdout.readline()))

    def close(self) -> None:
        self._server.communicate()


def _serve(requests: IO[str], answers: IO[str]) -> None:
    import torch

    import statewise.comparison.comparison
    import statewise.tasks
    from statewise import cli

    assert statewise.tasks
    torch.set_num_threads(1)
    for request in requests:
        cwd, *argv = json.loads(request)
        with tempfile.TemporaryFile() as output:
            child = os.fork()
            if child == 0:
                in_child(partial(_run, cli, argv, cwd), output.fileno(), failed=99)
            _, status, used = os.wait4(child, 0)
            output.seek(0)
            text = output.read(1 << 20).decode("utf-8", "replace")
        answers.write(json.dumps([os.waitstatus_to_exitcode(status), text, used.ru_maxrss >> 10]) + "\n")
        answers.flush()


def _run(cli: object, argv: list[str], cwd: str) -> int:
    os.chdir(cwd)
    sys.argv = ["statewise", *argv]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(6 * SECONDS)  # what waits for ever uses no time
    code: int = vars(cli)["_run"]()
    return code


def in_child(run: Callable[[], int], output: int, *, failed: int) -> NoReturn:
    """In a forked child: write to `output`, and end with the code of `run`, or with `failed` where it raises."""
    code = failed
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        code = run()
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
