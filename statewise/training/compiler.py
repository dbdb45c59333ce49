"""PyTorch's compiler stays out of a process that does not compile: loading it takes as long as loading PyTorch.

Its optimisers load it when they are first used, to tell it that they are not for it. Where it is there already, it is
told; where it is not, what follows does without.
"""

import sys
from inspect import unwrap
from typing import Any

import torch
from torch.optim import SGD, AdamW, Optimizer


def spare_the_compiler() -> None:
    """Of each method that would ask the compiler, note beforehand what it would have found out."""
    if "torch._dynamo" in sys.modules:
        return
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        plain = getattr(getattr(Optimizer, name), "__wrapped__", None)
        if plain is not None and not hasattr(plain, "__dynamo_disable"):
            setattr(plain, "__dynamo_disable", plain)


def _plain(kind: type[Optimizer]) -> Any:
    """A step as it is written, without what is wrapped around it for compiling: the gradients' mode is all it needs."""
    return torch.no_grad()(unwrap(kind.step))


class PlainAdamW(AdamW):
    step = _plain(AdamW)


class PlainSGD(SGD):
    step = _plain(SGD)
