"""What `torch.compile` has to leave alone, said without loading the compiler."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, cast

import torch

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(run: Callable[P, R]) -> Callable[P, R]:
    """`torch.compiler.disable`, which loads the compiler at once: a second, and most processes never compile."""

    @wraps(run)
    def call(*args: P.args, **named: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            return cast("Callable[P, R]", torch.compiler.disable(run))(*args, **named)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return run(*args, **named)

    return call
