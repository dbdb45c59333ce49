"""The one place where a file of the user's is executed: a mixer file that a person named.

Nothing else in this package runs code that it reads. A recipe, a study or a run folder cannot name such a file.
"""

import hashlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from statewise.specs import UserError


class Source(NamedTuple):
    """A file as it was when it was read: this, not the file, is what other processes get."""

    path: str
    text: str

    @property
    def sha256(self) -> str:
        """Of its text, wherever it lies."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def run_source(source: Source) -> ModuleType:
    """The file, executed once for each text of it. What lies beside it can be imported while it runs."""
    folder = hashlib.sha256(str(Path(source.path).parent).encode()).hexdigest()
    name = f"statewise_own_{Path(source.path).stem}_{folder[:8]}_{source.sha256[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = source.path
    vars(module)["__source__"] = source
    beside = str(Path(source.path).parent)
    sys.modules[name] = module
    sys.path.append(beside)
    try:
        exec(compile(source.text, source.path, "exec"), vars(module))
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source.path]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        where = source.path if line is None else f"{source.path}, line {line}"
        raise UserError(f"{where}: {type(error).__name__}: {error}", fix="correct the file") from error
    finally:
        sys.path.remove(beside)
    return module
