"""Triton's kernels against the equations: by its interpreter where there is no GPU, compiled where there is one."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import test_ttt_forms
import torch
from forms import BATCH, everything, noise, ragged
from test_linear_attention_forms import case as linear_case
from test_linear_attention_forms import form as linear_form
from test_ttt_forms import case, form
from torch import Tensor

from statewise.kernels import linear_attention as linear_op
from statewise.kernels import scan as scan_op
from statewise.kernels import ttt as ttt_op
from statewise.kernels.choice import force
from statewise.kernels.with_triton import load, obstacle, with_triton
from statewise.specs import UserError

OPS = {
    "scan": 1e-5,
    "ttt": 1e-4,
    "ttt_mlp": 1e-4,
    "linear_attention": 1e-4,
    "cross_entropy": 1e-5,
    "second_order": 2e-3,
}
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@needs_triton
@pytest.mark.parametrize("op", OPS)
def test_interpreted_kernels_are_the_equation(op: str) -> None:
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{here.parents[1]}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, here / "interpreted.py", op], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    errors: dict[str, float] = json.loads(done.stdout)
    assert len(errors) >= 2
    assert {name: error for name, error in errors.items() if not error <= OPS[op]} == {}


def test_without_a_gpu_the_choice_says_so_and_triton_stays_away() -> None:
    like = torch.zeros(1)
    assert obstacle(like) == "it needs a GPU"
    assert with_triton(["batched"], like) == (["batched"], {"triton": "it needs a GPU"})
    assert "not triton: it needs a GPU" in scan_op.choice(like).reason
    listed = "[name for name in sys.modules if name.startswith('statewise') and name.endswith('.triton')]"
    code = f"import sys, statewise.models, statewise.decoding; sys.exit(len({listed}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with force("triton"), pytest.raises(UserError, match="asks for the triton scan, but it needs a GPU"):
        scan_op.scan(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3), torch.zeros(1, 3))


def test_what_the_kernel_cannot_do_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statewise.kernels.with_triton.obstacle", lambda like: None)
    square, wide = torch.zeros(2, 8, 8), torch.zeros(2, 65, 65)
    with force("triton"):
        assert ttt_op.choice((square,), mini_batch=16).implementation == "triton"
        assert ttt_op.choice((torch.zeros(2, 8, 32), torch.zeros(2, 32, 8)), mini_batch=16).implementation == "triton"
        assert scan_op.choice(square).implementation == "triton"
        assert linear_op.choice(torch.zeros(64, 65)).implementation == "triton"
    assert "heads up to 64 wide" in ttt_op.choice((wide,), mini_batch=16).reason
    assert "mini-batches up to 64" in ttt_op.choice((square,), mini_batch=65).reason
    assert "states up to 8192 numbers" in linear_op.choice(torch.zeros(128, 65)).reason


def test_where_it_can_run_it_is_the_first_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statewise.kernels.with_triton.obstacle", lambda like: None)
    assert scan_op.choice(torch.zeros(1, 3)).implementation == "triton"
    with force("batched"):
        assert scan_op.choice(torch.zeros(1, 3)).implementation == "batched"


def on_device(values: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    return [value.to("cuda", dtype if value.is_floating_point() else value.dtype) for value in values]


def largest(found: list[Tensor], expected: list[Tensor]) -> float:
    pairs = zip(found, expected, strict=True)
    return max(float((a.double().cpu() - b).norm() / b.norm().clamp(min=1e-9)) for a, b in pairs)


def on_cuda(run):
    """The same, on the GPU, with results back on the CPU."""

    def there(inputs: list[Tensor], states: list[Tensor], lengths_B: Tensor | None) -> tuple[Tensor, ...]:
        lengths = None if lengths_B is None else lengths_B.cuda()
        return tuple(
            part.cpu() for part in run(on_device(inputs, torch.float32), on_device(states, torch.float32), lengths)
        )

    return there


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("time", [1, 64, 65, 700])
def test_compiled_scan(time: int, rows: str) -> None:
    inputs = [torch.sigmoid(noise(BATCH, time, 200, seed=0)), noise(BATCH, time, 200, seed=1)]
    states = [noise(BATCH, 200, seed=2)]
    lengths_B = ragged(time) if rows == "ragged" else None
    expected = everything(lambda i, s, n: scan_op.naive.scan(*i, *s, n), inputs, states, lengths_B)
    found = everything(on_cuda(lambda i, s, n: load("scan").scan(*i, *s, n)), inputs, states, lengths_B)
    assert largest(found, expected) <= 1e-5


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("time", [1, 64, 65, 200])
def test_compiled_linear_attention(time: int, rows: str) -> None:
    inputs, states = linear_case(time, delta=False, decay=0.3)
    lengths_B = ragged(time) if rows == "ragged" else None
    expected = everything(linear_form(linear_op.naive.linear_attention), inputs, states, lengths_B)
    found = everything(on_cuda(linear_form(load("linear_attention").linear_attention)), inputs, states, lengths_B)
    assert largest(found, expected) <= 1e-4


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("time", [1, 63, 150])
@pytest.mark.parametrize("normed", [True, False], ids=["norm", "bare"])
@pytest.mark.parametrize("inner", ["linear", "mlp"])
def test_compiled_test_time_training(
    inner: str, normed: bool, time: int, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A norm over three numbers magnifies what float32 rounds a thousandfold, in any form.
    monkeypatch.setattr(test_ttt_forms, "HEAD", 16)
    monkeypatch.setattr(test_ttt_forms, "SHAPES", {"linear": [(16, 16)], "mlp": [(16, 40), (40, 16)]})
    inputs, states = case(inner, time, mini_batch=16, places="apart")
    if not normed:
        inputs[3] = 0.1 * inputs[3]
    lengths_B = ragged(time) if rows == "ragged" else None
    exact = form(ttt_op.naive, inner, normed=normed, mini_batch=16)
    ours = form(load("ttt", "triton" if inner == "linear" else "triton_mlp"), inner, normed=normed, mini_batch=16)
    expected = everything(exact, inputs, states, lengths_B)
    assert largest(everything(on_cuda(ours), inputs, states, lengths_B), expected) <= 1e-4
