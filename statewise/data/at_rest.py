"""Standard input as a file: what is read twice, or by its ending, must lie somewhere."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statewise.data.lines import read_bytes
from statewise.data.source import STDIN


@contextmanager
def at_rest(path: str, *, ending: str = "") -> Iterator[str]:
    """The name of a file that can be read again; standard input is kept as one with this `ending` for the while."""
    if path != STDIN:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"standard input{ending}"
        file.write_bytes(read_bytes(Path(path)))
        yield str(file)
