"""`statewise ...` as a rank under torchrun, which ends by SIGKILL at a random write or step, KILLS times in all.

Which rank it is, and when, is a function of how often torchrun has restarted. Each kill adds a line to KILLED.
"""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from statewise.__main__ import main
from statewise.tasks import LanguageModelJob
from statewise.training import checkpoint


def kill_at(number: int, what: str) -> None:
    """At call `number` of anything that writes or begins a step."""
    calls = 0

    def counted(honest: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                with Path(os.environ["KILLED"]).open("a") as file:
                    file.write(f"{what} in {name}\n")
                os.kill(os.getpid(), signal.SIGKILL)
            return honest(*arguments, **more)

        return call

    for owner, name in ((os, "replace"), (os, "fsync"), (checkpoint, "save_file"), (LanguageModelJob, "window")):
        setattr(owner, name, counted(getattr(owner, name), name))


restarts, rank, world = (int(os.environ[name]) for name in ("TORCHELASTIC_RESTART_COUNT", "RANK", "WORLD_SIZE"))
dice = random.Random(restarts)
if restarts < int(os.environ["KILLS"]) and rank == dice.randrange(world):
    kill_at(dice.randrange(2, 60 if rank == 0 else 16), f"restart {restarts}: rank {rank}")
main()
