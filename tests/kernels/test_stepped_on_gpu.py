"""Recurrences a step at a time, where there is a GPU: the equation, graphs, streams, autocast, the same bits."""

import copy
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from statewise.kernels.choice import force
from statewise.kernels.gpu import gpu_of
from statewise.kernels.persistent import forward_kernel
from statewise.kernels.stepped import loop
from statewise.mixers import GRU, LSTM, Elman

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() < (7, 5), reason="no such GPU here"
    ),
]


def normed(width: int, *, input_width: int) -> LSTM:
    """With a small gain on U h: at 1 the network is chaotic, and any rounding grows from step to step."""
    made = LSTM(width, input_width=input_width, layer_norm=True)
    assert made.norm_recurrent_G is not None
    with torch.no_grad():
        made.norm_recurrent_G.mul_(0.1)
    return made


CELLS: dict[str, Callable[..., LSTM | GRU | Elman]] = {"lstm": LSTM, "gru": GRU, "elman": Elman, "normed": normed}
LIMITS = {torch.bfloat16: 5e-2, torch.float16: 1e-2, torch.float32: 1e-5}  # over 75 steps


def trained(mixer: LSTM | GRU | Elman, x_BTI: Tensor, lengths_B: Tensor | None, wish: str) -> list[Tensor]:
    """Outputs, last state and the gradients of the input and all parameters."""
    leaf = x_BTI.clone().requires_grad_()
    with force(wish):
        y_BTD, state = mixer(leaf, None, lengths_B)
    outputs = [y_BTD, *(state if isinstance(state, tuple) else (state,))]
    total = sum(
        (part.float() * torch.linspace(-1, 1, part.numel(), device="cuda").view_as(part)).sum() for part in outputs
    )
    gradients = torch.autograd.grad(total, [leaf, *mixer.parameters()])
    return [part.detach() for part in (*outputs, *gradients)]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("dtype", LIMITS, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("width", [33, 96, 1200])
@pytest.mark.parametrize("cell", CELLS)
def test_it_is_the_equation(cell: str, width: int, dtype: torch.dtype, rows: str) -> None:
    """Twice: step by step, then by graphs, with the same bits."""
    torch.manual_seed(width)
    mixer = CELLS[cell](width, input_width=24).cuda().to(dtype)
    x_BTI = torch.randn(5, 75, 24, device="cuda").to(dtype)
    lengths_B = torch.tensor([75, 0, 1, 66, 74], device="cuda") if rows == "ragged" else None
    first, second = (trained(mixer, x_BTI, lengths_B, "stepped") for _ in range(2))
    assert same(first, second)
    exact = CELLS[cell](width, input_width=24).cuda().double()
    exact.load_state_dict({name: value.double() for name, value in mixer.state_dict().items()})
    right = trained(exact, x_BTI.double(), lengths_B, "naive")
    for a, b in zip(first, right, strict=True):
        assert (a.double() - b).norm() <= LIMITS[dtype] * b.norm()


@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_forward_in_one_piece_and_a_backward_in_steps(cell: str, dtype: torch.dtype, rows: str) -> None:
    """Where only the forward stays on the gpu: with a state, without one, and without gradients."""
    if not gpu_of(0).measured:
        pytest.skip("no Hopper GPU here")
    torch.manual_seed(0)
    mixer = CELLS[cell](2048, input_width=24).cuda().to(dtype)
    assert forward_kernel(cell, batch=40, weight=next(mixer.parameters())) is None, "a matrix of another width"
    assert forward_kernel(cell, batch=40, weight=mixer.u_GP if cell == "lstm" else mixer.u_GD) is not None
    x_BTI = torch.randn(40, 21, 24, device="cuda").to(dtype)
    lengths_B = torch.arange(40, device="cuda") % 22 if rows == "ragged" else None
    first, second = (trained(mixer, x_BTI, lengths_B, "stepped") for _ in range(2))
    assert same(first, second)
    with torch.no_grad(), force("stepped"):
        free, _ = mixer(x_BTI, None, lengths_B)
    assert torch.equal(free, first[0])
    exact = CELLS[cell](2048, input_width=24).cuda().double()
    exact.load_state_dict({name: value.double() for name, value in mixer.state_dict().items()})
    right = trained(exact, x_BTI.double(), lengths_B, "naive")
    for a, b in zip(first, right, strict=True):
        assert (a.double() - b).norm() <= LIMITS[dtype] * b.norm()


@pytest.mark.parametrize("cell", CELLS)
def test_autocast_somebodys_graph_and_other_streams(cell: str) -> None:
    """Weights in float32 under autocast; the same bits from a graph we are captured in, from streams and threads."""
    mixer = CELLS[cell](256, input_width=256).cuda()
    x_BTI = torch.randn(4, 75, 256, device="cuda")

    def run(own: LSTM | GRU | Elman = mixer) -> list[Tensor]:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return trained(own, x_BTI, None, "stepped")

    first = run()
    streams = [torch.cuda.Stream() for _ in range(3)]
    # One for each stream: autograd has a node for every parameter, and a node belongs to a stream.
    copies = [copy.deepcopy(mixer) for _ in streams]
    torch.cuda.synchronize()
    found: list[list[Tensor]] = []

    def work(stream: torch.cuda.Stream, own: LSTM | GRU | Elman) -> None:
        with torch.cuda.stream(stream):
            for _ in range(3):
                found.append(run(own))
        stream.synchronize()

    threads = [threading.Thread(target=work, args=pair) for pair in zip(streams, copies, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert len(found) == 9
    assert all(same(first, one) for one in found)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(streams[0]):
        run()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=streams[0]):
            captured = run()
    for _ in range(3):
        for value in captured:
            value.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert same(first, captured)
        assert same(first, run())


@pytest.mark.filterwarnings("error")
def test_graphs_outlive_each_other_and_the_scratch_memory_of_cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes come and go, somebody clears what cuBLAS works in and empties the cache; nothing changes by a bit."""
    monkeypatch.setattr(loop, "_loops", type(loop._loops)())
    monkeypatch.setattr(loop, "_KEPT", 4)
    mixer = LSTM(1024).cuda().bfloat16()
    x_BTI = torch.randn(3, 75, 1024, device="cuda", dtype=torch.bfloat16)
    expected = {batch: trained(mixer, x_BTI[:batch], None, "stepped") for batch in (1, 2, 3)}
    for turn in range(12):
        for batch in (1, 1, 2, 2, 3, 3) if turn % 3 else (1, 1, 1):
            assert same(expected[batch], trained(mixer, x_BTI[:batch], None, "stepped"))
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def test_products_follow_the_precision_that_is_set() -> None:
    mixer = LSTM(512).cuda()
    x_BTI = torch.randn(16, 75, 512, device="cuda")
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        found = {}
        for allowed in (False, True, False):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            found[allowed] = [trained(mixer, x_BTI, None, "stepped") for _ in range(2)]
            assert same(*found[allowed])
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert not same(found[False][0], found[True][0])


def test_a_capture_that_fails_leaves_no_mark() -> None:
    """Waiting for the GPU cannot be captured. Random numbers, memory and the next capture are as before."""
    where = torch.device("cuda", 0), torch.cuda.current_stream().cuda_stream
    beside = loop._beside(*where)
    with pytest.raises(RuntimeError):
        loop._capture(torch.cuda.synchronize, beside.stream, beside.pool)
    beside = loop._beside(*where)
    drawn = torch.randn(1000, device="cuda")
    assert float(drawn.std()) > 0.5
    held = torch.zeros(4, device="cuda")
    graph = loop._capture(lambda: held.add_(1), beside.stream, beside.pool)
    graph.replay()
    graph.replay()
    assert held.tolist() == [2.0] * 4
