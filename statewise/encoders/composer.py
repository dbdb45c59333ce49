"""Three ways from children to a parent: a squashed sum, and the two Tree-LSTMs (Tai, Socher and Manning 2015).

N nodes, K children, I input width, D width.
"""

from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack, final

import torch
from torch import Tensor, nn

from statewise.core import Composer, Stacked, State, full_signature, state_type
from statewise.kernels.tree import ChildSumWeights, NaryWeights, PlainWeights, child_sum, nary, plain
from statewise.layers import Filler, Scheme

S = TypeVar("S", bound=State)


@state_type
class NodeState(NamedTuple):
    h_ND: Tensor


@state_type
class TreeLSTMState(NamedTuple):
    h_ND: Tensor
    c_ND: Tensor


class ComposerOptions(TypedDict, total=False):
    """What every composer takes besides its own options."""

    input_width: int | None  # `width`, where there is none
    init: Scheme  # where the weights start
    generator: torch.Generator | None  # what they are drawn from


class _Sized(Composer[S]):
    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.__signature__ = full_signature(cls.__init__, _Sized.prepare)

    def prepare(
        self,
        width: int,
        arity: int | None,
        /,
        *,
        input_width: int | None = None,
        init: Scheme = "orthogonal",
        generator: torch.Generator | None = None,
    ) -> Filler:
        """Sets its widths; the rest of the constructor fills the weights by what this returns."""
        super().__init__()
        self.input_width = input_width or width
        self.output_width = width
        self.arity = arity
        return Filler(init, generator)


@final
class Composition(_Sized[NodeState]):
    """`h = tanh(W x + Σ_k U_k h_k + b)`; for two children and nothing at the node, `tanh(U [l; r] + b)`."""

    def __init__(self, width: int, *, arity: int = 2, **options: Unpack[ComposerOptions]) -> None:
        fill = self.prepare(width, arity, **options)
        self.w_DI = nn.Parameter(torch.empty(width, self.input_width))
        self.u_DKD = nn.Parameter(torch.empty(width, arity, width))
        self.b_D = nn.Parameter(torch.zeros(width))
        fill.input(self.w_DI)
        fill.input(self.u_DKD.detach().flatten(1))

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

    def __init__(self, width: int, *, forget_bias: float = 1.0, **options: Unpack[ComposerOptions]) -> None:
        fill = self.prepare(width, None, **options)
        self.w_GI = nn.Parameter(torch.empty(4 * width, self.input_width))
        self.u_GD = nn.Parameter(torch.empty(4 * width, width))
        self.b_G = nn.Parameter(torch.zeros(4 * width))
        fill.input(self.w_GI, gates=4)
        fill.recurrent(self.u_GD, gates=4)
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
        self, width: int, *, arity: int = 2, forget_bias: float = 1.0, **options: Unpack[ComposerOptions]
    ) -> None:
        fill = self.prepare(width, arity, **options)
        self.w_GI = nn.Parameter(torch.empty(4 * width, self.input_width))
        self.u_RKD = nn.Parameter(torch.empty((3 + arity) * width, arity, width))
        self.b_G = nn.Parameter(torch.zeros(4 * width))
        fill.input(self.w_GI, gates=4)
        for place in range(arity):
            fill.recurrent(self.u_RKD.detach()[:, place], gates=3 + arity)
        with torch.no_grad():
            self.b_G[width : 2 * width] = forget_bias

    def stacked(self) -> dict[str, list[int]]:
        return {"w_GI": [self.output_width] * 4}

    def forward(self, x_NI: Tensor, children: TreeLSTMState) -> TreeLSTMState:
        weights = NaryWeights(self.w_GI, self.u_RKD, self.b_G)
        return TreeLSTMState(*nary(x_NI, children.h_ND, children.c_ND, weights))
