"""A model whose parameters, gradients and optimiser state are divided between processes: PyTorch's FSDP2.

Each process keeps some rows of every parameter. A layer's parameters are gathered when the layer is read, forward and
backward, and dropped after it; everything that is no layer (embedding, head, norms, tied weights) is one further unit.
The optimiser moves the rows that its process keeps, as ordinary tensors, so it knows nothing of this.

The rows of a parameter of n rows lie as `torch.chunk` cuts them: the first processes have ceil(n / parts) each, the
last may have fewer or none. Where a run spans several nodes, each node holds all parts, and gradients are averaged
over nodes (hybrid sharding): gathering then never leaves a node.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MethodType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from statewise.core import Machine, is_observed, leaves, unchecked
from statewise.specs import TrainSpec, UserError
from statewise.training.device import memory_of, training_bytes
from statewise.training.parallel import Parallel, rows_of_part
from statewise.training.task import Task, Window
from statewise.training.update import Whole

T = TypeVar("T")

_AUTO_SHARE = 0.5  # of a GPU's memory that parameters, gradients and optimiser state may fill before they are divided
_ENTRIES = ("absorb", "step", "step_", "condition")  # methods besides `forward` by which a layer is read


def num_parts(parameters: int, spec: TrainSpec, par: Parallel) -> int:
    """How many processes share one copy of the model; 1: each has its own.

    "auto" divides it where the processes run on GPUs and its parameters, gradients and optimiser state would fill more
    than half of the memory of one. Over several nodes, the processes of each node share one copy.
    """
    if par.world == 1 or spec.shard == "never":
        return 1
    if spec.shard == "auto":
        memory = memory_of(par.device) if par.device.type == "cuda" else None
        if memory is None or training_bytes(parameters, spec) <= _AUTO_SHARE * memory:
            return 1
    local = int(os.environ.get("LOCAL_WORLD_SIZE", par.world))
    return local if 1 < local < par.world and par.world % local == 0 else par.world


class _Root(nn.Module):
    """Everything that is no layer is gathered while a call of this runs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, call: Callable[[], T]) -> T:
        return call()


class Apart(Whole):
    """What the optimiser moves is not what the model reads: rows of it, or, with `offload`, a copy on the host."""

    def __init__(self, model: nn.Module, task: Task, par: Parallel, *, offload: bool) -> None:
        super().__init__(model, task, par)
        self.offload = offload
        self.weights = {
            name: nn.Parameter(self.local(p).to("cpu", copy=True) if offload else self.local(p), p.requires_grad)
            for name, p in model.named_parameters()
        }
        self._kept = {p: self.weights[name] for name, p in model.named_parameters()}

    def local(self, tensor: Tensor) -> Tensor:
        return tensor.detach()

    def kept(self, parameter: nn.Parameter) -> nn.Parameter:
        return self._kept[parameter]

    @torch.no_grad()
    def to_model(self) -> None:
        for name, p in self.model.named_parameters() if self.offload else ():
            self.local(p).copy_(self.weights[name])

    @torch.no_grad()
    def to_weights(self) -> None:
        for name, p in self.model.named_parameters() if self.offload else ():
            self.weights[name].copy_(self.local(p))

    def collect_gradients(self) -> None:
        super().collect_gradients()
        self.hand_over()

    def hand_over(self) -> None:
        """Gradients go from the model to `weights`."""
        for name, p in self.model.named_parameters():
            if p.grad is not None:
                self.weights[name].grad, p.grad = self.local(p.grad).to(self.weights[name].device), None

    def drop_gradients(self) -> None:
        for name, p in self.model.named_parameters():
            p.grad = self.weights[name].grad = None


class Sharded(Apart):
    """The parameters of a model divided in `parts`; what it offers is what `Whole` offers.

    Whatever gathers parameters (`loss`, `call`, `each_whole`, `of_all_rows`) is called by all processes together.
    """

    def __init__(self, model: nn.Module, task: Task, par: Parallel, parts: int, spec: TrainSpec) -> None:
        # PyTorch loads these in a second or so, and a run that is not divided does not need them.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import (
            FSDPModule,
            MixedPrecisionPolicy,
            fully_shard,
            register_fsdp_forward_method,
        )
        from torch.distributed.tensor import DTensor

        if not hasattr(FSDPModule, "reset_iter_state"):
            raise UserError(
                f"a model can be divided between processes from PyTorch 2.13 on, and this is {torch.__version__}",
                fix='a newer PyTorch, or train.shard="never"',
            )

        # States are often views. FSDP warns of writing to one in place, which no machine does (law `pure`).
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        self.model, self.par, self.parts = model, par, parts
        # What is gathered is in this precision; what each process keeps, and the sum of gradients, in float32.
        self._low = spec.precision == "bfloat16-weights"
        gathered, summed = (torch.bfloat16, torch.float32) if self._low else (None, None)
        policy = MixedPrecisionPolicy(param_dtype=gathered, reduce_dtype=summed, cast_forward_inputs=False)
        self._divided: type[DTensor] = DTensor
        kind = par.device.type
        if parts == par.world:
            mesh = init_device_mesh(kind, (parts,), mesh_dim_names=("part",))
        else:
            mesh = init_device_mesh(kind, (par.world // parts, parts), mesh_dim_names=("copy", "part"))
        self.part = mesh.get_local_rank("part")
        self._group = mesh.get_group("part")
        for layer in layers_of(model) if task.regular else []:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
            for name in _ENTRIES:
                if callable(getattr(layer, name, None)):
                    register_fsdp_forward_method(layer, name)
        self._root = _Root(model)
        self._rest = fully_shard(self._root, mesh=mesh, mp_policy=policy)  # the same module, with the methods of FSDP
        self._rest.set_reduce_scatter_unused_params(True)  # the rows of another process may have used them
        self.call(lambda: None)  # after the first call, parameters stay where they are in memory
        super().__init__(model, task, par, offload=spec.offload)

    def local(self, tensor: Tensor) -> Tensor:
        with torch.no_grad():
            local: Tensor = tensor.to_local() if isinstance(tensor, self._divided) else tensor
        return local

    def rows_of(self, tensor: Tensor) -> slice | None:
        return rows_of_part(len(tensor), self.part, self.parts) if isinstance(tensor, self._divided) else None

    # ---------------------------------------------------------------- reading the model

    def call(self, call: Callable[[], T]) -> T:
        try:
            with torch.no_grad(), torch.autocast(self.par.device.type, torch.bfloat16, enabled=self._low):
                result: T = self._root(call)
        finally:
            self._rest.reset_iter_state()  # a failure may have come while some layer was gathered
        return result

    def loss(self, window: Window, some: slice, times: slice, state: Any) -> tuple[Tensor, Any]:
        result: tuple[Tensor, Any] = self._root(lambda: self.task.loss(self.model, window, some, times, state))
        return result

    def slices(self, rows: int, wanted: int) -> int:
        """Each slice is a backward pass, in which all processes take part."""
        return wanted if wanted == 1 else int(-self.par.largest(-float(min(rows, wanted)))[0])

    # ---------------------------------------------------------------- gradients

    def collect_gradients(self) -> None:
        self.hand_over()

    def norm(self) -> Tensor:
        squared = super().norm().double().to(self.par.device) ** 2
        dist.all_reduce(squared, group=self._group)
        return squared.sqrt().float()

    def first_of_all(self, wrong: int | None) -> int | None:
        none = len(self.weights)
        (first,) = self.par.largest(-float(none if wrong is None else wrong))
        return None if -first == none else int(-first)

    # ---------------------------------------------------------------- whole tensors

    def each_whole(self, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        shapes = {name: p.shape for name, p in self.model.named_parameters()}
        for name, value in tensors.items():
            with torch.no_grad():
                if isinstance(value, self._divided):
                    yield name, value.full_tensor()
                elif name in shapes:
                    yield name, self.of_all_rows(value, shapes[name][0])
                else:
                    yield name, value

    def of_all_rows(self, kept: Tensor, count: int) -> Tensor:
        """The whole of a tensor of `count` rows, from those that each process keeps."""
        each = -(-count // self.parts)
        filled = kept.new_zeros(each, *kept.shape[1:], device=self.par.device)
        filled[: len(kept)] = kept
        pieces = [torch.empty_like(filled) for _ in range(self.parts)]
        dist.all_gather(pieces, filled, group=self._group)
        return torch.cat(pieces)[:count].to(kept.device)


def place(model: nn.Module, task: Task, spec: TrainSpec, par: Parallel) -> Whole:
    """Divide the model between processes if the spec and its size ask for it."""
    parts = num_parts(sum(p.numel() for p in model.parameters()), spec, par)
    if spec.recompute:
        recompute(model)
    if parts > 1:
        return Sharded(model, task, par, parts, spec)
    if spec.precision == "bfloat16-weights":
        raise UserError(
            "train.precision = 'bfloat16-weights' is for a model that is divided between processes",
            fix="train.precision=bfloat16, or train.shard=always with two processes or more",
        )
    return Apart(model, task, par, offload=True) if spec.offload else Whole(model, task, par)


def repeated(model: nn.Module) -> list[nn.Module]:
    """The machines that lie in lists, outermost: what a model repeats."""
    layers: list[nn.Module] = []
    inside: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and module not in inside:
            for layer in module:
                if isinstance(layer, Machine) and layer not in inside:
                    layers.append(layer)
                    inside.update(layer.modules())
    return layers


def recompute(model: nn.Module) -> None:
    """Of each layer, the backward pass finds the input alone, and makes the forward pass again."""
    for layer in repeated(model):
        layer.forward = MethodType(_forward_twice, layer)


def _forward_twice(layer: nn.Module, *arguments: Any) -> Any:
    forward = partial(type(layer).forward, layer)
    if not torch.is_grad_enabled() or is_observed():
        return forward(*arguments)
    return checkpoint(forward, *arguments, use_reentrant=False, context_fn=_checked_already)


def _checked_already() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Around the first pass and around the second, which no caller's check comes before."""
    return nullcontext(), unchecked()


def layers_of(model: nn.Module) -> list[nn.Module]:
    """What a model repeats, where it can be divided by itself.

    A layer whose parameters are used elsewhere too, or are part of its initial state, belongs to the rest of the model.
    """
    users: dict[nn.Parameter, int] = {}
    for module in model.modules():
        for p in module.parameters(recurse=False):
            users[p] = users.get(p, 0) + 1

    def apart(layer: nn.Module) -> bool:
        own: dict[nn.Parameter, int] = {}
        for module in layer.modules():
            for p in module.parameters(recurse=False):
                own[p] = own.get(p, 0) + 1
        assert isinstance(layer, Machine)
        learned = any(leaf.requires_grad for _, leaf in leaves(layer.init_state(1)))
        return bool(own) and not learned and all(users[p] == count for p, count in own.items())

    return [layer for layer in repeated(model) if apart(layer)]
