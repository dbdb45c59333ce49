"""The optimiser by name, its state as named tensors, and the average of the weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from statewise.specs import TrainSpec, UserError


def make_optimizer(model: nn.Module, spec: TrainSpec) -> Optimizer:
    """Weight decay is for matrices; biases and gains are left alone."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": spec.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    match spec.optimizer:
        case "adamw":
            return AdamW(groups, lr=spec.lr, betas=spec.betas, fused=True)
        case "sgd" | "asgd":
            return SGD(groups, lr=spec.lr, momentum=spec.momentum, fused=True)
        case _:
            assert_never(spec.optimizer)


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Everything the optimiser remembers, as `3.exp_avg` and the like."""
    return {
        f"{index}.{name}": value
        for index, memory in optimizer.state_dict()["state"].items()
        for name, value in memory.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` took out: for each parameter that was ever updated, the same few names."""
    shapes = {str(n): p.shape for n, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
    names = {key.partition(".")[2] for key in tensors}
    memory: dict[int, dict[str, Tensor]] = {}
    for number in {key.partition(".")[0] for key in tensors}:
        for name in names:
            value = tensors.get(f"{number}.{name}")
            expected = () if name == "step" else shapes.get(number)
            if number not in shapes or value is None or value.shape != expected:
                raise UserError(f"optimiser state {number}.{name} is missing or does not fit this model")
            memory.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": memory, "param_groups": optimizer.state_dict()["param_groups"]})


class Average:
    """The mean of the weights since it was started; with a `decay`, of the last 1 / (1 - decay) steps or so."""

    def __init__(self, model: nn.Module, *, decay: float | None = None) -> None:
        self.model = model
        self.decay = 1.0 if decay is None else decay
        self.count = 0
        self.mean: dict[str, Tensor] = {}

    def start(self) -> None:
        self.mean = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        self.count = 1

    @torch.no_grad()
    def add(self) -> None:
        if self.count == 0:
            return
        self.count += 1
        own = [p.detach() for p in self.model.parameters()]
        torch._foreach_lerp_(list(self.mean.values()), own, max(1 / self.count, 1 - self.decay))

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Inside, the model holds the average (if there is one)."""
        if self.count == 0:
            yield
            return
        own = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        self._write(self.mean)
        try:
            yield
        finally:
            self._write(own)

    @torch.no_grad()
    def _write(self, values: Mapping[str, Tensor]) -> None:
        for name, p in self.model.named_parameters():
            p.copy_(values[name])

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.mean)

    def restore(self, tensors: Mapping[str, Tensor], count: int) -> None:
        self.count = count
        own = dict(self.model.named_parameters())
        if count and (tensors.keys() != own.keys() or any(tensors[n].shape != own[n].shape for n in own)):
            raise UserError("the saved average of the weights does not fit this model")
        self.mean = {name: tensors[name].to(own[name]) for name in own} if count else {}
