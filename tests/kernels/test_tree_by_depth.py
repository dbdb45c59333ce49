"""Trees by depth against node by node: values and every gradient, for any arity and depth; and trees as arrays."""

from typing import Any

import nltk
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from statewise.core import Composer, lens
from statewise.encoders import (
    ChildSumTreeLSTM,
    Composition,
    Forest,
    NaryTreeLSTM,
    TreeEncoder,
    balanced,
    chain,
    forest,
    from_nltk,
)
from statewise.specs import UserError

WIDTH, INPUT = 5, 4


def composers(arity: int) -> dict[str, Composer[Any]]:
    return {
        "plain": Composition(WIDTH, input_width=INPUT, arity=arity),
        "child-sum": ChildSumTreeLSTM(WIDTH, input_width=INPUT),
        "n-ary": NaryTreeLSTM(WIDTH, input_width=INPUT, arity=arity),
    }


def noise(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def results(composer: Composer[Any], trees: Forest, kernel: str) -> list[Tensor]:
    encoder = TreeEncoder(composer, kernel=kernel).double()
    with torch.no_grad():
        for number, parameter in enumerate(encoder.parameters()):
            parameter.copy_(0.5 * noise(*parameter.shape, seed=number))
    x = noise(len(trees.children_NK), INPUT, seed=50).requires_grad_()
    h = encoder.nodes(x, trees)
    total = (h * noise(*h.shape, seed=51)).sum()
    gradients = torch.autograd.grad(total, [x, *encoder.parameters()], allow_unused=True, materialize_grads=True)
    return [h.detach(), encoder.roots(h, trees).detach(), *gradients]


def assert_forms_agree(trees: Forest, arity: int) -> None:
    for name, composer in composers(arity).items():
        for got, expected in zip(results(composer, trees, "batched"), results(composer, trees, "naive"), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12, msg=lambda m, name=name: f"{name}: {m}")


SHAPES = {
    "one leaf": (lambda: forest([[]], [0]), 2),
    "several leaves": (lambda: forest([[], [], []], [2, 0, 1]), 2),
    "balanced": (lambda: balanced([5, 1, 0, 8, 2]), 2),
    "chain": (lambda: chain([70, 1, 0, 3]), 1),
    "chain with room": (lambda: chain([4, 2]), 3),
    "wide": (lambda: forest([[], [], [], [], [], [0, 1, 2, 3, 4]], [5]), 5),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_by_depth_is_node_by_node(shape: str) -> None:
    make, arity = SHAPES[shape]
    assert_forms_agree(make(), arity)


@st.composite
def trees(draw: st.DrawFn) -> tuple[Forest, int]:
    """Any forest: each node, in a random order of names, is given to an earlier one or is a root."""
    count, arity = draw(st.integers(1, 25)), draw(st.integers(1, 4))
    names = draw(st.permutations(range(count)))
    children: list[list[int]] = [[] for _ in range(count)]
    roots = []
    for place, node in enumerate(names):
        free = [other for other in names[:place] if len(children[other]) < arity]
        parent = draw(st.sampled_from([-1, *free]))
        (roots if parent < 0 else children[parent]).append(node)
    return forest(children, roots), arity


@settings(deadline=None, max_examples=40)
@given(drawn=trees())
def test_any_trees(drawn: tuple[Forest, int]) -> None:
    assert_forms_agree(*drawn)


def test_one_call_for_each_depth() -> None:
    calls: list[int] = []
    composer = NaryTreeLSTM(WIDTH, input_width=INPUT)
    composer.register_forward_pre_hook(lambda _, given: calls.append(len(given[0])))
    TreeEncoder(composer, kernel="batched")(torch.randn(3, 8, INPUT), torch.tensor([8, 8, 5]))
    assert len(calls) == 4
    assert sum(calls) == 8 + 7 + 8 + 7 + 5 + 4


@pytest.mark.parametrize("kernel", ["naive", "batched"])
def test_rows_alone_and_empty_rows(kernel: str) -> None:
    encoder = TreeEncoder(ChildSumTreeLSTM(WIDTH, input_width=INPUT), kernel=kernel).double()
    x, lengths_B = noise(4, 9, INPUT, seed=1), torch.tensor([9, 0, 1, 6])
    y = encoder(x, lengths_B)
    assert not y[1].any()
    for row in (0, 2, 3):
        torch.testing.assert_close(y[row], encoder(x[row : row + 1, : lengths_B[row]])[0], rtol=0, atol=1e-12)
    nothing = encoder(x, torch.zeros(4, dtype=torch.int64))
    assert not nothing.any()


def test_which_form_runs() -> None:
    encoder = TreeEncoder(NaryTreeLSTM(WIDTH, input_width=INPUT))
    assert encoder.choice().implementation == "batched"
    x_BTI = torch.randn(1, 4, INPUT)
    with lens() as seen:
        assert encoder.choice().implementation == "naive"
        looked_at = encoder(x_BTI)
    torch.testing.assert_close(looked_at, encoder(x_BTI))
    assert seen["tree.forget_gate"].shape == (1, 7, 2, WIDTH)


def test_node_by_node_goes_as_deep_as_need_be() -> None:
    composer = Composition(2, input_width=1, arity=1)
    x_BTI = torch.randn(1, 2000, 1)
    with torch.no_grad():
        slow, fast = (TreeEncoder(composer, shape="chain", kernel=kernel)(x_BTI) for kernel in ("naive", "batched"))
    torch.testing.assert_close(slow, fast)


# Trees as arrays.


def test_a_balanced_tree_is_as_low_as_can_be() -> None:
    for length in range(1, 70):
        assert len(balanced([length]).levels) - 1 == int(np.ceil(np.log2(length)))


def test_trees_of_nltk() -> None:
    parsed = nltk.Tree.fromstring("(S (NP (D the) (N cat)) (VP walks))")
    made, labels = from_nltk([parsed, "word", nltk.Tree("X", [])])
    of = {node: [labels[child] for child in row if child >= 0] for node, row in enumerate(made.children_NK.tolist())}
    assert labels[made.root_B[0]] == "S"
    assert of[int(made.root_B[0])] == ["NP", "VP"]
    assert of[labels.index("NP")] == ["D", "N"]
    assert of[labels.index("D")] == ["the"]
    assert [labels[root] for root in made.root_B] == ["S", "word", "X"]
    assert len(labels) == 10
    words = [label for label, row in zip(labels, made.children_NK.tolist(), strict=True) if max(row) < 0]
    assert words[:3] == parsed.leaves()


def test_a_deep_tree_of_nltk() -> None:
    deep: Any = "end"
    for _ in range(3000):
        deep = nltk.Tree("a", [deep])
    made, labels = from_nltk([deep])
    assert len(made.levels) == len(labels) == 3001


@pytest.mark.parametrize(
    ("children", "roots"),
    [([[1], [0]], []), ([[1], [0]], [0]), ([[], [0], [0]], [1, 2]), ([[], []], [0]), ([[7]], [0]), ([[]], [3])],
    ids=["a circle", "a circle from a root", "two parents", "out of reach", "no such child", "no such root"],
)
def test_what_is_no_tree_is_refused(children: list[list[int]], roots: list[int]) -> None:
    with pytest.raises(UserError):
        forest(children, roots)


def test_too_many_children_are_refused() -> None:
    with pytest.raises(UserError, match="has 3 children, this composer takes 2"):
        TreeEncoder(NaryTreeLSTM(4)).nodes(torch.zeros(4, 4), forest([[], [], [], [0, 1, 2]], [3]))
    with pytest.raises(UserError, match=r"expected \[1, 4\]"):
        TreeEncoder(NaryTreeLSTM(4)).nodes(torch.zeros(2, 4), forest([[]], [0]))
