"""A run folder as it lies on the disk: where it is, its spec, its weights, and whether they fit each other."""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from statewise.layers import read_later
from statewise.models import on_meta
from statewise.specs import AnyRunSpec, OwnMixer, UserError, custom_tables, parse_spec, read_small, read_toml
from statewise.tasks.environment import found_again
from statewise.training import advice_for_newer, load_weights, model_tensors, vouched_for

NEEDS = ("run.toml", "model.safetensors")
# Runs that come with the package, without the text that they learned from. They are checked like any other run.
_SHIPPED = Path(__file__).parents[1] / "trained"
_BUILT_ONE_BY_ONE = ("depth", "input_depth", "transition_depth", "output_depth", "heads", "hops", "arity")
M = TypeVar("M", bound=nn.Module)


def shipped_names() -> list[str]:
    return sorted(path.parent.name for path in _SHIPPED.glob("*/run.toml"))


def is_run(path: Path) -> bool:
    """Whether a folder holds a run, or was meant to."""
    return (path / "run.toml").exists() or (path / "checkpoints").exists()


def find_run(run: str | Path) -> Path:
    """The folder of a run: `run` itself, or the shipped run of that name where no run is there."""
    path = Path(run)
    return _SHIPPED / path.name if not is_run(path) and str(run) in shipped_names() else path


def is_shipped(folder: Path) -> bool:
    return folder.parent == _SHIPPED


def judged_weights(verified: Path) -> Path:
    """The file of the weights that were evaluated: of a checkpoint, their average where there is one."""
    averaged = vouched_for(verified, "average.safetensors")
    return verified / ("average.safetensors" if averaged else "model.safetensors")


class Opened(NamedTuple):
    """A verified folder that a run is opened from."""

    path: Path  # as it was named
    verified: Path  # itself, or a checkpoint in it
    skipped: list[str]
    device: torch.device

    @property
    def weights(self) -> Path:
        return judged_weights(self.verified)

    def text(self, name: str) -> str:
        """A text file of the folder."""
        try:
            return read_small(self.verified / name)
        except (OSError, ValueError) as error:
            raise UserError(f"{str(self.verified / name)!r} cannot be read: {error}") from None

    def model(self, build: Callable[[], M]) -> M:
        """`build`'s model with the folder's weights. Before memory is taken, the file must fit what run.toml says."""
        refuse_other_size(build, self.verified)
        with read_later():
            model = build()
        load_weights(model, self.weights)
        return model.to(self.device).eval()


def read_spec(folder: Path, *, mixers: Sequence[OwnMixer] = ()) -> AnyRunSpec:
    """Of a run, or of one of its checkpoints. Relative names of files are those of the run's own folder.

    A run with a user's class needs that class (`mixers`): a run folder never brings code with it.
    """
    path = folder / "run.toml"
    try:
        table = read_toml(path)
    except (ValueError, RecursionError) as error:  # ValueError: not TOML, not UTF-8, or a number without end
        raise UserError(f"{str(path)!r} is not valid TOML: {error}") from None
    _keep_older_meaning(table)
    recorded = {custom_table.get("mixer"): custom_table.get("sha256") for custom_table in custom_tables(table)}
    home = folder.parents[1] if folder.parent.name == "checkpoints" else folder
    try:
        spec = parse_spec(table, source=str(folder if recorded else path), mixers=mixers).absolute(home)
    except UserError as error:
        raise UserError(error.marked[0], fix=advice_for_newer(folder) or error.marked[1]) from None
    spec = found_again(spec, home)
    for own in mixers:
        if own.sha256 and recorded.get(own.name, own.sha256) not in ("", own.sha256):
            warnings.warn(f"the source of {own.name} has changed since the run was trained", stacklevel=2)
    weights = folder / "model.safetensors"
    if weights.is_file():  # not yet, where a kill came between the two
        _refuse_other_counts(spec, weights)
    return spec


def _keep_older_meaning(table: dict[str, Any]) -> None:
    """`run.toml` has every default: what is missing is younger than the run, which was trained without it."""
    model = table.get("model")
    attention = model.get("attention") if isinstance(model, dict) else None
    if isinstance(attention, dict):
        attention.setdefault("query", "state")


def _refuse_other_counts(spec: AnyRunSpec, weights: Path) -> None:
    """Building very many layers or heads would itself take time and memory, whatever their size."""
    size = weights.stat().st_size
    for name, count in _counts(spec.model.model_dump()):
        if name in _BUILT_ONE_BY_ONE and count > size // 8:
            raise UserError(
                f"{str(weights.parent)!r}: run.toml has {name} = {count:,}, but the weights have only {size:,} bytes"
            )


def _counts(table: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _counts(value)
        elif isinstance(value, int):
            yield name, value


def refuse_other_size(build: Callable[[], nn.Module], folder: Path) -> None:
    """A model without memory has the shapes of the real one: the weights file must hold exactly these."""
    with on_meta():
        described = {name: list(value.shape) for name, value in model_tensors(build()).items()}
    try:
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            stored = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{str(folder / 'model.safetensors')!r} cannot be read: {error}") from None
    if described != stored:
        name = next(name for name in {**described, **stored} if described.get(name) != stored.get(name))
        older = "if an older statewise trained it, this model has other weights now: train again, or use that version"
        raise UserError(
            f"{str(folder)!r}: run.toml describes a model with {name} of shape {described.get(name, 'none')}, "
            f"model.safetensors holds {stored.get(name, 'none')}",
            fix=older if described.keys() != stored.keys() else "",
        )


def fingerprint(*columns: Iterable[str]) -> str:
    """sha256 of columns of text; what stands between two cells cannot be confused with what is in them."""
    digest = hashlib.sha256()
    for column in columns:
        for cell in column:
            data = cell.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(data))
            digest.update(data)
        digest.update(b"\n")
    return digest.hexdigest()


def refuse_other_data(kept: Path, found: str) -> None:
    """`kept` is a checkpoint whose `data.sha256` holds the fingerprint of its training data."""
    try:
        before = (kept / "data.sha256").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        before = ""
    if before != found:
        raise UserError("these are not the data that this run began with", fix="put them back, or train again")
