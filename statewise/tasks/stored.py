"""Examples that need not fit into memory: a spec's data as a folder, and a spec that names one."""

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from statewise.data import (
    STDIN,
    ExampleIndex,
    ExampleWriter,
    building,
    index_for,
    names_examples,
    read_example_index,
    stamp,
)
from statewise.specs import AnyRunSpec, Note, UserError, setting
from statewise.tasks.job import Job

S = TypeVar("S", bound=Any)

_VERSION = 1  # of what columns hold
# The settings that decide what is stored, by their tables; None: all of them.
_DECISIVE: dict[str, set[str] | None] = {
    "data": None,
    "words": {"vocab", "min_count", "lower", "longest"},
    "objective": {"nodes"},
}
# But what is read of a stored example is up to training.
_OF_TRAINING = {"longest", "beyond", "reverse", "bleu"}
_SPLIT = {"validation", "validation_target", "held_out"}


def write_examples(spec: AnyRunSpec, base: AnyRunSpec, job: type[Job], folder: Path, **options: Any) -> ExampleIndex:
    """Write the data that `spec` names into a folder that `data.train` may name. A finished one is left as it is.

    `base` is the recipe without the settings that were given with it: training may name it again.
    """
    if any(STDIN in getattr(spec.data, name) for name in spec.file_settings):
        raise UserError("standard input cannot be read here: data are read twice", fix="name a file")
    made = {"seed": spec.seed, "recipe": _decisive(base), **_decisive(spec)}
    sources = [stamp(getattr(spec.data, name)) for name in spec.file_settings]
    key = hashlib.sha256(json.dumps([_VERSION, made, sources], sort_keys=True).encode()).hexdigest()
    with building(folder, key) as begun:
        if not begun:
            return read_example_index(folder)
        sizes = [size for named in sources for _, files in named for _, size, _ in files]
        writer = ExampleWriter(folder, source_bytes=sum(sizes), **options)
        try:
            job.store(spec, writer)
        except KeyboardInterrupt as error:
            error.add_note(Note("nothing is kept: the same command begins again"))
            raise
        return writer.finish(spec.task, {"key": key, **made})


def as_stored(spec: S) -> S:
    """With the settings of the folder of examples that `spec` names, if it does; refused where it has others."""
    if not names_examples(spec.data.train):
        return spec
    folder = Path(spec.data.train[0])
    made = index_for(folder, spec.task).made
    recipe = made.get("recipe", {})
    for name in _SPLIT & set(spec.file_settings):
        if value := getattr(spec.data, name):
            raise UserError(
                f"data.{name} is set, but {str(folder)!r} holds its own held-out part",
                fix=f"leave it out, or build another folder with {setting(f'data.{name}', value)}",
            )
    tables: dict[str, dict[str, Any]] = {}
    for path, value in _decisive(spec).items():
        table, _, name = path.partition(".")
        own = getattr(spec, table)
        default = type(own)().model_dump(mode="json")[name]
        if path in made and value not in (made[path], default, recipe.get(path, default)):
            raise UserError(
                f"{path} is {value!r}, and {str(folder)!r} was built with {made[path]!r}",
                fix=f"leave it out, or build another folder with {setting(path, value)}",
            )
        tables.setdefault(table, own.model_dump())[name] = made.get(path, value)
    try:
        checked = {name: type(getattr(spec, name)).model_validate(table) for name, table in tables.items()}
    except ValidationError as error:
        raise UserError(f"{str(folder)!r} was built with other settings: {error.errors()[0]['msg']}") from None
    updated: S = spec.model_copy(update=checked)
    return updated


def _decisive(spec: Any) -> dict[str, Any]:
    """The settings that decide what is stored, by their paths."""
    found = {}
    for table, names in _DECISIVE.items():
        given = getattr(spec, table, None)
        settings = {} if given is None else given.model_dump(mode="json")
        for name in settings if names is None else names & settings.keys():
            if table != "data" or name not in {*spec.file_settings, *_OF_TRAINING}:
                found[f"{table}.{name}"] = settings[name]
    return found
