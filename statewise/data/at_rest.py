"""What came by another way as a file: what is read twice, or by its ending, must lie somewhere."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statewise.data.lines import read_bytes
from statewise.data.source import STDIN
from statewise.specs import UserError


@contextmanager
def at_rest(path: str, *, ending: str = "") -> Iterator[str]:
    """The name of a file that can be read again; standard input is kept as one with this `ending` for the while."""
    if path != STDIN:
        yield path
        return
    with kept_as(f"standard input{ending}", read_bytes(Path(path))) as file:
        yield str(file)


@contextmanager
def kept_as(name: str, content: str | bytes) -> Iterator[Path]:
    """A file of this name for the while. What is wrong in it is said of the name, not of where it lay."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        try:
            yield file
        except UserError as error:
            what, fix = (part.replace(str(file), name) for part in error.marked)
            raise UserError(what, fix=fix) from None
