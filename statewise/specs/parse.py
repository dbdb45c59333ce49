"""From a table to the spec of a run, and the only way to override it: `path=value`."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from statewise.specs.classification import ClassificationSpec
from statewise.specs.custom import KIND as CUSTOM
from statewise.specs.custom import OwnMixer, custom_tables, name_classes
from statewise.specs.error import UserError, complaints, either, nearest, option, setting
from statewise.specs.forecasting import ForecastingSpec
from statewise.specs.language_model import LanguageModelSpec
from statewise.specs.run import RunSpec
from statewise.specs.tagging import TaggingSpec
from statewise.specs.toml import dumps, from_toml
from statewise.specs.translation import TranslationSpec
from statewise.specs.tree import TreeSpec

# One spec per task, told apart by `task`.
AnyRunSpec = LanguageModelSpec | ClassificationSpec | TranslationSpec | TaggingSpec | TreeSpec | ForecastingSpec
TASKS: tuple[str, ...] = tuple(spec.model_fields["task"].default for spec in get_args(AnyRunSpec))
_DEFAULT = "language_model"

_DEEPEST = 8  # tables inside each other
# Tagged unions put the tag into the location of an error; people never wrote it there.
_TAGGED = ("model", "encoder", "decoder", "truncation", "objective", "forcing")


def parse_spec(table: Mapping[str, Any], *, source: str = "the recipe", mixers: Sequence[OwnMixer] = ()) -> AnyRunSpec:
    """Validate a table; every complaint names its path, the value, and what would be valid.

    `mixers`: the user's own classes, for tables with `kind = "custom"`.
    """
    table = {"task": _DEFAULT, **_copy(table)}
    classes = name_classes(table, mixers, source=source)
    if (task := table["task"]) not in TASKS:
        raise UserError(f"{source} is not valid:\n  task: {task!r} is not known; {nearest(str(task), TASKS)}")
    spec = _spec_of(task)
    try:
        return cast(AnyRunSpec, spec.model_validate(table, context=classes))
    except ValidationError as error:
        raise UserError(f"{source} is not valid:\n{complaints(error, partial(_explain, spec))}") from None


def make_spec(
    table: Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    data: Sequence[str] | None = None,
    source: str = "the recipe",
    mixers: Sequence[OwnMixer] = (),
) -> AnyRunSpec:
    """The spec of `table` with each `path=value` of `overrides` applied in order; `data`: what to learn from.

    Where `mixers` are given and no part of the model is made of one, the model is.
    """
    assignments = [read_override(override) for override in overrides]
    changed: dict[str, Any] = _copy(table)
    _assign_all(changed, assignments)
    if mixers and not list(custom_tables(changed)):
        changed = with_settings(table, {"model.kind": CUSTOM})
        _assign_all(changed, assignments)
    if data is not None:
        _assign(changed, _spec_of(changed.get("task")).main_data, list(data))
    source = source if not overrides else f"{source} with {either('--set', 'settings')}"
    return parse_spec(changed, source=source, mixers=mixers)


def with_settings(table: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `table` with values at paths, as `--set` puts them there; a table of settings is gone into."""
    changed: dict[str, Any] = _copy(table)
    _assign_all(changed, list(_leaves(settings)))
    return changed


def _leaves(settings: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, Any]]:
    for path, value in settings.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{inside}{path}.")
        else:
            yield f"{inside}{path}", value


def _assign_all(table: dict[str, Any], assignments: Sequence[tuple[str, Any]]) -> None:
    for path, value in assignments:
        if path.endswith(".kind"):
            _forget_other_kinds(table, path.split(".")[:-1], value)
    for path, value in assignments:
        _assign(table, path, value)


def read_override(override: str) -> tuple[str, Any]:
    """The path and the value of `path=value`."""
    path, equals, text = override.partition("=")
    if not equals or not path.strip():
        example = either("--set train.lr=0.001", 'settings=["train.lr=0.001"]')
        raise UserError(f"the setting {override!r} has no '='", fix=f"write path=value, for example {example}")
    if path.count(".") > _DEEPEST:
        raise UserError(f"the setting {path[:40]!r}… is nested too deeply", fix="no setting has so many dots")
    return path.strip(), _value(text.strip())


def as_overrides(settings: Mapping[str, Any] | Sequence[str]) -> list[str]:
    """`path=value` of each setting, whether they are a mapping or written so already."""
    if not isinstance(settings, Mapping):
        return list(settings)
    return [
        f"{path}={'none' if value is None else dumps({'v': value}).partition('= ')[2].strip()}"
        for path, value in settings.items()
    ]


def with_plain(overrides: list[str], plain: Mapping[str, Any]) -> list[str]:
    """The overrides and, by their paths, the arguments that are given; both may say the same, but not two things."""
    said = dict(map(read_override, overrides))
    for name, value in plain.items():
        path = name if name == "seed" else f"train.{name}"
        if value is not None and said.setdefault(path, value) != value:
            raise UserError(
                f"{option(name, value)} and {setting(path, said[path])} contradict each other",
                fix="leave one of them out",
            )
        overrides += [] if value is None else as_overrides({path: value})
    return overrides


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


def _forget_other_kinds(table: dict[str, Any], names: Sequence[str], kind: Any) -> None:
    """Of a table that becomes another kind, drop what the new one lacks or means otherwise: it was said of the old.

    What no kind has stays, to be complained about.
    """
    models: list[type[BaseModel]] = [_spec_of(table.get("task"))]
    inner, usual = table, None
    for name in names:
        inner = inner.get(name, {}) if isinstance(inner, dict) else {}
        fields = [model.model_fields[name] for model in models if name in model.model_fields]
        models = [model for field in fields for model in _models_in(field.annotation)]
        usual = getattr(fields[0].default, "kind", None) if fields else None
    if not isinstance(inner, dict):
        return
    kinds = {model.model_fields["kind"].default: model for model in models if "kind" in model.model_fields}
    old, new = kinds.get(str(inner.get("kind", usual))), kinds.get(str(kind))  # a list or a table is no kind
    if old is None or new is None or old is new:
        return
    for name in (set(inner) & set(old.model_fields)) - {"kind"}:
        same = new.model_fields.get(name)
        if same is None or same.annotation != old.model_fields[name].annotation:
            del inner[name]


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
        return from_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def _explain(spec: type[RunSpec], detail: ErrorDetails) -> str:
    location = [str(part) for part in detail["loc"]]
    tags = _tags(spec)
    parts = [part for before, part in zip(["", *location], location) if before not in _TAGGED or part not in tags]
    path = ".".join(parts) or "(top level)"
    match detail["type"]:
        case "extra_forbidden":
            homes = [
                f"{name}.{path}"
                for name in ("train", *spec.model_fields)
                if path in _keys_beside(spec, (name, "")) and name != "seed"
            ]
            guess = f"did you mean {homes[0]!r}? " if homes else ""
            return f"  {path}: unknown key; {guess}{nearest(parts[-1], _keys_beside(spec, tuple(location)))}"
        case "union_tag_invalid":
            tag, expected = detail["ctx"]["tag"], detail["ctx"]["expected_tags"].replace("'", "").split(", ")
            known = "cannot do this" if tag in _tags(LanguageModelSpec) else "is not known"
            return f"  {path}.kind: {tag!r} {known}; {nearest(str(tag), expected)}"
        case "model_attributes_type" | "model_type":
            return (
                f"  {path} = {_shown(detail['input'])}: this is a table; set its keys one by one, as in {path}.kind=..."
            )
        case "value_error" if isinstance(detail["input"], Mapping):
            return f"  {path}: {detail['msg'].removeprefix('Value error, ')}"
        case _:
            message = detail["msg"].removeprefix("Value error, ")
            return f"  {path} = {_shown(detail['input'])}: {message[0].lower()}{message[1:]}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def _spec_of(task: Any) -> type[RunSpec]:
    """The class of a task's specs; a task nobody knows is refused elsewhere."""
    specs: list[type[RunSpec]] = list(get_args(AnyRunSpec))
    return next((spec for spec in specs if spec.model_fields["task"].default == task), LanguageModelSpec)


def _tags(model: type[BaseModel]) -> set[str]:
    """Every `kind` that can stand anywhere inside."""
    kinds = {model.model_fields["kind"].default} if "kind" in model.model_fields else set()
    for field in model.model_fields.values():
        for inner in _models_in(field.annotation):
            kinds |= _tags(inner)
    return kinds


def _keys_beside(spec: type[RunSpec], location: tuple[str, ...]) -> list[str]:
    """The valid keys of the table that `location` points into."""
    models: list[type[BaseModel]] = [spec]
    for part in location[:-1]:
        inner: list[type[BaseModel]] = []
        for model in models:
            if part in model.model_fields:
                inner += _models_in(model.model_fields[part].annotation)
            elif "kind" in model.model_fields and model.model_fields["kind"].default == part:
                inner.append(model)
        models = inner
    return sorted({name for model in models for name in model.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]
