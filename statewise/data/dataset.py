"""A Hugging Face dataset: how it is named (`hub:NAME:SPLIT`), opened, and read a few rows at a time."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from statewise.specs import UserError, nearest, optional

HUB = "hub:"
NEEDED_BY = "Hugging Face datasets, Parquet and Arrow files"
_ENDINGS = (".parquet", ".arrow", ".feather")


def is_columnar(path: str | Path) -> bool:
    """Whether a path ends as that of a Parquet, Arrow or Feather file."""
    return str(path).lower().endswith(_ENDINGS)


class HubName(NamedTuple):
    """`hub:NAME`, `hub:NAME:SPLIT` or `hub:NAME:CONFIG:SPLIT`; a name may be a folder."""

    name: str
    config: str | None
    split: str

    def __str__(self) -> str:
        return ":".join(["hub", *(part for part in self if part is not None)])


def hub_name(path: str | Path) -> HubName | None:
    """The dataset that a path names (a Parquet or Arrow file is one), or None if it is an ordinary path."""
    text = str(path)
    if is_columnar(text) and not text.startswith(HUB):
        return HubName(text, None, "train")
    if not text.startswith(HUB):
        return None
    match text.removeprefix(HUB).split(":"):
        case [str(name)] if name:
            return HubName(name, None, "train")
        case [str(name), str(split)] if name and split:
            return HubName(name, None, split)
        case [str(name), str(config), str(split)] if name and config and split:
            return HubName(name, config, split)
    raise UserError(f"{text!r} names no dataset", fix="write hub:NAME, hub:NAME:SPLIT or hub:NAME:CONFIG:SPLIT")


def open_dataset(
    name_or_path: str | Path,
    *,
    split: str = "train",
    config: str | None = None,
    data_files: Mapping[str, str] | Sequence[str] | str | None = None,
) -> Any:
    """One saved by `save_to_disk`, a folder, `csv`/`json`/`text` with `data_files`, or a name."""
    datasets = optional("datasets", extra="hub", needed_by=NEEDED_BY)
    try:
        saved = any(Path(name_or_path, name).exists() for name in ("dataset_info.json", "dataset_dict.json"))
        if saved and data_files is None:
            dataset = datasets.load_from_disk(str(name_or_path))
        else:
            dataset = datasets.load_dataset(str(name_or_path), config, data_files=data_files)
    except Exception as error:  # the library passes on the errors of its many backends
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            f"the dataset {str(name_or_path)!r} cannot be loaded: {reason[0]}",
            fix="name a folder, a dataset of the hub, or csv, json or text files",
        ) from None
    if isinstance(dataset, dict):
        if split not in dataset:
            raise UserError(f"the dataset {str(name_or_path)!r} has no split {split!r}", fix=nearest(split, dataset))
        dataset = dataset[split]
    return dataset


def batches(dataset: Any, column: str | None, *, size: int) -> Iterator[Any]:
    """Tables of so many rows, in the order of the dataset: of one column, or of all (None)."""
    chosen = dataset if column is None else dataset.select_columns(column)
    return iter(chosen.with_format("arrow").iter(batch_size=size))
