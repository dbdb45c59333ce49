"""Triton's kernels on a CPU, by its interpreter: a program of its own, because Triton asks once how it is to run.

    python tests/kernels/interpreted.py OP

prints, as JSON, the largest difference of each case from the naive form: outputs, final state, every gradient.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, str(Path(__file__).parent))

import torch
from forms import BATCH, difference, noise, ragged
from test_linear_attention_forms import case as linear_case
from test_linear_attention_forms import form as linear_form
from test_ttt_forms import SHAPES, case, form
from triton.runtime import interpreter

from statewise.kernels.cross_entropy import chunked
from statewise.kernels.linear_attention import naive as naive_linear
from statewise.kernels.scan import naive as naive_scan
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


def in_float32(values: list[torch.Tensor]) -> list[torch.Tensor]:
    return [value.float() if value.is_floating_point() else value for value in values]


def ttt() -> Iterator[Case]:
    module = importlib.import_module("statewise.kernels.ttt.triton")
    yield from ttt_cases("linear", module, ((4, 13), (16, 33), (3, 1)))


def ttt_mlp() -> Iterator[Case]:
    module = importlib.import_module("statewise.kernels.ttt.triton_mlp")
    module._BLOCK = 16
    SHAPES["mlp"] = [(3, 20), (20, 3)]  # of hidden units more than one block, and the last one not full
    yield from ttt_cases("mlp", module, ((4, 13),))


def ttt_cases(inner: str, module: object, sizes: tuple[tuple[int, int], ...]) -> Iterator[Case]:
    """Rows at different places of their mini-batches, and weights that are computed again on the way back."""
    module._KEEP = 2
    for number, (mini_batch, time) in enumerate(sizes):
        for rows in (None, ragged(time)):
            normed = (number + (rows is None)) % 2 == 0
            inputs, states = case(inner, time, mini_batch=mini_batch, places="apart")
            if not normed:
                inputs[3] = 0.1 * inputs[3]
            run, expected = (form(m, inner, normed=normed, mini_batch=mini_batch) for m in (module, naive_ttt))
            error = difference(run, expected, in_float32(inputs), in_float32(states), rows)
            yield f"norm={normed} mini_batch={mini_batch} time={time} ragged={rows is not None}", error


def scan() -> Iterator[Case]:
    module = importlib.import_module("statewise.kernels.scan.triton")
    module._SHORTEST, module._BLOCK = 4, 16
    for time in (1, 23):
        for rows in (None, ragged(time)):
            gates = torch.sigmoid(noise(BATCH, time, 19, seed=0))
            gates[:, :, 3] = 0
            inputs, states = [gates, noise(BATCH, time, 19, seed=1)], [noise(BATCH, 19, seed=2)]

            def run(inputs: list[torch.Tensor], states: list[torch.Tensor], lengths_B: torch.Tensor | None):
                return module.scan(*inputs, *states, lengths_B)

            def expected(inputs: list[torch.Tensor], states: list[torch.Tensor], lengths_B: torch.Tensor | None):
                return naive_scan.scan(*inputs, *states, lengths_B)

            error = difference(run, expected, in_float32(inputs), in_float32(states), rows)
            yield f"time={time} ragged={rows is not None} chunks={module._plan(BATCH, time, 19)[1]}", error


def linear_attention() -> Iterator[Case]:
    module = importlib.import_module("statewise.kernels.linear_attention.triton")
    module._CHUNK = 16
    for time, decay in ((1, 0.3), (37, 0.3), (33, 0.0), (18, 30.0)):
        for rows in (None, ragged(time)):
            inputs, states = linear_case(time, delta=False, decay=decay)
            run, expected = (linear_form(m.linear_attention) for m in (module, naive_linear))
            error = difference(run, expected, in_float32(inputs), in_float32(states), rows)
            yield f"time={time} decay={decay} ragged={rows is not None}", error


def cross_entropy() -> Iterator[Case]:
    """More logits than one block, the last of which is not full; a token that counts nothing, and one of -inf."""
    module = importlib.import_module("statewise.kernels.cross_entropy.triton")
    module._BLOCK = 16
    target_C1 = torch.tensor([[0], [16], [36], [5], [5]])
    for smoothing in (0.0, 0.1):
        for share in (None, torch.tensor([[1.0], [0.0], [0.25], [3.0], [1.0]])):
            logits = 3 * noise(5, 37, seed=0).float()
            if not smoothing:
                logits[:, 17:33] = float("-inf")
                logits[2, :17] = float("-inf")
            expected = chunked._nats_and_gradient(logits.double(), target_C1, share, smoothing, gradient=True)
            found = module.nats_and_gradient(logits.clone(), target_C1, share, smoothing, gradient=True)
            error = max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True))
            looked, _ = module.nats_and_gradient(logits, target_C1, share, smoothing, gradient=False)
            same = bool(torch.equal(looked, found[0]))
            yield f"smoothing={smoothing} share={share is not None}", error if same else float("inf")
    broken = torch.zeros(1, 37).index_fill(1, torch.tensor([20]), float("nan"))
    nats, _ = module.nats_and_gradient(broken, torch.tensor([[3]]), None, 0.0, gradient=False)
    yield "one that is no number shows", 0.0 if bool(nats.isnan().all()) else float("inf")


def twice(run: Callable[..., tuple[torch.Tensor, ...]], inputs: list[torch.Tensor], states: list[torch.Tensor]):
    """Gradients of the gradients' squares."""
    inputs, states = (
        [value.requires_grad_(value.is_floating_point()) for value in in_float32(group)] for group in (inputs, states)
    )
    wanted = [value for value in (*inputs, *states) if value.requires_grad]
    total = sum(part.square().sum() for part in run(inputs, states, None) if part.requires_grad)
    options = {"allow_unused": True, "materialize_grads": True}
    first = torch.autograd.grad(total, wanted, create_graph=True, **options)
    return torch.autograd.grad(sum(part.square().sum() for part in first), wanted, **options)


def second_order() -> Iterator[Case]:
    for op, inner, file in (
        ("ttt", "linear", "triton"),
        ("ttt", "mlp", "triton_mlp"),
        ("linear_attention", "", "triton"),
    ):
        module = importlib.import_module(f"statewise.kernels.{op}.{file}")
        if op == "ttt":
            inputs, states = case(inner, 5, mini_batch=4, places="apart")
            run, expected = (form(m, inner, normed=True, mini_batch=4) for m in (module, naive_ttt))
        else:
            inputs, states = linear_case(5, delta=False, decay=0.3)
            run, expected = (linear_form(m.linear_attention) for m in (module, naive_linear))
        pairs = zip(twice(run, inputs, states), twice(expected, inputs, states), strict=True)
        yield f"{op} {inner}", max(float((a - b).norm() / b.norm().clamp(min=1e-6)) for a, b in pairs)


if __name__ == "__main__":
    one_number_is_a_number()
    a_mask_is_of_booleans()
    print(json.dumps(dict(globals()[sys.argv[1]]())))
