"""Write tokens in shards: by several processes, and after an interruption from the last finished shard."""

import hashlib
import json
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from statewise.data.preparation import Prepared, Sources, measured, open_sources, prepared
from statewise.data.shards import (
    INDEX,
    REBUILD,
    SHARD_TOKENS,
    Folder,
    Index,
    PartIndex,
    PartName,
    is_sharded,
    open_shards,
    read_index,
    shard_file,
    write_index,
)
from statewise.data.source import Source
from statewise.data.token_stream import Begun, Block, Progress, reported, token_dtype, token_stream
from statewise.data.tokenizer import Tokenizer
from statewise.disk import LOCK, TEMPORARY, locked, make_folder, write
from statewise.specs import TOKENIZERS, DataSpec, Note, UserError, from_json, option, read_small, setting

_JOURNAL = "unfinished.json"
_TOKENIZER = "tokenizer.json"
_LARGEST_JOURNAL = 1 << 26
_CHUNK = 1 << 20
_NOT_TOKENS = {"order", "evaluate_state", "begin"}  # what was built and what is trained may differ in these
_READS_ALIKE = ("separator", "text_column", "direction")  # how a text is read


class Written(BaseModel):
    """The finished shards of a part, and what came before the block that was not yet wholly in them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    shards: list[str] = []
    blocks: int = 0
    open: bool = False
    tokens: int = 0
    bytes: int = 0
    unknown: int = 0


class _Journal(BaseModel):
    """How far a build is; `key` stands for all that decides the tokens."""

    model_config = ConfigDict(extra="forbid", strict=True)

    key: str
    total: int
    train: Written = Written()
    validation: Written = Written()

    def save(self, folder: Path) -> None:
        content = self.model_dump_json()
        write(folder / _JOURNAL, json.dumps({"journal": content, "sha256": _sha256(content)}))

    @classmethod
    def load(cls, folder: Path) -> "_Journal":
        """OSError or ValueError, if it is missing or damaged."""
        try:
            table = from_json(read_small(folder / _JOURNAL, largest=_LARGEST_JOURNAL))
            content = table["journal"]
            if table["sha256"] != _sha256(content):
                raise ValueError("its sha256 is another")
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(str(error)) from None
        return cls.model_validate_json(content)


def build_shards(
    spec: DataSpec,
    folder: Path,
    *,
    workers: int = 1,
    shard_tokens: int = SHARD_TOKENS,
    progress: Progress | None = None,
) -> Folder:
    """Tokenise the text of `spec` into a folder that `data.text` may name. A finished folder is left as it is.

    After an interruption the same call goes on from the last finished shard.
    """
    sources = open_sources(spec, tokenizer=None, spool=None)
    key = f"{sources.key(_stamp)}-{shard_tokens}"
    make_folder(folder)
    with locked(folder):
        _refuse_others(folder, key)
        if is_sharded(folder):
            (folder / _JOURNAL).unlink(missing_ok=True)  # a kill may have come just before
            return open_shards(folder)
        for leftover in folder.glob(f"{TEMPORARY}*") if (folder / _TOKENIZER).exists() else ():  # of a killed build
            leftover.unlink(missing_ok=True)
        try:
            journal, made_of = _begun(sources, folder, key, progress)
            if spec.direction == "reverse":  # whose blocks do not end where pieces do: it begins again
                journal = _Journal(key=key, total=journal.total)
            write_shards(
                made_of, folder, key=key, journal=journal, workers=workers, shard_tokens=shard_tokens, progress=progress
            )
        except (OSError, KeyboardInterrupt) as error:
            error.add_note(Note("finished shards are kept: the same command goes on from there"))
            raise
        (folder / _JOURNAL).unlink(missing_ok=True)
    return open_shards(folder)


def _sha256(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def _stamp(source: Source) -> Any:
    """A source by its files' names, sizes and times: a fingerprint would read all of them."""
    stats = [origin.path.stat() if isinstance(origin.path, Path) else None for origin in source.origins]
    times = [None if stat is None else [stat.st_size, stat.st_mtime_ns] for stat in stats]
    return [[str(origin.path), origin.size, str(origin.column), time] for origin, time in zip(source.origins, times)]


def _refuse_others(folder: Path, key: str) -> None:
    """A folder with other files, or with tokens of something else, is nobody's to write to."""
    names = {path.name for path in folder.iterdir() if not path.name.startswith(TEMPORARY)} - {LOCK}
    if INDEX in names:
        if read_index(folder).made.get("key") != key:
            raise UserError(
                f"{str(folder)!r} holds tokens of another text, or made with other settings",
                fix=f"name another folder: {option('out', 'FOLDER')}",
            )
    elif names and _JOURNAL not in names and not names <= {_TOKENIZER}:
        raise UserError(
            f"{str(folder)!r} holds other files: {', '.join(sorted(names)[:3])}",
            fix=f"name an empty folder: {option('out', 'FOLDER')}",
        )


def _begun(sources: Sources, folder: Path, key: str, progress: Progress | None) -> tuple[_Journal, Prepared]:
    """How far an earlier build came; a new one has read the text and learned the tokenizer."""
    try:
        journal = _Journal.load(folder)
        tokenizer = Tokenizer.load(folder / _TOKENIZER)
    except (OSError, ValueError):  # nothing was begun, or what was is damaged
        journal = None
    if journal is None:
        total = sources.text.size if sources.held else measured(sources, progress).bytes
        made_of = prepared(sources, total, progress)
        made_of.tokenizer.save(folder / _TOKENIZER)
        journal = _Journal(key=key, total=total)
        journal.save(folder)  # before the first shard, which would be a foreign file without it
        return journal, made_of
    if journal.key != key:
        raise UserError(
            f"{str(folder)!r} holds an unfinished build of another text, or with other settings",
            fix=f"remove it, or name another folder: {option('out', 'FOLDER')}",
        )
    return journal, prepared(sources._replace(tokenizer=tokenizer), journal.total, progress)


def write_shards(
    made_of: Prepared,
    folder: Path,
    *,
    key: str = "",
    journal: _Journal | None = None,
    workers: int = 1,
    shard_tokens: int = SHARD_TOKENS,
    progress: Progress | None = None,
) -> None:
    """Both parts and their index, which is written last. With a `journal`, from where it says, and it is kept."""
    spec, tokenizer = made_of.sources.spec, made_of.tokenizer
    made: dict[PartName, PartIndex] = {}
    parts: tuple[PartName, ...] = ("train", "validation")
    for part in parts:
        writer = _Writer(folder, part, tokenizer, shard_tokens, getattr(journal, part) if journal else Written())
        blocks = token_stream(
            made_of.pieces(part), tokenizer, direction=spec.direction, workers=workers, begun=writer.begun
        )
        done = writer.written.bytes
        with closing(blocks):
            for block in reported(blocks, f"tokenising {part}", made_of.size(part), progress, done=done):
                if writer.add(block) and journal is not None:
                    journal = journal.model_copy(update={part: writer.written})
                    journal.save(folder)
        made[part] = writer.close()
        made_of.refuse_tiny(part, made[part].tokens, made[part].bytes)
    made_of.refuse_changed(made["train"].bytes, made["validation"].bytes)
    write(folder / _TOKENIZER, tokenizer.to_json())
    index = Index(
        version=1,
        name=made_of.sources.text.name,
        dtype="<u2" if token_dtype(tokenizer).itemsize == 2 else "<u4",
        shard_tokens=shard_tokens,
        tokenizer=tokenizer.sha256,
        made={"key": key, **spec.model_dump(mode="json", exclude=_NOT_TOKENS)},
        train=made["train"],
        validation=made["validation"],
    )
    write_index(folder, index)


def checked_folder(spec: DataSpec, tokenizer: Tokenizer | None) -> tuple[Path, Folder, Tokenizer]:
    """The folder of shards that `spec` names, if it was made as `spec` says and by the tokenizer (if one is given)."""
    folder = Path(spec.text[0]) if spec.text else Path(spec.validation[0])
    if len(spec.text) != 1 or not is_sharded(folder):
        raise UserError(
            f"{', '.join((*spec.text, *spec.validation))!r}: a folder of tokens is trained on alone",
            fix="build one folder of all of these: statewise data build",
        )
    shards = open_shards(folder)
    made = shards.index.made
    kept = Tokenizer.load(folder / _TOKENIZER)
    if kept.sha256 != shards.index.tokenizer:
        raise UserError(
            f"{str(folder / _TOKENIZER)!r} is not the tokenizer that the tokens were made by",
            fix="copy the folder again, or build it again",
        )
    if tokenizer is None and spec.tokenizer not in TOKENIZERS:
        tokenizer = Tokenizer.load(Path(spec.tokenizer))
    if tokenizer is not None and tokenizer.sha256 != kept.sha256:
        raise UserError(
            f"{str(folder)!r} was made by another tokenizer: a vocabulary of {kept.vocab}, expected {tokenizer.vocab}",
            fix=f"build it with this one: {setting('data.tokenizer', 'FILE')}",
        )
    for name, field in type(spec).model_fields.items():
        value = spec.model_dump(mode="json")[name]
        differs = name in made and name not in ("text", "tokenizer") and value not in (made[name], field.default)
        if differs:
            raise UserError(
                f"data.{name} is {value!r}, and {str(folder)!r} was built with {made[name]!r}",
                fix=f"leave it out, or build another folder with {setting(f'data.{name}', value)}",
            )
    return folder, shards, kept


def as_built(spec: DataSpec) -> DataSpec:
    """With the settings of the folder of shards that `spec` names, if it does: other texts are to be read like its own.

    Those that `spec` sets itself stay, for `checked_folder` to compare.
    """
    if len(spec.text) != 1 or not is_sharded(folder := Path(spec.text[0])):
        return spec
    made = read_index(folder).made
    fields = type(spec).model_fields
    left_out = [name for name in _READS_ALIKE if name in made and getattr(spec, name) == fields[name].default]
    try:
        return type(spec).model_validate({**spec.model_dump(), **{name: made[name] for name in left_out}})
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UserError(f"{str(folder / INDEX)!r} is no index of tokens: {reason}", fix=REBUILD) from None


class _Writer:
    """The shards of one part: those of `written` that are whole are kept, and `written` follows what is finished."""

    def __init__(self, folder: Path, part: PartName, tokenizer: Tokenizer, shard_tokens: int, written: Written) -> None:
        self._folder, self._part, self._end_id = folder, part, tokenizer.end_id
        self._shard: NDArray[np.unsignedinteger] = np.empty(shard_tokens, token_dtype(tokenizer))
        self._filled = 0
        self._counts_V = np.zeros(tokenizer.vocab, np.int64)
        self.written = written if all(map(self._is_kept, count(), written.shards)) else Written()
        if not self.written.shards:
            self._counts_V[:] = 0
        self._now = self.written.model_copy()  # what came before the next block
        self._skip = len(self._now.shards) * shard_tokens - self._now.tokens  # of it, in finished shards

    @property
    def begun(self) -> Begun:
        return Begun(self._now.blocks, self._now.open)

    def add(self, block: Block) -> bool:
        """Whether a shard was finished."""
        now, left = self._now, block.tokens[self._skip :]
        shards = list(now.shards)
        while len(left):
            fits = left[: len(self._shard) - self._filled]
            self._shard[self._filled : self._filled + len(fits)] = fits
            self._filled, left = self._filled + len(fits), left[len(fits) :]
            if self._filled == len(self._shard):
                shards.append(self._finish(len(shards)))
        finished = len(shards) > len(now.shards)
        if finished:
            self.written = now.model_copy(update={"shards": shards})
        self._skip = 0
        self._now = Written(
            shards=shards,
            blocks=now.blocks + 1,
            open=block.open,
            tokens=now.tokens + len(block.tokens),
            bytes=now.bytes + block.bytes,
            unknown=now.unknown + block.unknown,
        )
        return finished

    def close(self) -> PartIndex:
        """Write the last shard and the counts."""
        now = self._now
        shards = [*now.shards, self._finish(len(now.shards))] if self._filled else now.shards
        self._counts_V[self._end_id] -= 1  # the first end is read, and never a target
        counts = self._counts_V.astype("<i8").tobytes()
        write(self._folder / f"{self._part}.counts", counts)
        return PartIndex(
            tokens=now.tokens,
            bytes=now.bytes,
            unknown=now.unknown,
            shards=shards,
            counts=hashlib.sha256(counts).hexdigest(),
        )

    def _finish(self, number: int) -> str:
        content = self._shard[: self._filled]
        write(shard_file(self._folder, self._part, number), content.tobytes())
        self._filled = 0
        return self._counted(content)

    def _counted(self, tokens: NDArray[np.unsignedinteger]) -> str:
        """The sha256 of a shard, whose tokens are counted too."""
        for start in range(0, len(tokens), _CHUNK):  # `bincount` converts its input to int64
            self._counts_V += np.bincount(tokens[start : start + _CHUNK], minlength=len(self._counts_V))
        return hashlib.sha256(tokens.data).hexdigest()

    def _is_kept(self, number: int, sha256: str) -> bool:
        try:
            tokens = np.fromfile(shard_file(self._folder, self._part, number), self._shard.dtype)
        except OSError:
            return False
        fits = len(tokens) == len(self._shard) and int(tokens.max()) < len(self._counts_V)
        return fits and self._counted(tokens) == sha256
