"""Rows that are a list, or lie on disk and are read when they are asked for: one interface of both."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Self, TypeVar, final, overload

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
E = TypeVar("E")
F = TypeVar("F")


class DiskRows(Sequence[E], ABC):
    """Rows that are read when they are asked for. A slice of them, or a choice, is rows on disk again."""

    @overload
    def __getitem__(self, at: int) -> E: ...

    @overload
    def __getitem__(self, at: slice) -> Self: ...

    def __getitem__(self, at: int | slice) -> E | Self:
        if isinstance(at, slice):
            return self.chosen(np.arange(len(self))[at])
        if not -len(self) <= at < len(self):
            raise IndexError(f"row {at} of {len(self)}")
        return self._row(int(at) % len(self))

    @abstractmethod
    def chosen(self, index: Sequence[int] | Index) -> Self: ...

    @property
    @abstractmethod
    def lengths_N(self) -> Index: ...

    @abstractmethod
    def _row(self, at: int) -> E: ...


def chosen(rows: Sequence[E], index: Sequence[int] | Index) -> Sequence[E]:
    """Some of the rows: of a list a list, of rows on disk rows on disk."""
    return rows.chosen(index) if isinstance(rows, DiskRows) else [rows[i] for i in index]


def lengths_of(rows: Sequence[Any]) -> Index:
    """How long each row is, without reading it where it lies on disk."""
    return rows.lengths_N if isinstance(rows, DiskRows) else np.fromiter(map(len, rows), np.int64, len(rows))


def mapped(rows: Sequence[E], read: Callable[[E], F], lengths_N: Callable[[Index], Index]) -> Sequence[F]:
    """`read` of each row: now where rows are a list, when it is asked for where they lie on disk."""
    return Mapped(rows, read, lengths_N) if isinstance(rows, DiskRows) else [read(row) for row in rows]


@final
class Mapped(DiskRows[F], Generic[E, F]):
    """`lengths_N` gives the lengths after `read` from those before."""

    def __init__(self, rows: DiskRows[E], read: Callable[[E], F], lengths_N: Callable[[Index], Index]) -> None:
        self._rows, self._read, self._lengths = rows, read, lengths_N

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[F]:
        return map(self._read, self._rows)

    def chosen(self, index: Sequence[int] | Index) -> "Mapped[E, F]":
        return Mapped(self._rows.chosen(index), self._read, self._lengths)

    @property
    def lengths_N(self) -> Index:
        return self._lengths(self._rows.lengths_N)

    def _row(self, at: int) -> F:
        return self._read(self._rows[at])
