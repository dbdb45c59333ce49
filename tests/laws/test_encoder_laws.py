"""The laws of every listed encoder; and encoders broken on purpose, each with the laws that must notice."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from statewise.core import Encoder, laws
from statewise.encoders import (
    Bidirectional,
    ChildSumTreeLSTM,
    GridEncoder,
    MultiHeadAttention,
    NaryTreeLSTM,
    TransformerEncoder,
    TreeEncoder,
    TreeLSTMState,
)
from statewise.encoders import laws as encoder_laws
from statewise.mixers import GRU
from statewise.models import ENCODERS

WIDTH = 12
LISTED = [
    pytest.param(make, id=f"{encoding.name}[{name}]")
    for encoding in ENCODERS
    for name, make in (("", encoding.make), *encoding.variants.items())
]


def broken_laws(encoder: Encoder) -> set[str]:
    """In float64, with no weight at 0 or 1: a bias that starts at 0 would hide its own mistakes."""
    generator = torch.Generator().manual_seed(0)
    encoder = encoder.double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
    case, bound = encoder_laws.case_of(encoder), laws.BOUNDS[torch.float64]
    return {name for name, law in encoder_laws.laws_of(encoder).items() if not law(encoder, case) <= bound}


@pytest.mark.parametrize("make", LISTED)
def test_every_listed_encoder_keeps_its_laws(make: Callable[[int], Encoder]) -> None:
    assert broken_laws(make(WIDTH)) == set()


def peek(y: Tensor, x: Tensor, sizes: Tensor | None) -> Tensor:
    return y + 0.1 * x.nan_to_num().flip(1).sum(-1, keepdim=True)


def mix_rows(y: Tensor, x: Tensor, sizes: Tensor | None) -> Tensor:
    return y + 0.1 * y.flip(0)


def count_padding(y: Tensor, x: Tensor, sizes: Tensor | None) -> Tensor:
    return y + 0.1 * x.shape[1] if sizes is None else y + 0.1 * sizes.max()


def know_the_place(y: Tensor, x: Tensor, sizes: Tensor | None) -> Tensor:
    return y * (1 + 0.1 * torch.arange(x.shape[1], dtype=y.dtype)[:, None])


@pytest.mark.parametrize(
    ("make", "flaw", "noticed"),
    [
        (lambda: Bidirectional(forward=GRU(4), backward=GRU(4)), peek, {"ragged", "causal", "step"}),
        (lambda: Bidirectional(forward=GRU(4), backward=GRU(4)), mix_rows, {"rows", "ragged", "step"}),
        (lambda: Bidirectional(forward=GRU(4), backward=GRU(4)), count_padding, {"rows", "ragged", "step"}),
        (lambda: GridEncoder(4), peek, {"ragged", "causal", "chain"}),
        (lambda: TransformerEncoder(4, depth=1, heads=2), know_the_place, {"permuted"}),
        (lambda: TransformerEncoder(4, depth=1, heads=2), count_padding, {"rows", "ragged"}),
        (lambda: MultiHeadAttention(4, heads=2), know_the_place, {"permuted"}),
    ],
)
def test_a_flaw_breaks_its_laws(
    make: Callable[[], Encoder],
    flaw: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    noticed: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = make()
    sound = type(encoder).forward
    monkeypatch.setattr(type(encoder), "forward", lambda self, x, sizes=None: flaw(sound(self, x, sizes), x, sizes))
    assert broken_laws(encoder) == noticed


def first_counts_twice(x_NI: Tensor, state: TreeLSTMState) -> TreeLSTMState:
    """Where children have no places, one of them is special."""
    return state._replace(h_ND=torch.cat([2 * state.h_ND[:, :1], state.h_ND[:, 1:]], dim=1))


def read_neighbours(x_NI: Tensor, state: TreeLSTMState) -> TreeLSTMState:
    """Nodes of one depth see each other."""
    return state._replace(h_ND=state.h_ND + 0.1 * x_NI.sum())


@pytest.mark.parametrize(
    ("make", "flaw", "noticed"),
    [
        (ChildSumTreeLSTM, first_counts_twice, {"chain", "permuted"}),
        (NaryTreeLSTM, first_counts_twice, {"chain"}),
        (ChildSumTreeLSTM, read_neighbours, {"rows", "ragged", "causal", "chain"}),
    ],
)
def test_a_flaw_of_a_composer_breaks_its_laws(
    make: Any,
    flaw: Callable[[Tensor, TreeLSTMState], TreeLSTMState],
    noticed: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = make.forward
    monkeypatch.setattr(make, "forward", lambda self, x_NI, children: sound(self, x_NI, flaw(x_NI, children)))
    assert broken_laws(TreeEncoder(make(4))) == noticed
