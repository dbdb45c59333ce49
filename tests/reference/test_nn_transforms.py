"""Compilers, tracers and transforms find in a twin what they find in torch.nn."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode
from twins import CELLS, SEQUENCES, assert_same, pair, tensors

import statewise.nn
from statewise.core import lens
from statewise.kernels.choice import force

LONG = 40  # moments, enough for our own backward where there is one


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


class Reader(nn.Module):
    """A model of which the twin is a part."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[0].relu()


@pytest.mark.parametrize("kind", SEQUENCES)
def test_compiled_as_one_graph(kind: str) -> None:
    # PyTorch refuses to read any RNN unless this is set, ours like its own.
    with torch._dynamo.config.patch(allow_rnn=True):
        torch._dynamo.reset()
        _, ours = pair(kind, 3, 4)
        model = Reader(ours)
        x = numbers(5, 2, 3)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert_same(compiled(x), model(x))
        loss, expected = compiled(x).square().sum(), model(x).square().sum()
        for mine, other in zip(
            torch.autograd.grad(loss, list(ours.parameters())),
            torch.autograd.grad(expected, list(ours.parameters())),
            strict=True,
        ):
            assert_same(mine, other)


def test_compiled_around_it() -> None:
    torch._dynamo.reset()
    _, ours = pair("GRU", 3, 4)
    model = Reader(ours)
    x = numbers(LONG, 2, 3)
    assert_same(torch.compile(model, backend="aot_eager")(x), model(x))


@pytest.mark.parametrize("kind", CELLS)
def test_cells_compile(kind: str) -> None:
    torch._dynamo.reset()
    _, ours = pair(kind, 3, 4)
    x = numbers(2, 3)
    assert_same(torch.compile(ours, fullgraph=True, backend="aot_eager")(x), ours(x))


# PyTorch warns so of its own modules too: a list of theirs holds the weights.
@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")
@pytest.mark.parametrize("kind", SEQUENCES)
def test_exported(kind: str) -> None:
    _, ours = pair(kind, 3, 4, 2)
    x = numbers(5, 2, 3)
    program = torch.export.export(Reader(ours), (x,))
    assert_same(program.module()(x), Reader(ours)(x))


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean")  # in torch.nn's own checks
@pytest.mark.parametrize("kind", SEQUENCES)
def test_traced_to_pytorchs_own_op(kind: str) -> None:
    _, ours = pair(kind, 3, 4)
    x = numbers(LONG, 2, 3)
    model = Reader(ours)
    with torch.random.fork_rng():
        traced = torch.jit.trace(model, (x,))
    assert f"aten::{'rnn_tanh' if kind == 'RNN' else kind.lower()}" in str(traced.inlined_graph)
    assert_same(traced(x[:7]), model(x[:7]))


@pytest.mark.parametrize("kind", SEQUENCES)
def test_functional_call(kind: str) -> None:
    theirs, ours = pair(kind, 3, 4)
    weights = {name: 0.5 * parameter.detach() for name, parameter in ours.named_parameters()}
    weights = {name: weight.requires_grad_() for name, weight in weights.items()}
    x = numbers(LONG, 2, 3)
    results = [torch.func.functional_call(module, weights, (x,)) for module in (theirs, ours)]
    assert_same(results[1], results[0])
    mine, other = (torch.autograd.grad(result[0].square().sum(), list(weights.values())) for result in results)
    assert_same(mine, other)
    # And afterwards its own weights are back.
    assert_same(ours(x), theirs(x))


@pytest.mark.parametrize("kind", SEQUENCES)
def test_functional_gradients(kind: str) -> None:
    theirs, ours = pair(kind, 3, 4)
    x = numbers(LONG, 2, 3)

    def gradient(module: nn.Module) -> dict[str, Tensor]:
        def loss(weights: dict[str, Tensor]) -> Tensor:
            return torch.func.functional_call(module, weights, (x,))[0].square().sum()

        return torch.func.grad(loss)(dict(module.named_parameters()))

    mine, other = gradient(ours), gradient(theirs)
    assert list(mine) == list(other)
    assert_same(list(mine.values()), list(other.values()))


@pytest.mark.parametrize("kind", SEQUENCES)
def test_vmap_goes_as_far_as_theirs(kind: str) -> None:
    theirs, ours = pair(kind, 3, 4)
    x = numbers(2, LONG, 2, 3)

    def outcome(module: nn.Module) -> Any:
        try:
            return torch.func.vmap(lambda one: tuple(tensors(module(one))), randomness="same")(x)
        except RuntimeError as error:
            return type(error), str(error).splitlines()[0]

    mine, other = outcome(ours), outcome(theirs)
    if isinstance(other[0], Tensor):
        assert_same(mine, other)
    else:
        assert mine == other


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # used inside PyTorch
@pytest.mark.parametrize("kind", ["RNN", "GRU"])
def test_forward_mode(kind: str) -> None:
    theirs, ours = pair(kind, 3, 4)
    x, along = numbers(LONG, 2, 3), numbers(LONG, 2, 3) + 1
    with forward_ad.dual_level():
        mine, other = (forward_ad.unpack_dual(module(forward_ad.make_dual(x, along))[0]) for module in (ours, theirs))
    assert mine.tangent is not None
    assert_same(mine.tangent, other.tangent)


@pytest.mark.parametrize("kind", SEQUENCES)
def test_on_the_meta_device(kind: str) -> None:
    ours = getattr(statewise.nn, kind)(3, 4, 2, bidirectional=True, device="meta")
    y, _ = ours(torch.empty(LONG, 2, 3, device="meta"))
    assert y.shape == (LONG, 2, 8)
    assert y.device.type == "meta"


@pytest.mark.parametrize("kind", SEQUENCES)
def test_autocast(kind: str) -> None:
    theirs, ours = (module.float() for module in pair(kind, 3, 4, 2))
    x = numbers(LONG, 2, 3).float()
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = ours(x), theirs(x)
    assert [part.dtype for part in tensors(found)] == [part.dtype for part in tensors(expected)]
    for mine, other in zip(tensors(found), tensors(expected), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("kind", SEQUENCES)
def test_a_lens_under_autocast(kind: str) -> None:
    theirs, ours = (module.float() for module in pair(kind, 3, 4, 2))
    x = numbers(6, 2, 3).float()
    with torch.autocast("cpu", torch.bfloat16), lens() as seen:
        y, _ = ours(x)
    assert y.dtype == torch.bfloat16
    assert all(value.dtype == torch.bfloat16 for values in seen.seen.values() for value in values)
    assert (y.float() - theirs(x)[0]).abs().max() < 2e-2


@pytest.mark.parametrize("kind", SEQUENCES)
def test_checkpointed(kind: str) -> None:
    _, ours = pair(kind, 3, 4)
    x = numbers(LONG, 2, 3).requires_grad_()
    y = checkpoint(lambda value: ours(value)[0], x, use_reentrant=False)
    (mine,) = torch.autograd.grad(y.square().sum(), [x])
    (other,) = torch.autograd.grad(ours(x)[0].square().sum(), [x])
    assert_same(mine, other)


@pytest.mark.parametrize("kind", ["RNN", "GRU"])
def test_second_gradients_of_our_own_backward(kind: str) -> None:
    theirs, ours = pair(kind, 2, 3)
    x = numbers(LONG, 2, 2).requires_grad_()
    assert ours.choice(x).implementation == "batched"
    found = []
    for module in (theirs, ours):
        first = torch.autograd.grad(module(x)[0].square().sum(), [x, module.weight_hh_l0], create_graph=True)
        found.append(torch.autograd.grad(sum(part.square().sum() for part in first), list(module.parameters())))
    assert_same(found[1], found[0])


@pytest.mark.parametrize("kind", SEQUENCES)
def test_many_gradients_at_once(kind: str) -> None:
    theirs, ours = pair(kind, 3, 4)
    x = numbers(LONG, 2, 3)
    found = []
    for module in (theirs, ours):

        def rows(x: Tensor, module: nn.Module = module) -> Tensor:
            return torch.as_tensor(module(x)[0].square().sum((0, 2)))

        needed = x.clone().requires_grad_()
        (each,) = torch.autograd.grad(rows(needed), needed, torch.eye(2, dtype=x.dtype), is_grads_batched=True)
        assert not each.requires_grad
        found.append([each, torch.autograd.functional.jacobian(rows, x, vectorize=True)])
    assert_same(*found)
    assert_same(found[1][0], torch.autograd.functional.jacobian(rows, x))


@pytest.mark.parametrize("kind", [*SEQUENCES, *CELLS])
def test_symbolically_traced_as_one_call(kind: str) -> None:
    class Twice(nn.Module):
        """Once from nothing, once from the state before."""

        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            state = self.inner(x) if kind in CELLS else self.inner(x)[1]
            return self.inner(x, hx=state)[0].relu()

    x = numbers(2, 3) if kind in CELLS else numbers(LONG, 2, 3)
    traced = [torch.fx.symbolic_trace(Twice(module)) for module in pair(kind, 3, 4)]
    theirs, ours = ([node.op for node in one.graph.nodes] for one in traced)
    assert ours == theirs
    assert isinstance(traced[1].inner, getattr(statewise.nn, kind))
    assert_same(traced[0](x), traced[1](x))


@pytest.mark.parametrize("kind", SEQUENCES)
def test_alone_it_is_traced_no_more_than_theirs(kind: str) -> None:
    for module in pair(kind, 3, 4):
        with pytest.raises(torch.fx.proxy.TraceError, match="control flow"):
            torch.fx.symbolic_trace(module)


def test_a_dispatch_mode_sees_pytorchs_op() -> None:
    theirs, ours = pair("GRU", 3, 4)
    counts = []
    for module in (theirs, ours):
        with FlopCounterMode(display=False) as counter:
            module(numbers(LONG, 2, 3))
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_a_wish_for_what_is_missing_is_refused() -> None:
    _, ours = pair("LSTM", 3, 4)
    with force("batched"), pytest.raises(ValueError, match="asks for the batched LSTM"):
        ours(numbers(5, 2, 3))
