"""Examples on disk: columns of texts, of ids and of numbers in shards, each checked when it is first touched.

A folder holds `source-00000.values`, `source-00001.values` and so on for each of its columns; where rows are of unequal
length, `source.ends-…` says where each of them ends; besides, the vocabularies that ids were made by, and
`examples.json`, which is written last. What a list of texts or of arrays can do, rows on disk can do too.

N rows, V values of all rows together.
"""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, final

from pydantic import Field

from statewise.data.disk_rows import Index
from statewise.data.example_columns import Ids, Names, Places, Texts
from statewise.data.file import EXAMPLES
from statewise.data.shards import REBUILD, Sealed, Sha256, ShardedArray, Strict, damaged, read_checked, refuse_other
from statewise.specs import UserError, option

F = TypeVar("F")

_MOST = 1 << 50  # numbers of a column

Name = Annotated[str, Field(pattern=r"^[a-z]+(_[a-z]+)*(\.ends)?$")]
FileName = Annotated[str, Field(pattern=r"^[a-z]+\.json$")]


class ColumnIndex(Strict):
    """So many numbers, in shards of `shard` of them."""

    dtype: Literal["|u1", "<u2", "<u4", "<i8"]
    size: int = Field(ge=0, le=_MOST)
    shard: int = Field(ge=1, le=1 << 32)
    shards: list[Sha256]


class ExampleIndex(Sealed):
    """What a folder holds. `made` is how: the settings that decided what the examples are."""

    version: Literal[1]
    task: str
    made: dict[str, Any]
    facts: dict[str, Any]
    columns: dict[Name, ColumnIndex]
    files: dict[FileName, Sha256]


def value_file(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}-{number:05d}.values"


def read_example_index(folder: Path) -> ExampleIndex:
    """The index, if it is whole."""
    index = read_checked(folder / EXAMPLES, ExampleIndex, of="examples")
    for name, column in index.columns.items():
        if len(column.shards) != -(-column.size // column.shard):
            raise damaged(
                folder / EXAMPLES, f"it lists {len(column.shards)} shards for {column.size} numbers of {name}"
            )
    return index


@final
class ExampleFolder:
    """Columns by name. Sizes of files are checked now, what is in them when it is first read."""

    def __init__(self, folder: Path, index: ExampleIndex) -> None:
        self.path, self.index = folder, index

    def numbers(self, name: str, *, below: int | None = None) -> ShardedArray:
        """A column of numbers; with `below`, a shard that holds a larger one is refused."""
        column = self.index.columns.get(name)
        if column is None:
            raise UserError(f"{str(self.path)!r} has no column {name!r}", fix=REBUILD)
        return ShardedArray(
            partial(value_file, self.path, name),
            dtype=column.dtype,
            size=column.size,
            shard_size=column.shard,
            sha256s=column.shards,
            below=below,
        )

    def texts(self, name: str) -> Texts:
        return Texts(self.numbers(name), self.numbers(f"{name}.ends"))

    def ids(self, name: str, *, below: int) -> Ids:
        return Ids(self.numbers(name, below=below), self.numbers(f"{name}.ends"))

    def names(self, name: str) -> Names:
        """A column of numbers that stand for the texts of another."""
        names = list(self.texts(f"{name}_names"))
        return Names(names, self.numbers(name, below=len(names))[:])

    def places(self) -> Places:
        files = self.texts("files")
        return Places(files, self.numbers("file", below=len(files)), self.numbers("line"))

    def part(self, name: Literal["train", "validation"]) -> Index:
        """Which rows are in a part, in the order of the files."""
        rows_N: Index = self.numbers(f"{name}_rows", below=self.fact("rows", int))[:]
        if not len(rows_N):
            raise UserError(f"{str(self.path)!r} holds no examples for {name}", fix=REBUILD)
        return rows_N

    def fact(self, name: str, kind: type[F]) -> F:
        found = self.index.facts.get(name)
        if not isinstance(found, kind):
            raise UserError(f"{str(self.path / EXAMPLES)!r} does not say {name!r}", fix=REBUILD)
        return found

    def check_files(self) -> None:
        """The vocabularies must be those that ids were made by."""
        for name, sha256 in self.index.files.items():
            refuse_other(self.path / name, sha256)


def index_for(folder: Path, task: str) -> ExampleIndex:
    """The index of a folder of examples for this task."""
    index = read_example_index(folder)
    if index.task != task:
        raise UserError(
            f"{str(folder)!r} holds examples for the task {index.task}, and {task} is trained",
            fix=f"build another folder: {option('for', task)}",
        )
    return index


def open_examples(folder: Path, task: str) -> ExampleFolder:
    opened = ExampleFolder(folder, index_for(folder, task))
    opened.check_files()
    return opened
