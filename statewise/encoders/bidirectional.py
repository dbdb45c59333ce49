"""Reading from both ends (Schuster and Paliwal 1997): any two mixers, one of them over the reversed rows.

B batch, T time, I input width, P and Q the output widths of the two mixers.
"""

from typing import Any, Literal, final

import torch
from torch import Tensor

from statewise.core import Encoder, Mixer, check_input, past_end, scope
from statewise.kernels import reverse_rows
from statewise.layers import make_linear
from statewise.specs import UserError

BACK = "back"  # the scope of the mixer that begins at the end


def seen_backwards(name: str) -> bool:
    """Whether what is observed under a name comes from the row's end on."""
    return BACK in name.split(".")


@final
class Bidirectional(Encoder):
    """`y_t = [f(x_1 ... x_t); b(x_n ... x_t)]`, where n is the row's own length.

    `[B, T, I]` to `[B, T, P + Q]`, or to `[B, T, P]` with `merge="sum"`, and with `merge="join"`, where a linear
    map brings the two to the width of one. The backward mixer begins at each row's true end, so padding changes
    nothing; past the end outputs are 0. The two know nothing of each other and may be of different kinds.
    """

    def __init__(
        self,
        *,
        forward: Mixer[Any],
        backward: Mixer[Any],
        merge: Literal["concat", "sum", "join"] = "concat",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if forward.input_width != backward.input_width:
            raise UserError(f"the mixers read widths {forward.input_width} and {backward.input_width}; make them equal")
        if merge == "sum" and forward.output_width != backward.output_width:
            raise UserError(
                f"outputs of widths {forward.output_width} and {backward.output_width} cannot be added",
                fix="make them equal, or leave merge at 'concat'",
            )
        self.ahead = forward
        self.back = backward
        self.merge: Literal["concat", "sum", "join"] = merge
        self.input_width = forward.input_width
        both, single = forward.output_width + backward.output_width, forward.output_width
        self.output_width = both if merge == "concat" else single
        self.join = make_linear(both, single, generator=generator) if merge == "join" else None

    def forward(self, x_BTI: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        check_input(x_BTI, lengths_B, width=self.input_width)
        with scope("ahead"):
            ahead_BTP, _ = self.ahead(x_BTI, None, lengths_B)
        with scope(BACK):
            back_BTQ, _ = self.back(reverse_rows(x_BTI, lengths_B), None, lengths_B)
        back_BTQ = reverse_rows(back_BTQ, lengths_B)
        if self.merge == "sum":
            return ahead_BTP + back_BTQ
        y_BTC = torch.cat([ahead_BTP, back_BTQ], dim=-1)
        if self.join is None:
            return y_BTC
        return past_end(self.join(y_BTC), lengths_B)
