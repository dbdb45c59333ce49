"""cuDNN's attention is left out for a call and no longer, and never against what somebody asked for."""

import re
import threading
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from statewise.kernels.attention import Mask, attention, fused


class Queries:
    """As far as the question goes."""

    is_cuda = True

    def __init__(self, count: int) -> None:
        self.shape = (1, 1, count, 4)


def allowed(queries: Any) -> bool:
    with fused.without_cudnn(queries):
        return torch.backends.cuda.cudnn_sdp_enabled()


def test_few_queries_do_without_and_many_do_not() -> None:
    assert torch.backends.cuda.cudnn_sdp_enabled(), "PyTorch's default"
    assert not allowed(Queries(fused.PAYS_FROM - 1))
    assert allowed(Queries(fused.PAYS_FROM))
    assert allowed(torch.zeros(1, 1, 3, 4)), "on a CPU there is nothing to leave out"
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize("chosen", [[SDPBackend.CUDNN_ATTENTION], [SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH]])
def test_whoever_chose_kernels_gets_them(chosen: list[SDPBackend]) -> None:
    with sdpa_kernel(chosen):
        assert allowed(Queries(3))


def test_an_error_inside_puts_it_back() -> None:
    with pytest.raises(ValueError, match="inside"), fused.without_cudnn(Queries(3)):  # type: ignore[arg-type]  # a stand-in
        raise ValueError("inside")
    assert torch.backends.cuda.cudnn_sdp_enabled()


def test_whoever_had_it_off_has_it_off() -> None:
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        assert not allowed(Queries(3))
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)


def test_two_threads_leave_it_as_it_was() -> None:
    """The first to leave must not put it back for the other, nor the other keep what it found."""
    inside, left = threading.Event(), threading.Event()
    seen = []

    def other() -> None:
        with fused.without_cudnn(Queries(3)):  # type: ignore[arg-type]  # a stand-in
            inside.set()
            left.wait(10)
            seen.append(torch.backends.cuda.cudnn_sdp_enabled())

    with fused.without_cudnn(Queries(3)):  # type: ignore[arg-type]  # a stand-in
        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(10)
    left.set()
    thread.join(10)
    assert seen == [False]
    assert torch.backends.cuda.cudnn_sdp_enabled()


class Ops(TorchDispatchMode):
    """The names of all that runs inside."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(op))
        return op(*args, **(kwargs or {}))


def kernels_of_attention(device: str, *, ragged: bool) -> set[str]:
    at_BT = torch.arange(37, device=device).expand(2, -1)
    key_at_BT = at_BT.masked_fill(at_BT >= torch.tensor([[37], [20]], device=device), -1) if ragged else at_BT
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    q, k, v = (torch.randn(2, 37, 4, 64, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
    with Ops() as ops:
        attention(q, k, v, Mask(at_BT, key_at_BT, whole=not ragged), scale=0.125)
    found = (re.search(r"scaled_dot_product_(\w+)_attention", name) for name in ops.names)
    return {match[1] for match in found if match}


def test_what_runs_can_be_seen() -> None:
    assert kernels_of_attention("cpu", ragged=False) == {"flash"}


@pytest.mark.gpu
@pytest.mark.parametrize("ragged", [False, True], ids=["whole", "ragged"])
def test_on_a_gpu_no_plan_is_made_for_a_shape(ragged: bool) -> None:
    assert kernels_of_attention("cuda", ragged=ragged) == {"efficient" if ragged else "flash"}
