"""A lens: a name, what it shows, of which tasks, with which settings. (The tap it may use is `core.lens`.)"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from statewise.inspection.finding import Finding
from statewise.inspection.progress import Progress
from statewise.inspection.subject import Subject
from statewise.specs import Spec, UserError, nearest

S = TypeVar("S", bound=Spec)

ROW_TASKS = ("classification", "tagging", "tree", "forecasting", "translation")  # that answer row by row


class Lens(NamedTuple):
    name: str
    shows: str  # in a sentence
    tasks: tuple[str, ...]  # of runs that it can look at; none: it makes its own models
    quick: bool  # whether it is on the page of all lenses
    settings: type[Spec]
    look: Callable[[Subject, Any, Progress], Finding]
    why: str = ""  # what it needs that other tasks do not have


def read_settings(settings: type[S], given: Mapping[str, Any], *, lens: str) -> S:
    """A lens's settings; every complaint names the value and what would be valid."""
    try:
        return settings.model_validate(dict(given))
    except ValidationError as error:
        lines = []
        for detail in error.errors():
            path = ".".join(str(part) for part in detail["loc"])
            if detail["type"] == "extra_forbidden":
                valid = nearest(path, settings.model_fields) if settings.model_fields else "it has none"
                lines.append(f"  {path}: unknown setting; {valid}")
            else:
                message = detail["msg"].removeprefix("Value error, ")
                lines.append(f"  {path} = {detail['input']!r}: {message[0].lower()}{message[1:]}")
        raise UserError(f"the settings of the lens {lens!r} are not valid:\n" + "\n".join(lines)) from None
