"""Models of other libraries as runs, and runs as models of other libraries.

`sklearn`, `transformers` and `lm_eval` are imported by name: each needs the library that it is called after.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from statewise.interop.hugging_face import export_hugging_face as export_hugging_face
from statewise.interop.pretrained import from_pretrained as from_pretrained
from statewise.tasks import Run


def evaluate_tasks(run: Run, tasks: Sequence[str], *, folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """Metrics of EleutherAI's evaluation harness by task, if it is installed."""
    from statewise.interop import lm_eval

    return lm_eval.evaluate_tasks(run, tasks, folder=folder)
