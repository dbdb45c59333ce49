"""Examples that need not fit into memory: a spec's data as a folder, and a spec that names one."""

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from statewise.data import ExampleIndex, ExampleWriter, building, index_for, names_examples, read_example_index, stamp
from statewise.specs import AnyRunSpec, Note, UserError, setting
from statewise.tasks.job import Job

S = TypeVar("S", bound=Any)

_VERSION = 1  # of what columns hold
# Settings that decide what is read of an example: training may have others than the build had.
_OF_TRAINING = {"longest", "beyond", "reverse", "bleu"}
_SPLIT = {"validation", "validation_target", "held_out"}


def write_examples(spec: AnyRunSpec, job: type[Job], folder: Path, **options: Any) -> ExampleIndex:
    """Write the data that `spec` names into a folder that `data.train` may name. A finished one is left as it is."""
    made = _made(spec)
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
    data: Any = spec.data
    fields, given = type(data).model_fields, data.model_dump(mode="json")
    kept = {}
    for name, value in given.items():
        if name not in made or name in spec.file_settings or name in _OF_TRAINING:
            continue
        if value not in (made[name], json.loads(json.dumps(fields[name].default))):
            raise UserError(
                f"data.{name} is {value!r}, and {str(folder)!r} was built with {made[name]!r}",
                fix=f"leave it out, or build another folder with {setting(f'data.{name}', value)}",
            )
        kept[name] = made[name]
    for name in _SPLIT & set(spec.file_settings):
        if given[name]:
            raise UserError(
                f"data.{name} is set, but {str(folder)!r} holds its own held-out part",
                fix=f"leave it out, or build another folder with {setting(f'data.{name}', given[name])}",
            )
    try:
        updated: S = spec.model_copy(update={"data": type(data).model_validate({**given, **kept})})
        return updated
    except ValidationError as error:
        raise UserError(f"{str(folder)!r} was built with other settings: {error.errors()[0]['msg']}") from None


def _made(spec: Any) -> dict[str, Any]:
    return {"seed": spec.seed, **spec.data.model_dump(mode="json")}
