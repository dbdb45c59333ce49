"""Muon for the matrices inside a model, AdamW for everything else, as one optimiser.

Muon (Jordan et al. 2024) updates a matrix by its orthogonalised momentum: every direction of recent gradients moves
equally far. That suits matrices that map features to features, so embeddings, heads, gains and biases stay with AdamW.
`torch.optim.Muon` updates the matrices one by one and reads the learning rate on the host; here all matrices of one
shape are updated together, and a learning rate that is a tensor stays on its device.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.adamw import adamw

from statewise.core import Composer, Encoder, Mixer, Stacked
from statewise.kernels.orthogonal import orthogonal
from statewise.layers import MLP
from statewise.training.parallel import Kept, rows_of_part


class Matrix(NamedTuple):
    """A parameter that is one matrix, or several stacked along the rows."""

    weight: nn.Parameter
    rows: tuple[int, ...]


def hidden_matrices(model: nn.Module) -> list[Matrix]:
    """The matrices that map features to features: those of mixers, encoders, composers and MLPs."""
    cuts: dict[nn.Parameter, Sequence[int]] = {}
    for module in model.modules():
        if isinstance(module, Stacked):
            own = dict(module.named_parameters())
            cuts |= {own[name]: rows for name, rows in module.stacked().items() if name in own}
    matrices: dict[nn.Parameter, Matrix] = {}
    for module in model.modules():
        if isinstance(module, Mixer | Encoder | Composer | MLP):
            for weight in module.parameters():
                rows = tuple(cuts.get(weight, (len(weight),))) if weight.dim() == 2 else ()
                if rows and weight.requires_grad:
                    assert sum(rows) == len(weight), f"{len(weight)} rows are not {rows}"
                    matrices[weight] = Matrix(weight, rows)
    return list(matrices.values())


class Muon(Optimizer):
    """The first group holds matrices, the others are AdamW's. All share one `lr`, which a schedule may set; matrices
    move by `matrix_lr` wherever the others move by `lr`.

    `found_inf`, a tensor that is not 0 when a step must not be made, is read on its device alone.
    """

    def __init__(
        self,
        matrices: Sequence[Matrix],
        others: Sequence[dict[str, Any]],
        *,
        lr: float,
        matrix_lr: float,
        momentum: float = 0.95,
        matrix_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.99),
        placement: Kept | None = None,
    ) -> None:
        self.rows = [matrix.rows for matrix in matrices]
        self.placement = placement if placement is not None and placement.parts > 1 else None
        self.found_inf: Tensor | None = None
        first = {
            "params": [m.weight if placement is None else placement.kept(m.weight) for m in matrices],
            "kind": "matrices",
            "share": matrix_lr / lr,
            "weight_decay": matrix_decay,
            "momentum": momentum,
        }
        rest = [{**group, "kind": "others", "betas": betas, "eps": 1e-8} for group in others]
        # A fused optimiser counts steps on the device; torch's `load_state_dict` looks for this name.
        super().__init__([first, *rest], {"lr": lr, "fused": True, "capturable": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # torch overloads it
        assert closure is None, "an update here follows one gradient"
        matrices, *others = self.param_groups
        self._turn(matrices)
        for group in others:
            self._adapt(group)

    def _turn(self, group: dict[str, Any]) -> None:
        """`m ← μm + (1-μ)g`, `W ← (1 - ηλ)W - η √max(1, R/C) orthogonal((1-μ)g + μm)`, for each matrix alone."""
        held = [(p, rows) for p, rows in zip(group["params"], self.rows, strict=True) if p.grad is not None]
        if not held:
            return
        weights, gradients = [p for p, _ in held], [p.grad for p, _ in held]
        for p in weights:
            if not self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p)
        means = [self.state[p]["momentum_buffer"] for p in weights]
        momentum, rate = group["momentum"], group["lr"] * group["share"]
        kept = 1 - rate * group["weight_decay"]
        newer = list(torch._foreach_lerp(means, gradients, 1 - momentum))
        ahead = list(torch._foreach_lerp(gradients, newer, momentum))
        if self.placement is not None:  # a matrix is turned as a whole, by every process
            ahead = [self.placement.of_all_rows(part, sum(rows)) for part, (_, rows) in zip(ahead, held, strict=True)]
        parts = _cut(ahead, held)
        bad = None
        if self.found_inf is not None:
            bad = self.found_inf.to(weights[0].device).reshape(()) != 0
            newer = [torch.where(bad, old, new) for old, new in zip(means, newer)]
            kept = 1 - (~bad).to(weights[0].dtype) * (rate * group["weight_decay"])
        turned = orthogonal(parts, dtype=_precision(parts[0]), void=bad)
        scales = [-math.sqrt(max(1.0, part.shape[0] / part.shape[1])) for part in parts]
        torch._foreach_copy_(means, newer)
        torch._foreach_mul_(weights, kept)
        moves = torch._foreach_mul(torch._foreach_mul(turned, scales), rate)
        if self.placement is None:
            torch._foreach_add_(_cut(weights, held), moves)
            return
        remaining = iter(moves)
        wholes = [torch.cat([next(remaining) for _ in rows]) for _, rows in held]
        own = [rows_of_part(len(whole), self.placement.part, self.placement.parts) for whole in wholes]
        torch._foreach_add_(weights, [whole[some] for whole, some in zip(wholes, own, strict=True)])

    def _adapt(self, group: dict[str, Any]) -> None:
        weights = [p for p in group["params"] if p.grad is not None]
        if not weights:
            return
        for p in weights:
            if not self.state[p]:
                self.state[p]["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
                self.state[p]["exp_avg"] = torch.zeros_like(p)
                self.state[p]["exp_avg_sq"] = torch.zeros_like(p)
        beta1, beta2 = group["betas"]
        adamw(
            weights,
            [p.grad for p in weights],
            [self.state[p]["exp_avg"] for p in weights],
            [self.state[p]["exp_avg_sq"] for p in weights],
            [],
            [self.state[p]["step"] for p in weights],
            fused=True,
            capturable=False,  # the fused kernel is so by itself
            found_inf=self.found_inf,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )


def _cut(wholes: Sequence[Tensor], held: Sequence[tuple[nn.Parameter, tuple[int, ...]]]) -> list[Tensor]:
    return [part for whole, (_, rows) in zip(wholes, held, strict=True) for part in torch.split(whole, list(rows))]


def _precision(x: Tensor) -> torch.dtype:
    """bfloat16 on a GPU that has it: the iteration converges to a band, not to a value. A CPU has no faster format."""
    if x.device.type == "cuda" and x.dtype == torch.float32 and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    return x.dtype
