"""What the benchmarks of recurrent layers measure: cases, modules with the same weights, errors.

B batch, T time, I input width, D width.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from statewise.kernels import elman, gru, lstm
from statewise.mixers import GRU, LSTM, Elman

CELLS: dict[str, tuple[Callable[..., Any], Callable[..., nn.RNNBase], int]] = {
    "elman": (Elman, nn.RNN, 1),
    "gru": (GRU, nn.GRU, 3),
    "lstm": (LSTM, nn.LSTM, 4),
}


class Case(NamedTuple):
    cell: str
    width: int
    batch: int
    time: int
    inputs: int
    dtype: torch.dtype
    lengths: list[int] | None = None
    activation: str = "tanh"
    normed: bool = False
    tf32: bool = False  # where the dtype is float32

    @property
    def label(self) -> str:
        kind = self.activation if self.cell == "elman" else "normed lstm" if self.normed else self.cell
        rows = "" if self.lengths is None else " ragged"
        return f"{kind} {self.width}x{self.batch} T{self.time} I{self.inputs} {self.precision}{rows}"

    @property
    def precision(self) -> str:
        return "tf32" if self.tf32 else str(self.dtype).removeprefix("torch.")


def mixer(case: Case, seed: int = 0) -> Any:
    made = CELLS[case.cell][0]
    extra: dict[str, Any] = {"activation": case.activation} if case.cell == "elman" else {}
    if case.normed:
        extra["layer_norm"] = True
    module = made(case.width, input_width=case.inputs, **extra).cuda()
    generator = torch.Generator(device="cuda").manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.uniform_(-1, 1, generator=generator).div_(math.sqrt(case.width))
            if name.startswith("norm") and "bias" not in name:  # gains; that of U h small, or the network is chaotic
                parameter.add_(0.1 if "recurrent" in name else 1)
    return module.to(case.dtype)


def twin(case: Case, module: Any) -> nn.RNNBase:
    """torch.nn's module with the same weights."""
    extra = {"nonlinearity": case.activation} if case.cell == "elman" else {}
    other = CELLS[case.cell][1](case.inputs, case.width, **extra).cuda().to(case.dtype)
    w, u, b, *b_u = [parameter.detach() for parameter in module.parameters()]
    with torch.no_grad():
        other.weight_ih_l0.copy_(w)
        other.weight_hh_l0.copy_(u)
        other.bias_ih_l0.copy_(b)
        other.bias_hh_l0.zero_()
        if b_u:
            other.bias_hh_l0[2 * case.width :].copy_(b_u[0])
    other.flatten_parameters()
    return other


def draw(case: Case, seed: int = 1) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Input, state, and the gradients of the outputs."""
    generator = torch.Generator(device="cuda").manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device="cuda").to(case.dtype)

    parts = 2 if case.cell == "lstm" else 1
    x_TBI = normal(case.time, case.batch, case.inputs)
    state = [normal(case.batch, case.width).mul_(0.5) for _ in range(parts)]
    gradients = [normal(case.time, case.batch, case.width), *(normal(case.batch, case.width) for _ in range(parts))]
    return x_TBI, state, gradients


def ours(module: Any, case: Case, x_TBI: Tensor, state: list[Tensor], gradients: list[Tensor]) -> dict[str, Tensor]:
    """Outputs and all gradients by one implementation (whatever the choice is, inside `force` or not)."""
    x_TBI = x_TBI.clone().requires_grad_()
    leaves = [part.clone().requires_grad_() for part in state]
    lengths_B = None if case.lengths is None else torch.tensor(case.lengths, device="cuda")
    start = type(module.init_state(1))(*leaves) if case.cell == "lstm" else _state(module, leaves)
    y_BTD, after = module(x_TBI.transpose(0, 1), start, lengths_B)
    outputs = [y_BTD.transpose(0, 1), *_leaves(after)]
    parameters = dict(module.named_parameters())
    named = {"x": x_TBI, **{f"state {n}": leaf for n, leaf in enumerate(leaves)}, **parameters}
    found = torch.autograd.grad(outputs, list(named.values()), [g.to(o.dtype) for g, o in zip(gradients, outputs)])
    return {
        "y": outputs[0].detach(),
        **{f"last {n}": part.detach() for n, part in enumerate(outputs[1:])},
        **{f"d {name}": gradient for name, gradient in zip(named, found, strict=True)},
    }


def _state(module: Any, leaves: list[Tensor]) -> Any:
    initial = module.init_state(1)
    return leaves[0] if isinstance(initial, Tensor) else type(initial)(*leaves)


def _leaves(state: Any) -> list[Tensor]:
    return [state] if isinstance(state, Tensor) else list(state)


def errors(found: dict[str, Tensor], right: dict[str, Tensor]) -> dict[str, float]:
    return {
        name: float((found[name].double() - right[name]).norm() / right[name].norm().clamp(min=1e-12))
        if bool(torch.isfinite(found[name]).all())
        else math.inf
        for name in right
    }


def poison() -> None:
    """Leave NaN in the memory that torch.empty will hand out next."""
    blocks = [torch.full((size,), math.nan, device="cuda") for size in (1 << 26, 1 << 24, 1 << 22, 1 << 20, 1 << 16)]
    del blocks


def module_choice(module: Any, case: Case) -> str:
    """Which form the layer takes by itself, or is forced to."""
    kernel = {"elman": elman, "gru": gru, "lstm": lstm}[case.cell]
    return str(kernel.choice(module.weights(), batch=case.batch).implementation)


@contextmanager
def precision(case: Case) -> Iterator[None]:
    """Products of float32 by TF32 or not, ours and cuDNN's alike."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
