"""Checks of the exercises of chapter 10."""

from types import ModuleType

import numpy as np
import torch

from statewise.encoders import Composition, GridEncoder, TreeEncoder, balanced


def check_10_1(answers: ModuleType) -> None:
    rng = np.random.default_rng(1)
    x, lengths = rng.normal(size=(4, 6)), np.array([6, 3, 1, 0])
    given = x.copy()
    found = np.asarray(answers.reverse_rows(x, lengths))
    assert found.shape == x.shape, f"the shape is {found.shape}, expected {x.shape}"
    assert (x == given).all(), "the given array has changed; return a new one"
    for row, length in enumerate(lengths):
        assert np.allclose(found[row, :length], given[row, :length][::-1]), f"a row of length {length} is not reversed"
        assert np.allclose(found[row, length:], given[row, length:]), f"behind the length {length} something has moved"


def check_10_2(answers: ModuleType) -> None:
    expected = {"stack": lambda L, T: T + L - 1, "transition": lambda L, T: L * T, "skip": lambda L, T: T + L - 1}
    for kind, layers_of in expected.items():
        for layers, steps in ((1, 1), (1, 7), (3, 1), (4, 32)):
            found, right = answers.fewest_layers(kind, layers, steps), layers_of(layers, steps)
            assert found == right, f"{kind}, {layers} layers, {steps} steps: {found}, expected {right}"


def check_10_3(answers: ModuleType) -> None:
    encoder = GridEncoder(4, input_width=3, generator=torch.Generator().manual_seed(2)).double()
    x_HWI = torch.randn(3, 5, 3, generator=torch.Generator().manual_seed(3)).double()
    with torch.no_grad():
        encoder.b_QD.add_(0.3)
        expected = encoder(x_HWI[None])[0, ..., 12:].numpy()
        weights = [part[3].numpy() for part in (encoder.w_QDI, encoder.u_QDD, encoder.v_QDD, encoder.b_QD)]
    found = np.asarray(answers.from_lower_right(x_HWI.numpy(), *weights))
    assert found.shape == expected.shape, f"the shape is {found.shape}, expected {expected.shape}"
    assert np.allclose(found[-1, -1], expected[-1, -1]), "the lower right cell has no neighbours: tanh(W x + b)"
    assert np.allclose(found, expected), "U is for the cell below, V for the cell on the right"


def check_10_4(answers: ModuleType) -> None:
    composer = Composition(4, generator=torch.Generator().manual_seed(4)).double()
    encoder = TreeEncoder(composer).double()
    x_BTD = torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(5)).double()
    with torch.no_grad():
        composer.b_D.add_(0.2)
        leaves = torch.tanh(x_BTD[0] @ composer.w_DI.T + composer.b_D).numpy()
        expected = encoder(x_BTD)[0].numpy()
        U, b = composer.u_DKD.flatten(1).numpy(), composer.b_D.numpy()
    vectors = dict(zip("abcd", leaves))
    assert np.allclose(answers.compose("b", vectors, U, b), vectors["b"]), "a word alone is its own vector"
    found = np.asarray(answers.compose((("a", "b"), ("c", "d")), vectors, U, b))
    assert np.allclose(found, expected), "a pair is tanh(U [l; r] + b), the left child first"
    deeper = np.asarray(answers.compose(("a", ("b", "c")), vectors, U, b))
    pair = np.tanh(U @ np.concatenate([leaves[1], leaves[2]]) + b)
    assert np.allclose(deeper, np.tanh(U @ np.concatenate([leaves[0], pair]) + b)), "wrong for a tree that leans right"


def check_10_5(answers: ModuleType) -> None:
    for length in (1, 2, 5, 7, 16):
        children = balanced([length]).children_NK.tolist()
        above = {child: node for node, some in enumerate(children) for child in some if child >= 0}

        def up(node: int, above: dict[int, int] = above) -> set[int]:
            return {node} | (up(above[node]) if node in above else set())

        for i in range(length):
            for j in range(length):
                expected = len(up(i) ^ up(j))
                found = answers.edges_between(length, i, j)
                assert found == expected, f"{length} words, from {i} to {j}: {found} edges, expected {expected}"
