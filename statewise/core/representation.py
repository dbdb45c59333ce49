"""How modules and states print: sizes and options, never the numbers inside."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import _register_namedtuple

from statewise.core.state import state_bytes

T = TypeVar("T", bound=type[tuple[Any, ...]])
_LINE = 100  # letters after which a state takes several lines


def full_signature(*functions: Callable[..., Any]) -> inspect.Signature:
    """Of a constructor that hands its `**options` on to the next function, and that perhaps to another: all names."""
    positional: list[inspect.Parameter] = []
    keywords: dict[str, inspect.Parameter] = {}
    for function in functions:
        _, *parameters = inspect.signature(function).parameters.values()  # without self
        if function is functions[0]:
            positional = [part for part in parameters if part.kind is part.POSITIONAL_OR_KEYWORD]
        keywords = {part.name: part for part in parameters if part.kind is part.KEYWORD_ONLY} | keywords
        if all(part.kind is not part.VAR_KEYWORD for part in parameters):
            break
    return inspect.Signature([*positional, *keywords.values()])


class Described(nn.Module):
    """A module whose repr has its constructor's arguments: `LSTM(width=16, input_width=16, zoneout=0.1)`.

    Options that have their default value are left out. An argument of None shows the size that the module chose for it.
    """

    __signature__: ClassVar[inspect.Signature]  # of a constructor that hands options on
    _arguments: Mapping[str, Any] = {}

    def __new__(cls, *args: Any, **options: Any) -> Self:
        made = super().__new__(cls)
        try:
            given = inspect.signature(cls).bind_partial(*args, **options).arguments
        except TypeError as error:
            raise TypeError(f"{cls.__name__}.__init__() {error}") from None
        kept = {name: type(value) if isinstance(value, nn.Module) else value for name, value in given.items()}
        plain = bool | int | float | str | type | None
        made.__dict__["_arguments"] = {name: value for name, value in kept.items() if isinstance(value, plain)}
        return made

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self._shown())

    def _shown(self) -> Iterator[tuple[str, str]]:
        for name, parameter in inspect.signature(type(self)).parameters.items():
            value = self._arguments.get(name)
            if value is None and isinstance(chosen := self.__dict__.get(name), int):
                value = chosen
            if value is None or value == parameter.default:
                continue
            if isinstance(value, type):  # a module that was handed over; a child prints itself
                if value not in map(type, self.children()):
                    yield name, value.__name__
            else:
                yield name, f"{value:.4g}" if isinstance(value, float) else repr(value)


def state_type(cls: T) -> T:
    """Decorate the NamedTuple of a state, so that it prints names, shapes, dtypes and bytes.

    `LSTMState(h_BP=[2, 16] float32, c_BD=[2, 16] float32; 256 bytes)`

    `torch.export` can save it then, and load it without unpickling anything else.
    """
    torch.serialization.add_safe_globals([cls])
    _register_namedtuple(cls, serialized_type_name=f"{cls.__module__}.{cls.__qualname__}")
    cls.__repr__ = describe_state  # type: ignore[method-assign]  # a NamedTuple has no other base to take it from
    return cls


def describe_state(state: Any) -> str:
    """Names, shapes and dtypes of a state's tensors, and its bytes; a nested state that is long takes several lines."""
    return "\n".join(_lines(state))


def _lines(part: Any) -> list[str]:
    if isinstance(part, Tensor):
        device = "" if part.device.type == "cpu" else f" {part.device}"
        return [f"{list(part.shape)} {str(part.dtype).removeprefix('torch.')}{device}"]
    if isinstance(part, list):
        part = tuple(part)
    if not isinstance(part, tuple):
        return [repr(part)]
    fields = getattr(part, "_fields", None)  # None: a plain tuple
    names = [""] * len(part) if fields is None else [f"{name}=" for name in fields]
    parts = [[f"{name}{first}", *rest] for name, (first, *rest) in zip(names, map(_lines, part), strict=True)]
    head, size = (type(part).__name__, f"{state_bytes(tuple(part)):,} bytes") if fields is not None else ("", "")
    if all(len(lines) == 1 for lines in parts):
        inside = ", ".join(lines[0] for lines in parts)
        line = f"{head}({inside}{';' * bool(size and inside)} {size})" if size else f"{head}({inside})"
        if len(line) <= _LINE:
            return [line]
    indented = [f"  {line}" for lines in parts for line in lines]
    return [f"{head}(", *indented, *([f"  {size}"] if size else []), ")"]
