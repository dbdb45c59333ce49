"""Ray, for studies and servers: a cluster that runs already, or one that Ray starts here for as long as it takes."""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[1]


@contextmanager
def ray_cluster(ray: Any) -> Iterator[Any]:
    """The module `ray`, connected. Its workers import this package; the dashboard, which asks for no key, stays off."""
    if ray.is_initialized():
        yield ray
        return
    handler = signal.getsignal(signal.SIGTERM)
    path = os.pathsep.join(filter(None, [str(_PACKAGE), os.environ.get("PYTHONPATH", "")]))
    variables = {"PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"}
    try:
        quiet = {"log_to_driver": False, "include_dashboard": False, "logging_level": logging.ERROR}
        ray.init(**quiet, runtime_env={"env_vars": variables})
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)  # Ray has put its own there, which knows nothing of what we save
        yield ray
    finally:
        ray.shutdown()
