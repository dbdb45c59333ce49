"""Triton's kernels on a CPU, by its interpreter: a program of its own, because Triton asks once how it is to run.

    python tests/kernels/interpreted.py OP

prints, as JSON, the largest difference of each case from the naive form: outputs, final state, every gradient.
Without OP it reads ops from standard input, a line each, and answers each by a line, from a fork of its own.
"""

import importlib
import itertools
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import test_linear_attention_forms
import torch
import triton.language as tl
from forms import BATCH, difference, everything, noise, ragged
from test_linear_attention_forms import case as linear_case
from test_linear_attention_forms import form as linear_form
from test_ttt_forms import SHAPES, case, form
from torch.nn import functional as F
from triton.runtime import interpreter

from statewise.kernels import attention as attention_op
from statewise.kernels.cross_entropy import chunked
from statewise.kernels.gated_delta import naive as naive_delta
from statewise.kernels.layer_norm import naive as naive_norm
from statewise.kernels.linear_attention import naive as naive_linear
from statewise.kernels.rotary import naive as naive_rotary
from statewise.kernels.scan import naive as naive_scan
from statewise.kernels.short_convolution import naive as naive_convolution
from statewise.kernels.ttt import naive as naive_ttt

Case = tuple[str, float]


def one_number_is_a_number() -> None:
    """The interpreter holds scalars as arrays of one number, which newer versions of NumPy do not take for an index."""
    real: Callable[..., None] = interpreter._patch_lang_tensor

    def patched(tensor: type, scope: object) -> None:
        real(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def a_mask_is_of_booleans() -> None:
    """And a scalar that it holds as a Python bool makes whole numbers of the mask that it is combined with."""
    for name, at in (("create_masked_load", 1), ("create_masked_store", 2)):
        real: Callable[..., object] = getattr(interpreter.InterpreterBuilder, name)

        def patched(self: object, *args: object, real: Callable[..., object] = real, at: int = at) -> object:
            args[at].data = args[at].data.astype(bool)
            return real(self, *args)

        setattr(interpreter.InterpreterBuilder, name, patched)


def products_in_bfloat16() -> None:
    """Which it holds as whole numbers of 16 bits, and would multiply as such."""
    real: Callable[..., object] = interpreter.InterpreterBuilder.create_dot

    def patched(self: object, a: object, b: object, *more: object) -> object:
        wide = (
            interpreter.TensorHandle((part.data.astype(np.uint32) << 16).view(np.float32), tl.float32)
            if part.dtype.scalar == tl.bfloat16
            else part
            for part in (a, b)
        )
        return real(self, *wide, *more)

    interpreter.InterpreterBuilder.create_dot = patched


def in_float32(values: list[torch.Tensor]) -> list[torch.Tensor]:
    return [value.float() if value.is_floating_point() else value for value in values]


def ttt() -> Iterator[Case]:
    module = importlib.import_module("statewise.kernels.ttt.triton")
    module._KEEP = 2
    yield from ttt_cases("linear", module, ((4, 13), (16, 33), (3, 1)))


def ttt_mlp() -> Iterator[Case]:
    module = importlib.import_module("statewise.kernels.ttt.triton_mlp")
    module._BLOCK = 16
    SHAPES["mlp"] = [(3, 20), (20, 3)]  # of hidden units more than one block, and the last one not full
    for keep in (1, 2):
        module._keep = lambda *_, keep=keep: keep
        for name, error in ttt_cases("mlp", module, ((4, 13),)):
            yield f"keep={keep} {name}", error


def ttt_cases(inner: str, module: object, sizes: tuple[tuple[int, int], ...]) -> Iterator[Case]:
    """Rows at different places of their mini-batches, and weights that are computed again on the way back."""
    for number, (mini_batch, time) in enumerate(sizes):
        for rows in (None, ragged(time)):
            normed = (number + (rows is None)) % 2 == 0
            inputs, states = case(inner, time, mini_batch=mini_batch, places="apart")
            if not normed:
                inputs[3] = 0.1 * inputs[3]
            run, expected = (form(m, inner, normed=normed, mini_batch=mini_batch) for m in (module, naive_ttt))
            if rows is not None:
                run = in_slices(run)
            error = difference(run, expected, in_float32(inputs), in_float32(states), rows)
            yield f"norm={normed} mini_batch={mini_batch} time={time} ragged={rows is not None}", error


def scan() -> Iterator[Case]:
    module = importlib.import_module("statewise.kernels.scan.triton")
    module._SHORTEST, module._BLOCK = 4, 16
    for time, rows in ((1, None), (23, None), (23, ragged(23))):
        a, b = torch.sigmoid(noise(BATCH, time, 19, seed=0)), noise(BATCH, time, 19, seed=1)
        a[:, :, 3] = 0
        states = in_float32([noise(BATCH, 19, seed=2)])
        label = f"time={time} ragged={rows is not None} chunks={module._plan(BATCH, time, 19)[1]}"
        if rows is None:
            run, expected = (scan_form(m.scan) for m in (module, naive_scan))
            yield label, difference(run, expected, in_float32([torch.cat([a, b], 2)]), states, rows)
        if time > 1:
            z = (10 * a).masked_fill(a == 0, -80.0)
            run, expected = scan_form(module.gated_scan), scan_form(of_gates)
            yield f"gated {label}", difference(run, expected, in_float32([torch.cat([z, b], 2)]), states, rows)


def of_gates(z_BTD: torch.Tensor, x_BTD: torch.Tensor, *more: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return naive_scan.scan(*naive_scan.gates(z_BTD, x_BTD), *more)


def scan_form(run: Callable[..., tuple[torch.Tensor, ...]]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Both inputs as halves of one tensor, as a projection has them."""
    return lambda inputs, states, lengths_B: run(*inputs[0].chunk(2, dim=-1), *states, lengths_B)


def short_convolution() -> Iterator[Case]:
    """Rows shorter than what is remembered; channels of more than one program; a slice of something wider; one tap."""
    module = importlib.import_module("statewise.kernels.short_convolution.triton")
    module._TILE, module._SUMMED = module.Tile(16, 16, 4), module.Tile(4, 16, 2, tiles=2)
    for time, taps, silu, rows in (
        (1, 4, True, None),
        (2, 4, False, ragged(2)),
        (21, 4, True, ragged(21)),
        (18, 2, False, None),
        (5, 1, True, ragged(5)),
    ):
        inputs = [noise(BATCH, time, 40, seed=0), noise(19, taps, seed=1)]
        states = [noise(BATCH, taps - 1, 19, seed=2)]
        run, expected = (convolution_form(m.short_convolution, silu=silu) for m in (module, naive_convolution))
        error = difference(run, expected, in_float32(inputs), in_float32(states), rows)
        yield f"time={time} taps={taps} silu={silu} ragged={rows is not None}", error


def convolution_form(
    run: Callable[..., tuple[torch.Tensor, ...]], *, silu: bool
) -> Callable[..., tuple[torch.Tensor, ...]]:
    return lambda inputs, states, lengths_B: run(inputs[0][..., 3:22], *states, inputs[1], lengths_B, silu)


def in_slices(run: Callable[..., object]) -> Callable[..., object]:
    """With q, k and v as parts of one tensor, which has them all side by side."""

    def of_one(inputs: list[torch.Tensor], states: list[torch.Tensor], lengths_B: torch.Tensor | None) -> object:
        q, k, v = torch.cat(inputs[:3], dim=-1).split([part.shape[-1] for part in inputs[:3]], dim=-1)
        return run([q, k, v, *inputs[3:]], states, lengths_B)

    return of_one


def in_bfloat16(values: list[torch.Tensor]) -> list[torch.Tensor]:
    """Queries, keys and values; what is beside them stays in float32."""
    return [value.bfloat16() if n < 3 else value.float() for n, value in enumerate(values)]


def small_chunks(columns: int = 16) -> None:
    """Chunks of 32 time steps, and of a state several programs' columns."""
    module = importlib.import_module("statewise.kernels.chunk_autograd")
    module._CHUNK = {torch.float32: 32, torch.bfloat16: 32}
    module._WIDE = module._NARROW = dict.fromkeys(module._WIDE, module.Launch(columns, 4, 1))


def in_half_precision(run: Callable[..., object], expected: Callable[..., object], *, delta: bool) -> Case:
    """Products in bfloat16. The interpreter cuts digits off where a GPU rounds, so errors are twice a GPU's."""
    test_linear_attention_forms.VALUE = 20
    inputs, states = linear_case(70, delta=delta, decay=0.3)
    inputs = [part.float().double() for part in in_bfloat16(inputs)]
    exact = everything(expected, inputs, states, ragged(70))
    found = everything(run, in_bfloat16(inputs), in_float32(states), ragged(70))
    error = max(float((a.double() - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True))
    return "bfloat16", 0.0 if error < 0.03 else error


def linear_attention() -> Iterator[Case]:
    module = importlib.import_module("statewise.kernels.linear_attention.triton")
    small_chunks()
    run, expected = (linear_form(m.linear_attention) for m in (module, naive_linear))
    for time, decay, value, rows in (
        (1, 0.3, 3, None),
        (70, 0.3, 20, ragged(70)),
        (33, 0.0, 3, None),
        (40, 30.0, 35, ragged(40)),
    ):
        test_linear_attention_forms.VALUE = value
        inputs, states = linear_case(time, delta=False, decay=decay)
        error = difference(run, expected, in_float32(inputs), in_float32(states), rows)
        yield f"time={time} decay={decay} value={value} ragged={rows is not None}", error
    inputs, states = linear_case(20, delta=False, decay=0.3)
    yield "slices", difference(in_slices(run), in_slices(expected), in_float32(inputs), in_float32(states), ragged(20))
    yield in_half_precision(run, expected, delta=False)
    test_linear_attention_forms.KEY = 70
    inputs, states = linear_case(35, delta=False, decay=0.3)
    yield "keys in two parts", difference(run, expected, in_float32(inputs), in_float32(states), ragged(35))


def gated_delta() -> Iterator[Case]:
    """Columns of more than one program, keys that are all the same, and numbers that do not lie side by side."""
    module = importlib.import_module("statewise.kernels.gated_delta.triton")
    small_chunks()
    run, expected = (linear_form(m.gated_delta) for m in (module, naive_delta))
    for time, decay, value, rows in (
        (1, 0.3, 3, None),
        (70, 0.3, 20, ragged(70)),
        (33, 0.0, 3, None),
        (40, 30.0, 3, ragged(40)),
    ):
        test_linear_attention_forms.VALUE = value
        inputs, states = linear_case(time, delta=True, decay=decay)
        if decay == 0:
            inputs[1], inputs[3] = inputs[1][:, :1].expand_as(inputs[1]), torch.ones_like(inputs[3])
        error = difference(run, expected, in_float32(inputs), in_float32(states), rows)
        yield f"time={time} decay={decay} value={value} ragged={rows is not None}", error
    inputs, states = linear_case(20, delta=True, decay=0.3)
    yield "slices", difference(in_slices(run), in_slices(expected), in_float32(inputs), in_float32(states), ragged(20))
    yield in_half_precision(run, expected, delta=True)
    test_linear_attention_forms.KEY = 70
    inputs, states = linear_case(35, delta=True, decay=0.3)
    yield "keys in two parts", difference(run, expected, in_float32(inputs), in_float32(states), ragged(35))


def cross_entropy() -> Iterator[Case]:
    """More logits than one block, the last of which is not full; rows with room; a token that counts nothing; -inf."""
    module = importlib.import_module("statewise.kernels.cross_entropy.triton")
    module._BLOCK = 16
    target_C1 = torch.tensor([[0], [16], [36], [5], [5]])
    cases = itertools.product((0.0, 0.1), (None, torch.tensor([[1.0], [0.0], [0.25], [3.0], [1.0]])), (37, 48, 60))
    for smoothing, share, room in cases:
        logits = 3 * noise(5, 37, seed=0).float()
        if not smoothing:
            logits[:, 17:33] = float("-inf")
            logits[2, :17] = float("-inf")
        how = {"vocab": 37, "gradient": True}
        expected = chunked._nats_and_gradient(logits.double(), target_C1, share, smoothing, **how)
        roomy = torch.cat([logits, torch.full((5, room - 37), 50.0)], dim=1)
        nats_C, d_CR = module.nats_and_gradient(roomy.clone(), target_C1, share, smoothing, **how)
        got = (nats_C, d_CR[:, :37])
        error = max(float((a - b).norm() / b.norm()) for a, b in zip(got, expected, strict=True))
        looked, _ = module.nats_and_gradient(roomy, target_C1, share, smoothing, vocab=37, gradient=False)
        sound = torch.equal(looked, nats_C) and not d_CR[:, 37:].any()
        yield f"smoothing={smoothing} share={share is not None} room={room}", error if sound else float("inf")
    broken = torch.zeros(1, 37).index_fill(1, torch.tensor([20]), float("nan"))
    nats, _ = module.nats_and_gradient(broken, torch.tensor([[3]]), None, 0.0, vocab=37, gradient=False)
    yield "one that is no number shows", 0.0 if bool(nats.isnan().all()) else float("inf")


def rotary() -> Iterator[Case]:
    """Heads in the middle of wider rows, an odd width, rows at different places; the gradient and the gradient's."""
    module = importlib.import_module("statewise.kernels.rotary.triton")
    module._TOKENS = 4
    for width in (2, 6, 7):
        at_BT = torch.tensor([[0], [17], [20_000_000]]) + torch.arange(5)
        wide = noise(3, 5, 4 * width + 3, seed=width).float().requires_grad_()
        weight, found, expected = noise(3, 5, 3, width, seed=1).float(), [], []
        scaling = naive_rotary.Scaling("llama3", 8.0, 8192, 1.0, 4.0) if width == 6 else None
        for run, kept in ((module.rotate, found), (naive_rotary.rotate, expected)):
            x_BTHK = wide[..., width : 4 * width].unflatten(-1, (3, width))
            y_BTHK = run(x_BTHK, at_BT, 10_000.0, scaling)
            (first,) = torch.autograd.grad((y_BTHK.sin() * weight).sum(), wide, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), wide)
            kept += [y_BTHK, first, second]
        errors = [float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True)]
        yield f"width={width}", max(errors)
    turned = module.rotate(wide[..., :6].unflatten(-1, (1, 6)).transpose(0, 1), at_BT.T, 10_000.0)
    again = naive_rotary.rotate(wide[..., :6].unflatten(-1, (1, 6)).transpose(0, 1), at_BT.T, 10_000.0)
    yield "time before batch in memory", float((turned - again).norm() / again.norm())


def attention_step() -> Iterator[Case]:
    """Rows of different age, the first empty; shared heads, slopes, a list in parts; keys out of a wider product."""
    module = importlib.import_module("statewise.kernels.attention.triton")
    module._HELD = 64
    for width, heads, shared, sloped, part in ((4, 2, 1, False, 99), (5, 6, 3, True, 99), (4, 4, 2, False, 16)):
        module._PART = part
        groups, slots, length_B = heads // shared, 40, torch.tensor([0, 17, 39, 32])
        wide = noise(4, (heads + 2 * groups) * width, seed=width).float()
        sizes = [heads * width, groups * width, groups * width]
        q, k, v = (part.unflatten(1, (-1, width)) for part in wide.split(sizes, dim=1))
        lists = [noise(4, groups, slots, width, seed=seed).float().transpose(1, 2) for seed in (1, 2)]
        slopes_H = torch.rand(heads, generator=torch.Generator().manual_seed(0)) if sloped else None
        found, expected = ([each.clone(memory_format=torch.preserve_format) for each in lists] for _ in range(2))
        y, after = module.attend_(q, k, v, *found, length_B, slopes_H, 0.7)
        exact, counted = attention_op.attend_(q, k, v, *expected, length_B, slopes_H=slopes_H, scale=0.7, wish="naive")
        written = all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        same = written and torch.equal(after, counted)
        name = f"width={width} shared={shared} sloped={sloped} parts={module.parts_of(slots, programs=4 * heads)}"
        yield name, float((y - exact).norm() / exact.norm()) if same else float("inf")


def few_rows() -> Iterator[Case]:
    """One vector and several, tiles that are not full, with and without a bias, activated, added to something."""
    module = importlib.import_module("statewise.kernels.few_rows.triton")
    functions = {"none": lambda y: y, "relu": F.relu, "gelu": lambda y: F.gelu(y, approximate="tanh")}
    for rows, inputs, outputs in ((1, 700, 19), (1, 5, 1), (3, 130, 33), (70, 65, 17)):
        for activation, biased, added in (("none", True, False), ("relu", False, True), ("gelu", True, True)):
            x_BI, weight_OI = noise(rows, inputs, seed=0).float(), noise(outputs, inputs, seed=1, scale=0.1).float()
            bias_O = noise(outputs, seed=2).float() if biased else None
            onto_BO = noise(rows, outputs, seed=3).float() if added else None
            y = module.product(x_BI, weight_OI, bias_O, activation, onto_BO)
            activated = functions[activation](F.linear(x_BI, weight_OI, bias_O))
            exact = activated if onto_BO is None else onto_BO + activated
            yield f"rows={rows} outputs={outputs} activation={activation}", float((y - exact).norm() / exact.norm())


def argmax() -> Iterator[Case]:
    """Parts that are not full, the same number twice, infinities, and what is no number."""
    module = importlib.import_module("statewise.kernels.argmax.triton")
    module._PART = 16
    for width in (1, 16, 50):
        x_BV = noise(5, width, seed=width).float()
        x_BV[1] = 3.0
        x_BV[2, width // 2] = float("inf")
        x_BV[3] = -float("inf")
        x_BV[4, -1] = float("nan")
        yield f"width={width}", float((module.argmax(x_BV) != x_BV.argmax(-1)).sum())


def layer_norm() -> Iterator[Case]:
    """More vectors than programs take in one go, the last tile not full; with and without a bias; second gradients."""
    module = importlib.import_module("statewise.kernels.layer_norm.triton")
    module._HELD, module._PROGRAMS = 16, 3
    for width, centred, biased in ((5, True, True), (8, True, False), (7, False, False), (1, False, True)):
        x_ND = (2 * noise(17, width, seed=0) + 1).float()
        gain_D, bias_D = noise(width, seed=1).float(), noise(width, seed=2).float() if biased else None
        weight_ND, given = (
            noise(17, width, seed=3).float(),
            [part for part in (x_ND, gain_D, bias_D) if part is not None],
        )
        found, expected = [], []
        for kind, kept in (("triton", found), ("naive", expected)):
            x, gain, *rest = [part.clone().requires_grad_() for part in given]
            bias = rest[0] if rest else None
            slice_ND = x.repeat(1, 2)[:, :width]  # of a wider projection: its rows do not lie side by side
            if kind == "triton":
                y_ND = module.norm(slice_ND, gain, bias, 1e-3, centred=centred, dtype=torch.float32)
            else:
                y_ND = naive_norm.norm(slice_ND, gain, bias, 1e-3, centred=centred)
            loss, wanted = (y_ND.sin() * weight_ND).sum(), [x, gain, *rest]
            once = torch.autograd.grad(loss, wanted, retain_graph=True)
            again = torch.autograd.grad(loss, wanted, create_graph=True)
            second = torch.autograd.grad(sum(part.square().sum() for part in again), x)
            kept += [part.detach() for part in (y_ND, *once, *again, *second)]
        with torch.no_grad():  # of parameters that could want a gradient
            found.append(module.norm(slice_ND, gain, bias, 1e-3, centred=centred, dtype=torch.float32))
            assert not found[-1].requires_grad
        expected.append(expected[0])
        more_ND = noise(17, width, seed=4).float()
        found += module.sum_and_norm(x_ND, more_ND, gain_D, bias_D, 1e-3, centred=centred, dtype=torch.float32)
        total_ND = x_ND + more_ND
        expected += [total_ND, naive_norm.norm(total_ND, gain_D, bias_D, 1e-3, centred=centred)]
        errors = [float((a - b).norm() / b.norm().clamp(min=1e-3)) for a, b in zip(found, expected, strict=True)]
        yield f"width={width} centred={centred} biased={biased}", max(errors)
        for narrow in (torch.float32, torch.bfloat16) if width > 1 else ():  # a gradient of 0 has no digits
            parts = (x_ND, (8 * more_ND).round().to(narrow), gain_D, bias_D)
            yield f"sum width={width} narrow={narrow}", sum_and_norm_error(module, parts, weight_ND, centred=centred)


def sum_and_norm_error(module: Any, given: tuple[Any, ...], weight_ND: torch.Tensor, *, centred: bool) -> float:
    """Values and gradients, where the sum, its norm, or both are used; and second gradients."""

    def written_out(x: Any, more: Any, gain: Any, bias: Any, eps: float, **_: Any) -> tuple[Any, Any]:
        return x + more, naive_norm.norm(x + more, gain, bias, eps, centred=centred)

    errors = []
    for used in ((True, True), (True, False), (False, True)):
        results = []
        for run in (module.sum_and_norm, written_out):
            inputs = [None if part is None else part.clone().requires_grad_() for part in given]
            wanted = [part for part in inputs if part is not None]
            outputs = run(*inputs, 1e-3, centred=centred, dtype=torch.float32)
            loss = sum((part.sin() * weight_ND).sum() for part, use in zip(outputs, used) if use)
            options = {"allow_unused": True, "materialize_grads": True}
            once = torch.autograd.grad(loss, wanted, retain_graph=True, **options)
            again = torch.autograd.grad(loss, wanted, create_graph=True, **options)
            second = torch.autograd.grad(sum(part.float().square().sum() for part in again), wanted[0])
            results.append([part.detach().float() for part in (*outputs, *once, *again, *second)])
        # Rounded to bfloat16 once in either form, from numbers that differ in the last digits of float32.
        rounded = [part.dtype == torch.bfloat16 for part in (*outputs, *once, *again)]
        limits = [2**-7 * 1e5 if is_rounded else 1.0 for is_rounded in (*rounded, any(rounded))]
        pairs = zip(*results, limits, strict=True)
        errors += [float((a - b).norm() / b.norm().clamp(min=1e-3)) / limit for a, b, limit in pairs]
    return max(errors)


def twice(
    run: Callable[..., tuple[torch.Tensor, ...]], inputs: list[torch.Tensor], states: list[torch.Tensor], *, alone: bool
):
    """Gradients of the gradients' squares, by everything or `alone` by the first input, which no state depends on."""
    inputs, states = ([value.clone() for value in in_float32(group)] for group in (inputs, states))
    wanted = inputs[:1] if alone else [value for value in (*inputs, *states) if value.is_floating_point()]
    for value in wanted:
        value.requires_grad_()
    total = sum(part.square().sum() for part in run(inputs, states, None) if part.requires_grad)
    options = {"allow_unused": True, "materialize_grads": True}
    first = torch.autograd.grad(total, wanted, create_graph=True, **options)
    return torch.autograd.grad(sum(part.square().sum() for part in first), wanted, **options)


def second_order() -> Iterator[Case]:
    for op, inner, file in (
        ("ttt", "linear", "triton"),
        ("ttt", "mlp", "triton_mlp"),
        ("linear_attention", "", "triton"),
        ("gated_delta", "", "triton"),
        ("scan", "", "triton"),
        ("short_convolution", "", "triton"),
    ):
        module = importlib.import_module(f"statewise.kernels.{op}.{file}")
        if op == "ttt":
            inputs, states = case(inner, 5, mini_batch=4, places="apart")
            run, expected = (form(m, inner, normed=True, mini_batch=4) for m in (module, naive_ttt))
        elif op == "scan":
            inputs, states = [noise(BATCH, 5, 6, seed=0)], [noise(BATCH, 3, seed=1)]
            run, expected = scan_form(module.gated_scan), scan_form(of_gates)
        elif op == "short_convolution":
            inputs, states = [noise(BATCH, 5, 40, seed=0), noise(19, 4, seed=1)], [noise(BATCH, 3, 19, seed=2)]
            run, expected = (convolution_form(m.short_convolution, silu=True) for m in (module, naive_convolution))
        else:
            naive = {"linear_attention": naive_linear, "gated_delta": naive_delta}[op]
            inputs, states = linear_case(5, delta=op == "gated_delta", decay=0.3)
            run, expected = (linear_form(getattr(m, op)) for m in (module, naive))
        for alone in (False, True):
            pairs = zip(*(twice(one, inputs, states, alone=alone) for one in (run, expected)), strict=True)
            error = max(float((a - b).norm() / b.norm().clamp(min=1e-6)) for a, b in pairs)
            yield f"{op} {inner} {'by its first input' if alone else 'by everything'}", error


if __name__ == "__main__":
    one_number_is_a_number()
    a_mask_is_of_booleans()
    products_in_bfloat16()
    torch.use_deterministic_algorithms(True)  # which fills new memory with NaN: what nobody writes shows
    if len(sys.argv) > 1:
        print(json.dumps(dict(globals()[sys.argv[1]]())))
    for line in sys.stdin if len(sys.argv) == 1 else ():
        if os.fork() == 0:
            try:
                answer: object = dict(globals()[line.strip()]())
            except Exception:
                answer = traceback.format_exc()
            print(json.dumps(answer), flush=True)
            os._exit(0)
        os.wait()
