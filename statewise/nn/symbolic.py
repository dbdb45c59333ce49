"""torch.fx reads a model by calling it with symbols in place of tensors.

It takes every module of torch.nn for one call and looks into all others, and at that for no more than the name of the
package. So a twin answers by itself what `torch.fx` would have written down for the module that it stands for.
"""

from typing import Any

from torch import nn
from torch.fx import Proxy


def is_symbolic(module: nn.Module, given: Any) -> bool:
    """Whether a symbol was given. What is itself being read is read on, and fails as torch.nn's would."""
    return isinstance(given, Proxy) and getattr(given.tracer, "root", None) is not module


def as_one_call(module: nn.Module, given: Proxy, hx: Any) -> Any:
    name = given.tracer.path_of_module(module)  # type: ignore[attr-defined]  # its base class has no word for it
    return given.tracer.create_proxy("call_module", name, (given,) if hx is None else (given, hx), {})
