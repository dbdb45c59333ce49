"""Our modules in place of torch.nn's recurrent ones inside any model, and back.

An object keeps its identity and changes its class: parameters, hooks, flags and references to it (from another part of
the model, an optimiser, a closure) stay valid. Our classes add no attribute, so there is nothing to copy.
"""

import html
from collections.abc import Mapping
from io import StringIO
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from statewise.nn.gru import GRU, GRUCell
from statewise.nn.lstm import LSTM, LSTMCell
from statewise.nn.rnn import RNN, RNNCell
from statewise.specs import UserError

Kind = type[nn.Module]

_OURS: dict[Kind, Kind] = {
    nn.RNN: RNN,
    nn.GRU: GRU,
    nn.LSTM: LSTM,
    nn.RNNCell: RNNCell,
    nn.GRUCell: GRUCell,
    nn.LSTMCell: LSTMCell,
}
_THEIRS: dict[Kind, Kind] = {ours: theirs for theirs, ours in _OURS.items()}


class Seen(NamedTuple):
    """One recurrent module of a model; a shared one is seen once, under all its names."""

    names: tuple[str, ...]
    module: str
    replaced: bool
    reason: str  # what it became, or why it was left

    def cells(self) -> tuple[str, str, str, str]:
        names = ", ".join(name or "(the model itself)" for name in self.names)
        return names, self.module, "replaced" if self.replaced else "left", self.reason


_HEADINGS = ("name", "module", "", "by, or why")


class Report(NamedTuple):
    """Renders itself as a table: printed, by rich, and in a notebook."""

    seen: tuple[Seen, ...]
    dry_run: bool = False

    @property
    def replaced(self) -> tuple[Seen, ...]:
        return tuple(module for module in self.seen if module.replaced)

    @property
    def left(self) -> tuple[Seen, ...]:
        return tuple(module for module in self.seen if not module.replaced)

    def title(self) -> str:
        if not self.seen:
            return "no recurrent module found"
        would = "would be " if self.dry_run else ""
        return f"{len(self.replaced)} of {len(self.seen)} recurrent modules {would}replaced"

    def __rich__(self) -> Table:
        table = Table(title=self.title(), title_justify="left")
        for heading in _HEADINGS:
            table.add_column(heading, overflow="fold")
        for module in self.seen:
            table.add_row(*module.cells())
        return table

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=120, color_system=None).print(self.__rich__() if self.seen else self.title())
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
        rows = "".join(
            f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in module.cells())}</tr>" for module in self.seen
        )
        return f"<table><caption>{self.title()}</caption><tr>{head}</tr>{rows}</table>"


def swap(model: nn.Module, *, dry_run: bool = False) -> Report:
    """Make every `torch.nn` RNN, GRU, LSTM and cell inside `model` a twin of `statewise.nn`, in place.

    Subclasses and wrapped modules are left, with the reason in the report. `dry_run` changes nothing.
    """
    return _turn(model, _OURS, already=_THEIRS, dry_run=dry_run)


def unswap(model: nn.Module, *, dry_run: bool = False) -> Report:
    """Give `torch.nn`'s own modules back, in place."""
    return _turn(model, _THEIRS, already=_OURS, dry_run=dry_run)


def _turn(model: nn.Module, twins: Mapping[Kind, Kind], *, already: Mapping[Kind, Kind], dry_run: bool) -> Report:
    if not isinstance(model, nn.Module):
        raise UserError(f"a {type(model).__name__} is not a torch.nn.Module", fix="pass the model itself")
    names: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(module, []).append(name)
    seen = []
    for module, its_names in names.items():
        if not _is_recurrent(module):
            continue
        kind = _own_kind(module)
        why = _obstacle(module, kind, twins, already)
        name = kind.__name__ if isinstance(module, torch.jit.ScriptModule) else _full_name(kind)
        reason = why or _full_name(twins[kind])
        seen.append(Seen(tuple(its_names), name, why is None, reason))
        if why is None and not dry_run:
            _become(module, twins[kind])
    return Report(tuple(seen), dry_run)


def _is_recurrent(module: nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):
        return module.original_name in {kind.__name__ for kind in _OURS}
    return isinstance(module, nn.RNNBase | nn.RNNCellBase)


def _own_kind(module: nn.Module) -> Kind:
    """Its class; PyTorch gives a parametrised module a class of its own on top, which is looked through."""
    kind = type(module)
    return kind.__bases__[0] if is_parametrized(module) else kind


def _obstacle(module: nn.Module, kind: Kind, twins: Mapping[Kind, Kind], already: Mapping[Kind, Kind]) -> str | None:
    if isinstance(module, torch.jit.ScriptModule):
        return "TorchScript has compiled it; swap before scripting"
    if kind in already:
        return f"it is {_full_name(kind)} already"
    if kind not in twins:
        base = next((_full_name(base) for base in kind.__mro__ if base in _OURS), "torch.nn's base class")
        return f"a subclass of {base} may compute something else"
    if "forward" in vars(module):
        return "its forward was replaced on the object; swap before wrapping it"
    return None


def _become(module: nn.Module, kind: Kind) -> None:
    if is_parametrized(module):
        # The class on top holds a property for each parametrised tensor. Copies of a module share it, so it is
        # made anew upon the other base, and not changed.
        top: Any = type(module)
        attributes = {key: value for key, value in vars(top).items() if key not in ("__dict__", "__weakref__")}
        kind = type(f"Parametrized{kind.__name__}", (kind,), attributes)
    module.__class__ = kind
    if kind in _OURS:
        vars(module).pop("kernel", None)  # a wish that torch.nn has no word for


def _full_name(kind: Kind) -> str:
    package = kind.__module__.rsplit(".modules", 1)[0] if kind in _OURS else kind.__module__
    return f"statewise.nn.{kind.__name__}" if kind in _THEIRS else f"{package}.{kind.__name__}"
