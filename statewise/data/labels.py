"""Class labels and their ids, from the training data only."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from statewise.data.example_columns import Names
from statewise.data.lines import Where
from statewise.specs import UserError, from_json, nearest

UNSEEN = -1  # id of a label that is not in the training data: no prediction equals it

Unseen = Literal["refuse", "wrong"]


class Encoded(NamedTuple):
    """Ids, and the counts of labels that are not in the training data."""

    ids_N: NDArray[np.int64]
    unseen: Counter[str]


@final
class Labels:
    """Sorted by name (whole numbers by value), with their training counts."""

    def __init__(self, names: Sequence[str], counts: Sequence[int]) -> None:
        assert len(names) == len(counts) == len(set(names)) > 0
        self.names, self.counts = tuple(names), tuple(counts)
        self._ids = {name: i for i, name in enumerate(self.names)}

    @classmethod
    def of(cls, labels: Iterable[str]) -> "Labels":
        """From the labels of all training examples."""
        counts = labels.counts if isinstance(labels, Names) else Counter(labels)
        if not counts:
            raise UserError("there are no labels to learn", fix="give at least one labelled example")
        names = sorted(counts, key=_by_value if all(_is_whole(name) for name in counts) else str)
        return cls(tuple(names), tuple(counts[name] for name in names))

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: str, *, default: int = UNSEEN) -> int:
        return self._ids.get(name, default)

    def encode(
        self, names: Sequence[str], *, where: Sequence[Where] | None = None, unseen: Unseen = "refuse"
    ) -> Encoded:
        """Ids of labels. An unseen label raises an error with its line, or becomes `UNSEEN`, which is always wrong."""
        if isinstance(names, Names):  # each kind of them once
            ids_N = np.array([self.find(name) for name in names.names], dtype=np.int64)[names.kind_N]
            missing = Counter(names.chosen(np.flatnonzero(ids_N == UNSEEN)))
        else:
            ids_N = np.array([self._ids.get(name, UNSEEN) for name in names], dtype=np.int64)
            missing = Counter(name for name in names if name not in self._ids)
        if missing and unseen == "refuse":
            first = int(np.flatnonzero(ids_N == UNSEEN)[0])
            place = f"{where[first]}: " if where is not None else ""
            raise UserError(
                f"{place}label {names[first]!r} is not among those learned",
                fix=f"{self._known(names[first])}; or set unseen = wrong to count such examples as errors",
            )
        return Encoded(ids_N, missing)

    def refuse_all_new(self, names: Sequence[str], *, where: Where) -> None:
        """Refuse held-out examples none of whose labels is in the training data: no metric would mean anything."""
        if names and not any(name in self._ids for name in names):
            new = ", ".join(map(repr, sorted(set(names))[:5]))
            raise UserError(
                f"{where}: of the labels held out ({new}) none is among those learned",
                fix=f"{self._known(names[0])}; check that both files write them alike",
            )

    def _known(self, name: str) -> str:
        return nearest(name, self.names) if len(self) <= 40 else f"{len(self)} labels are known"

    def decode(self, ids: Iterable[int]) -> list[str]:
        return [self.names[i] for i in ids]

    def weights(self) -> NDArray[np.float64]:
        """Class weights for a balanced loss: inverse to frequency, 1 on average."""
        counts_C = np.array(self.counts, dtype=np.float64)
        weights_C: NDArray[np.float64] = counts_C.sum() / (len(counts_C) * counts_C)
        return weights_C

    def to_json(self) -> str:
        return json.dumps({"labels": dict(zip(self.names, self.counts))}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Labels":
        try:
            table = from_json(text)["labels"]
            names, counts = tuple(map(str, table)), tuple(int(count) for count in table.values())
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            raise UserError("these are not the labels of a run", fix="the file is damaged: copy it again") from None
        if not names:
            raise UserError("the labels of this run are empty", fix="the file is damaged: copy it again")
        return cls(names, counts)


def _is_whole(name: str) -> bool:
    return len(name) <= 18 and name.isascii() and name.removeprefix("-").isdecimal()


def _by_value(name: str) -> tuple[int, str]:
    return int(name), name
