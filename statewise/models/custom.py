"""A user's own mixer class: found in a file that the user names, checked and built.

Only a file that a person names is ever executed: never one that a recipe, a study or a run folder speaks of.
"""

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import torch
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError

from statewise.core import Mixer
from statewise.models.cost import cost_of, measured
from statewise.models.source import Source, run_source
from statewise.specs import CustomSpec, Option, OwnMixer, StackedSpec, UserError, nearest

Arguments = tuple[tuple[str, Any], ...]

_GIVEN = ("width", "input_width", "init", "kernel", "generator")  # passed to every mixer
_CONTRACT = "docs/adding-a-mixer.md shows a whole one"
_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<name>\w+))?")


@dataclass(frozen=True)
class CustomMixer:
    """A class that keeps the contract. The parameters of its constructor are its settings.

    `width` and `input_width` are given to it, and `generator`, `init` and `kernel` where it names them. Every other
    parameter is an option: `model.options.NAME`, of the type and with the default that it has there.
    """

    cls: type[Mixer[Any]]
    sha256: str
    file: str = field(compare=False)
    source: Source | None = field(compare=False)  # None: it cannot be sent to other processes
    options: type[BaseModel] = field(compare=False)

    @property
    def name(self) -> str:
        return self.cls.__name__

    def check(self, options: Mapping[str, Any]) -> dict[str, Option]:
        """All options with their defaults; those that are None are left out."""
        for name in options:
            if name not in self.options.model_fields:
                known = nearest(name, self.options.model_fields) if self.options.model_fields else "it has none"
                raise ValueError(f"{self.name} has no option {name!r}; {known}")
        try:
            return self.options.model_validate(options).model_dump(mode="json", exclude_none=True)
        except ValidationError as error:
            first = error.errors()[0]
            message = first["msg"].removeprefix("Value error, ")
            raise ValueError(f"{first['loc'][0]} = {first['input']!r}: {message[0].lower()}{message[1:]}") from None

    def build(self, spec: CustomSpec, *, input_width: int | None, generator: torch.Generator | None) -> Mixer[Any]:
        """One mixer, as the spec says. Its weights are a function of the generator, whether or not it takes one."""
        return _make(self.cls, _arguments(self.cls, spec, input_width or spec.width), generator)

    def output_width(self, spec: CustomSpec) -> int:
        return _output_width(self.cls, _arguments(self.cls, spec, spec.width))

    def step_grows(self, spec: CustomSpec) -> bool:
        """Whether a step costs more the more was read."""
        return _step_grows(self.cls, _arguments(self.cls, spec, spec.width))


AnyMixer = type[Mixer[Any]] | str | Path | CustomMixer


# ------------------------------------------------------------------------- finding a class


def names_a_file(text: object) -> bool:
    """`FILE.py` or `FILE.py:Class`."""
    return isinstance(text, str | Path) and _FILE.fullmatch(str(text)) is not None


def own_mixers(given: AnyMixer | Sequence[AnyMixer] | None) -> tuple[CustomMixer, ...]:
    """The classes that were passed as objects, or by the names of their files."""
    if given is None:
        return ()
    if isinstance(given, Mixer):
        name = type(given).__name__
        raise UserError(f"{name} was given as an object that is already built", fix=f"pass the class: mixer={name}")
    many = [given] if isinstance(given, type | str | Path | CustomMixer) else list(given)
    mixers = [
        own for given in many for own in (_of_file(given) if isinstance(given, str | Path) else (_of_class(given),))
    ]
    return tuple(dict.fromkeys(mixers))


def own_mixer(given: AnyMixer) -> CustomMixer:
    """As `own_mixers`, for exactly one class."""
    mixers = own_mixers(given)
    if len(mixers) != 1:
        names = sorted(own.name for own in mixers)
        raise UserError(
            f"{str(given)!r} has {len(mixers)} mixer classes: {', '.join(names)}", fix=f"say which: {given}:{names[0]}"
        )
    return mixers[0]


def classes_of(mixers: Sequence[OwnMixer]) -> tuple[CustomMixer, ...]:
    """The classes of a spec that are a `CustomMixer`."""
    return tuple(own for own in mixers if isinstance(own, CustomMixer))


def from_source(source: Source, name: str) -> CustomMixer:
    """A class from the text of its file, as workers receive it."""
    return _classes(source, name)[0]


def _of_class(given: type[Mixer[Any]] | CustomMixer) -> CustomMixer:
    if isinstance(given, CustomMixer):
        return given
    _refuse_other_contract(given)
    if given.__module__.startswith("statewise."):
        raise UserError(f"{given.__name__} is part of statewise", fix="give its name, as `statewise models` lists it")
    file, source, sha256 = "", None, ""
    module = sys.modules.get(given.__module__)
    if given.__module__ == "__main__":  # a script or a notebook: only the class itself is its source
        with suppress(OSError, TypeError):
            sha256 = Source("", inspect.getsource(given)).sha256
    elif module is not None and (path := getattr(module, "__file__", None)) and Path(path).suffix == ".py":
        source = getattr(module, "__source__", None) or Source(path, Path(path).read_text(encoding="utf-8"))
        file, sha256 = Path(path).name, source.sha256
    return CustomMixer(given, sha256, file, source, _options(given))


def _of_file(named: str | Path) -> tuple[CustomMixer, ...]:
    match = _FILE.fullmatch(str(named))
    if match is None:
        raise UserError(f"{str(named)!r} is not a file of Python", fix="name one: FILE.py, or FILE.py:Class")
    path = Path(match["path"])
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        beside = sorted(str(file) for file in path.parent.glob("*.py"))
        fix = nearest(str(path), beside) if beside else "name a file that exists"
        raise UserError(f"the mixer file {str(path)!r} cannot be read: {error}", fix=fix) from None
    return _classes(Source(str(path.absolute()), text), match["name"])


def _classes(source: Source, name: str | None = None) -> tuple[CustomMixer, ...]:
    """The mixer classes that a file defines, or the one of this name."""
    module, file = run_source(source), Path(source.path).name
    defined = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__
    }
    if name is not None:
        if name not in defined:
            raise UserError(f"{file} defines no class {name!r}", fix=nearest(name, defined) if defined else _CONTRACT)
        return (_of_class(defined[name]),)
    mixers = [value for key, value in defined.items() if issubclass(value, Mixer) and not key.startswith("_")]
    if not mixers:
        there = f"it has {', '.join(defined)}, " if defined else ""
        raise UserError(
            f"{file} defines no mixer: {there}and a mixer is a class that inherits statewise.core.Mixer", fix=_CONTRACT
        )
    whole = [mixer for mixer in mixers if not inspect.isabstract(mixer)]
    return tuple(_of_class(mixer) for mixer in whole or mixers[:1])


# ------------------------------------------------------------------------- the contract


def _refuse_other_contract(cls: type) -> None:
    """Refuse a class that cannot be a mixer at all. `verify` checks the laws."""
    name = getattr(cls, "__name__", repr(cls))
    if not isinstance(cls, type) or not issubclass(cls, Mixer):
        raise UserError(f"{name} is not a mixer: it does not inherit statewise.core.Mixer", fix=_CONTRACT)
    if missing := sorted(cls.__abstractmethods__):
        raise UserError(f"{name} does not keep the contract: it lacks {', '.join(missing)}", fix=_CONTRACT)
    for method, arguments in {"init_state": 1, "forward": 3, "step": 2}.items():
        try:
            inspect.signature(getattr(cls, method)).bind(*[None] * (1 + arguments))
        except TypeError:
            shape = {
                "init_state": "init_state(self, batch)",
                "forward": "forward(self, x_BTI, state=None, lengths_B=None)",
                "step": "step(self, x_BI, state)",
            }
            raise UserError(
                f"{name}.{method} does not keep the contract: expected {shape[method]}", fix=_CONTRACT
            ) from None
    parameters = inspect.signature(cls).parameters
    if lacking := [argument for argument in ("width", "input_width") if argument not in parameters]:
        raise UserError(
            f"the constructor of {name} lacks {' and '.join(lacking)}",
            fix="def __init__(self, width: int, *, input_width: int | None = None, ...): the options come after these",
        )


def _options(cls: type[Mixer[Any]]) -> type[BaseModel]:
    """A pydantic model of the constructor's own parameters."""
    hints = get_type_hints(cls.__init__, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        usual = StackedSpec.model_fields.get(name)
        if name in _GIVEN:
            if usual is not None and name != "width" and parameter.default not in (parameter.empty, usual.default):
                raise UserError(
                    f"{cls.__name__} has {name} = {parameter.default!r} by default, but gets model.{name}, which is "
                    f"{usual.default!r} by default",
                    fix="rename the parameter",
                )
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        elif usual is not None:
            raise UserError(
                f"the option {name!r} of {cls.__name__} has the name of a setting that every model has",
                fix="rename the parameter",
            )
        elif parameter.default is parameter.empty or name not in hints:
            raise UserError(
                f"the option {name!r} of {cls.__name__} has no {'type' if name not in hints else 'default'}",
                fix=f"give it both, for example {name}: float = 0.9",
            )
        else:
            fields[name] = (hints[name], parameter.default)
    config = ConfigDict(extra="forbid", allow_inf_nan=False, validate_default=True, protected_namespaces=())
    try:
        made: type[BaseModel] = create_model(f"{cls.__name__}Options", __config__=config, **fields)
        made.model_validate({}).model_dump(mode="json")
    except PydanticSchemaGenerationError:
        raise UserError(
            f"an option of {cls.__name__} has a type that a recipe cannot hold",
            fix="use bool, int, float, str, Literal",
        ) from None
    return made


# ------------------------------------------------------------------------- building


def _arguments(cls: type[Mixer[Any]], spec: CustomSpec, input_width: int) -> Arguments:
    """The constructor's arguments, without the generator."""
    given = {"width": spec.width, "input_width": input_width, "init": spec.init, "kernel": spec.kernel}
    named = inspect.signature(cls).parameters
    return (*((name, value) for name, value in given.items() if name in named), *sorted(spec.options.items()))


def _make(cls: type[Mixer[Any]], arguments: Arguments, generator: torch.Generator | None) -> Mixer[Any]:
    given = dict(arguments)
    own = {"generator": generator} if "generator" in inspect.signature(cls).parameters else {}
    called = f"{cls.__name__}({', '.join(f'{name}={value!r}' for name, value in arguments)})"
    with _drawn_from(generator):
        try:
            mixer = cls(**given, **own)
        except ValueError as error:
            raise UserError(f"{called}: {error}") from error
    read, made = (vars(mixer).get(name) for name in ("input_width", "output_width"))
    if read != given["input_width"] or not isinstance(made, int):
        raise UserError(
            f"{called} has input_width {read} and output_width {made}",
            fix="set both in its constructor: self.input_width = input_width or width; self.output_width = width",
        )
    return mixer


@contextmanager
def _drawn_from(generator: torch.Generator | None) -> Iterator[None]:
    """Draws without a generator use this one, and the process's own random state is unchanged."""
    if generator is None:
        yield
        return
    seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@cache
def _output_width(cls: type[Mixer[Any]], arguments: Arguments) -> int:
    def measure(mixer: Mixer[Any]) -> int:
        return mixer.output_width

    return measured(lambda: _make(cls, arguments, torch.Generator().manual_seed(0)), measure)


@cache
def _step_grows(cls: type[Mixer[Any]], arguments: Arguments) -> bool:
    first, second = (
        cost_of(lambda: _make(cls, arguments, torch.Generator().manual_seed(0)), context=context).flops
        for context in (0, 1)
    )
    return second > first
