"""The tap. `observe("lstm.forget_gate", f)` is the identity unless a lens is open.

No forward has an `output_attentions` flag: whoever wants to see opens a lens, and the op is then
computed by its naive form, so what is seen is the equation itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from statewise.core.tracing import Switch, uncompiled

Edit = Callable[[str, Tensor], Tensor]


class Lens:
    """Collects what was observed while it was open, by name, in the order it happened.

    With `keep=False` it collects nothing: `edit` sees everything pass, and keeps what it wants.
    """

    def __init__(self, patterns: tuple[str, ...], *, edit: Edit | None = None, keep: bool = True) -> None:
        self.patterns = patterns
        self.edit = edit
        self.keep = keep
        self.seen: dict[str, list[Tensor]] = {}

    @uncompiled
    def see(self, name: str, value: Tensor) -> Tensor:
        if not any(fnmatchcase(name, pattern) for pattern in self.patterns):
            return value
        if self.edit is not None:
            value = self.edit(name, value)
        if self.keep:
            self.seen.setdefault(name, []).append(value)
        return value

    @property
    def names(self) -> list[str]:
        return list(self.seen)

    def __getitem__(self, name: str) -> Tensor:
        """Everything seen under a name, stacked along time: `[B, T, ...]`."""
        if name not in self.seen:
            raise KeyError(f"{name!r} was not observed; seen: {', '.join(self.seen) or 'nothing'}")
        return torch.stack(self.seen[name], dim=1)


_open: Switch[Lens | None] = Switch("lens", None)
_scope: Switch[str] = Switch("scope", "")


def observe(name: str, value: Tensor) -> Tensor:
    """Show `value` to an open lens under a name. Go on with what it returns: a lens may change it.

    Without a lens it returns `value` at once, so it may stand in any layer of yours.

    >>> with sw.lens() as seen:
    ...     gate = sw.observe("mine.gate", torch.ones(2, 3))
    >>> seen.names
    ['mine.gate']
    """
    if not _open.used:
        return value
    opened = _open.get()
    return value if opened is None else opened.see(_scope.get() + name, value)


def is_observed() -> bool:
    return _open.used > 0 and _open.get() is not None


@contextmanager
def lens(*patterns: str, edit: Edit | None = None, keep: bool = True) -> Iterator[Lens]:
    """Record what a model computes inside: every observed value whose name matches a pattern (default: all).

    `edit(name, value)` may return another value, which the model then goes on with. `keep=False` records nothing.
    The values are `[B, T, ...]` by name; `.names` lists them.

    >>> model = sw.build("lstm", vocab=5, width=8)
    >>> with sw.lens("*forget_gate") as seen:
    ...     _ = model(torch.tensor([[0, 1, 2]]))
    >>> seen["layers.0.lstm.forget_gate"].shape
    torch.Size([1, 3, 8])
    """
    opened = Lens(patterns or ("*",), edit=edit, keep=keep)
    with _open.set(opened):
        yield opened


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Prefix observed names, so that the same op in two layers has two names."""
    if not is_observed():
        yield
        return
    with _scope.set(f"{_scope.get()}{name}."):
        yield
