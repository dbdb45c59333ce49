"""Several processes of one run without what they all take to start: forks of a process that has imported everything.

Run as a script it is that process: a request a line (how many, the words, in JSON), an answer a line. Each rank gets
what torchrun would set. Words begin with a script, or with `-m` and a module.
"""

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO

from limited import in_child
from tiny_run import environment

_SECONDS = 120


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Ranks:
    """The forking process, which is started once."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, __file__], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, world: int, *words: str) -> str:
        """What the first rank printed."""
        return self.all(world, *words)[0]

    def all(self, world: int, *words: str) -> list[str]:
        """What every rank printed; each must end well."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([world, *words]) + "\n")
        self._server.stdin.flush()
        ended = [(code, out) for code, out in json.loads(self._server.stdout.readline())]
        assert [code for code, _ in ended] == [0] * world, ended
        return [out for _, out in ended]

    def close(self) -> None:
        self._server.communicate()


def _serve(requests: IO[str], answers: IO[str]) -> None:
    import torch
    import torch.distributed.fsdp
    import torch.distributed.tensor

    import statewise.tasks

    assert statewise.tasks
    assert torch.distributed.fsdp
    for request in requests:
        world, *words = json.loads(request)
        shared = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        with ExitStack() as stack:
            outputs = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(world)]
            children = []
            for rank, output in enumerate(outputs):
                child = os.fork()
                if child == 0:
                    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), **shared)
                    in_child(partial(_run, words), output.fileno(), failed=1)
                children.append(child)
            ended = []
            for child, output in zip(children, outputs, strict=True):
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                output.seek(0)
                ended.append((code, output.read().decode("utf-8", "replace")))
        answers.write(json.dumps(ended) + "\n")
        answers.flush()


def _run(words: list[str]) -> int:
    signal.alarm(_SECONDS)
    sys.argv = words[1:] if words[0] == "-m" else words
    try:
        if words[0] == "-m":
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(words[0]).parent))
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


if __name__ == "__main__":
    _serve(sys.stdin, sys.stdout)
