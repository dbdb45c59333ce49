"""Several processes, one run: `torchrun --nproc-per-node 2 -m statewise train ...`.

Every rank starts from the same weights and reads its own rows of the batch; gradients are averaged; rank 0
writes. The ranks agree on everything that changes how a run continues: a signal, a non-finite value, an evaluation.
"""

import os
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from statewise.core import State, leaves, map_state
from statewise.data import share

S = TypeVar("S", bound=State)

# gloo's own thread releases a collective's tensors shortly after the collective is done. If it held the last
# reference, it would need the interpreter's lock, while the thread that destroys the process group holds that lock
# and waits for gloo's. So the last few are kept here.
_in_flight: deque[Tensor] = deque(maxlen=64)


class Parallel(NamedTuple):
    rank: int = 0
    world: int = 1
    device: torch.device = torch.device("cpu")

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def average_gradients(self, parameters: Iterable[nn.Parameter], flat: Tensor | None = None) -> Tensor:
        """Average over all ranks, in one exchange; a rank without a gradient for a parameter contributes zero.

        Returns the memory that all gradients then lie in: give it back for the next step, and none else is taken.
        """
        trained = [p for p in parameters if p.requires_grad]
        parts = [torch.zeros_like(p).view(-1) if p.grad is None else p.grad.reshape(-1) for p in trained]
        flat = torch.cat(parts) if flat is None else torch.cat(parts, out=flat)
        dist.all_reduce(flat)
        flat /= self.world
        for p, gradient in zip(trained, torch.split(flat, [p.numel() for p in trained])):
            p.grad = gradient.view_as(p)
        return flat

    def largest(self, *values: float) -> list[float]:
        """Element by element, the largest over all ranks."""
        if self.world == 1:
            return list(values)
        agreed = torch.tensor(values, dtype=torch.float64, device=self.device)
        _in_flight.append(agreed)
        dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
        return agreed.tolist()

    def mean(self, value: float) -> float:
        if self.world == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64, device=self.device)
        _in_flight.append(total)
        dist.all_reduce(total)
        return float(total) / self.world

    def from_leader(self, values: list[float]) -> list[float]:
        if self.world == 1:
            return values
        shared = torch.tensor(values, dtype=torch.float64, device=self.device)
        _in_flight.append(shared)
        dist.broadcast(shared, src=0)
        return shared.tolist()

    def gather_rows(self, state: S) -> S:
        """The rows of all ranks, concatenated, on every rank. A rank may have one row less than the first."""
        if self.world == 1 or not any(True for _ in leaves(state)):
            return state
        mine = torch.tensor([len(leaf) for _, leaf in leaves(state)][:1], device=self.device)
        counts = [torch.empty_like(mine) for _ in range(self.world)]
        _in_flight.extend([*counts, mine])
        dist.all_gather(counts, mine)
        rows = [int(count) for count in counts]

        def gather(leaf: Tensor) -> Tensor:
            filled = leaf.new_zeros(max(rows), *leaf.shape[1:])
            filled[: len(leaf)] = leaf
            parts = [torch.empty_like(filled) for _ in rows]
            _in_flight.extend([*parts, filled])
            dist.all_gather(parts, filled)
            return torch.cat([part[:count] for part, count in zip(parts, rows, strict=True)])

        return map_state(gather, state)

    def my_rows(self, total: int) -> slice:
        return share(total, rank=self.rank, world=self.world)

    def together(self, action: Callable[[], None]) -> None:
        """All ranks return when all are done. What fails on one fails on all."""
        failure: Exception | None = None
        try:
            action()
        except Exception as error:
            failure = error
        if self.largest(float(failure is not None))[0]:
            raise failure or RuntimeError("another process could not write its part of a checkpoint")

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """The other ranks enter after the leader has left."""
        if self.world > 1 and not self.leads:
            dist.barrier()
        yield
        if self.world > 1 and self.leads:
            dist.barrier()


class Kept:
    """What a rank keeps of a model's parameters: here all of them, in `statewise.training.sharded` some rows of each.

    `weights` are what the optimiser moves on this rank, under the names that they have in the model.
    """

    parts = 1
    part = 0
    weights: Mapping[str, nn.Parameter]

    def kept(self, parameter: nn.Parameter) -> nn.Parameter:
        """That of `weights` which belongs to a parameter of the model."""
        return parameter

    def local(self, tensor: Tensor) -> Tensor:
        """What is kept of any tensor of the model."""
        return tensor

    def rows_of(self, tensor: Tensor) -> slice | None:
        """Which rows these are; None: all."""

    def first_of_all(self, wrong: int | None) -> int | None:
        """The smallest number that any rank gives, where each has looked at what it keeps."""
        return wrong

    def each_whole(self, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Tensors of the model, or of what is kept, whole, one after the other; all ranks take part."""
        yield from tensors.items()

    def of_all_rows(self, kept: Tensor, count: int) -> Tensor:
        """The whole of a tensor of `count` rows, from those that each rank keeps."""
        return kept


def rows_of_part(count: int, part: int, parts: int) -> slice:
    """Of a tensor with `count` rows, those of one part."""
    each = -(-count // parts)
    return slice(min(part * each, count), min((part + 1) * each, count))


@contextmanager
def parallel(device: torch.device) -> Iterator[Parallel]:
    """Join the process group that torchrun set up, if it did, or one that the caller (Ray Train) is in already."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Parallel(device=device)
        return
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    if dist.is_initialized():
        yield Parallel(dist.get_rank(), dist.get_world_size(), device)
        return
    # torchrun may restart all processes beside one store, which still holds the addresses of those that are gone.
    store, rank, world = next(rendezvous("env://"))
    store = PrefixStore(f"restart {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    try:
        yield Parallel(rank, world, device)
    except Exception as error:
        traceback.clear_frames(error.__traceback__)  # they hold tensors and groups of collectives past the end below
        raise
    finally:
        dist.destroy_process_group()
