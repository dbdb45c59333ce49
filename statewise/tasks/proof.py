"""The laws, tried on a model by name or on a trained folder: one finding per model, law and dtype."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from statewise.core import Machine, laws
from statewise.models import LINEAGE, build_sample
from statewise.models.lineage import Ancestor
from statewise.specs import ModelSpec, UserError, nearest
from statewise.tasks.run import load

_VOCAB = 17


class Finding(NamedTuple):
    model: str
    law: str
    dtype: str
    error: float
    passed: bool


def verify(target: str | None = None) -> Iterator[Finding]:
    """Try every law on a listed model, a run folder, or (with None) on everything listed."""
    if target is None:
        for row in LINEAGE:
            yield from _of_ancestor(row)
        return
    listed = {row.name: row for row in LINEAGE}
    if target in listed:
        yield from _of_ancestor(listed[target])
    elif Path(target).exists():
        run = load(target, device="cpu")
        yield from check(run.model, name=str(target))
    else:
        raise UserError(f"{target!r} is neither a listed model nor a run folder", fix=nearest(target, listed))


def _of_ancestor(row: Ancestor) -> Iterator[Finding]:
    plain = row.spec.small()
    for spec in (plain, *row.variants):
        yield from check(build_sample(spec, vocab=_VOCAB), name=label(row.name, spec, plain))


def label(name: str, spec: ModelSpec, plain: ModelSpec) -> str:
    """`lstm` or `lstm[peephole]`: what differs from the plain form."""
    odd = [
        key if value is True else f"{key}={value}"
        for key, value in spec.model_dump().items()
        if value != getattr(plain, key) and key not in plain.sizes()
    ]
    return f"{name}[{', '.join(odd)}]" if odd else name


def check(model: Machine[Any], *, name: str) -> Iterator[Finding]:
    """All laws in float64 and float32, then how far the lower precisions stray."""
    model = model.eval()
    for dtype in (torch.float64, torch.float32):
        machine = copy.deepcopy(model).to(dtype)
        case = laws.make_case(machine)
        for law, error_of in laws.EXACT.items():
            yield _finding(name, law, dtype, error_of(machine, case))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        yield _finding(name, "precision", dtype, laws.precision(model, dtype))


def _finding(name: str, law: str, dtype: torch.dtype, error: float) -> Finding:
    return Finding(name, law, str(dtype).removeprefix("torch."), error, error <= laws.BOUNDS[dtype])
