"""Trees by depth: all nodes of one depth, in all trees, are one call; the deepest come first.

A node's children are at the next depth, so that only the depth just computed has to be at hand: the work
is that of the nodes, and the number of calls that of the deepest tree.

N nodes, I input width, K children, M nodes of one depth.
"""

import torch
from torch import Tensor

from statewise.core import concat, map_state, rows
from statewise.kernels.tree.forest import Forest
from statewise.kernels.tree.naive import Compose, S


def tree(x_NI: Tensor, forest: Forest, compose: Compose[S], absent: S) -> S:
    below, done = absent, []
    for level in forest.levels:
        now = compose(x_NI[level.node_M], map_state(lambda leaf, level=level: leaf[level.child_MK], below))
        done.append(now)
        below = concat([absent, now])  # so that 0 is the child that is not there
    order_N = torch.cat([level.node_M for level in forest.levels])
    return rows(concat(done), order_N.argsort())
