"""Muon with AdamW for the rest, against torch's own Muon and AdamW in the precision of the weights."""

from operator import attrgetter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from statewise.core import Stacked
from statewise.models import ENCODERS, LINEAGE, build
from statewise.specs import TrainSpec, UserError
from statewise.training.muon import Matrix, Muon, hidden_matrices
from statewise.training.optimizer import make_optimizer, optimizer_tensors, restore_optimizer

SHAPES = [(6, 4), (4, 6), (6, 4), (5, 5)]


@pytest.fixture
def torch_muon_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its iteration is hard-wired to bfloat16; left in float64, there is nothing to tolerate."""
    monkeypatch.setattr(Tensor, "bfloat16", lambda self: self.clone())


def parameters() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [
        nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for shape in [*SHAPES, (7, 3), (4,)]
    ]


def gradients(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in parameters()]


def ours(own: list[nn.Parameter], **options: Any) -> Muon:
    others = [{"params": own[4:5], "weight_decay": 0.2}, {"params": own[5:], "weight_decay": 0.0}]
    settings = {"lr": 0.01, "matrix_lr": 0.05, "matrix_decay": 0.1, "betas": (0.8, 0.9), **options}
    return Muon([Matrix(p, (len(p),)) for p in own[:4]], others, **settings)


def moved(optimizer: Any, own: list[nn.Parameter], steps: range, *, factor: Any = float) -> list[Tensor]:
    for step in steps:
        for p, gradient in zip(own, gradients(step), strict=True):
            p.grad = gradient
        for group in optimizer.param_groups:
            group["lr"] = factor(0.01 / (1 + step))
        optimizer.step()
    return [p.detach().clone() for p in own]


@pytest.mark.usefixtures("torch_muon_is_exact")
@pytest.mark.parametrize(
    "factor", [float, lambda rate: torch.tensor(rate, dtype=torch.float64)], ids=["float", "tensor"]
)
def test_as_torch_muon_and_torch_adamw(factor: Any) -> None:
    """Over several steps of a falling rate, one factor on both."""
    found = moved(ours(own := parameters()), own, range(6), factor=factor)
    theirs = parameters()
    muon = torch.optim.Muon(theirs[:4], weight_decay=0.1, momentum=0.95)
    adamw = torch.optim.AdamW(
        [{"params": theirs[4:5], "weight_decay": 0.2}, {"params": theirs[5:], "weight_decay": 0.0}], betas=(0.8, 0.9)
    )
    for step in range(6):
        for p, gradient in zip(theirs, gradients(step), strict=True):
            p.grad = gradient
        muon.param_groups[0]["lr"] = 0.05 / (1 + step)
        for group in adamw.param_groups:
            group["lr"] = 0.01 / (1 + step)
        muon.step()
        adamw.step()
    for mine, expected in zip(found, theirs, strict=True):
        torch.testing.assert_close(mine, expected.detach(), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("torch_muon_is_exact")
def test_a_stack_moves_as_its_matrices_would() -> None:
    generator = torch.Generator().manual_seed(2)
    whole = nn.Parameter(torch.randn(9, 4, generator=generator, dtype=torch.float64))
    parts = [nn.Parameter(part.clone()) for part in whole.detach().split([4, 3, 2])]
    mine = Muon([Matrix(whole, (4, 3, 2))], [], lr=0.01, matrix_lr=0.05)
    theirs = torch.optim.Muon(parts, lr=0.05, weight_decay=0)
    for _ in range(3):
        whole.grad = torch.randn(9, 4, generator=generator, dtype=torch.float64)
        for part, gradient in zip(parts, whole.grad.split([4, 3, 2]), strict=True):
            part.grad = gradient.clone()
        mine.step()
        theirs.step()
    torch.testing.assert_close(whole.detach(), torch.cat([part.detach() for part in parts]), rtol=0, atol=1e-12)


def test_what_it_remembers_goes_out_and_comes_back() -> None:
    uncut = moved(ours(own := parameters()), own, range(6))
    first = ours(own := parameters())
    moved(first, own, range(3))
    tensors = {name: value.clone() for name, value in optimizer_tensors(first).items()}
    assert {name.partition(".")[2] for name in tensors} == {"momentum_buffer", "step", "exp_avg", "exp_avg_sq"}
    second = ours(own)
    restore_optimizer(second, tensors)
    for mine, expected in zip(moved(second, own, range(3, 6)), uncut, strict=True):
        assert torch.equal(mine, expected)
    del tensors["4.exp_avg"]
    with pytest.raises(UserError, match=r"optimiser state 4\.exp_avg is missing"):
        restore_optimizer(ours(parameters()), tensors)


def test_what_is_not_finite_moves_nothing() -> None:
    own = parameters()
    optimizer = ours(own)
    moved(optimizer, own, range(2))
    before = [p.detach().clone() for p in own]
    memory = {name: value.clone() for name, value in optimizer_tensors(optimizer).items()}
    for p in own:
        p.grad = torch.full_like(p, torch.nan)
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    assert all(torch.equal(p, kept) for p, kept in zip(own, before, strict=True))
    assert all(torch.equal(value, memory[name]) for name, value in optimizer_tensors(optimizer).items())
    optimizer.found_inf = torch.zeros(())
    allowed = moved(optimizer, own, range(2, 3))
    expected = moved(ours(own := parameters()), own, range(3))
    assert all(torch.equal(a, b) for a, b in zip(allowed, expected, strict=True))


def test_encoders_are_looked_into() -> None:
    names = {
        name
        for encoding in ENCODERS
        for make in (encoding.make, *encoding.variants.values())
        for encoder in [make(12)]
        for name, p in encoder.named_parameters()
        if any(p is matrix.weight for matrix in hidden_matrices(encoder))
    }
    assert {name.rpartition(".")[2] for name in names} >= {"w_GI", "u_GD", "w_PI", "o_DD", "weight"}
    assert not [name for name in names if name.endswith(("b_QD", "weight_PD"))]


LAYERED = [row for row in LINEAGE if row.spec.learns == "gradient"]


@pytest.mark.parametrize("row", LAYERED, ids=[row.name for row in LAYERED])
def test_matrices_are_inside_and_cut_where_they_are_stacked(row: Any) -> None:
    """No embedding, head, gain, bias or filter; and no matrix so tall that it can only be a stack of gates."""
    for spec in (row.spec, *row.variants):
        model = build(spec, vocab=29)
        named = {p: name for name, p in model.named_parameters()}
        found = hidden_matrices(model)
        names = [named[matrix.weight] for matrix in found]
        assert len(set(names)) == len(names)
        assert not [name for name in names if name.startswith(("embedding", "head"))]
        assert not [
            name for name in names if name.rpartition(".")[2].startswith(("b_", "gain", "bias", "peephole", "w_conv"))
        ]
        for matrix, name in zip(found, names, strict=True):
            if "_G" in name.rpartition(".")[2]:
                assert len(matrix.rows) > 1, f"{name} holds gates one below the other"
            if name.endswith("mlp.up.weight"):
                assert len(matrix.rows) == (2 if spec.mlp == "swiglu" else 1)
        if not found:
            with pytest.raises(UserError, match="has none that are trained"):
                make_optimizer(model, TrainSpec(optimizer="muon"))


def test_whoever_names_a_parameter_has_it() -> None:
    """A name that is misspelt would silently leave a stack whole."""
    tried = 0
    models: list[nn.Module] = [build(spec, vocab=29) for row in LAYERED for spec in (row.spec, *row.variants)]
    models += [make(12) for encoding in ENCODERS for make in (encoding.make, *encoding.variants.values())]
    for module in (part for model in models for part in model.modules()):
        if isinstance(module, Stacked):
            for name, rows in module.stacked().items():
                weight = attrgetter(name)(module)
                assert weight is None or not rows or sum(rows) == len(weight)
                tried += 1
    assert tried


@pytest.mark.gpu
def test_in_a_graph_as_outside() -> None:
    """Captured once and replayed with another rate: the same as step by step, to the precision of the iteration."""

    def made() -> tuple[list[nn.Parameter], Muon, Tensor]:
        own = [nn.Parameter(p.detach().float().cuda()) for p in parameters()]
        rate = torch.tensor(0.01, device="cuda")
        optimizer = ours(own)
        for group in optimizer.param_groups:
            group["lr"] = rate
        for p, gradient in zip(own, gradients(0), strict=True):
            p.grad = gradient.float().cuda()
        return own, optimizer, rate

    eager, plain, rate = made()
    for value in (0.01, 0.01, 0.005):
        rate.fill_(value)
        plain.step()
    own, optimizer, rate = made()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        optimizer.step()  # makes the memory that the graph refers to
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    before = own[0].detach().clone()
    for value in (0.01, 0.005):
        rate.fill_(value)
        graph.replay()
    assert float((own[0].detach() - before).abs().max()) > 0.01
    for a, b in zip(own, eager, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-3)
