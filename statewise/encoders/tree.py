"""Recursive networks: a composer, applied along trees that are given or built over a sequence.

B batch, T time, N nodes of all trees together, I input width, D width.
"""

from typing import Any, Literal, assert_never, final

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Composer, Encoder, check_input
from statewise.kernels import Choice, Wish
from statewise.kernels.tree import Forest, balanced, chain, choice, tree
from statewise.specs import UserError


@final
class TreeEncoder(Encoder):
    """`[B, T, I]` to the vector of each row's root, `[B, D]`; an empty row's is 0.

    `shape="balanced"` pairs neighbours until one is left, `log2 T` compositions deep; `"chain"` makes each
    time step the parent of the one before. `nodes` reads trees that are given, and shows every node.
    """

    def __init__(
        self, composer: Composer[Any], *, shape: Literal["balanced", "chain"] = "balanced", kernel: Wish = "auto"
    ) -> None:
        super().__init__()
        self.composer = composer
        self.shape: Literal["balanced", "chain"] = shape
        self.kernel: Wish = kernel
        self.input_width = composer.input_width
        self.output_width = composer.output_width

    def choice(self) -> Choice:
        """Which implementation will run, and why."""
        return choice(wish=self.kernel)

    def nodes(self, x_NI: Tensor, forest: Forest) -> Tensor:
        """What every node shows, `[N, D]`, from what stands at it: a word at a leaf, 0 where nothing does."""
        if x_NI.shape != (len(forest.children_NK), self.input_width):
            wanted = [len(forest.children_NK), self.input_width]
            raise UserError(f"what stands at the nodes has shape {list(x_NI.shape)}, expected {wanted}")
        arity = self.composer.arity
        if arity is not None:
            if forest.arity > arity:
                raise UserError(
                    f"a node has {forest.arity} children, this composer takes {arity}",
                    fix=f"make it with arity={forest.arity}, or use one that takes any number",
                )
            forest = _with_places(forest, arity)
        if len(x_NI) == 0:
            return x_NI.new_zeros(0, self.output_width)
        state = tree(x_NI, forest, self.composer, self.composer.absent(), wish=self.kernel)
        return self.composer.shown(state)

    def roots(self, h_ND: Tensor, forest: Forest) -> Tensor:
        """The roots among the nodes, `[B, D]`; 0 for an empty tree."""
        return torch.cat([h_ND.new_zeros(1, self.output_width), h_ND])[forest.root_B + 1]

    def forward(self, x_BTI: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        check_input(x_BTI, lengths_B, width=self.input_width)
        batch, time = x_BTI.shape[:2]
        if lengths_B is None:
            lengths_B = torch.full((batch,), time, device=x_BTI.device)
        lengths_B = lengths_B.clamp(min=0, max=time)
        inside_BT = torch.arange(time, device=x_BTI.device) < lengths_B[:, None]
        match self.shape:
            case "balanced":
                forest = balanced(lengths_B.tolist())
            case "chain":
                forest = chain(lengths_B.tolist())
            case _:
                assert_never(self.shape)
        forest = forest.to(x_BTI.device)
        x_MI = x_BTI[inside_BT]  # row by row, as the builders count
        x_NI = F.pad(x_MI, (0, 0, 0, len(forest.children_NK) - len(x_MI)))  # nothing stands at inner nodes
        return self.roots(self.nodes(x_NI, forest), forest)


def _with_places(forest: Forest, arity: int) -> Forest:
    """Places for children that no node of this forest, or of this depth, has."""
    levels = tuple(
        level._replace(child_MK=F.pad(level.child_MK, (0, arity - level.child_MK.shape[1]))) for level in forest.levels
    )
    children_NK = F.pad(forest.children_NK, (0, arity - forest.arity), value=-1)
    return forest._replace(children_NK=children_NK, levels=levels)
