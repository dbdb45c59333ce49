"""PyTorch's own table of modules (`module_db`) on the twins, with our kernels forced: nightly.

By themselves, twins leave samples as small as these to PyTorch's op, so every call is counted: whoever compares must
have run a kernel of ours. What is checked of each module are the properties that PyTorch asks of all of its own.
"""

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_nn_module_db import infos
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_flatten, tree_unflatten
from twins import CELLS, SEQUENCES, gradients, pair, tensors

from statewise.kernels.choice import Wish, force, record

KERNELS: dict[str, tuple[Wish, ...]] = {"RNN": ("naive", "batched"), "GRU": ("naive", "batched")}
CASES = [
    pytest.param(kind, kernel, device, marks=pytest.mark.gpu if device == "cuda" else ())
    for kind in (*SEQUENCES, *CELLS)
    for device, kernels in (
        ("cpu", KERNELS.get(kind, ("naive",))),
        ("cuda", ("naive", "stepped") if kind in SEQUENCES else ("naive",)),
    )
    for kernel in kernels
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize(("kind", "kernel", "device"), CASES),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),  # PyTorch of its own op
]


class Forced:
    """A twin whose calls go to one kernel; `served` counts those that did."""

    def __init__(self, module: Any, kernel: Wish) -> None:
        self.module, self.kernel, self.calls, self.served = module, kernel, 0, 0

    def __call__(self, *args: Any, weights: Any = None, **named: Any) -> Any:
        with force(self.kernel), record() as chosen:
            result = torch.func.functional_call(self.module, weights or {}, args, named)
        self.calls += 1
        self.served += any(choice.implementation == self.kernel for choice in chosen.values())
        return result


def samples(kind: str, device: str, dtype: torch.dtype, *, training: bool = True) -> Iterator[Any]:
    """Theirs, ours, and the arguments of one call."""
    packed = {"with_packed_sequence": True} if kind in ("RNN", "GRU") else {}
    info = infos()[kind]
    for sample in info.module_inputs_func(info, device, dtype, requires_grad=True, training=training, **packed):
        made = sample.constructor_input
        theirs, ours = pair(kind, *made.args, **{**made.kwargs, "dtype": dtype, "device": device})
        yield theirs.train(training), ours.train(training), sample.forward_input


def close(found: Any, expected: Any) -> None:
    for mine, other in zip(tensors(found), tensors(expected), strict=True):
        exact = other.dtype == torch.float64
        torch.testing.assert_close(mine, other, **({"rtol": 1e-9, "atol": 1e-10} if exact else {}))


def dtypes(kernel: str) -> tuple[torch.dtype, ...]:
    return (torch.float32,) if kernel == "stepped" else (torch.float32, torch.float64)


def assert_served(calls: list[Forced]) -> None:
    """Not one went to PyTorch's own op."""
    made, served = sum(one.calls for one in calls), sum(one.served for one in calls)
    print(f"{served} of {made} calls by {calls[0].kernel}")
    assert served == made > 0


@pytest.mark.parametrize("training", [True, False])
def test_values_and_gradients(kind: str, kernel: Wish, device: str, training: bool) -> None:
    calls = []
    for dtype in dtypes(kernel):
        for theirs, ours, given in samples(kind, device, dtype, training=training):
            forced = Forced(ours, kernel)
            inputs = [tensor for value in given.args for tensor in tensors(value)]
            found, expected = forced(*given.args, **given.kwargs), theirs(*given.args, **given.kwargs)
            close(found, expected)
            close(gradients(ours, found, inputs), gradients(theirs, expected, inputs))
            calls.append(forced)
    assert_served(calls)


def test_copies_and_layouts(kind: str, kernel: Wish, device: str) -> None:
    """A pickled and a copied twin give the same; so do inputs that do not lie in one piece."""
    calls = []
    for theirs, ours, given in samples(kind, device, dtypes(kernel)[-1]):
        expected = theirs(*given.args, **given.kwargs)
        for module in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
            calls.append(Forced(module, kernel))
            close(calls[-1](*given.args, **given.kwargs), expected)
        if all(isinstance(value, Tensor) for value in given.args):
            calls.append(Forced(ours, kernel))
            close(calls[-1](*map(_apart, given.args), **given.kwargs), expected)
    assert_served(calls)


def _apart(value: Tensor) -> Tensor:
    """The same numbers, each beside one that is not read."""
    return torch.stack([value, torch.full_like(value, float("nan"))], dim=-1)[..., 0]


@pytest.mark.timeout(1200)
def test_numerical_gradients(kind: str, kernel: Wish, device: str) -> None:
    """First and second, against differences of values."""
    if kernel == "stepped":
        pytest.skip("it computes in float32, which differences of values are too coarse for")
    calls = []
    for _, ours, given in list(samples(kind, device, torch.float64))[::4]:
        if any(isinstance(value, PackedSequence) for value in given.args):
            continue
        forced, (inputs, spec) = Forced(ours, kernel), tree_flatten(given.args)

        def f(*values: Tensor, forced: Forced = forced, spec: Any = spec, count: int = len(inputs)) -> Any:
            weights = dict(zip(dict(forced.module.named_parameters()), values[count:], strict=True))
            return tuple(tensors(forced(*tree_unflatten(values[:count], spec), weights=weights)))

        values = (*inputs, *ours.parameters())
        assert gradcheck(f, values, fast_mode=True)
        assert gradgradcheck(f, values, fast_mode=True)
        calls.append(forced)
    assert_served(calls)
