"""Triton's kernels against the equations: by its interpreter where there is no GPU, compiled where there is one."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import test_linear_attention_forms
import test_ttt_forms
import torch
from forms import BATCH, everything, noise, ragged
from test_linear_attention_forms import case as linear_case
from test_linear_attention_forms import form as linear_form
from test_ttt_forms import case, form
from torch import Tensor

from statewise.kernels import few_rows as few_rows_op
from statewise.kernels import gated_delta as delta_op
from statewise.kernels import layer_norm as norm_op
from statewise.kernels import linear_attention as linear_op
from statewise.kernels import scan as scan_op
from statewise.kernels import short_convolution as convolution_op
from statewise.kernels import ttt as ttt_op
from statewise.kernels.attention import attend_, with_room
from statewise.kernels.choice import force
from statewise.kernels.gpu import KNOWN
from statewise.kernels.layer_norm import naive as naive_norm
from statewise.kernels.rotary import naive as naive_rotary
from statewise.kernels.with_triton import load, obstacle, with_triton
from statewise.models import build
from statewise.specs import UserError

OPS = {
    "scan": 1e-5,
    "ttt": 1e-4,
    "ttt_mlp": 1e-4,
    "linear_attention": 1e-4,
    "gated_delta": 1e-4,
    "short_convolution": 1e-5,
    "cross_entropy": 1e-5,
    "rotary": 1e-5,
    "attention_step": 1e-5,
    "few_rows": 1e-5,
    "argmax": 0.0,
    "layer_norm": 1e-5,
    "second_order": 2e-4,
}
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


@pytest.fixture(scope="module")
def interpreter() -> Iterator["subprocess.Popen[str]"]:
    """Answers ops by errors, each in a fork: Triton and PyTorch are imported once."""
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{here.parents[1]}:{os.environ.get('PYTHONPATH', '')}"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen([sys.executable, here / "interpreted.py"], **pipes) as process:
        yield process
        process.stdin.close()


@needs_triton
@pytest.mark.parametrize(
    "op", [pytest.param(op, marks=[pytest.mark.slow] if op in ("second_order", "ttt_mlp") else []) for op in OPS]
)
def test_interpreted_kernels_are_the_equation(op: str, interpreter: "subprocess.Popen[str]") -> None:
    interpreter.stdin.write(f"{op}\n")
    interpreter.stdin.flush()
    errors: dict[str, float] | str = json.loads(interpreter.stdout.readline())
    assert isinstance(errors, dict), errors
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
        assert linear_op.choice(torch.zeros(128, 65)).implementation == "triton"
        assert delta_op.choice(torch.zeros(128, 200)).implementation == "triton"
    assert "heads up to 64 wide" in ttt_op.choice((wide,), mini_batch=16).reason
    assert "mini-batches up to 64" in ttt_op.choice((square,), mini_batch=65).reason
    for op in (linear_op, delta_op):
        assert "keys up to 128 wide" in op.choice(torch.zeros(129, 64)).reason


def test_where_it_can_run_it_is_the_first_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statewise.kernels.with_triton.obstacle", lambda like: None)
    assert scan_op.choice(torch.zeros(1, 3)).implementation == "triton"
    with force("batched"):
        assert scan_op.choice(torch.zeros(1, 3)).implementation == "batched"


@needs_triton
@pytest.mark.parametrize("op", [linear_op, delta_op], ids=["linear_attention", "gated_delta"])
def test_products_inside_autocast_need_not_be_exact(op, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def kernel(inputs, s, lengths_B, *, exact: bool) -> tuple[Tensor, Tensor]:
        asked.append(exact)
        return inputs[2], s

    name = op.__name__.rpartition(".")[2]
    monkeypatch.setattr("statewise.kernels.with_triton.obstacle", lambda like: None)
    made = type("Module", (), {name: staticmethod(kernel)})
    monkeypatch.setattr("statewise.kernels.associative_memory.load", lambda op: made)
    x, g, s = torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 1), torch.zeros(1, 1, 4, 4)
    gates = [g] if op is linear_op else [g, g]
    for narrows in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=narrows):
            getattr(op, name)(x, x, x, *gates, s)
    assert asked == [True, False]


@needs_triton
def test_products_are_exact_in_float32_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = import_module("statewise.kernels.chunk_autograd")
    ways = []
    monkeypatch.setattr(chunks._Memory, "apply", lambda *given: ways.append(given[-1]) or given[:2])
    s = torch.zeros(1, 1, 4, 4)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.zeros(1, 2, 1, 4, dtype=dtype)
        chunks.remember((x, x, x, x[..., 0]), s, None, exact=True, again=linear_op.chunked.linear_attention)
    found = [(way.kind, way.exact) for way in ways]
    assert found == [(torch.float32, True), (torch.float32, False), (torch.bfloat16, False)]


@needs_triton
def test_a_walk_is_pipelined_where_shared_memory_holds_it() -> None:
    chunks = import_module("statewise.kernels.chunk_autograd")
    for name, stages in (("8.0", 1), ("8.6", 1), ("9.0", 3), ("10.0", 3), ("12.0", 1)):
        assert chunks.launch_of("states", torch.bfloat16, KNOWN[name].shared_bytes).stages == stages
        assert chunks.launch_of("outputs", torch.bfloat16, KNOWN[name].shared_bytes).stages == 1
    assert chunks.launch_of("states", torch.float32, KNOWN["9.0"].shared_bytes).stages == 1


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
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("time", [1, 64, 65, 700])
def test_compiled_scan(time: int, rows: str) -> None:
    inputs = [torch.sigmoid(noise(BATCH, time, 200, seed=0)), noise(BATCH, time, 200, seed=1)]
    states = [noise(BATCH, 200, seed=2)]
    lengths_B = ragged(time) if rows == "ragged" else None
    expected = everything(lambda i, s, n: scan_op.naive.scan(*i, *s, n), inputs, states, lengths_B)
    found = everything(on_cuda(lambda i, s, n: load("scan").scan(*i, *s, n)), inputs, states, lengths_B)
    assert largest(found, expected) <= 1e-5
    inputs[0] = 3 * noise(BATCH, time, 200, seed=3)
    expected = everything(
        lambda i, s, n: scan_op.naive.scan(*scan_op.naive.gates(*i), *s, n), inputs, states, lengths_B
    )
    found = everything(on_cuda(lambda i, s, n: load("scan").gated_scan(*i, *s, n)), inputs, states, lengths_B)
    assert largest(found, expected) <= 1e-5


@pytest.mark.gpu
@pytest.mark.parametrize("silu", [True, False], ids=["silu", "bare"])
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("time", [1, 2, 65])
def test_compiled_short_convolution(time: int, rows: str, silu: bool) -> None:
    inputs = [noise(BATCH, time, 200, seed=0), noise(200, 4, seed=1)]
    states = [noise(BATCH, 3, 200, seed=2)]
    lengths_B = ragged(time) if rows == "ragged" else None

    def run(module, inputs: list[Tensor], states: list[Tensor], lengths_B: Tensor | None) -> tuple[Tensor, ...]:
        return module.short_convolution(inputs[0], states[0], inputs[1], lengths_B, silu)

    expected = everything(partial(run, convolution_op.naive), inputs, states, lengths_B)
    found = everything(on_cuda(partial(run, load("short_convolution"))), inputs, states, lengths_B)
    assert largest(found, expected) <= 1e-5


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["gated_delta", "linear_attention", "mamba2", "ttt_linear", "mingru", "minlstm"])
def test_a_training_step_in_half_precision_is_the_slow_one(kind: str) -> None:
    """Under autocast, through the whole model: every kernel reads half precision, and slices of a projection."""
    model = build(kind, vocab=11, width=64, depth=1, seed=0).cuda()
    x_BT = torch.randint(11, (3, 70), generator=torch.Generator().manual_seed(1)).cuda()

    def gradient(dtype: torch.dtype) -> list[Tensor]:
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            y, _ = model(x_BT)
        weights = list(model.parameters())
        got = torch.autograd.grad((y.float() * noise(*y.shape, seed=2).to(y.device)).sum(), weights)
        return [torch.cat([part.double().flatten().cpu() for part in got])]

    with force("naive"):
        exact = gradient(torch.float32)
    assert largest(gradient(torch.float32), exact) <= 1e-3
    assert largest(gradient(torch.bfloat16), exact) <= 0.05


@pytest.mark.gpu
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("time", [1, 64, 65, 200])
def test_compiled_linear_attention(time: int, rows: str) -> None:
    inputs, states = linear_case(time, delta=False, decay=0.3)
    lengths_B = ragged(time) if rows == "ragged" else None
    expected = everything(linear_form(linear_op.naive.linear_attention), inputs, states, lengths_B)
    found = everything(on_cuda(linear_form(load("linear_attention").linear_attention)), inputs, states, lengths_B)
    assert largest(found, expected) <= 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize("time", [1, 33, 65])
@pytest.mark.parametrize(("key", "value"), [(64, 64), (100, 150)])
def test_compiled_gated_delta(key: int, value: int, time: int, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_linear_attention_forms, "KEY", key)
    monkeypatch.setattr(test_linear_attention_forms, "VALUE", value)
    inputs, states = linear_case(time, delta=True, decay=0.3)
    lengths_B = ragged(time) if rows == "ragged" else None
    expected = everything(linear_form(delta_op.naive.gated_delta), inputs, states, lengths_B)
    found = everything(on_cuda(linear_form(load("gated_delta").gated_delta)), inputs, states, lengths_B)
    assert largest(found, expected) <= 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("rows", ["full", "ragged"])
@pytest.mark.parametrize(("key", "value"), [(8, 9), (16, 17), (32, 33), (20, 48), (64, 65), (100, 150), (128, 129)])
@pytest.mark.parametrize("op", ["linear_attention", "gated_delta"])
def test_compiled_memories_in_bfloat16(
    op: str, key: int, value: int, rows: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of any width: tiles that Triton computed wrongly here are filled up."""
    monkeypatch.setattr(test_linear_attention_forms, "KEY", key)
    monkeypatch.setattr(test_linear_attention_forms, "VALUE", value)
    inputs, states = linear_case(70, delta=op == "gated_delta", decay=0.3)
    inputs = [part.bfloat16().double() if n < 3 else part for n, part in enumerate(inputs)]
    lengths_B = ragged(70) if rows == "ragged" else None
    naive = {"linear_attention": linear_op, "gated_delta": delta_op}[op].naive
    expected = everything(linear_form(getattr(naive, op)), inputs, states, lengths_B)
    run = linear_form(getattr(load(op), op))

    def narrow(inputs: list[Tensor], states: list[Tensor], lengths_B: Tensor | None) -> tuple[Tensor, ...]:
        half = [part.cuda().bfloat16() if n < 3 else part.cuda().float() for n, part in enumerate(inputs)]
        lengths = None if lengths_B is None else lengths_B.cuda()
        return tuple(part.double().cpu() for part in run(half, on_device(states, torch.float32), lengths))

    assert largest(everything(narrow, inputs, states, lengths_B), expected) <= 0.02


@pytest.mark.gpu
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
    if not normed:  # a bare inner model learns without brakes, and diverges at a high rate
        inputs[3] = {"linear": 0.1, "mlp": 0.01}[inner] * inputs[3]
    lengths_B = ragged(time) if rows == "ragged" else None
    exact = form(ttt_op.naive, inner, normed=normed, mini_batch=16)
    ours = form(load("ttt", "triton" if inner == "linear" else "triton_mlp"), inner, normed=normed, mini_batch=16)
    expected = everything(exact, inputs, states, lengths_B)
    assert largest(everything(on_cuda(ours), inputs, states, lengths_B), expected) <= 1e-4


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (3, 65, 6, 64), (2, 300, 3, 33), (2, 7, 4, 128)])
def test_compiled_rotation(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    batch, time, heads, width = shape
    at_BT = torch.arange(batch)[:, None] * 1000 + torch.arange(time)
    x = noise(batch, time, 2, heads * width, seed=0)
    weight = noise(*shape, seed=1)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-2
    kept = []
    for run, device, kind in ((load("rotary").rotate, "cuda", dtype), (naive_rotary.rotate, "cpu", torch.float64)):
        leaf = x.to(device, kind).requires_grad_()
        y_BTHK = run(leaf[:, :, 1].unflatten(-1, (heads, width)), at_BT.to(device), 10_000.0)
        (gradient,) = torch.autograd.grad((y_BTHK * weight.to(device, kind)).sum(), leaf)
        kept.append([y_BTHK.detach(), gradient])
    # The angles are float32's, whatever the form: at position 2000 that is a few units of the last place.
    assert largest(*kept) <= 10 * tolerance


@pytest.mark.gpu
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (5, 384), (16384, 384), (700, 1000), (33, 8192)])
def test_compiled_norm(shape: tuple[int, int], centred: bool) -> None:
    x_ND, gain_D = 2 * noise(*shape, seed=0) + 1, noise(shape[1], seed=1)
    bias_D, weight_ND = noise(shape[1], seed=2) if centred else None, noise(*shape, seed=3)
    kept = []
    for device, kind in (("cuda", torch.float32), ("cpu", torch.float64)):
        given = [part for part in (x_ND, gain_D, bias_D) if part is not None]
        leaves = [part.to(device, kind, copy=True).requires_grad_() for part in given]
        x, gain, *rest = leaves
        bias = rest[0] if rest else None
        if device == "cuda":
            y_ND = load("layer_norm").norm(x, gain, bias, 1e-5, centred=centred, dtype=torch.float32)
        else:
            y_ND = naive_norm.norm(x, gain, bias, 1e-5, centred=centred)
        kept.append([y_ND.detach(), *torch.autograd.grad((y_ND * weight_ND.to(device, kind)).sum(), leaves)])
    more_ND = noise(*shape, seed=4).float()
    options = {"centred": centred, "dtype": torch.float32}
    x, more, gain, bias = (None if part is None else part.float().cuda() for part in (x_ND, more_ND, gain_D, bias_D))
    kept[0] += load("layer_norm").sum_and_norm(x, more, gain, bias, 1e-5, **options)
    total_ND = (x_ND.float() + more_ND).double()
    kept[1] += [total_ND, naive_norm.norm(total_ND, gain_D, bias_D, 1e-5, centred=centred)]
    # Of a vector with one number the norm is its sign, and what cancels in the gradient is all of it: the error is
    # that of the terms, whose size this is.
    apart_ND = x_ND - x_ND.mean(-1, keepdim=True) if centred else x_ND
    terms = (gain_D * weight_ND * torch.rsqrt(apart_ND.square().mean(-1, keepdim=True) + 1e-5)).norm()
    found_ND, exact_ND = (each.pop(1) for each in kept)
    assert float((found_ND.double().cpu() - exact_ND).norm() / terms) <= 2e-5
    assert largest(*kept) <= 2e-5


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("slots", [80, 3000])
@pytest.mark.parametrize(("heads", "shared", "width"), [(12, 1, 64), (4, 2, 33), (1, 1, 256)])
def test_compiled_step_of_attention(heads: int, shared: int, width: int, slots: int, dtype: torch.dtype) -> None:
    groups, length_B = heads // shared, torch.tensor([0, slots // 2, slots - 1])
    q, k, v = (noise(3, n, width, seed=n + 1) for n in (heads, groups, groups))
    lists = [with_room(noise(3, slots, groups, width, seed=seed), slots) for seed in (7, 8)]
    slopes_H = torch.linspace(0.01, 0.1, heads, dtype=torch.float64) if shared > 1 else None
    kept = []
    for device, kind in (("cuda", dtype), ("cpu", torch.float64)):
        own = [part.to(dtype).to(device, kind, copy=True) for part in (q, k, v, *lists)]
        slopes = None if slopes_H is None else slopes_H.to(device)
        y, after = attend_(*own, length_B.to(device), slopes_H=slopes, scale=width**-0.5)
        assert after.tolist() == (length_B + 1).tolist()
        kept.append([y, *own[3:]])
    assert largest(*kept) <= (1e-5 if dtype == torch.float32 else 1e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("shape", [(1, 768, 2304), (1, 3072, 768), (1, 33, 50257), (7, 768, 100), (16, 650, 65)])
def test_compiled_product_of_few_rows(shape: tuple[int, int, int], biased: bool) -> None:
    rows, inputs, outputs = shape
    x_BI, weight_OI, bias_O = noise(rows, inputs, seed=0), noise(outputs, inputs, seed=1), noise(outputs, seed=2)
    half = [part.bfloat16() for part in (x_BI, weight_OI, bias_O)]
    x, weight, bias = (part.cuda() for part in half)
    assert few_rows_op.choice(weight, rows=rows).implementation == "triton"
    y_BO = few_rows_op.product(x, weight, bias if biased else None, "gelu", x.new_ones(rows, outputs))
    exact = [part.double() for part in half]
    expected = torch.nn.functional.linear(exact[0], exact[1], exact[2] if biased else None)
    assert largest([y_BO], [1 + torch.nn.functional.gelu(expected, approximate="tanh")]) <= 4e-3


@pytest.mark.gpu
def test_a_norm_for_products_comes_in_their_precision() -> None:
    x_BTD, gain_D = noise(3, 5, 64, seed=0).float().cuda(), torch.ones(64, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        narrow, wide = (norm_op.norm(x_BTD, gain_D, None, 1e-5, centred=True, for_products=p) for p in (True, False))
    assert (narrow.dtype, wide.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(narrow, wide.bfloat16())
