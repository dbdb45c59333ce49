"""What is looked at: a trained run or a live model, and the text that it reads meanwhile."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from statewise.core import Machine
from statewise.data import open_corpus
from statewise.decoding import Sampling
from statewise.inspection.text import Decode, Reading
from statewise.models import CustomMixer
from statewise.specs import UserError
from statewise.tasks import LanguageModelRun, Run, Specimens, is_shipped, load
from statewise.tasks.language_model import fresh_window

_HELD_OUT = 20_000  # tokens of held-out text that are looked at where no text is given
_WRITTEN = 2_000  # tokens that a run without its text writes, to be looked at
_LARGEST = 1 << 26  # bytes of a text


class Subject(NamedTuple):
    """`reading` is there for language models, `specimens` for tasks that answer row by row.

    What has neither is looked at by its `run`, and by the `text` as it was given.
    """

    name: str
    task: str  # "" where a lens makes its own models
    model: nn.Module | None
    run: Run | None = None
    text: str | None = None
    reading: Reading | None = None
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
    def tokens(self) -> Reading:
        assert self.reading is not None, "lenses over tokens are for language models"
        return self.reading


NOTHING = Subject("no run", "", None)


def open_subject(
    what: "str | Path | Run | Subject",
    *,
    text: "str | Path | None" = None,
    data: "str | Path | None" = None,
    mixer: Sequence[CustomMixer] = (),
) -> Subject:
    """A run folder (or an opened run) with a text (a file, or the text itself), or with a file of the run's own format.

    Default: what was held out.
    """
    if isinstance(what, Subject):
        assert text is None, "a subject has its text already"
        assert data is None, "a subject has its data already"
        return what
    if text is not None and data is not None:
        raise UserError("both a text and data were given", fix="give one of them")
    run = what if isinstance(what, Run) else load(what, mixer=mixer)
    given = None if text is None else read_text(text)
    if not isinstance(run, LanguageModelRun):
        specimens = run.specimens(data, text=given)
        if not len(specimens):
            raise UserError(f"{specimens.source} has no rows", fix="give some")
        return Subject(str(run.path), run.spec.task, run.model, run, given, specimens=specimens, data=data)
    if data is not None:  # of tasks whose files are texts
        text, given = data, read_text(Path(data))
    reading = None
    if isinstance(run, LanguageModelRun):
        where = "the held-out text" if text is None else f"{str(text)!r}" if given != text else "the given text"
        if text is None and is_shipped(run.path):  # whose text is not here
            given, where = run.generate(tokens=_WRITTEN, sampling=Sampling(seed=0)), "a text that the model wrote"
        reading = _reading(run, given, where)
    return Subject(str(run.path), run.spec.task, run.model, run, given, reading)


def live_subject(
    model: Machine[Any],
    tokens_T: Tensor,
    *,
    name: str = "a live model",
    decode: Decode | None = None,
    end_id: int | None = None,
    window: int | None = None,
) -> Subject:
    """A model over tokens that is in memory, and what it reads."""
    if tokens_T.dim() != 1 or tokens_T.is_floating_point() or len(tokens_T) < 2:
        raise UserError(f"tokens of shape {list(tokens_T.shape)} and {tokens_T.dtype}", fix="give two or more, as [T]")
    reading = Reading(tokens_T.long(), end_id, decode, "the given tokens", window=window)
    return Subject(name, "language_model", model, reading=reading)


def read_text(text: "str | Path") -> str:
    """The content of a file, or the text itself where there is no such file."""
    if not str(text).strip():
        raise UserError("the text is empty", fix="give some text, or a file with some")
    path = Path(text) if len(str(text)) < 4096 and "\n" not in str(text) else None
    try:
        found = path is not None and path.exists()
    except (OSError, ValueError):  # no name of a file: too long, or with a NUL in it
        found = False
    if path is None or not found:
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
    # Without spaces, `他/她` is as much a text as a path: only what lies in a folder that exists is a file there.
    is_path = "/" in text and (text.isascii() or Path(text).parent.is_dir())
    return is_path or text.endswith((".txt", ".md", ".tsv", ".csv"))


def _reading(run: LanguageModelRun, text: str | None, source: str) -> Reading:
    backwards = run.spec.data.direction == "reverse"
    end_id = run.tokenizer.end_id
    if text is None:
        tokens = open_corpus(run.spec.data, tokenizer=run.tokenizer).validation.tokens[: _HELD_OUT + 1]
        tokens_T = torch.from_numpy(tokens.astype("int64"))
    else:
        ids = [int(one) for one in run.tokenizer.encode(text)]
        tokens_T = torch.tensor([end_id, *(ids[::-1] if backwards else ids)])
    if len(tokens_T) < 3:
        raise UserError(f"{source} has {len(tokens_T) - 1} tokens", fix="give a longer text")
    window = fresh_window(run.spec)
    return Reading(tokens_T, end_id, run.tokenizer.decode, source, backwards, window)
