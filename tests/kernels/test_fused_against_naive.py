"""The fused ops against the equations: outputs, final state, every gradient; odd lengths on purpose."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from statewise.kernels import cpu
from statewise.kernels.elman import IMPLEMENTATIONS as elman_all
from statewise.kernels.elman import ElmanWeights
from statewise.kernels.elman import batched as elman_batched
from statewise.kernels.elman import naive as elman_naive
from statewise.kernels.gru import IMPLEMENTATIONS as gru_all
from statewise.kernels.gru import GRUWeights
from statewise.kernels.gru import batched as gru_batched
from statewise.kernels.gru import naive as gru_naive
from statewise.kernels.lstm import IMPLEMENTATIONS as lstm_all
from statewise.kernels.lstm import LSTMWeights
from statewise.kernels.lstm import naive as lstm_naive

BATCH, INPUT, WIDTH = 5, 4, 6


class Op(NamedTuple):
    naive: Callable[..., tuple[Tensor, ...]]
    fused: Callable[..., tuple[Tensor, ...]]
    weights: Callable[..., tuple[object, ...]]  # from tensors to the op's weights
    shapes: list[tuple[int, ...]]  # of those tensors
    state: list[int]  # widths of the state's leaves


def lstm_projected(*tensors: Tensor) -> LSTMWeights:
    return LSTMWeights(*tensors[:3], projection_PD=tensors[3])


OPS = {
    "elman-tanh": Op(elman_naive.elman, elman_all["fused"], ElmanWeights, [(6, 4), (6, 6), (6,)], [6]),
    "elman-relu": Op(
        elman_naive.elman,
        elman_all["fused"],
        lambda *tensors: ElmanWeights(*tensors, activation="relu"),
        [(6, 4), (6, 6), (6,)],
        [6],
    ),
    "lstm": Op(lstm_naive.lstm, lstm_all["fused"], LSTMWeights, [(24, 4), (24, 6), (24,)], [6, 6]),
    "gru": Op(gru_naive.gru, gru_all["fused"], GRUWeights, [(18, 4), (18, 6), (18,), (6,)], [6]),
}
ON_CPU = {
    **OPS,
    "elman-tanh-batched": OPS["elman-tanh"]._replace(fused=elman_batched.elman),
    "elman-relu-batched": OPS["elman-relu"]._replace(fused=elman_batched.elman),
    "gru-batched": OPS["gru"]._replace(fused=gru_batched.gru),
}
ON_CUDA = {
    **OPS,
    "lstm-projection": Op(
        lstm_naive.lstm, lstm_all["fused"], lstm_projected, [(24, 4), (24, 3), (24,), (3, 6)], [3, 6]
    ),
}


def results(
    run: Callable[..., tuple[Tensor, ...]], op: Op, time: int, lengths: list[int] | None, like: Tensor
) -> dict[str, Tensor]:
    """Everything that can be compared, under a name."""
    generator = torch.Generator().manual_seed(time)

    def leaf(*shape: int, scale: float) -> Tensor:
        value = scale * torch.randn(*shape, dtype=torch.float64, generator=generator)
        return value.to(like).requires_grad_()

    x = leaf(BATCH, time, INPUT, scale=1.0)
    state = [leaf(BATCH, width, scale=0.7) for width in op.state]
    weights = [leaf(*shape, scale=0.3) for shape in op.shapes]
    lengths_B = None if lengths is None else torch.tensor(lengths, device=like.device)

    y, *after = run(x, *state, op.weights(*weights), lengths_B)
    found = {"y": y, **{f"state {n}": part for n, part in enumerate(after)}}
    total = sum((part * torch.randn(part.shape, generator=generator).to(like)).sum() for part in found.values())
    leaves = {"x": x, **{f"initial {n}": s for n, s in enumerate(state)}, **{f"w{n}": w for n, w in enumerate(weights)}}
    gradients = torch.autograd.grad(total, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return found | {f"gradient of {name}": g for name, g in zip(leaves, gradients, strict=True)}


def worst(op: Op, time: int, lengths: list[int] | None, like: Tensor) -> dict[str, float]:
    """The largest difference under each name, relative to the largest value there (absolute where below 1)."""
    naive = results(op.naive, op, time, lengths, like)
    fused = results(op.fused, op, time, lengths, like)
    return {
        name: (fused[name] - naive[name]).abs().max().item() / max(1.0, naive[name].abs().max().item())
        for name in naive
    }


def ragged(time: int) -> list[int]:
    """A full row, an empty one, one moment, and two in between."""
    return [time, 0, 1, time // 2, max(time - 1, 0)]


TIMES = [1, 2, 63, 64, 65]
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5}


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("name", ON_CPU)
def test_fused_is_the_equation(name: str, time: int, rows: str, dtype: torch.dtype) -> None:
    lengths = ragged(time) if rows == "ragged" else None
    errors = worst(ON_CPU[name], time, lengths, torch.empty(0, dtype=dtype))
    assert max(errors.values()) <= TOLERANCES[dtype], errors


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("name", [name for name in ON_CPU if name.endswith("batched")])
def test_the_ways_of_larger_shapes_are_the_equation(
    name: str, rows: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tanh by expm1, U as it lies, and threads that are left alone: as if these few numbers were many."""
    monkeypatch.setattr(cpu, "_MANY", 1)
    monkeypatch.setattr(gru_batched, "_TURNED", 0)
    monkeypatch.setattr(cpu, "ENOUGH", 1)
    assert cpu.by_expm1(BATCH * WIDTH, dtype)
    errors = worst(ON_CPU[name], 9, ragged(9) if rows == "ragged" else None, torch.empty(0, dtype=dtype))
    assert max(errors.values()) <= TOLERANCES[dtype], errors


@pytest.mark.parametrize("name", ["elman-tanh-batched", "gru-batched"])
def test_half_precision_keeps_its_digits(name: str) -> None:
    """The states of a small GRU or Elman layer are near 0, where the difference `2σ - 1` has none to spare."""
    op = ON_CPU[name]
    generator = torch.Generator().manual_seed(0)
    tensors = [
        0.02 * torch.randn(*shape, dtype=torch.float64, generator=generator)
        for shape in [(64, 5, INPUT), *[(64, 32) for _ in op.state], *_widened(op.shapes)]
    ]
    x, h, *weights = (tensor.bfloat16() for tensor in tensors)
    exact = op.naive(x.double(), h.double(), op.weights(*(weight.double() for weight in weights)), None)[0]
    found = op.fused(x, h, op.weights(*weights), None)[0].double()
    assert ((found - exact).abs().max() / exact.abs().max()).item() < 2e-2


def _widened(shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """For states of 32 in place of 6: enough numbers for the way by the sigmoid, if the dtype allowed it."""
    return [tuple({6: 32, 18: 96}.get(size, size) for size in shape) for shape in shapes]


@pytest.mark.parametrize("lengths", [[0] * BATCH, [3] * BATCH, [9, 9, 0, 9, 9]], ids=["empty", "equal", "too long"])
@pytest.mark.parametrize("name", ON_CPU)
def test_odd_lengths(name: str, lengths: list[int]) -> None:
    """All rows empty, all equal but short of the end, and lengths past the end, which mean the end."""
    errors = worst(ON_CPU[name], 7, lengths, torch.empty(0, dtype=torch.float64))
    assert max(errors.values()) <= 1e-12, errors


@pytest.mark.parametrize("run", ["naive", "fused"])
@pytest.mark.parametrize("name", ON_CPU)
def test_padding_is_not_read(name: str, run: str) -> None:
    """Whatever stands past a row's end changes nothing and gets no gradient; outputs there are 0."""
    op, lengths = ON_CPU[name], ragged(7)
    generator = torch.Generator().manual_seed(0)
    past_BT = torch.arange(7) >= torch.tensor(lengths)[:, None]

    def tensor(*shape: int) -> Tensor:
        return 0.3 * torch.randn(*shape, dtype=torch.float64, generator=generator)

    x, state, weights = tensor(BATCH, 7, INPUT), [tensor(BATCH, w) for w in op.state], [tensor(*s) for s in op.shapes]
    polluted = torch.where(past_BT[:, :, None], 1e6, x).requires_grad_()
    clean = getattr(op, run)(x, *state, op.weights(*weights), torch.tensor(lengths))
    dirty = getattr(op, run)(polluted, *state, op.weights(*weights), torch.tensor(lengths))
    assert all(torch.equal(a, b) for a, b in zip(dirty, clean, strict=True))
    assert (dirty[0][past_BT] == 0).all()
    (gradient,) = torch.autograd.grad(sum(part.sum() for part in dirty), polluted)
    assert (gradient[past_BT] == 0).all()
    assert (gradient[~past_BT] != 0).any()


@pytest.mark.parametrize("name", ["elman-tanh-batched", "gru-batched"])
def test_a_backward_of_our_own_can_be_differentiated_again(name: str) -> None:
    op = ON_CPU[name]
    generator = torch.Generator().manual_seed(0)
    tensors = [
        (0.5 * torch.randn(*shape, dtype=torch.float64, generator=generator)).requires_grad_()
        for shape in [(2, 3, INPUT), *[(2, width) for width in op.state], *op.shapes]
    ]

    def run(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        return op.fused(x, h, op.weights(*weights), None)

    assert torch.autograd.gradcheck(run, tensors)
    assert torch.autograd.gradgradcheck(run, tensors)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)], ids=str)
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("name", ON_CUDA)
def test_cudnn_is_the_equation(name: str, time: int, rows: str, dtype: torch.dtype, tolerance: float) -> None:
    """cuDNN's own tanh and sigmoid cost float32 a digit; TF32, PyTorch's default there, would cost two more."""
    lengths = ragged(time) if rows == "ragged" else None
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        errors = worst(ON_CUDA[name], time, lengths, torch.empty(0, dtype=dtype, device="cuda"))
    assert max(errors.values()) <= tolerance, errors


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_CUDA)
def test_cudnn_takes_any_layout_of_state(name: str) -> None:
    """A state may be a view (rows of a larger one, an expanded start): cuDNN itself insists on contiguous ones."""
    op = ON_CUDA[name]

    def tensor(*shape: int) -> Tensor:
        return 0.3 * torch.randn(*shape, dtype=torch.float64, device="cuda")

    x, weights = tensor(BATCH, 7, INPUT), op.weights(*(tensor(*shape) for shape in op.shapes))
    state = [tensor(1, width).expand(BATCH, -1) for width in op.state]
    naive = op.naive(x, *state, weights, None)
    fused = op.fused(x, *state, weights, None)
    for a, b in zip(fused, naive, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
