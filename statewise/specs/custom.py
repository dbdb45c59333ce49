"""A mixer class of the user's own, as data: its name and its options.

The class is an object that the caller passes in. A recipe or a run folder names it and never says where code is.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator

from statewise.specs.base import Spec
from statewise.specs.error import UserError, either, option
from statewise.specs.stacked import StackedSpec

KIND = "custom"
Option = bool | int | float | str


class OwnMixer(Protocol):
    """A user's mixer class as specs see it."""

    @property
    def name(self) -> str: ...
    @property
    def file(self) -> str:
        """Name of the file it was read from, without its folder; empty where it was in none."""

    @property
    def sha256(self) -> str:
        """Of its source; empty where that is not known."""

    def check(self, options: Mapping[str, Any]) -> dict[str, Option]:
        """All options of the class, defaults included. ValueError: unknown, or of another type."""

    def output_width(self, spec: "CustomSpec") -> int: ...
    def step_grows(self, spec: "CustomSpec") -> bool:
        """Whether a step costs more the more was read."""


class CustomSpec(StackedSpec):
    """Layers of a class that is not in this package. Validation needs the class: `parse_spec(..., mixers=[...])`."""

    kind: Literal["custom"] = "custom"
    mixer: str = Field(pattern=r"^[^\W\d]\w*$", description="name of the mixer class")
    file: str = Field("", description="the file it was read from, for information")
    sha256: str = Field("", pattern=r"^([0-9a-f]{64})?$", description="of its source, for information")
    options: dict[str, Option] = Field({}, validate_default=True, description="what its constructor takes")
    _own: OwnMixer = PrivateAttr()

    @field_validator("options", mode="before")
    @classmethod
    def _are_options_of_the_class(cls, options: Any, info: ValidationInfo) -> Any:
        own = (info.context or {}).get(info.data.get("mixer"))
        return options if own is None or not isinstance(options, Mapping) else own.check(options)

    def model_post_init(self, context: Any) -> None:
        if self.mixer not in (context or {}):
            raise ValueError(f"the class {self.mixer!r} was not passed in; build(CLASS, vocab=...) makes such a model")
        self._own = context[self.mixer]

    @property
    def own(self) -> OwnMixer:
        """The class itself, which is not part of the data."""
        return self._own

    @property
    def known_as(self) -> str:
        return snake(self.mixer)

    def mixer_output(self) -> int:
        return self._own.output_width(self)

    @property
    def step_grows(self) -> bool:
        return self._own.step_grows(self)


def snake(name: str) -> str:
    """`SlowSum` is `slow_sum`, `EMA` is `ema`: for names of folders and entries."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def mixers_of(spec: Spec) -> tuple[OwnMixer, ...]:
    """The user's classes in a spec, needed to parse a changed copy of it."""
    mixers = [spec.own] if isinstance(spec, CustomSpec) else []
    for name in type(spec).model_fields:
        if isinstance(inner := getattr(spec, name), Spec):
            mixers += mixers_of(inner)
    return tuple(mixers)


def custom_tables(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every table of a run's model that describes a user's class."""
    inside = table.get("model")
    waiting = [inside] if isinstance(inside, dict) else []
    while waiting:
        inner = waiting.pop()
        if inner.get("kind") == KIND:
            yield inner
        else:
            waiting += [value for value in inner.values() if isinstance(value, dict)]


def name_classes(table: Mapping[str, Any], mixers: Sequence[OwnMixer], *, source: str) -> dict[str, OwnMixer]:
    """Write into `table` which of the given classes each part of the model needs; all of them, by name.

    A part that names no class gets the only one there is.
    """
    given: dict[str, OwnMixer] = {}
    for own in mixers:
        if given.setdefault(own.name, own) != own:
            raise UserError(f"two mixer classes are called {own.name!r}", fix="rename one of them")
    for custom_table in custom_tables(table):
        name = custom_table.setdefault("mixer", mixers[0].name if len(given) == 1 else None)
        if not isinstance(name, str):
            several = f"name it: {option('mixer', 'FILE.py:Class')}; valid: {', '.join(sorted(given))}"
            known = several if given else f"pass it: {option('mixer', 'FILE.py')}"
            raise UserError(f"{source} does not say which mixer class it needs", fix=known)
        if name not in given:
            file = str(custom_table.get("file"))
            file = file if re.fullmatch(r"[\w.-]+\.py", file) else ""  # a folder does not say where to look
            others = f"; given: {', '.join(sorted(given))}" if given else ""
            raise UserError(
                f"{source} needs the mixer class {name!r}{f' (from {file})' if file else ''}, which is not part of "
                f"statewise{others}",
                fix="pass it: " + either(f"--mixer {file or 'FILE.py'}", f"mixer={name}"),
            )
        custom_table |= {"file": given[name].file, "sha256": given[name].sha256}
    return given
