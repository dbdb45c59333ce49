"""The exception that is a message to the user, worded for the command line or for Python."""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

_NO_MEMORY = ("can't allocate memory", "not enough memory", "bad_alloc", "can't start new thread", "out of memory")
_MOST_LINES = 20  # of a message
# Private-use characters, which no message has of its own.
_BEGIN, _BETWEEN, _END = "\ue000", "\ue001", "\ue002"
_EITHER = re.compile(f"{_BEGIN}([^{_END}]*){_BETWEEN}([^{_END}]*){_END}")


class UserError(ValueError):
    """A mistake that the user can correct: `what` was wrong (with its value), and `fix` is what to do.

    Both may hold `option(...)`, `setting(...)` and `either(...)`. `str(error)` speaks of arguments, as Python code
    passes them; `on_command_line()` speaks of flags:

    >>> from statewise.specs import option
    >>> error = sw.UserError("'runs/a' already holds a run", fix=f"choose another folder: {option('out', 'DIR')}")
    >>> print(error)
    'runs/a' already holds a run
    choose another folder: out="DIR"
    >>> print(error.on_command_line())
    'runs/a' already holds a run
    choose another folder: --out DIR
    """

    def __init__(self, what: str, *, fix: str = "") -> None:
        self.marked = (what, fix)  # for a UserError that is made of this one
        self.what, self.fix = in_python(what), in_python(fix)
        super().__init__("\n".join(filter(None, (self.what, self.fix))))

    def on_command_line(self) -> str:
        """The message with flags."""
        return on_command_line("\n".join(filter(None, self.marked)))


def either(command_line: str, python: str) -> str:
    """Part of a message that is worded differently in the two."""
    return f"{_BEGIN}{command_line}{_BETWEEN}{python}{_END}"


def option(name: str, value: Any = None) -> str:
    """`--out DIR` or `out="DIR"`; with True `--resume` or `resume=True`; without a value `--out` or `out`."""
    flag, argument = f"--{name.replace('_', '-')}", name.replace("-", "_")
    if value is None:
        return either(flag, argument)
    return either(flag if value is True else f"{flag} {shlex.quote(as_toml(value))}", f"{argument}={_literal(value)}")


def setting(path: str | Mapping[str, Any], value: Any = None) -> str:
    """`--set train.steps=500` or `settings={"train.steps": 500}`; a mapping is several of them."""
    values = {path: value} if isinstance(path, str) else path
    arguments = ", ".join(f'"{name}": {_literal(value)}' for name, value in values.items())
    return either(
        " ".join(f"--set {shlex.quote(f'{name}={as_toml(value)}')}" for name, value in values.items()),
        f"settings={{{arguments}}}",
    )


def lens_setting(name: str, value: Any) -> str:
    """`--set window=64`, or the argument `window=64` of `inspect`."""
    return either(f"--set {shlex.quote(f'{name}={as_toml(value)}')}", f"{name}={_literal(value)}")


class Note(str):
    """A marked text for `Exception.add_note`: Python shows its arguments, and the command line reads `marked`."""

    marked: str

    def __new__(cls, marked: str) -> "Note":
        made = super().__new__(cls, in_python(marked))
        made.marked = marked
        return made


def in_python(text: str) -> str:
    """A message with arguments in place of its marked parts."""
    return _EITHER.sub(r"\2", text)


def on_command_line(text: str) -> str:
    """A message with flags in place of its marked parts."""
    return _EITHER.sub(r"\1", text)


def _literal(value: Any) -> str:
    """As Python writes it; N stands for a number."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) and value != "N" else str(value)


def as_toml(value: Any) -> str:
    """A value as `--set` reads it."""
    return value if isinstance(value, str) else "none" if value is None else json.dumps(value, ensure_ascii=False)


def lack_of_memory(error: BaseException) -> str | None:
    """What to say of an error that comes from too little memory; None if it does not. Libraries raise it in many ways.

    >>> from statewise.specs.error import lack_of_memory
    >>> lack_of_memory(RuntimeError("can't allocate memory: you tried to allocate 8589934592 bytes."))
    'out of memory: 8.0 GiB more were needed'
    """
    said = str(error)
    signs = isinstance(error, RuntimeError) and any(sign in said for sign in _NO_MEMORY)
    if not (isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or signs):
        return None
    if asked := re.search(r"allocate (\d+) bytes", said):
        return f"out of memory: {int(asked[1]) / 2**30:,.1f} GiB more were needed"
    asked = re.search(r"allocate ([\d.]+ [KMGTPE]iB)", said)
    return f"out of memory: {asked[1]} more were needed" if asked else "out of memory"


def complaints(error: ValidationError, explain: Callable[[ErrorDetails], str]) -> str:
    """A line for each of the first problems that were found in a table, and how many more there are."""
    details = error.errors(include_url=False)
    more = [f"  and {len(details) - _MOST_LINES:,} more"] if len(details) > _MOST_LINES else []
    return "\n".join([*map(explain, details[:_MOST_LINES]), *more])


def nearest(word: str, valid: Iterable[str]) -> str:
    """`did you mean 'lstm'? valid: elman, gru, lstm`: the close match first, then all of them."""
    names = sorted(valid)
    spelled = {name.lower(): name for name in names}
    close = get_close_matches(word.lower(), spelled, n=1, cutoff=0.5)
    guess = f"did you mean {spelled[close[0]]!r}? " if close else ""
    return f"{guess}valid: {', '.join(names)}"
