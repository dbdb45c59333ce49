"""PyTorch's own samples of its recurrent modules (`module_db`), run through ours and theirs."""

from functools import cache
from typing import Any

import pytest
import torch
from torch.autograd import gradgradcheck
from twins import CELLS, SEQUENCES, assert_same, gradients, pair, tensors

import statewise.nn

KINDS = (*SEQUENCES, *CELLS)


@cache
def infos() -> dict[str, Any]:
    """PyTorch's table takes seconds to be imported: not while tests are collected."""
    from torch.testing._internal.common_modules import module_db

    kept = (info for info in module_db if info.module_cls.__module__ == "torch.nn.modules.rnn")
    return {info.module_cls.__name__: info for info in kept}


def kernels(kind: str) -> list[str]:
    return ["auto", "naive", *(["batched"] if kind in ("RNN", "GRU") else [])]


CASES = [(kind, kernel, training) for kind in KINDS for kernel in kernels(kind) for training in (True, False)]


def samples(kind: str, training: bool) -> list[Any]:
    more = {"with_packed_sequence": True} if kind in ("RNN", "GRU") else {}
    info = infos()[kind]
    found = info.module_inputs_func(info, "cpu", torch.float64, requires_grad=True, training=training, **more)
    assert found
    return list(found)


def test_all_six_are_in_the_table() -> None:
    assert set(infos()) == set(KINDS)


@pytest.mark.parametrize(("kind", "kernel", "training"), CASES)
def test_samples(kind: str, kernel: str, training: bool) -> None:
    for sample in samples(kind, training):
        made, given = sample.constructor_input, sample.forward_input
        theirs, ours = pair(kind, *made.args, kernel=kernel, **made.kwargs)
        for module in (theirs, ours):
            module.train(training)
        inputs = [tensor for value in given.args for tensor in tensors(value)]
        expected = theirs(*given.args, **given.kwargs)
        found = ours(*given.args, **given.kwargs)
        assert_same(found, expected)
        assert_same(gradients(ours, found, inputs), gradients(theirs, expected, inputs))


@pytest.mark.parametrize(("kind", "kernel"), [(kind, kernel) for kind in KINDS for kernel in kernels(kind)])
def test_second_gradients(kind: str, kernel: str) -> None:
    for sample in samples(kind, True)[1::16]:
        made, given = sample.constructor_input, sample.forward_input
        _, ours = pair(kind, *made.args, kernel=kernel, **made.kwargs)
        if not all(isinstance(value, torch.Tensor) for value in given.args):
            continue

        def f(*values: torch.Tensor, ours: Any = ours, count: int = len(given.args)) -> tuple[torch.Tensor, ...]:
            weights = dict(zip(dict(ours.named_parameters()), values[count:], strict=True))
            return tuple(tensors(torch.func.functional_call(ours, weights, values[:count])))

        assert gradgradcheck(f, (*given.args, *ours.parameters()), fast_mode=True)


@pytest.mark.parametrize("kind", KINDS)
def test_errors(kind: str) -> None:
    info = infos()[kind]
    given = info.module_error_inputs_func(info, "cpu", torch.float64, requires_grad=False, training=True)
    assert given
    for error in given:
        made, called = error.module_error_input.constructor_input, error.module_error_input.forward_input
        twin = getattr(statewise.nn, kind)
        if error.error_on.name == "CONSTRUCTION_ERROR":
            with pytest.raises(error.error_type, match=error.error_regex):
                twin(*made.args, **made.kwargs)
            continue
        for kernel in kernels(kind):
            module = twin(*made.args, **{"dtype": torch.float64, **made.kwargs})
            module.kernel = kernel
            with pytest.raises(error.error_type, match=error.error_regex):
                module(*called.args, **called.kwargs)
