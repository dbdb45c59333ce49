"""A study by its name or file: read, changed and shortened, before anything is solved or run."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import ValidationError

from statewise.specs import KIND as CUSTOM
from statewise.specs import (
    AnyRunSpec,
    BudgetSpec,
    EntrySpec,
    LookSpec,
    OwnMixer,
    PartSpec,
    SearchSpec,
    Spec,
    StorySpec,
    StudySpec,
    TrainingBudgetSpec,
    Tried,
    UserError,
    complaints,
    either,
    from_json,
    nearest,
    option,
    parse_spec,
    read_override,
    read_small,
    read_toml,
    recipe_folder,
    snake,
    with_settings,
)

_S = TypeVar("_S", bound=Spec)
_ADD = (
    "give the new name, an entry of the study (or a run, or the .py file of your mixer), and what differs: "
    + either("--add 'deep=lstm model.depth=2'", 'add=["deep=lstm model.depth=2"]')
)
_INSIDE: dict[str, type[Spec]] = {
    "entry": EntrySpec,
    "budget": BudgetSpec,
    "search": SearchSpec,
    "record": Tried,
    "part": PartSpec,
    "look": LookSpec,
}
# What is counted in steps, and so becomes shorter with a study.
IN_STEPS = ("train.steps", "train.warmup", "train.evaluate_every", "train.save_every", "forcing.steps")


def study_names() -> list[str]:
    return sorted(path.stem for path in _shipped().glob("*.toml"))


class Chapter(NamedTuple):
    """A study of a story; its name is that of its folder."""

    name: str
    study: StudySpec


class Story(NamedTuple):
    """Studies that are run together and reported on one page. A single study is a story of one chapter."""

    title: str
    question: str
    chapters: tuple[Chapter, ...]
    look: LookSpec | None = None
    alone: bool = False  # one study, in the folder of the story itself

    @property
    def minutes(self) -> float:
        return sum(chapter.study.minutes for chapter in self.chapters)


AnyStudy = str | Path | StudySpec | Mapping[str, Any]


def load_story(study: AnyStudy, *, mixers: Sequence[OwnMixer] = ()) -> Story:
    """A shipped study or story by its name, any by the path of its TOML file, or a table of the same keys.

    `mixers`: the user's own classes that its entries may be made of.
    """
    match study:
        case StudySpec():
            again = parse_study(as_table(study), source=f"study {study.title!r}", mixers=mixers)
            return _alone(again, title_as_name(study.title))
        case Mapping():
            folder, table, source = Path(), study, "the study"
            name = title_as_name(str(study.get("title", "study")))
        case _:
            path = _file(study)
            folder, table, source, name = path.parent, _read(path), f"study {str(study)!r}", path.stem
    if "part" not in table:
        return _alone(parse_study(table, source=source, mixers=mixers), name)
    spec = _validated(StorySpec, table, source)
    chapters = []
    for part in spec.part:
        named = folder / part.study if part.study.endswith(".toml") else part.study
        own = load_study(named, mixers=mixers)
        if part.settings:
            changed = with_settings(as_table(own), part.settings)
            own = parse_study(changed, source=f"part {part.study!r} of {source}", mixers=mixers)
        if part.only:
            own = with_entries(own, only=part.only)
        chapters.append(Chapter(part.name or Path(part.study).stem, own))
    names = [chapter.name for chapter in chapters]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{source} has two parts of the name {twice!r}", fix="give each a name of its own")
    if spec.look is not None and spec.look.part not in names:
        raise UserError(f"{source}: look.part = {spec.look.part!r} is not a part", fix=nearest(spec.look.part, names))
    return Story(spec.title, spec.question, tuple(chapters), spec.look)


def _alone(study: StudySpec, name: str) -> Story:
    return Story(study.title, study.question, (Chapter(name, study),), alone=True)


def title_as_name(title: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split()) or "study"


def load_study(name_or_path: str | Path, *, mixers: Sequence[OwnMixer] = ()) -> StudySpec:
    """A single study, shipped or of a TOML file, with the search that is recorded beside it."""
    path = _file(name_or_path)
    table = _read(path)
    if "part" in table:
        raise UserError(f"{str(name_or_path)!r} is a story of several studies", fix="name one of its parts")
    return parse_study(table, source=f"study {str(name_or_path)!r}", mixers=mixers)


def _file(name_or_path: str | Path) -> Path:
    named, path = str(name_or_path), Path(name_or_path)
    if path.suffix == ".toml":
        return path
    if named not in study_names():
        raise UserError(f"{named!r} is neither a shipped study nor a .toml file", fix=nearest(named, study_names()))
    return _shipped() / f"{named}.toml"


def _validated(kind: type[_S], table: Mapping[str, Any], source: str, context: Any = None) -> _S:
    try:
        return kind.model_validate(table, context=context)
    except ValidationError as error:
        told = complaints(error, lambda detail: _explain(kind, detail["loc"], detail["msg"], detail["type"]))
        raise UserError(f"{source} is not valid:\n{told}") from None


def parse_study(table: Mapping[str, Any], *, source: str = "the study", mixers: Sequence[OwnMixer] = ()) -> StudySpec:
    """Validate a table; every entry must be a run that could be trained. `mixers`: the user's own classes."""
    study = _validated(StudySpec, table, source, context=mixers)
    names = [entry.name for entry in study.entry]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"{source} has two entries of the name {twice[0]!r}", fix="give each a name of its own")
    for entry in study.entry:
        spec_of(study, entry)
    return study


def as_table(study: StudySpec) -> dict[str, Any]:
    """TOML that `parse_study` reads back. TOML has no null, so an entry without a width has a marker."""
    table = study.model_dump(mode="json", exclude_none=True)
    for entry in table["entry"]:
        entry.setdefault("width", "none")
    return table


def spec_of(study: StudySpec, entry: EntrySpec, settings: Mapping[str, Any] | None = None) -> AnyRunSpec:
    """The run of an entry: the base, then the entry's settings, then `settings`."""
    table = with_settings(with_settings(study.base, entry.settings), settings or {})
    return parse_spec(table, source=f"entry {entry.name!r} of the study", mixers=study.mixers)


def changed(study: StudySpec, settings: Mapping[str, Any]) -> StudySpec:
    """The study with other settings in its base; an entry's own still stand above them."""
    return study.model_copy(update={"base": with_settings(study.base, settings)})


def with_entries(
    study: StudySpec,
    *,
    only: Sequence[str] = (),
    add: Sequence[str] = (),
    own: Mapping[str, OwnMixer] | None = None,
    others: Mapping[str, EntrySpec] | None = None,
) -> StudySpec:
    """Some of its entries, and others that are like one of them but for a few settings: `NAME=LIKE path=value …`.

    LIKE may also be what `own` names, a class of the user's, or what `others` names.
    """
    known = {entry.name: entry for entry in study.entry}
    for name in only:
        if name not in known:
            raise UserError(f"{option('only', name)}: the study has no such entry", fix=nearest(name, known))
    kept = [entry for entry in study.entry if not only or entry.name in only]
    searched = {name: chosen.settings for name in known if (chosen := study.chosen(name)) is not None}
    made = {like: entry_of(mixer) for like, mixer in (own or {}).items()} | dict(others or {})
    added = [_added(known, made, written, searched) for written in add]
    table = as_table(study.model_copy(update={"entry": (*kept, *added)}))
    source = f"the study with {option('add' if add else 'only')}"
    return parse_study(table, source=source, mixers=study.mixers)


def entry_of(mixer: OwnMixer) -> EntrySpec:
    """An entry that is made of a user's class, at the settings that all entries share."""
    return EntrySpec(name=snake(mixer.name), settings={"model": {"kind": CUSTOM, "mixer": mixer.name}})


def read_added(written: str) -> tuple[str, str, list[str]]:
    """`NAME=LIKE path=value …`: the name, what it is like, and what differs."""
    try:
        first, *settings = shlex.split(written)
    except ValueError as error:
        raise UserError(f"{option('add')} {written!r} cannot be read: {error}", fix=_ADD) from None
    name, equals, like = first.partition("=")
    if not equals or not name:
        raise UserError(f"{option('add')} {written!r} does not say what the new entry is like", fix=_ADD)
    return name, like, settings


def _added(
    known: Mapping[str, EntrySpec],
    made: Mapping[str, EntrySpec],
    written: str,
    searched: Mapping[str, Mapping[str, Any]],
) -> EntrySpec:
    """`made`: entries of the user's own classes; `searched`: the recorded values of those that it may be like."""
    name, like, settings = read_added(written)
    if like not in known and like not in made:
        raise UserError(
            f"{option('add')} {written!r}: the study has no entry {like!r}", fix=nearest(like, {**known, **made})
        )
    if not settings and like in known:
        raise UserError(f"{option('add')} {written!r}: {name!r} would be the same run as {like!r}", fix=_ADD)
    changed = dict(read_override(setting) for setting in settings)
    old = known[like] if like in known else made[like]
    settings_of_old = with_settings(old.settings, searched.get(like, {}))
    return old.model_copy(update={"name": name, "settings": with_settings(settings_of_old, changed)})


def scaled(study: StudySpec, minutes: float) -> StudySpec:
    """The same study in about this many minutes: all step counts are scaled, rounded, and at least 1."""
    if not minutes > 0:
        raise UserError(f"minutes is {minutes:g}, expected more than 0")
    share = minutes / study.minutes
    base = _scaled(study.base, share)
    entries = tuple(entry.model_copy(update={"settings": _scaled(entry.settings, share)}) for entry in study.entry)
    budget = study.budget.stretched(share)
    return study.model_copy(update={"base": base, "entry": entries, "budget": budget, "minutes": float(minutes)})


def counted_in_steps(spec: AnyRunSpec) -> dict[str, int]:
    """What a run has of the settings that count steps."""
    table = spec.model_dump()
    return {path: steps for path in IN_STEPS if isinstance(steps := _found(table, path), int)}


def _found(table: Any, path: str) -> Any:
    for name in path.split("."):
        table = table.get(name) if isinstance(table, Mapping) else None
    return table


def _scaled(table: Mapping[str, Any], share: float, inside: str = "") -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for key, value in table.items():
        path = f"{inside}{key}"
        if isinstance(value, Mapping):
            settings[key] = _scaled(value, share, f"{path}.")
        elif path in IN_STEPS and isinstance(value, int) and value > 0:  # no steps stay none
            settings[key] = max(1, round(value * share))
        else:
            settings[key] = value
    return settings


def _shipped() -> Path:
    return recipe_folder() / "studies"


def _read(path: Path) -> dict[str, Any]:
    try:
        table = read_toml(path)
    except FileNotFoundError:
        raise UserError(f"study {str(path)!r} does not exist", fix=nearest(path.stem, study_names())) from None
    except IsADirectoryError:
        raise UserError(f"{str(path)!r} is a folder, not a study", fix="name a .toml file") from None
    except UnicodeDecodeError:
        raise UserError(f"study {str(path)!r} is not UTF-8 text", fix="save it as UTF-8") from None
    except ValueError as error:
        raise UserError(f"study {str(path)!r} is not valid TOML: {error}", fix="correct the file") from None
    return {**_recorded(path), **table}


def _recorded(study: Path) -> dict[str, Any]:
    """The search that is kept beside a study's file as NAME.search.json; nothing where there is none."""
    path = study.with_suffix(".search.json")
    try:
        table = from_json(read_small(path))
        return {name: table[name] for name in ("record", "record_of")}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{str(path)!r} is not the record of a search: {error}", fix="remove the file") from None


def _explain(kind: type[Spec], location: tuple[int | str, ...], message: str, error: str) -> str:
    path = ".".join(str(part + 1) if isinstance(part, int) else part for part in location)
    if error == "extra_forbidden":
        beside = _INSIDE.get(str(location[0]), kind) if len(location) > 1 else kind
        beside = TrainingBudgetSpec if "also" in location[:-1] else beside
        return f"  {path}: unknown key; {nearest(str(location[-1]), beside.model_fields)}"
    message = message.removeprefix("Value error, ")
    return f"  {path}: {message[0].lower()}{message[1:]}"
