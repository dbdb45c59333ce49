"""Readers of a source: an output for each position, and one summary vector.

B batch, S source time, E width of what enters, C output width.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, final

import torch
from torch import Tensor, nn

from statewise.core import Machine, blanked, check_input, past_end, scope
from statewise.encoders import EncoderLayer, TransformerEncoder
from statewise.layers import Dropout, Pool, one_sequence
from statewise.models.stack import Stack

Summary = Literal["last", "mean", "max", "attention"]


class Encoded(NamedTuple):
    """The result of reading a source. Outputs past a row's end are 0, and so is the summary of an empty row."""

    outputs_BSC: Tensor
    summary_BC: Tensor
    length_B: Tensor


class Layers(nn.Module, ABC):
    """The layers of a reader: `[B, S, E]` to `[B, S, C]`, and the final output of a row."""

    width: int

    @property
    def machine(self) -> Machine[Any] | None:
        """The machine that reads sequentially from the first position to the last; None: the whole input is needed."""
        return None

    @abstractmethod
    def forward(self, x_BSE: Tensor, lengths_B: Tensor) -> Tensor: ...

    @abstractmethod
    def last(self, y_BSC: Tensor, lengths_B: Tensor) -> Tensor:
        """One vector for each row: the output where reading ended."""

    def end(self, x_BSE: Tensor) -> Tensor:
        """`last` of rows of one length. Implementations may skip outputs that it does not need."""
        lengths_B = torch.full((x_BSE.shape[0],), x_BSE.shape[1], device=x_BSE.device)
        return self.last(self(x_BSE, lengths_B), lengths_B)

    def __call__(self, x_BSE: Tensor, lengths_B: Tensor) -> Tensor:
        y_BSC: Tensor = super().__call__(x_BSE, lengths_B)
        return y_BSC


@final
class Reader(nn.Module):
    """`(source, lengths) -> Encoded`. `entry` makes vectors `[B, S, entry_width]` of the source, whatever that is.

    Token vectors are an Embedding, real values a Linear; a source may be several tensors, if its entry takes them so.
    """

    def __init__(
        self,
        *,
        entry: nn.Module,
        entry_width: int,
        layers: Layers,
        input_dropout: Dropout,
        enter: nn.Linear | None = None,
        summary: Summary = "last",
        pool: Pool | None = None,
    ) -> None:
        super().__init__()
        assert (pool is not None) == (summary == "attention")
        self.entry = entry
        self.entry_width = entry_width
        self.input_dropout = input_dropout
        self.enter = enter  # where layers need a width of their own
        self.layers = layers
        self.summary: Summary = summary
        self.pool = pool
        self.width = layers.width

    @property
    def admitted_width(self) -> int:
        """Of the vectors that the layers read."""
        return self.entry_width if self.enter is None else self.enter.out_features

    def forward(self, source: Any, lengths_B: Tensor | None = None) -> Encoded:
        if lengths_B is not None and isinstance(source, Tensor):
            source = blanked(source, lengths_B)
        x_BSE: Tensor = self.entry(source)
        check_input(x_BSE, lengths_B, width=self.entry_width)
        return self.read(self.admit(x_BSE), lengths_B)

    def admit(self, x_BSE: Tensor) -> Tensor:
        """From the entry's vectors to those that the layers read."""
        x_BSE = self.input_dropout(x_BSE)
        return x_BSE if self.enter is None else self.enter(x_BSE)

    def read(self, x_BSE: Tensor, lengths_B: Tensor | None = None) -> Encoded:
        """The outputs and summary of admitted vectors."""
        if lengths_B is None:
            lengths_B = torch.full((x_BSE.shape[0],), x_BSE.shape[1], device=x_BSE.device)
        with scope("reader"):
            y_BSC = self.layers(x_BSE, lengths_B)
        return self.encoded(y_BSC, lengths_B)

    def encoded(self, y_BSC: Tensor, lengths_B: Tensor) -> Encoded:
        """The layers' outputs, masked, with their summary."""
        y_BSC = past_end(y_BSC, lengths_B)
        return Encoded(y_BSC, self._summary(y_BSC, lengths_B), lengths_B)

    def summarise(self, source: Any) -> Tensor:
        """Only the summary, for rows of one length."""
        if self.summary != "last":
            return self(source).summary_BC
        x_BSE: Tensor = self.entry(source)
        check_input(x_BSE, None, width=self.entry_width)
        with scope("reader"):
            return self.layers.end(self.admit(x_BSE))

    def __call__(self, source: Any, lengths_B: Tensor | None = None) -> Encoded:
        encoded: Encoded = super().__call__(source, lengths_B)
        return encoded

    def _summary(self, y_BSC: Tensor, lengths_B: Tensor) -> Tensor:
        match self.summary:
            case "last":
                return self.layers.last(y_BSC, lengths_B)
            case "mean":
                return mean_of(y_BSC, lengths_B)
            case "max":
                return max_of(y_BSC, lengths_B)
            case "attention":
                assert self.pool is not None
                return self.pool(y_BSC, lengths_B)


@final
class OneWay(Layers):
    """A stack of mixers that reads from the first position to the last."""

    def __init__(self, stack: Stack, *, width: int) -> None:
        super().__init__()
        self.stack = stack
        self.width = width

    @property
    def machine(self) -> Machine[Any]:
        return self.stack

    def forward(self, x_BSE: Tensor, lengths_B: Tensor) -> Tensor:
        y_BSC, _ = self.stack(x_BSE, None, lengths_B)
        return y_BSC

    def last(self, y_BSC: Tensor, lengths_B: Tensor) -> Tensor:
        return last_of(y_BSC, lengths_B)

    def end(self, x_BSE: Tensor) -> Tensor:
        """All time steps but the last only update the state, which is nearly free for a window."""
        with one_sequence():
            state = self.stack.init_state(x_BSE.shape[0])
            if x_BSE.shape[1] > 1:
                state = self.stack.absorb(x_BSE[:, :-1], state)
            return self.stack.step(x_BSE[:, -1], state)[0]


@final
class BothWays(Layers):
    """Layers that each read from both ends.

    It ends twice. Where the two directions are concatenated, the summary is the end of each; where each layer
    joins them (`joined`), it is the mean of the first and the last output.
    """

    def __init__(self, layers: Sequence[EncoderLayer], *, final_norm: nn.Module, width: int, joined: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm
        self.width = width
        self.joined = joined

    def forward(self, x_BSE: Tensor, lengths_B: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            with scope(f"layers.{number}"):
                x_BSE = layer(x_BSE, lengths_B)
        y_BSC: Tensor = self.final_norm(x_BSE)
        return y_BSC

    def last(self, y_BSC: Tensor, lengths_B: Tensor) -> Tensor:
        if self.joined:
            return (last_of(y_BSC, lengths_B) + y_BSC[:, 0]) / 2
        half = self.width // 2
        return torch.cat([last_of(y_BSC[..., :half], lengths_B), y_BSC[:, 0, half:]], dim=-1)


@final
class AllAtOnce(Layers):
    """A Transformer encoder. It has no direction; its summary is the last output."""

    def __init__(self, encoder: TransformerEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.width = encoder.output_width

    def forward(self, x_BSE: Tensor, lengths_B: Tensor) -> Tensor:
        y_BSC: Tensor = self.encoder(x_BSE, lengths_B)
        return y_BSC

    def last(self, y_BSC: Tensor, lengths_B: Tensor) -> Tensor:
        return last_of(y_BSC, lengths_B)


@final
class NoLayers(Layers):
    """What enters is what was read: for a source of one position, a class or a vector."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x_BSE: Tensor, lengths_B: Tensor) -> Tensor:
        return x_BSE

    def last(self, y_BSC: Tensor, lengths_B: Tensor) -> Tensor:
        return last_of(y_BSC, lengths_B)


def last_of(y_BSC: Tensor, lengths_B: Tensor) -> Tensor:
    """Each row's output at its own end; 0 for an empty row."""
    at_B = (lengths_B - 1).clamp(min=0)
    last_BC = y_BSC[torch.arange(y_BSC.shape[0], device=y_BSC.device), at_B]
    return torch.where((lengths_B > 0)[:, None], last_BC, torch.zeros_like(last_BC))


def mean_of(y_BSC: Tensor, lengths_B: Tensor) -> Tensor:
    """The mean over positions that exist (outputs past the end are 0)."""
    return y_BSC.sum(1) / lengths_B.clamp(min=1)[:, None]


def max_of(y_BSC: Tensor, lengths_B: Tensor) -> Tensor:
    """Channel by channel, the largest over positions that exist; 0 for an empty row."""
    most_BC = past_end(y_BSC, lengths_B, -torch.inf).amax(1)
    return torch.where((lengths_B > 0)[:, None], most_BC, torch.zeros_like(most_BC))
