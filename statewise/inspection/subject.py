"""What is inspected: a trained run or a model in memory, and what it reads."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from statewise.core import Machine
from statewise.models import CustomMixer
from statewise.specs import UserError
from statewise.tasks import LanguageModelRun, Run, Specimens, TextSpecimens, load

_LARGEST = 1 << 26  # bytes of a text


class Subject(NamedTuple):
    """A model and the rows that it reads; of a language model they are windows of a text."""

    name: str
    task: str  # "" where a lens makes its own models
    model: nn.Module | None
    run: Run | None = None
    text: str | None = None  # as it was given
    specimens: Specimens | None = None
    data: str | Path | None = None  # as it was given

    @property
    def machine(self) -> Machine[Any]:
        """The model, of a task whose model is a machine."""
        assert isinstance(self.model, Machine)
        return self.model

    @property
    def mixers(self) -> tuple[CustomMixer, ...]:
        """The user's own classes that its run was opened with: another run may need them too."""
        return () if self.run is None else self.run.mixers

    @property
    def text_rows(self) -> TextSpecimens:
        assert isinstance(self.specimens, TextSpecimens), "lenses over tokens are for language models"
        return self.specimens


NOTHING = Subject("no run", "", None)


def open_subject(
    what: "str | Path | Run | Subject",
    *,
    text: "str | Path | None" = None,
    data: "str | Path | None" = None,
    mixer: Sequence[CustomMixer] = (),
) -> Subject:
    """A run folder (or an opened run) with a text (itself or its file) or a data file; default: held-out data."""
    if isinstance(what, Subject):
        assert text is None, "a subject has its text already"
        assert data is None, "a subject has its data already"
        return what
    if text is not None and data is not None:
        raise UserError("both a text and data were given", fix="give one of them")
    run = what if isinstance(what, Run) else load(what, mixer=mixer)
    given = None if text is None else read_text(text)
    specimens: Specimens
    if isinstance(run, LanguageModelRun):
        if data is not None:  # its files are texts
            text, given, data = data, read_text(Path(data)), None
        specimens = run.specimens(text=given)
        if text is not None and given != text:
            specimens.source = f"{str(text)!r}"
    else:
        specimens = run.specimens(data, text=given)
        if not len(specimens):
            raise UserError(f"{specimens.source} has no rows", fix="give some")
    return Subject(str(run.path), run.spec.task, run.model, run, given, specimens, data)


def live_subject(
    model: Machine[Any],
    tokens_T: Tensor,
    *,
    name: str = "a live model",
    decode: Callable[[Sequence[int]], str] | None = None,
    end_id: int | None = None,
    window: int | None = None,
) -> Subject:
    """A model over tokens that is in memory, and what it reads."""
    if tokens_T.dim() != 1 or tokens_T.is_floating_point() or len(tokens_T) < 2:
        raise UserError(f"tokens of shape {list(tokens_T.shape)} and {tokens_T.dtype}", fix="give two or more, as [T]")
    rows = TextSpecimens(model, tokens_T.long(), end_id=end_id, decode=decode, source="the given tokens", window=window)
    return Subject(name, "language_model", model, specimens=rows)


def read_text(text: "str | Path") -> str:
    """The content of a file, or the text itself where there is no such file."""
    if not str(text).strip():
        raise UserError("the text is empty", fix="give some text, or a file with some")
    path = Path(text) if len(str(text)) < 4096 and "\n" not in str(text) else None
    try:
        exists = path is not None and path.exists()
    except (OSError, ValueError):  # not a file name: too long, or with a NUL in it
        exists = False
    if path is None or not exists:
        if isinstance(text, Path) or _looks_like_a_file(text):
            raise UserError(f"there is no file {str(text)!r}", fix="name a file that exists, or give the text itself")
        return text
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder", fix="name a text file")
    size = path.stat().st_size
    if size > _LARGEST:
        raise UserError(f"{str(path)!r} has {size:,} bytes", fix=f"give at most {_LARGEST:,}")
    try:
        content = path.read_text(encoding="utf-8").removeprefix("\ufeff")  # as training reads its files
    except UnicodeDecodeError as error:
        raise UserError(f"{str(path)!r} is not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from None
    if not content.strip():
        raise UserError(f"{str(path)!r} is empty", fix="give a file with some text")
    return content


def _looks_like_a_file(text: str) -> bool:
    if " " in text or "\n" in text:
        return False
    # Without spaces, `他/她` may be a text or a path: it is a path if its folder exists.
    is_path = "/" in text and (text.isascii() or Path(text).parent.is_dir())
    return is_path or text.endswith((".txt", ".md", ".tsv", ".csv"))
