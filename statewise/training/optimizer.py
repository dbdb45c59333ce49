"""The optimiser by name, its state as named tensors, and the average of the weights."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import unwrap
from typing import Any, assert_never

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from statewise.specs import TrainSpec, UserError
from statewise.training.muon import Muon, hidden_matrices
from statewise.training.parallel import Kept


def _plain_step(kind: type[Optimizer]) -> Any:
    """`step` without torch.compile's wrapper, under no_grad."""
    return torch.no_grad()(unwrap(kind.step))


class PlainAdamW(AdamW):
    step = _plain_step(AdamW)


class PlainSGD(SGD):
    step = _plain_step(SGD)


def _leave_compiler_unloaded() -> None:
    """Keep PyTorch's optimisers from loading its compiler, which takes as long as loading PyTorch.

    Each of these methods would load it only to mark itself as not to be compiled: the mark is set here instead.
    """
    if "torch._dynamo" in sys.modules:
        return
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        plain = getattr(getattr(Optimizer, name), "__wrapped__", None)
        if plain is not None and not hasattr(plain, "__dynamo_disable"):
            setattr(plain, "__dynamo_disable", plain)


def make_optimizer(
    model: nn.Module, spec: TrainSpec, *, guarded: bool = False, placement: Kept | None = None
) -> Optimizer:
    """Weight decay is for matrices; biases and gains have none.

    `guarded`: the learning rate may be a tensor, and `found_inf` may skip a step; both are read on the device alone.
    `placement`: which rows of the parameters this process keeps, and so moves.
    """
    _leave_compiler_unloaded()
    weights = model.parameters() if placement is None else placement.weights.values()
    parameters = [p for p in weights if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": spec.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    match spec.optimizer:
        case "muon":
            return _make_muon(model, spec, placement)
        case "adamw":
            return PlainAdamW(groups, lr=spec.lr, betas=spec.betas, fused=True, capturable=guarded)
        case "sgd" | "asgd":
            sgd = PlainSGD(groups, lr=spec.lr, momentum=spec.momentum, fused=True)
            if guarded and spec.momentum:
                # By itself it would fill a new buffer in its first step, which may be skipped. From zero the first
                # step gives the same.
                for p in parameters:
                    sgd.state[p]["momentum_buffer"] = torch.zeros_like(p)
            return sgd
        case _:
            assert_never(spec.optimizer)


def _make_muon(model: nn.Module, spec: TrainSpec, placement: Kept | None) -> Muon:
    matrices = hidden_matrices(model)
    if not matrices:
        raise UserError(
            "train.optimizer = 'muon' moves the matrices inside a model, and this one has none that are trained",
            fix="train.optimizer=adamw",
        )
    orthogonal = {matrix.weight for matrix in matrices}
    others = [p for p in model.parameters() if p.requires_grad and p not in orthogonal]
    if placement is not None:
        others = [placement.kept(p) for p in others]
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
        placement=placement,
    )


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as named tensors, such as `3.exp_avg`."""
    return {
        f"{index}.{name}": value
        for index, memory in optimizer.state_dict()["state"].items()
        for name, value in memory.items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`: for each parameter ever updated, the few names of its kind."""
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
            fits = value is not None and value.shape == expected and value.is_floating_point()
            if number not in shapes or value is None or not fits or (name == "step" and not 0 <= value < torch.inf):
                raise UserError(f"optimiser state {number}.{name} is missing or does not fit this model")
            memory.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": memory, "param_groups": optimizer.state_dict()["param_groups"]})


class Average:
    """The mean of the weights since it was started; with a `decay`, of the last 1 / (1 - decay) steps or so."""

    def __init__(
        self,
        weights: Mapping[str, nn.Parameter],
        *,
        decay: float | None = None,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        """`written` is called after a change of `weights` that is no step."""
        self.weights, self._written = weights, written
        self.decay = 1.0 if decay is None else decay
        self.count = 0
        self.mean: dict[str, Tensor] = {}

    def start(self) -> None:
        self.mean = {name: p.detach().clone() for name, p in self.weights.items()}
        self.count = 1

    @torch.no_grad()
    def add(self) -> None:
        if self.count == 0:
            return
        own = [p.detach() for p in self.weights.values()]
        torch._foreach_lerp_(list(self.mean.values()), own, self.advance())

    def advance(self) -> float:
        """Count one more step. Returns the weight of its parameters in the average."""
        if self.count == 0:
            return 0.0
        self.count += 1
        return max(1 / self.count, 1 - self.decay)

    @torch.no_grad()
    def move(self, share: Tensor) -> None:
        """`add`, with a share that only the device knows."""
        if self.count == 0:
            return
        mean = list(self.mean.values())
        change = torch._foreach_sub([p.detach() for p in self.weights.values()], mean)
        torch._foreach_mul_(change, share)
        torch._foreach_add_(mean, change)

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """Inside, the model holds the average (if there is one)."""
        if self.count == 0:
            yield
            return
        own = {name: p.detach().clone() for name, p in self.weights.items()}
        self._write(self.mean)
        try:
            yield
        finally:
            self._write(own)

    @torch.no_grad()
    def _write(self, values: Mapping[str, Tensor]) -> None:
        for name, p in self.weights.items():
            p.copy_(values[name])
        self._written()

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.mean)

    def restore(self, tensors: Mapping[str, Tensor], count: int) -> None:
        self.count = count
        own = self.weights
        if count and (tensors.keys() != own.keys() or any(tensors[n].shape != own[n].shape for n in own)):
            raise UserError("the saved average of the weights does not fit this model")
        self.mean = {name: tensors[name].to(own[name]) for name in own} if count else {}
