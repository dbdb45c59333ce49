"""The run folder: what is published at its top, and the checkpoints below.

run.toml  tokenizer.json  model.safetensors (the best so far)  manifest.json
metrics.jsonl  timing.jsonl  environment.json  events.out.tfevents.*
checkpoints/step-N/  the same, plus optimiser, carried state and progress: enough to resume exactly
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from statewise.core import State, load_state, save_state
from statewise.disk import LOCK, TEMPORARY, is_plain, make_folder, refuse_links, sync, was_locked
from statewise.specs import UserError, either, from_json, option, read_small
from statewise.training.checkpoint import (
    Payload,
    files_of,
    flaw,
    part_name,
    read_parts,
    read_tensors,
    remove,
    write_files,
    write_folder,
    write_tensors,
)
from statewise.training.parallel import Kept, Parallel

_STEP = re.compile(r"step-(\d{1,12})~?")  # with ~: the one before, of the same step
# What a run writes before its first checkpoint; the lock stays if it was killed.
_EARLY = re.compile(r"environment\.json|(metrics|timing)\.jsonl|events\.out\.tfevents\..*|stdin\.txt|\.tmp-.*|\.lock")
# What it may have begun to write before that.
_BEGUN = re.compile(
    r"run\.toml|data\.(csv|jsonl|npz|txt)|(model|unigram)\.safetensors"
    r"|(manifest|tokenizer|labels|lengths|frequent|roots|series|lexicon)\.json"
)
_PUBLISHED = ("run.toml", "model.safetensors")
_OPTIMIZER = "optimizer.safetensors"
_CHECKPOINT_FILES = ("model.safetensors", _OPTIMIZER, "carried.safetensors", "progress.json")


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and saved buffer once, under its first name (tied ones have two)."""
    kept = model.state_dict(keep_vars=True)
    first = {id(value): name for name, value in reversed(kept.items())}
    return {name: kept[name] for name in kept if first[id(kept[name])] == name}


@torch.no_grad()
def load_weights(model: nn.Module, path: Path, kept: Kept | None = None) -> None:
    """`kept`: which rows of a divided model to read."""
    own, kept = model_tensors(model), kept or Kept()
    for name, value in read_tensors(path, like=own, rows_of=kept.rows_of).items():
        kept.local(own[name]).copy_(value)


def weights_sha256(model: nn.Module) -> str:
    """One hash of all weights: equal runs have equal hashes."""
    return tensors_sha256(sorted(model_tensors(model).items()))


def tensors_sha256(tensors: Iterable[tuple[str, Tensor]]) -> str:
    digest = hashlib.sha256()
    for name, value in tensors:
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


Rows: TypeAlias = Callable[[int], slice | None]


class Checkpoint(NamedTuple):
    path: Path
    step: int
    progress: dict[str, Any]

    def optimizer(self, some: Rows = lambda count: None) -> dict[str, Tensor]:
        """`some`: which of `count` rows to read."""
        return read_parts(files_of(self.path, _OPTIMIZER), some=some)

    def average(self, some: Rows = lambda count: None) -> dict[str, Tensor]:
        files = files_of(self.path, "average.safetensors")
        return read_parts(files, some=some) if files else {}

    def carried(self, like: Any) -> Any:
        return load_state(self.path / "carried.safetensors", like=like)


class RunFolder:
    """`identity` is what a folder needs besides weights: the spec, the tokenizer, the task's own files."""

    def __init__(self, path: str | Path, *, identity: Mapping[str, Payload]) -> None:
        self.path = Path(path)
        self.identity = dict(identity)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def publish(self, weights: Mapping[str, Tensor]) -> None:
        """Write weights to the top folder, where `evaluate`, `generate` and other programs look."""
        make_folder(self.path)
        write_files(self.path, {**self.identity, "model.safetensors": weights})

    def publish_once(self, weights: Mapping[str, Tensor]) -> None:
        """Unless the top folder holds exactly these weights."""
        if flaw(self.path, needs=_PUBLISHED) is None:
            held = read_tensors(self.path / _PUBLISHED[1])
            if held.keys() == weights.keys() and all(torch.equal(held[n], weights[n].cpu()) for n in held):
                return
        self.publish(weights)

    def way_back(self) -> str:
        """Which checkpoints exist, and how to resume from one."""
        return (
            f"checkpoints that are kept: {in_words(self.path)}; to continue from the newest with a smaller train.lr or "
            f"train.clip: {self._again()}; from another: {option('resume', 'best')} or {option('resume', 'N')}"
        )

    def way_on(self, step: int, problem: str) -> str:
        """How to continue after a failure; `problem`: why this step could not be saved, or empty."""
        if not problem:
            return f"training is saved up to step {step}; continue with: {self._again()}"
        kept, _ = newest_verified(self.path)
        on = "there is no checkpoint: start it again"
        if kept is not None:
            on = f"the last checkpoint is of step {kept.step}; continue with: {self._again()}"
        return f"step {step} could not be saved ({problem}); {on}"

    def _again(self) -> str:
        return either(f"statewise train --resume --out {self.path}", f'statewise.train(resume=True, out="{self.path}")')

    def save(
        self,
        step: int,
        *,
        weights: Mapping[str, Tensor],
        optimizer: Mapping[str, Tensor],
        average: Mapping[str, Tensor],
        carried: State,
        progress: Mapping[str, Any],
        keep: int,
        parts: int = 1,
    ) -> None:
        """With several `parts`, the optimiser's state is already written, by `write_part`."""
        target = self.checkpoints / f"step-{step:08d}"
        files: dict[str, Payload] = {
            **self.identity,
            "model.safetensors": weights,
            "carried.safetensors": lambda path: save_state(carried, path),
            "progress.json": json.dumps(dict(progress), indent=1) + "\n",
        }
        if parts == 1:
            files[_OPTIMIZER] = optimizer
        else:
            names = [part_name(_OPTIMIZER, part, parts) for part in range(parts)]
            files |= {name: partial(os.replace, self.staging / name) for name in names}
        if average:
            files["average.safetensors"] = average
        if is_plain(metrics := self.path / "metrics.jsonl"):
            sync(metrics)  # records before a checkpoint must be on disk before it
        refuse_links(self.checkpoints, inside=self.path)
        write_folder(target, files)
        remove(self.staging)
        self._prune(keep, newest=step, best=progress.get("best_step"))

    @property
    def staging(self) -> Path:
        """Where parts lie until all of them are written, below a name that the next save removes."""
        return self.path / f"{TEMPORARY}parts"

    def _prune(self, keep: int, *, newest: int, best: Any) -> None:
        """Keep the newest and the best. A higher step is damaged: otherwise this run would have resumed there."""
        folders = step_folders(self.checkpoints)
        past = [folder for folder, step in folders if step <= newest]
        for folder, step in folders:
            if step > newest or (folder not in past[:keep] and step != best):
                shutil.rmtree(folder, ignore_errors=True)


def make_room(folder: RunFolder, par: Parallel) -> None:
    """For the parts that all ranks are about to write."""
    if par.leads:
        remove(folder.staging)
        make_folder(folder.staging, inside=folder.path)


def write_part(folder: RunFolder, par: Parallel, kept: Kept, optimizer: Mapping[str, Tensor]) -> None:
    """What this rank keeps of the optimiser's state; `RunFolder.save` moves the parts into a checkpoint."""
    if par.rank == kept.part:  # of several copies of the model, the first
        write_tensors(folder.staging / part_name(_OPTIMIZER, kept.part, kept.parts), optimizer)


def never_trained(path: Path) -> bool:
    """Whether a run in this folder ended before its first step: a new run may use the folder."""
    names = {file.name for file in path.iterdir()}
    killed = was_locked(path)
    if not (killed or "environment.json" in names) or flaw(path, needs=_PUBLISHED) is None:
        return False
    if not any((path / "checkpoints").glob("[!.]*")) or [step for _, step in step_folders(path / "checkpoints")] == [0]:
        names.discard("checkpoints")
    return all(_EARLY.fullmatch(name) or (killed and _BEGUN.fullmatch(name)) for name in names)


def start_over(path: Path) -> None:
    """Remove the files of a run that never made a step."""
    for old in path.iterdir():
        if old.name != LOCK:
            remove(old)


def step_folders(checkpoints: Path) -> list[tuple[Path, int]]:
    """Checkpoint folders, the newest first."""
    if not checkpoints.is_dir():
        return []
    matches = [(path, _STEP.fullmatch(path.name)) for path in checkpoints.iterdir()]
    numbered = [(path, int(match[1])) for path, match in matches if match and path.is_dir() and not path.is_symlink()]
    return sorted(numbered, key=lambda pair: (-pair[1], pair[0].name))


def newest_verified(run: Path, *, needs: tuple[str, ...] = ()) -> tuple[Checkpoint | None, list[str]]:
    """The newest verified checkpoint, and a line for each damaged one that was skipped."""
    skipped: list[str] = []
    return next(verified(run, skipped, needs=needs), None), skipped


def verified(run: Path, skipped: list[str], *, needs: tuple[str, ...] = ()) -> Iterator[Checkpoint]:
    """Verified checkpoints, the newest first; `skipped` gets a line for each damaged one."""
    for path, step in step_folders(run / "checkpoints"):
        reason = flaw(path, needs=(*_CHECKPOINT_FILES, *needs))
        try:
            if reason is None:
                yield Checkpoint(path, step, read_progress(path))
                continue
        except UserError as error:
            reason = error.what
        skipped.append(f"{path.name}: {reason}")


def checkpoint_of(run: Path, which: Literal["best"] | int, *, needs: tuple[str, ...] = ()) -> Checkpoint:
    """The checkpoint of the best validation so far, or of a step; the error lists those that exist."""
    skipped: list[str] = []
    whole = list(verified(run, skipped, needs=needs))
    wanted = whole[0].progress.get("best_step") if whole and which == "best" else which
    for checkpoint in whole:
        if checkpoint.step == wanted:
            return checkpoint
    raise UserError(
        f"{str(run)!r} has no checkpoint of {'the best step' if which == 'best' else f'step {which}'}",
        fix=f"those that are there: {in_words(run)}" + "".join(f"\n  damaged: {line}" for line in skipped),
    )


def in_words(run: Path) -> str:
    """The verified checkpoints: `step 24, step 20 (best)`."""
    whole = list(verified(run, []))
    best = whole[0].progress.get("best_step") if whole else None
    return ", ".join(f"step {kept.step}{' (best)' if kept.step == best else ''}" for kept in whole) or "none"


def read_progress(path: Path) -> dict[str, Any]:
    try:
        progress = from_json(read_small(path / "progress.json"))
        if not isinstance(progress, dict) or not isinstance(progress["step"], int) or progress["step"] < 0:
            raise ValueError
        return progress
    except (ValueError, KeyError):
        raise UserError(f"{path.name}/progress.json is not the record of a run") from None


class Published(NamedTuple):
    """A verified folder to read a model from, and a line for each damaged one that was skipped."""

    path: Path
    skipped: list[str]


def find_published(run: Path, *, needs: tuple[str, ...]) -> Published:
    """The top of the run folder if it is verified; else its best, else its newest, verified checkpoint."""
    if not run.is_dir():
        raise UserError(f"{str(run)!r} is not a folder", fix="name a run folder, for example runs/lstm")
    reason = flaw(run, needs=needs)
    if reason is None:
        return Published(run, [])
    skipped = [f"{run.name}: {reason}"]
    whole = [kept for kept in verified(run, skipped, needs=needs) if kept.step]  # step 0 is untrained
    if whole:
        best = [kept for kept in whole if kept.progress.get("best_step") == kept.step]
        return Published((best or whole)[0].path, skipped)
    if not (run / "run.toml").exists() and not (run / "checkpoints").exists():
        raise UserError(f"{str(run)!r} is not a run folder: it has no run.toml", fix="make one with: statewise train")
    raise UserError(
        f"nothing in {str(run)!r} can be trusted:\n  " + "\n  ".join(skipped[:10]),
        fix="copy the folder again from where it came from, or train again",
    )
