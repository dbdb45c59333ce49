"""A whole run as one frozen object, and the only way to override it: `path=value`."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from statewise.specs.base import Spec
from statewise.specs.data import DataSpec
from statewise.specs.error import UserError, nearest
from statewise.specs.model import KINDS, ModelSpec
from statewise.specs.recurrent import LSTMSpec
from statewise.specs.train import TrainSpec

_TAGGED = ("model", "truncation")
_TAGS = (*KINDS, "full", "fixed", "random", "unbiased")


class RunSpec(Spec):
    seed: int = Field(0, ge=0, lt=2**63)
    data: DataSpec = DataSpec()
    model: ModelSpec = LSTMSpec()
    train: TrainSpec = TrainSpec()

    @classmethod
    def parse(cls, table: Mapping[str, Any], *, source: str = "the recipe") -> "RunSpec":
        """Validate a table; every complaint names its path, the value, and what would be valid."""
        try:
            return cls.model_validate(table)
        except ValidationError as error:
            lines = [_explain(detail) for detail in error.errors()]
            raise UserError(f"{source} is not valid:\n" + "\n".join(lines)) from None


def make_spec(table: Mapping[str, Any], overrides: Sequence[str] = (), *, source: str = "the recipe") -> RunSpec:
    """The spec of `table` with each `path=value` of `overrides` applied in order."""
    changed: dict[str, Any] = _copy(table)
    for override in overrides:
        path, equals, text = override.partition("=")
        if not equals or not path.strip():
            raise UserError(
                f"--set {override!r} has no '='", fix="write it as path=value, for example --set train.lr=0.001"
            )
        _assign(changed, path.strip(), _value(text.strip()))
    return RunSpec.parse(changed, source=source if not overrides else f"{source} with --set")


def _copy(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in table.items()}


def _assign(table: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            # `train.truncation` may stand as a shorthand; a deeper override replaces it by a table.
            inner = table[name] = _table_of(inner)
        table = inner
    table[last] = value


def _table_of(shorthand: Any) -> dict[str, Any]:
    if not isinstance(shorthand, str):
        return {"length": shorthand}
    kind, colon, length = shorthand.partition(":")
    return {"kind": kind, "length": length} if colon else {"kind": kind}


def _value(text: str) -> Any:
    """A TOML value where it is one, the bare text otherwise."""
    if text in ("none", "null"):
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _explain(detail: ErrorDetails) -> str:
    # Tagged unions put the tag into the location; people never wrote it there.
    location = [str(part) for part in detail["loc"]]
    parts = [part for before, part in zip(["", *location], location) if before not in _TAGGED or part not in _TAGS]
    path = ".".join(parts) or "(top level)"
    match detail["type"]:
        case "extra_forbidden":
            homes = [f"{name}.{path}" for name in ("train", "model", "data") if path in _keys_beside((name, ""))]
            guess = f"did you mean {homes[0]!r}? " if homes else ""
            return f"  {path}: unknown key; {guess}{nearest(parts[-1], _keys_beside(detail['loc']))}"
        case "union_tag_invalid":
            tag, expected = detail["ctx"]["tag"], detail["ctx"]["expected_tags"].replace("'", "").split(", ")
            return f"  {path}.kind: {tag!r} is not known; {nearest(str(tag), expected)}"
        case "model_attributes_type" | "model_type":
            return f"  {path} = {detail['input']!r}: this is a table; set its keys one by one, as in {path}.kind=..."
        case "value_error" if isinstance(detail["input"], Mapping):
            return f"  {path}: {detail['msg'].removeprefix('Value error, ')}"
        case _:
            message = detail["msg"].removeprefix("Value error, ")
            return f"  {path} = {detail['input']!r}: {message[0].lower()}{message[1:]}"


def _keys_beside(location: tuple[int | str, ...]) -> list[str]:
    """The valid keys of the table that `location` points into."""
    models: list[type[BaseModel]] = [RunSpec]
    for part in location[:-1]:
        inner: list[type[BaseModel]] = []
        for model in models:
            if part in model.model_fields:
                inner += _models_in(model.model_fields[str(part)].annotation)
            elif "kind" in model.model_fields and model.model_fields["kind"].default == part:
                inner.append(model)
        models = inner
    return sorted({name for model in models for name in model.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]
