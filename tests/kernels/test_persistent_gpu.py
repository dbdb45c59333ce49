"""The persistent kernels on a GPU: the equation, CUDA graphs, a GPU that pretends to be older, waits that end."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from statewise.kernels import lstm, persistent
from statewise.kernels.choice import force
from statewise.kernels.gpu import gpu_of
from statewise.kernels.persistent import driver, recurrence, stall
from statewise.kernels.persistent.plan import Plan
from statewise.kernels.persistent.table import plans
from statewise.mixers import GRU, LSTM, Elman


def on_hopper(test: Callable[..., None]) -> Callable[..., None]:
    here = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
    test = pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk")(test)
    return pytest.mark.gpu(pytest.mark.skipif(not here, reason="no Hopper GPU here")(test))


CELLS = {"lstm": LSTM, "gru": GRU, "elman": Elman}


def trained(mixer: LSTM | GRU | Elman, x_BTI: Tensor, lengths_B: Tensor | None, wish: str) -> list[Tensor]:
    """Outputs, last state and the gradients of the input and all parameters."""
    leaf = x_BTI.clone().requires_grad_()
    with force(wish):
        y_BTD, state = mixer(leaf, None, lengths_B)
    outputs = [y_BTD, *state]
    total = sum(
        (part.float() * torch.linspace(-1, 1, part.numel(), device="cuda").view_as(part)).sum() for part in outputs
    )
    gradients = torch.autograd.grad(total, [leaf, *mixer.parameters()])
    return [part.detach() for part in (*outputs, *gradients)]  # a graph kept alive would belong to the stream of now


@on_hopper
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("width", [128, 200, 512, 1024])
@pytest.mark.parametrize("cell", CELLS)
def test_on_a_gpu_it_is_the_equation(cell: str, width: int, rows: str) -> None:
    mixer = CELLS[cell](width, input_width=24).cuda().bfloat16()
    x_BTI = torch.randn(5, 9, 24, device="cuda", dtype=torch.bfloat16)
    lengths_B = torch.tensor([9, 0, 1, 4, 8], device="cuda") if rows == "ragged" else None
    found = trained(mixer, x_BTI, lengths_B, "persistent")
    exact = CELLS[cell](width, input_width=24).cuda().double()
    exact.load_state_dict({name: value.double() for name, value in mixer.state_dict().items()})
    right = trained(exact, x_BTI.double(), lengths_B, "naive")
    persistent.raise_if_stalled(wait=True)
    for a, b in zip(found, right, strict=True):
        assert (a.double() - b).norm() <= 2e-2 * b.norm()


@on_hopper
@pytest.mark.parametrize("cell", CELLS)
def test_autocast_a_graph_and_a_second_time(cell: str) -> None:
    """Weights in float32 under autocast; the same bits again; the same bits replayed from a CUDA graph."""
    mixer = CELLS[cell](256).cuda()
    x_BTI = torch.randn(4, 33, 256, device="cuda")

    def run() -> list[Tensor]:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return trained(mixer, x_BTI, None, "persistent")

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        first, second = run(), run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            captured = run()
        graph.replay()
    torch.cuda.current_stream().wait_stream(stream)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    persistent.raise_if_stalled(wait=True)
    assert all(torch.equal(a, b) for a, b in zip(first, captured, strict=True))


@on_hopper
@pytest.mark.parametrize("width", [128, 300, 1024])
@pytest.mark.parametrize("cell", CELLS)
def test_as_an_older_gpu_it_is_the_equation(cell: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEWISE_CAPABILITY", "8.0")
    test_on_a_gpu_it_is_the_equation(cell, width, "ragged")


def of_kind(kind: str) -> tuple[int, int]:
    """A width and a batch at which the LSTM's forward is of this kind."""
    for width in (1024, 768, 1536):
        for batch in (16, 64, 256):
            pair = plans("lstm", width=width, batch=batch, gpu=gpu_of(0))
            if pair is not None and pair[0].kind == kind:
                return width, batch
    pytest.skip(f"the table has no {kind} LSTM")


@on_hopper
@pytest.mark.parametrize("kind", ["polled", "wide"])
def test_a_wait_in_vain_ends_and_the_next_calls_go_to_cudnn(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launched without one of its clusters, a kernel waits for values that never come."""
    width, batch = of_kind(kind)
    mixer = LSTM(width).cuda().bfloat16()
    x_BTI = torch.randn(batch, 8, width, device="cuda", dtype=torch.bfloat16)
    prepare = driver._prepare

    def forged(plan: Plan, grid: tuple[int, int], **rest: object) -> object:
        return prepare(plan, (max(plan.blocks, grid[0] - plan.blocks), grid[1]), **rest)

    monkeypatch.setattr(recurrence, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(stall, "_retired", [])
    with torch.no_grad():
        right = mixer(x_BTI)[0]
        assert lstm.choice(mixer.weights(), batch=batch).implementation == "persistent"
        monkeypatch.setattr(driver, "_prepare", forged)
        mixer(x_BTI)
        monkeypatch.setattr(driver, "_prepare", prepare)
        with pytest.raises(persistent.KernelStalled):
            persistent.raise_if_stalled(wait=True)
        chosen = lstm.choice(mixer.weights(), batch=batch)
        assert chosen.implementation != "persistent"
        again = mixer(x_BTI)[0]
    assert "a kernel stalled earlier" in chosen.reason
    assert (again.float() - right.float()).norm() <= 2e-2 * right.float().norm()


@on_hopper
def test_a_width_that_the_older_gpu_has_no_room_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATEWISE_CAPABILITY", "8.6")
    weight = torch.zeros(4 * 2048, 2048, device="cuda", dtype=torch.bfloat16)
    reason = persistent.obstacle("lstm", width=2048, batch=256, weight=weight)
    assert reason is not None
    assert "on a GPU of 8.6" in reason
