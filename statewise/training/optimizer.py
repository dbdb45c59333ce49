"""The optimiser by name, its state as named tensors, and the average of the weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from statewise.specs import TrainSpec, UserError
from statewise.training.compiler import PlainAdamW, PlainSGD, spare_the_compiler
from statewise.training.muon import Muon, hidden_matrices


def make_optimizer(model: nn.Module, spec: TrainSpec, *, guarded: bool = False) -> Optimizer:
    """Weight decay is for matrices; biases and gains are left alone.

    `guarded`: a rate that is a tensor, and a `found_inf` that holds a step back, are read on their device alone.
    """
    spare_the_compiler()
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": spec.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    match spec.optimizer:
        case "muon":
            return _make_muon(model, spec)
        case "adamw":
            return PlainAdamW(groups, lr=spec.lr, betas=spec.betas, fused=True, capturable=guarded)
        case "sgd" | "asgd":
            sgd = PlainSGD(groups, lr=spec.lr, momentum=spec.momentum, fused=True)
            if guarded and spec.momentum:
                # Left to itself it takes memory that it fills in its first step, and that one may be held back. From
                # zero the first step gives the same.
                for p in parameters:
                    sgd.state[p]["momentum_buffer"] = torch.zeros_like(p)
            return sgd
        case _:
            assert_never(spec.optimizer)


def _make_muon(model: nn.Module, spec: TrainSpec) -> Muon:
    matrices = hidden_matrices(model)
    if not matrices:
        raise UserError(
            "train.optimizer = 'muon' moves the matrices inside a model, and this one has none that are trained",
            fix="train.optimizer=adamw",
        )
    taken = {matrix.weight for matrix in matrices}
    others = [p for p in model.parameters() if p.requires_grad and p not in taken]
    return Muon(
        matrices,
        [
            {"params": [p for p in others if p.dim() >= 2], "weight_decay": spec.weight_decay},
            {"params": [p for p in others if p.dim() < 2], "weight_decay": 0.0},
        ],
        lr=spec.lr,
        matrix_lr=spec.matrix_lr,
        momentum=spec.matrix_momentum,
        matrix_decay=spec.matrix_decay,
        betas=spec.betas,
    )


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Everything the optimiser remembers, as `3.exp_avg` and the like."""
    return {
        f"{index}.{name}": value
        for index, memory in optimizer.state_dict()["state"].items()
        for name, value in memory.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` took out: for each parameter ever updated, the few names of its kind."""
    known = [(p, group.get("kind")) for group in optimizer.param_groups for p in group["params"]]
    shapes = {str(n): p.shape for n, (p, _) in enumerate(known)}
    kinds = {str(n): kind for n, (_, kind) in enumerate(known)}
    names: dict[str | None, set[str]] = {}
    for key in tensors:
        number, _, name = key.partition(".")
        names.setdefault(kinds.get(number), set()).add(name)
    memory: dict[int, dict[str, Tensor]] = {}
    for number in {key.partition(".")[0] for key in tensors}:
        for name in names[kinds.get(number)]:
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
        own = [p.detach() for p in self.model.parameters()]
        torch._foreach_lerp_(list(self.mean.values()), own, self.advance())

    def advance(self) -> float:
        """Count one more step. Returns the share that its weights get."""
        if self.count == 0:
            return 0.0
        self.count += 1
        return max(1 / self.count, 1 - self.decay)

    @torch.no_grad()
    def move(self, share: Tensor) -> None:
        """What `add` does to the mean, with a share that only the device has to know."""
        if self.count == 0:
            return
        mean = list(self.mean.values())
        way = torch._foreach_sub([p.detach() for p in self.model.parameters()], mean)
        torch._foreach_mul_(way, share)
        torch._foreach_add_(mean, way)

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
