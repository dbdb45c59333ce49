"""The twins on a GPU: as near to float64 as torch.nn is there, whichever of our kernels or cuDNN runs."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence
from twins import SEQUENCES, gradients, pair, tensors

pytestmark = pytest.mark.gpu

WIDTH, BATCH, TIME = 128, 16, 33


def inputs(form: str, dtype: torch.dtype) -> Any:
    x = torch.randn(TIME, BATCH, WIDTH, generator=torch.Generator().manual_seed(0)).to("cuda", dtype)
    if form == "full":
        return x
    return pack_padded_sequence(x, torch.arange(BATCH) * 2 + 1, enforce_sorted=False)


def results(module: Any, x: Any) -> list[Tensor]:
    out = module(x)
    return [*tensors(out), *gradients(module, [part.float() for part in tensors(out)], [])]


@pytest.mark.parametrize("form", ["full", "packed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=str)
@pytest.mark.parametrize("kind", SEQUENCES)
def test_as_near_as_theirs(kind: str, options: dict[str, Any], dtype: torch.dtype, form: str) -> None:
    torch.manual_seed(0)
    theirs, ours = (module.to("cuda", dtype) for module in pair(kind, WIDTH, WIDTH, **options))
    x = inputs(form, dtype)
    exact = copy.deepcopy(theirs).double()
    truth = results(exact, x._replace(data=x.data.double()) if form == "packed" else x.double())
    for mine, other, true in zip(results(ours, x), results(theirs, x), truth, strict=True):
        assert mine.dtype == other.dtype
        scale = true.abs().max() * torch.finfo(dtype).eps
        error, allowed = (mine - true).abs().max(), (other - true).abs().max()
        assert error <= 1.5 * allowed + 4 * scale


@pytest.mark.parametrize("kind", SEQUENCES)
def test_autocast_gives_what_theirs_gives(kind: str) -> None:
    """But for the dtype: PyTorch gives cuDNN float16, whatever autocast was asked for; ours keeps to what was asked."""
    theirs, ours = (module.to("cuda", torch.float32) for module in pair(kind, WIDTH, WIDTH, 2))
    x = inputs("full", torch.float32)
    with torch.autocast("cuda", torch.bfloat16):
        found, expected = ours(x), theirs(x)
    assert {part.dtype for part in tensors(found)} == {torch.bfloat16}
    assert {part.dtype for part in tensors(expected)} == {torch.float16}
    torch.testing.assert_close(
        [part.float() for part in tensors(found)], [part.float() for part in tensors(expected)], rtol=0.0, atol=0.03
    )
    found[0].sum().backward()
    assert ours.weight_hh_l0.grad.dtype == torch.float32
