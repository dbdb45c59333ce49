"""A tree, node by node: the children first, then their parent. Readable aloud, and slow.

N nodes, I input width, K children.
"""

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from statewise.core import State, concat, map_state
from statewise.kernels.tree.forest import Forest

S = TypeVar("S", bound=State)
Compose = Callable[[Tensor, S], S]


def tree(x_NI: Tensor, forest: Forest, compose: Compose[S], absent: S) -> S:
    """The states of all nodes; `compose` is given what stands at one node and its children `[1, K, ...]`."""
    children: list[list[int]] = forest.children_NK.tolist()
    states: dict[int, S] = {}
    for node in order(forest):
        below = concat([states[child] if child >= 0 else absent for child in children[node]])
        states[node] = compose(x_NI[node : node + 1], map_state(lambda leaf: leaf[None], below))
    return concat([states[node] for node in range(len(children))])


def order(forest: Forest) -> list[int]:
    """The nodes, each after all of its children: in this order a lens sees them."""
    children: list[list[int]] = forest.children_NK.tolist()
    done: dict[int, None] = {}
    for root in forest.root_B.tolist():
        waiting = [root] if root >= 0 else []  # a list and no recursion, which Python allows only so deep
        while waiting:
            missing = [child for child in children[waiting[-1]] if child >= 0 and child not in done]
            if missing:
                waiting += missing
                continue
            done[waiting.pop()] = None
    return list(done)
