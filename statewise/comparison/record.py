"""What a study keeps of each trial, as files that are either whole or not there.

`trials/KEY/` holds `trial.json` (what is to be run), `run/` (an ordinary run folder), `sessions.jsonl` (each time that
somebody worked on it) and at the end `result.json` or `failure.json`, with its key and a hash: one that is damaged, or
that belongs to another trial, counts as absent. `log.jsonl` beside `trials/` is only ever appended to.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from statewise import disk
from statewise.comparison.trial import Failure, Found, Trial
from statewise.specs import AnyRunSpec, OwnMixer, UserError, from_json, parse_spec, read_small

T = TypeVar("T")
Say: TypeAlias = Callable[[str], None]
_SEAL = "sha256"  # of a record, beside what it holds
_FOUND = TypeAdapter(Found)


class Order(NamedTuple):
    """A trial as a worker gets it."""

    trial: Trial
    metric: str  # of the study: what the curve shows
    context: int  # of its budget: after how many tokens a state is asked for


def trial_folder(folder: Path, key: str) -> Path:
    return folder / "trials" / key


def write_order(path: Path, order: Order) -> None:
    write_json(path / "trial.json", order_record(order))


def order_record(order: Order) -> dict[str, Any]:
    trial = order.trial
    asked = {"metric": order.metric, "context": order.context}
    return {**trial._asdict(), "spec": trial.spec.model_dump(mode="json"), **asked}


def read_order(path: Path, *, mixers: Sequence[OwnMixer] = ()) -> Order:
    return order_of(_read(path / "trial.json"), source=str(path / "trial.json"), mixers=mixers)


def order_of(record: Mapping[str, Any], *, source: str, mixers: Sequence[OwnMixer] = ()) -> Order:
    spec: AnyRunSpec = parse_spec(record["spec"], source=source, mixers=mixers)
    named = {name: record[name] for name in Trial._fields if name != "spec"}
    trial = Trial(spec=spec, **named)
    return Order(trial, record["metric"], record["context"])


def write_found(path: Path, run: Found) -> None:
    write_json(path / "result.json", _sealed(found_record(run)))


def found_record(run: Found) -> dict[str, Any]:
    watched = {name: [point._asdict() for point in curve] for name, curve in run.watched.items()}
    curves = {"curve": [point._asdict() for point in run.curve], "watched": watched}
    answers = None if run.answers is None else [answer._asdict() for answer in run.answers]
    course = None if run.course is None else run.course._asdict()
    return {**run._asdict(), **curves, "answers": answers, "course": course, "anchors": dict(run.anchors)}


def read_found(path: Path, *, say: Say = lambda _: None) -> Found | None:
    """The result, or None where the trial has not succeeded. `say` is called for a damaged record."""
    return _read_sealed(path / "result.json", lambda record: found_of(record, source="it"), say)


def found_of(record: Mapping[str, Any], *, source: str) -> Found:
    try:
        known = {name: record[name] for name in Found._fields if name in record}
        return _FOUND.validate_python({**Found._field_defaults, **known})
    except (TypeError, ValidationError):
        raise UserError(f"{source} is not the result of a trial") from None


def write_failure(path: Path, failure: Failure) -> None:
    write_json(path / "failure.json", _sealed(failure._asdict()))


def read_failure(path: Path, *, say: Say = lambda _: None) -> Failure | None:
    return _read_sealed(path / "failure.json", lambda record: Failure(**record), say)


def _sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """With a hash of all the rest."""
    return {**record, _SEAL: _digest(record)}


def _digest(record: Mapping[str, Any]) -> str:
    record = from_json(json.dumps(dict(record)))  # as it is read again: keys become words
    return hashlib.sha256(json.dumps(dict(record), sort_keys=True).encode()).hexdigest()


def _read_sealed(file: Path, make: Callable[[dict[str, Any]], T], say: Say) -> T | None:
    """The record of the trial that the folder is named after, as it was written; else it counts as absent.

    Records from before there was a hash have their key alone.
    """
    if not file.is_file():
        return None
    try:
        record = from_json(read_small(file))
        seal = record.pop(_SEAL, None)
        if record["key"] != file.parent.name:
            problem = f"it is that of another trial, {record['key']!r}"
        elif seal is not None and seal != _digest(record):
            problem = "it was changed after it was written"
        else:
            return make(record)
    except (ValueError, TypeError, KeyError, AttributeError):
        problem = "it is not the record of a trial"
    say(f"{file}: {problem}; the trial is run again")
    return None


class Log:
    """The journal of trials, one event per line. Each line is one write, so lines of several processes do not mix."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.jsonl"

    def add(self, event: str, trial: Trial) -> None:
        line = {"time": round(time.time(), 3), "event": event, "key": trial.key, "entry": trial.entry}
        append(self.path, {**line, "seed": trial.seed, "phase": trial.phase})

    def ended(self) -> set[str]:
        """The keys of trials whose end was noted."""
        return {str(line.get("key")) for line in read_lines(self.path) if line.get("event") == "end"}


def append(path: Path, record: Mapping[str, Any]) -> None:
    disk.append(path, json.dumps(dict(record)) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file of lines; half a line, which a full disk can leave, is passed over."""
    if not path.exists():
        return []
    results = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            record = from_json(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            results.append(record)
    return results


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """All of it appears at once, or nothing does."""
    disk.write(path, json.dumps(dict(record), indent=1) + "\n")


def _read(path: Path) -> dict[str, Any]:
    try:
        record = from_json(read_small(path))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{str(path)!r} cannot be read: {error}", fix="remove its folder: the trial is then run again"
        ) from None
    if not isinstance(record, dict):
        raise UserError(f"{str(path)!r} is not a table", fix="remove its folder: the trial is then run again")
    return record
