"""The field's own libraries, asked for when a metric needs them: they are an extra."""

from importlib import import_module
from typing import Any

from statewise.specs import UserError


def library(name: str) -> Any:
    """A module of sacrebleu, scikit-learn or seqeval, or word of how to install it."""
    package = name.split(".")[0]
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] != package:
            raise  # it is there, but something it needs is not
        distribution = {"sklearn": "scikit-learn"}.get(package, package)
        raise UserError(
            f"this metric is computed by {distribution}, which is not installed",
            fix="pip install 'statewise[tasks]'",
        ) from missing
