"""Three ways from children to a parent: a squashed sum, and the two Tree-LSTMs (Tai, Socher and Manning 2015).

N nodes, K children, I input width, D width.
"""

from typing import NamedTuple, TypeVar, final

import torch
from torch import Tensor, nn

from statewise.core import Composer, Stacked, State, state_type
from statewise.kernels.tree import ChildSumWeights, NaryWeights, PlainWeights, child_sum, nary, plain
from statewise.layers import Scheme, fill_input, fill_recurrent

S = TypeVar("S", bound=State)


@state_type
class NodeState(NamedTuple):
    h_ND: Tensor


@state_type
class TreeLSTMState(NamedTuple):
    h_ND: Tensor
    c_ND: Tensor


class _Sized(Composer[S]):
    def __init__(self, width: int, input_width: int | None, arity: int | None) -> None:
        super().__init__()
        self.input_width = input_width or width
        self.output_width = width
        self.arity = arity


@final
class Composition(_Sized[NodeState]):
    """`h = tanh(W x + Σ_k U_k h_k + b)`; for two children and nothing at the node, `tanh(U [l; r] + b)`."""

    def __init__(
        self,
        width: int,
        *,
        input_width: int | None = None,
        arity: int = 2,
        init: Scheme = "orthogonal",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(width, input_width, arity)
        self.w_DI = nn.Parameter(torch.empty(width, self.input_width))
        self.u_DKD = nn.Parameter(torch.empty(width, arity, width))
        self.b_D = nn.Parameter(torch.zeros(width))
        fill_input(self.w_DI, gates=1, scheme=init, generator=generator)
        fill_input(self.u_DKD.detach().flatten(1), gates=1, scheme=init, generator=generator)

    def absent(self) -> NodeState:
        return NodeState(self.b_D.new_zeros(1, self.output_width))

    def forward(self, x_NI: Tensor, children: NodeState) -> NodeState:
        return NodeState(plain(x_NI, children.h_ND, PlainWeights(self.w_DI, self.u_DKD, self.b_D)))

    def shown(self, state: NodeState) -> Tensor:
        return state.h_ND


class _TreeLSTM(_Sized[TreeLSTMState], Stacked):
    b_G: Tensor

    def absent(self) -> TreeLSTMState:
        return TreeLSTMState(self.b_G.new_zeros(1, self.output_width), self.b_G.new_zeros(1, self.output_width))

    def shown(self, state: TreeLSTMState) -> Tensor:
        return state.h_ND


@final
class ChildSumTreeLSTM(_TreeLSTM):
    """Any number of children, in no order: the gates see their sum, each child has a forget gate of its own."""

    def __init__(
        self,
        width: int,
        *,
        input_width: int | None = None,
        forget_bias: float = 1.0,
        init: Scheme = "orthogonal",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(width, input_width, arity=None)
        self.w_GI = nn.Parameter(torch.empty(4 * width, self.input_width))
        self.u_GD = nn.Parameter(torch.empty(4 * width, width))
        self.b_G = nn.Parameter(torch.zeros(4 * width))
        fill_input(self.w_GI, gates=4, scheme=init, generator=generator)
        fill_recurrent(self.u_GD, gates=4, scheme=init, generator=generator)
        with torch.no_grad():
            self.b_G[width : 2 * width] = forget_bias

    def stacked(self) -> dict[str, list[int]]:
        return {"w_GI": [self.output_width] * 4, "u_GD": [self.output_width] * 4}

    def forward(self, x_NI: Tensor, children: TreeLSTMState) -> TreeLSTMState:
        weights = ChildSumWeights(self.w_GI, self.u_GD, self.b_G)
        return TreeLSTMState(*child_sum(x_NI, children.h_ND, children.c_ND, weights))


@final
class NaryTreeLSTM(_TreeLSTM):
    """At most `arity` children, in order: each place has matrices of its own, in every gate."""

    def __init__(
        self,
        width: int,
        *,
        input_width: int | None = None,
        arity: int = 2,
        forget_bias: float = 1.0,
        init: Scheme = "orthogonal",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(width, input_width, arity)
        self.w_GI = nn.Parameter(torch.empty(4 * width, self.input_width))
        self.u_RKD = nn.Parameter(torch.empty((3 + arity) * width, arity, width))
        self.b_G = nn.Parameter(torch.zeros(4 * width))
        fill_input(self.w_GI, gates=4, scheme=init, generator=generator)
        for place in range(arity):
            fill_recurrent(self.u_RKD.detach()[:, place], gates=3 + arity, scheme=init, generator=generator)
        with torch.no_grad():
            self.b_G[width : 2 * width] = forget_bias

    def stacked(self) -> dict[str, list[int]]:
        return {"w_GI": [self.output_width] * 4}

    def forward(self, x_NI: Tensor, children: TreeLSTMState) -> TreeLSTMState:
        weights = NaryWeights(self.w_GI, self.u_RKD, self.b_G)
        return TreeLSTMState(*nary(x_NI, children.h_ND, children.c_ND, weights))
