"""Data in memory as a file: what it holds, how it is read again, and where it is kept."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from statewise.disk import LOCK, write
from statewise.specs import AnyRunSpec, UserError


class MemoryFile(NamedTuple):
    """A file, and the settings (`data.*`) by which it is read. The setting that names it is not among them."""

    name: str
    content: bytes
    data: Any  # the data settings of the task
    rows: int
    first: int = 1  # the line of row 0
    note: str = ""  # what was decided for the user
    unit: str = "row"

    def changes(self, before: Any) -> dict[str, Any]:
        """The settings that differ from `before`: `{"data.text": "review"}`."""
        names = type(self.data).model_fields
        return {
            f"data.{name}": getattr(self.data, name)
            for name in names
            if getattr(self.data, name) != getattr(before, name)
        }

    def learned_by(self, spec: AnyRunSpec, folder: Path) -> AnyRunSpec:
        """The spec of a run that learns from this file in its `folder`."""
        named = {spec.main_data.removeprefix("data."): (str((folder / self.name).absolute()),)}
        return spec.model_copy(update={"data": self.data.model_copy(update=named)})

    def summary(self, folder: Path) -> str:
        """One line for people."""
        count = f"{self.rows:,} {self.unit}{'' if self.rows == 1 else 's'}"
        return f"data from memory: {count}, kept as {folder / self.name}{self.note}"

    @contextmanager
    def speaking_of_rows(self, folder: Path) -> Iterator[Path]:
        """The file in `folder`. An error about a line of it is told of the row: people never saw the line."""
        file = folder / self.name
        names = "|".join(re.escape(name) for name in sorted({str(file), str(file.absolute())}, key=len, reverse=True))

        def row(line: str) -> str:
            return f"row {int(line) - self.first}"

        def told(text: str) -> str:
            text = re.sub(rf"(?:{names})(, series '[^']*')?(?: line |:)(\d+)", lambda m: row(m[2]) + (m[1] or ""), text)
            text = re.sub(r"\blines (\d+) and (\d+)\b", lambda m: f"{row(m[1])} and {row(m[2])}", text)
            text = re.sub(rf"(?:{names}) (?=row \d)", "", text)
            return re.sub(rf"'(?:{names})'|(?:{names})", "the data", text)

        try:
            yield file
        except UserError as error:
            raise UserError(told(error.what), fix=told(error.fix)) from None


@contextmanager
def kept_in(made: MemoryFile | None, folder: Path, *, leads: bool) -> Iterator[None]:
    """The file in a run's folder. If the run fails before anything else is there, the file is removed again."""
    if made is None:
        yield
        return
    with made.speaking_of_rows(folder) as file:
        try:
            if leads:
                folder.mkdir(parents=True, exist_ok=True)
                write(file, made.content)
            yield
        except BaseException:
            if leads and folder.is_dir() and {path.name for path in folder.iterdir()} - {LOCK} == {made.name}:
                file.unlink()
                with suppress(OSError):  # locked: whoever locked it knows whether it is to stay
                    folder.rmdir()
            raise
