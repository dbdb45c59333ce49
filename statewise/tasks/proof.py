"""The laws, tried on a model by name or on a trained folder: one finding per model, law and dtype."""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from pydantic import BaseModel

from statewise.core import Machine, laws
from statewise.models import (
    ENCODER_DECODERS,
    LINEAGE,
    Ancestor,
    Conditional,
    ConditionalMachine,
    Encoded,
    build_sample,
)
from statewise.specs import ModelSpec, Seq2SeqSpec, UserError, nearest
from statewise.tasks.dispatch import load
from statewise.tasks.shipped import find_run, shipped_names
from statewise.training.device import pick_device

_VOCAB = 17


class Finding(NamedTuple):
    model: str
    law: str
    dtype: str
    error: float
    passed: bool


def verify(target: str | None = None, *, device: str = "cpu") -> Iterator[Finding]:
    """Check the laws of the state on a model by name, on a run folder, or (None) on every model of the lineage.

    Yields a finding for each model, law and dtype: the largest relative error, and whether it is within the bound.

    >>> all(finding.passed for finding in sw.verify("runs/lstm"))
    True
    """
    where = pick_device(device)
    every: list[Ancestor | Conditional] = [*LINEAGE, *ENCODER_DECODERS]
    listed = {row.name: row for row in every}
    if target is None:
        for row in listed.values():
            yield from _of_row(row, where)
    elif target in listed:
        yield from _of_row(listed[target], where)
    elif find_run(target).exists():
        run = load(target, device=device)
        if not isinstance(run.model, Machine):
            raise UserError(
                f"{target!r} is a {run.spec.task} run: its model needs the whole input, so it has no state to verify",
                fix="verify the model it reads with by its name",
            )
        yield from check(run.model, name=str(target))
    else:
        raise UserError(
            f"{target!r} is neither a listed model nor a run folder", fix=nearest(target, [*listed, *shipped_names()])
        )


def _of_row(row: Ancestor | Conditional, device: torch.device) -> Iterator[Finding]:
    plain = row.spec.small()
    for spec in (plain, *row.variants):
        name = label(row.name, spec, plain)
        yield from check(build_sample(spec, vocab=_VOCAB).to(device), name=name)


def label(name: str, spec: ModelSpec | Seq2SeqSpec, plain: ModelSpec | Seq2SeqSpec) -> str:
    """`lstm` or `lstm[peephole]`: what differs from the plain form."""
    odd = [
        key if value is True else f"{key}={value}"
        for key, value in _differences(spec, plain)
        if key.replace(".", "_") not in plain.sizes()
    ]
    return f"{name}[{', '.join(odd)}]" if odd else name


def _differences(spec: BaseModel, plain: BaseModel, path: str = "") -> Iterator[tuple[str, Any]]:
    for key in type(spec).model_fields:
        value, usual = getattr(spec, key), getattr(plain, key)
        if not isinstance(value, BaseModel):
            if value != usual:
                yield f"{path}{key}", value
            continue
        if type(value) is not type(usual):  # another kind: from here on, what differs from its own defaults
            usual = type(value)()
            yield f"{path}{key}", usual.model_dump()["kind"]
        yield from _differences(value, usual, f"{path}{key}.")


def check(model: Machine[Any], *, name: str) -> Iterator[Finding]:
    """All laws in float64 and float32, then how far the lower precisions stray."""
    model = model.eval()
    start = _given_a_source if isinstance(model, ConditionalMachine) else None
    for dtype in (torch.float64, torch.float32):
        machine = copy.deepcopy(model).to(dtype)
        case = laws.make_case(machine, start=start)
        for law, error_of in laws.EXACT.items():
            yield _finding(name, law, dtype, error_of(machine, case))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        yield _finding(name, "precision", dtype, laws.precision(model, dtype, start=start))


def _given_a_source(model: Machine[Any], batch: int) -> Any:
    """What a decoder begins from: sources of different lengths, one of them empty, read by whoever reads."""
    assert isinstance(model, ConditionalMachine)
    generator = torch.Generator().manual_seed(0)
    outputs_BSC = torch.randn(batch, batch, model.reader.width, generator=generator).to(model.like)
    length_B = torch.arange(batch, device=model.like.device)
    past_BS = torch.arange(batch, device=model.like.device) >= length_B[:, None]
    outputs_BSC = outputs_BSC.masked_fill(past_BS[:, :, None], 0.0)
    return model.begin(Encoded(outputs_BSC, outputs_BSC.sum(1), length_B))


def _finding(name: str, law: str, dtype: torch.dtype, error: float) -> Finding:
    return Finding(name, law, str(dtype).removeprefix("torch."), error, error <= laws.BOUNDS[dtype])
