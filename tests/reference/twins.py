"""A torch.nn module and its twin with the same weights, and what a comparison of the two needs."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

import statewise.nn

SEQUENCES = ("RNN", "GRU", "LSTM")
CELLS = ("RNNCell", "GRUCell", "LSTMCell")
# Every implementation there is on a CPU. LSTM has no batched one: its best is torch.nn's.
FORMS = [("RNN", "batched"), ("GRU", "batched"), *[(kind, form) for kind in SEQUENCES for form in ("auto", "naive")]]


def pair(kind: str, *args: Any, kernel: str = "auto", **options: Any) -> tuple[Any, Any]:
    """torch.nn's and ours, in float64."""
    options.setdefault("dtype", torch.float64)
    theirs = getattr(nn, kind)(*args, **options)
    ours = getattr(statewise.nn, kind)(*args, **options)
    ours.load_state_dict(theirs.state_dict())
    ours.kernel = kernel
    return theirs, ours


def tensors(value: Any) -> list[Tensor]:
    """All that hold numbers of a result, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, PackedSequence):
        return [value.data]
    return [tensor for part in value for tensor in tensors(part)]


def gradients(module: nn.Module, result: Any, inputs: list[Tensor]) -> list[Tensor]:
    """Of a sum in which every number of the result has a weight of its own, by parameters and inputs."""
    loss = sum(
        (part * torch.linspace(-1, 1, part.numel(), dtype=part.dtype, device=part.device).view(part.shape)).sum()
        for part in tensors(result)
    )
    wanted = [*module.parameters(), *inputs]
    return list(torch.autograd.grad(loss, [value for value in wanted if value.requires_grad]))


def assert_same(ours: Any, theirs: Any) -> None:
    """Structure, types, shapes and values."""
    if isinstance(theirs, Tensor):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    elif isinstance(theirs, PackedSequence):
        assert isinstance(ours, PackedSequence)
        assert_same(ours.data, theirs.data)
        assert torch.equal(ours.batch_sizes, theirs.batch_sizes)
        for mine, other in zip(ours[2:], theirs[2:], strict=True):
            assert (mine is None) == (other is None)
            assert mine is None or torch.equal(mine, other)
    else:
        assert type(ours) is type(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other)
