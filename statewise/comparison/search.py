"""A search that was run once and is kept beside its study: used, written, and compared with what is run now."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from statewise.comparison.budget import Entry
from statewise.comparison.record import write_json
from statewise.specs import StudySpec, Tried, by_path, with_settings

# Settings that do not change what a value of the search is worth; of data, the fingerprint says which they are.
_ASIDE = {f"train.{name}" for name in ("evaluate_every", "evaluate_tokens", "save_every", "log_every", "device")}
_ASIDE |= {f"data.{name}" for name in ("text", "train", "series", "validation", "test")}


def with_recorded(study: StudySpec) -> StudySpec:
    """Every entry with the best values of the recorded search, where there is one for it."""
    entries = []
    for entry in study.entry:
        chosen = study.chosen(entry.name)
        settings = entry.settings if chosen is None else with_settings(entry.settings, chosen.settings)
        entries.append(entry.model_copy(update={"settings": settings}))
    return study.model_copy(update={"entry": tuple(entries)})


def circumstances(study: StudySpec, entries: Sequence[Entry]) -> dict[str, Any]:
    """What a search depends on: the data, the budget, and every setting that it does not itself try."""

    def settings(table: Mapping[str, Any]) -> dict[str, Any]:
        flat: dict[str, Any] = by_path(table)
        aside = {*study.search.space, *_ASIDE}
        return {
            path: list(value) if isinstance(value, tuple) else value
            for path, value in flat.items()
            if path not in aside
        }

    return {
        "study": {"data": _data(entries[0]), "metric": study.metric},
        "budget": by_path(study.budget.model_dump(exclude_none=True)),
        "base": settings(study.base),
        "entry": {entry.name: settings(entry.settings) for entry in study.entry},
    }


def _data(entry: Entry) -> str:
    """Embedded text is that of the installed Python's manual: which one it is makes no other study."""
    named = getattr(entry.spec.data, entry.spec.main_data.rpartition(".")[2])
    return entry.data if named else "embedded"


def mismatch(study: StudySpec, entries: Sequence[Entry]) -> str:
    """How the recorded search differs from what is run, and which entries it lacks; empty where it agrees."""
    if not study.record or not entries:
        return ""
    now, then = circumstances(study, entries), study.record_of
    pairs = {name: (now[name], then.get(name, {})) for name in ("study", "budget", "base")}
    searched = then.get("entry", {})
    pairs |= {name: (mine, searched[name]) for name, mine in now["entry"].items() if name in searched}
    differing = [
        "other data" if path == "data" else f"{name} {path} = {_shown(before.get(path))} (now {_shown(here.get(path))})"
        for name, (here, before) in pairs.items()
        for path in dict.fromkeys([*before, *here])
        if before.get(path) != here.get(path)
    ]
    said = []
    if differing:
        said.append(
            f"The recorded search was run with {'; '.join(differing)}: its values may not be the best ones here "
            "(a new search finds them)."
        )
    gradient = {entry.name for entry in entries if entry.spec.learns == "gradient"}
    without = [
        entry.name
        for entry in study.entry
        if entry.name in gradient - searched.keys() and not study.search.space.keys() & by_path(entry.settings).keys()
    ]
    if without:
        said.append(
            f"Not searched: {', '.join(without)} (trained with the study's own {', '.join(study.search.space)})."
        )
    return " ".join(said)


def _shown(value: object) -> str:
    return "unset" if value is None else json.dumps(value)


def write_record(path: Path, study: StudySpec, entries: Sequence[Entry], tried: Sequence[Tried]) -> None:
    """As NAME.search.json beside NAME.toml it is used by every later run of that study."""
    record = [trial.model_dump(mode="json") for trial in tried]
    write_json(path, {"record_of": circumstances(study, entries), "record": record})
