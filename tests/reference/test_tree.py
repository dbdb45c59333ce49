"""Trees: a chain is an LSTM (torch.nn's), and the equations of the papers in NumPy on a small tree."""

import numpy as np
import pytest
import torch
from agreement import assert_same, fill, noise
from numpy.typing import NDArray
from torch import nn

from statewise.encoders import ChildSumTreeLSTM, Composition, NaryTreeLSTM, TreeEncoder, forest

BATCH, TIME, INPUT, WIDTH = 3, 7, 4, 5
Array = NDArray[np.float64]


@pytest.mark.parametrize("kernel", ["naive", "batched"])
@pytest.mark.parametrize("kind", ["child-sum", "n-ary"])
def test_a_chain_is_an_lstm(kind: str, kernel: str) -> None:
    """One child each, an input at every node: the parent's gates are the step's, and a leaf is the step from 0."""
    make = {"child-sum": ChildSumTreeLSTM, "n-ary": lambda *a, **o: NaryTreeLSTM(*a, arity=1, **o)}[kind]
    composer = make(WIDTH, input_width=INPUT).double()
    fill(composer)
    encoder = TreeEncoder(composer, shape="chain", kernel=kernel)
    theirs = nn.LSTM(INPUT, WIDTH, batch_first=True, dtype=torch.float64)
    recurrent = composer.u_GD if kind == "child-sum" else composer.u_RKD
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(composer.w_GI)
        theirs.weight_hh_l0.copy_(recurrent.view(4 * WIDTH, WIDTH))
        theirs.bias_ih_l0.copy_(composer.b_G)
        theirs.bias_hh_l0.zero_()
    weight = noise(BATCH, WIDTH, seed=9)
    x = noise(BATCH, TIME, INPUT, seed=1).requires_grad_()
    got = encoder(x)
    (got * weight).sum().backward()
    their_x = x.detach().clone().requires_grad_()
    expected = theirs(their_x)[0][:, -1]
    (expected * weight).sum().backward()
    assert_same(got.detach(), expected.detach())
    assert_same(x.grad, their_x.grad)
    assert_same(composer.w_GI.grad, theirs.weight_ih_l0.grad)
    assert_same(recurrent.grad.view(4 * WIDTH, WIDTH), theirs.weight_hh_l0.grad)
    assert_same(composer.b_G.grad, theirs.bias_ih_l0.grad)


# A tree of six: 0 and 1 below 4, 2 and 3 and 4 below 5. Node 3 has a single child: none; node 5 has three.
CHILDREN = [[], [], [], [], [0, 1], [2, 3, 4]]


def sigmoid(a: Array) -> Array:
    return 1 / (1 + np.exp(-a))


def test_plain_composition_in_numpy() -> None:
    composer = Composition(WIDTH, input_width=INPUT, arity=3).double()
    fill(composer)
    x = noise(6, INPUT, seed=1)
    w, u, b = (p.detach().numpy() for p in (composer.w_DI, composer.u_DKD, composer.b_D))
    h: list[Array] = []
    for node, children in enumerate(CHILDREN):
        h.append(np.tanh(w @ x[node].numpy() + sum((u[:, k] @ h[c] for k, c in enumerate(children)), b)))
    assert_same(TreeEncoder(composer).nodes(x, forest(CHILDREN, [5])).detach(), np.stack(h))


def test_child_sum_in_numpy() -> None:
    """Tai et al. 2015, equations 2 to 8."""
    composer = ChildSumTreeLSTM(WIDTH, input_width=INPUT).double()
    fill(composer)
    x = noise(6, INPUT, seed=1)
    (wi, wf, wu, wo), (ui, uf, uu, uo), (bi, bf, bu, bo) = (
        p.detach().numpy().reshape(4, WIDTH, -1) for p in (composer.w_GI, composer.u_GD, composer.b_G)
    )
    h: list[Array] = []
    c: list[Array] = []
    for node, children in enumerate(CHILDREN):
        xj = x[node].numpy()[:, None]
        tilde = sum((h[k] for k in children), np.zeros((WIDTH, 1)))
        i, o = sigmoid(wi @ xj + ui @ tilde + bi), sigmoid(wo @ xj + uo @ tilde + bo)
        u = np.tanh(wu @ xj + uu @ tilde + bu)
        c.append(i * u + sum(sigmoid(wf @ xj + uf @ h[k] + bf) * c[k] for k in children))
        h.append(o * np.tanh(c[-1]))
    assert_same(TreeEncoder(composer).nodes(x, forest(CHILDREN, [5])).detach(), np.concatenate(h, axis=1).T)


def test_nary_in_numpy() -> None:
    """Tai et al. 2015, equations 9 to 14."""
    arity = 3
    composer = NaryTreeLSTM(WIDTH, input_width=INPUT, arity=arity).double()
    fill(composer)
    x = noise(6, INPUT, seed=1)
    wi, wf, wu, wo = composer.w_GI.detach().numpy().reshape(4, WIDTH, INPUT)
    bi, bf, bu, bo = composer.b_G.detach().numpy().reshape(4, WIDTH)
    rows = composer.u_RKD.detach().numpy().reshape(3 + arity, WIDTH, arity, WIDTH)
    ui, uf, uu, uo = rows[0], rows[1 : 1 + arity], rows[-2], rows[-1]
    h: list[Array] = []
    c: list[Array] = []
    for node, children in enumerate(CHILDREN):
        xj = x[node].numpy()

        def below(u: Array, children: list[int] = children) -> Array:
            return sum((u[:, place] @ h[child] for place, child in enumerate(children)), np.zeros(WIDTH))

        i, o = sigmoid(wi @ xj + below(ui) + bi), sigmoid(wo @ xj + below(uo) + bo)
        u = np.tanh(wu @ xj + below(uu) + bu)
        forget = [sigmoid(wf @ xj + below(uf[place]) + bf) for place in range(len(children))]
        c.append(i * u + sum(f * c[child] for f, child in zip(forget, children, strict=True)))
        h.append(o * np.tanh(c[-1]))
    assert_same(TreeEncoder(composer).nodes(x, forest(CHILDREN, [5])).detach(), np.stack(h))
