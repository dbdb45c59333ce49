"""Which implementation of each op a model uses here, and why: found by training it for one step."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch

from statewise.kernels import Choice, Implementation, record
from statewise.models.build import build
from statewise.models.lineage import LINEAGE
from statewise.specs import ModelSpec, UserError, nearest

_VOCAB = 65


class Explained(NamedTuple):
    model: str
    op: str
    implementation: Implementation | None  # None: the requested one is refused
    reason: str


def explain(
    names: tuple[str, ...] = (), *, width: int, batch: int, time: int, device: torch.device, dtype: torch.dtype
) -> list[Explained]:
    """For the named models of the lineage, or for all that learn by gradients: what `forward` and `backward` used."""
    known = {row.name: row.spec for row in LINEAGE if row.spec.learns == "gradient"}
    for name in names:
        if name not in known:
            raise UserError(f"{name!r} is not a model that learns by gradients", fix=nearest(name, known))
    shape: dict[str, Any] = {"width": width, "batch": batch, "time": time, "device": device, "dtype": dtype}
    explained: list[Explained] = []
    refusal = None
    for name, spec in known.items():
        if names and name not in names:
            continue
        try:
            explained += [
                Explained(name, op, choice.implementation, choice.reason) for op, choice in _taken(spec, **shape)
            ]
        except UserError as error:  # the requested implementation is not available here
            explained.append(Explained(name, "", None, error.what))
            refusal = error
    if refusal is not None and all(choice.implementation is None for choice in explained):
        raise refusal
    return explained


def _taken(
    spec: ModelSpec, *, width: int, batch: int, time: int, device: torch.device, dtype: torch.dtype
) -> list[tuple[str, Choice]]:
    model = build(spec.model_copy(update={"width": width}), vocab=_VOCAB).to(device)
    tokens_BT = torch.zeros(batch, time, dtype=torch.long, device=device)
    cast: AbstractContextManager[object] = (
        nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype=dtype)
    )
    with record() as chosen, cast:
        logits_BTV, _ = model(tokens_BT)
        torch.autograd.backward(logits_BTV.float().sum())
    return list(chosen.items())
