"""The encoder-decoder of 2017: an encoder reads a source, and its keys and values are the decoder's first state.

B batch, S source time, T target time, D width, V vocabulary.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, cast, final

import torch
from torch import Tensor, nn

from statewise.core import State, one_step, scope
from statewise.core.machine import check_input
from statewise.encoders import MultiHeadAttention, TransformerEncoder
from statewise.kernels.choice import Wish
from statewise.layers import MLP, Dropout, Embedding, Scheme, make_norm
from statewise.mixers import Attention
from statewise.models.add_position import AddPosition
from statewise.models.cross_block import CrossBlock, CrossState
from statewise.models.head import CategoricalHead
from statewise.models.token_machine import TokenMachine


class TransformerState(NamedTuple):
    layers: tuple[CrossState, ...]
    position: State = ()  # how far each row has written, where positions are added


@final
class Transformer(TokenMachine[TransformerState]):
    """Target tokens in, logits of the next target token out, given a source that `condition` has read.

    From the state that `condition` gives it is a machine like any other: it steps, splits and forks.
    """

    def __init__(
        self,
        *,
        source_vocab: int,
        target_vocab: int,
        width: int,
        depth: int,
        heads: int,
        kv_heads: int | None = None,
        position: Literal["none", "learned", "sinusoidal", "rotary", "alibi"] = "sinusoidal",
        context: int = 1024,
        norm: Literal["none", "layer", "rms"] = "layer",
        norm_place: Literal["pre", "post"] = "pre",
        mlp: Literal["relu", "gelu", "swiglu"] = "gelu",
        mlp_ratio: float = 4.0,
        bias: bool = True,
        dropout: float = 0.0,
        init: Scheme = "orthogonal",
        kernel: Wish = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.source_embedding = Embedding(source_vocab, width, generator=generator)
        self.encoder = TransformerEncoder(
            width,
            depth=depth,
            heads=heads,
            kv_heads=kv_heads,
            position=position,
            context=context,
            norm=norm,
            norm_place=norm_place,
            mlp=mlp,
            mlp_ratio=mlp_ratio,
            bias=bias,
            dropout=dropout,
            init=init,
            kernel=kernel,
            generator=generator,
        )
        self.embedding = Embedding(target_vocab, width, generator=generator)
        self.position: AddPosition | None = None
        if position == "learned" or position == "sinusoidal":
            self.position = AddPosition(width, kind=position, context=context, generator=generator)
        self.dropout = Dropout(dropout)
        blocks = []
        for _ in range(depth):
            own = Attention(
                width,
                heads=heads,
                kv_heads=kv_heads,
                position=position if position in ("rotary", "alibi") else "none",
                bias=bias,
                init=init,
                kernel=kernel,
                generator=generator,
            )
            cross = MultiHeadAttention(
                width, heads=heads, kv_heads=kv_heads, bias=bias, init=init, kernel=kernel, generator=generator
            )
            hidden = max(1, round(mlp_ratio * width))
            blocks.append(
                CrossBlock(
                    own,
                    cross,
                    MLP(width, hidden=hidden, kind=mlp, bias=bias, generator=generator),
                    norms=(make_norm(norm, width), make_norm(norm, width), make_norm(norm, width)),
                    dropout=Dropout(dropout),
                    norm_place=norm_place,
                )
            )
        self.blocks = nn.ModuleList(blocks)
        self.final_norm = make_norm(norm if norm_place == "pre" else "none", width)
        self.head = CategoricalHead(width, target_vocab, generator=generator)

    def _blocks(self) -> Sequence[CrossBlock]:
        return cast("Sequence[CrossBlock]", self.blocks)

    @property
    def vocab(self) -> int:
        return len(self.head.bias_V)

    def init_state(self, batch: int) -> TransformerState:
        """The state after a source of no length."""
        position = () if self.position is None else self.position.init_state(batch)
        return TransformerState(tuple(block.init_state(batch) for block in self._blocks()), position)

    def condition(self, source_BS: Tensor, lengths_B: Tensor | None = None) -> TransformerState:
        """Read a source; the decoder goes on from the state this gives."""
        check_input(source_BS, lengths_B)
        memory_BSD = self.encoder(self.source_embedding(source_BS), lengths_B)
        if lengths_B is None:
            lengths_B = torch.full((len(source_BS),), source_BS.shape[1], device=source_BS.device)
        begun = self.init_state(len(source_BS))
        return begun._replace(layers=tuple(block.condition(memory_BSD, lengths_B) for block in self._blocks()))

    def forward(
        self, target_BT: Tensor, state: TransformerState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, TransformerState]:
        check_input(target_BT, lengths_B)
        layers, at = state or self.init_state(len(target_BT))
        x_BTD: Tensor = self.embedding(target_BT)
        if self.position is not None:
            assert isinstance(at, Tensor)
            x_BTD, at = self.position(x_BTD, at, lengths_B)
        x_BTD = self.dropout(x_BTD)
        after = []
        for number, (block, layer) in enumerate(zip(self._blocks(), layers, strict=True)):
            with scope(f"layers.{number}"):
                x_BTD, layer = block(x_BTD, layer, lengths_B)
            after.append(layer)
        logits_BTV: Tensor = self.head(self.final_norm(x_BTD))
        if lengths_B is not None:
            past_BT = torch.arange(target_BT.shape[1], device=lengths_B.device) >= lengths_B[:, None]
            logits_BTV = logits_BTV.masked_fill(past_BT[:, :, None], 0.0)
        return logits_BTV, TransformerState(tuple(after), at)

    def step(self, token_B: Tensor, state: TransformerState) -> tuple[Tensor, TransformerState]:
        return one_step(self.forward, token_B, state)
