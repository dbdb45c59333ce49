"""The output-recurrent language model: of the past, the hidden layer sees the last output and nothing else.

B batch, T time, E width of a token vector, D hidden width, O = V vocabulary.
"""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Mixer, past_end, unroll, where
from statewise.kernels import Wish
from statewise.kernels.elman import Activation
from statewise.kernels.jordan import hidden, language_choice, returned
from statewise.layers import Dropout, Embedding, Filler, Scheme, one_sequence
from statewise.mixers import JordanState
from statewise.models.head import CategoricalHead
from statewise.models.language_model import EmbeddedMachine
from statewise.models.stack import Stack


@final
class HiddenLayer(Mixer[tuple[()]]):
    """`h_t = φ(W x_t + b)`: no edge from one time step to the next, so no state."""

    def __init__(
        self,
        width: int,
        *,
        input_width: int,
        activation: Activation,
        init: Scheme,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.input_width = input_width
        self.output_width = width
        self.activation: Activation = activation
        self.w_DI = nn.Parameter(torch.empty(width, input_width))
        self.b_D = nn.Parameter(torch.zeros(width))
        Filler(init, generator).input(self.w_DI)

    def init_state(self, batch: int) -> tuple[()]:
        return ()

    def forward(
        self, x_BTI: Tensor, state: tuple[()] | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, tuple[()]]:
        h_BTD, _ = self.step(x_BTI, ())
        return past_end(h_BTD, lengths_B), ()

    def step(self, x_BI: Tensor, state: tuple[()]) -> tuple[Tensor, tuple[()]]:
        return hidden(F.linear(x_BI, self.w_DI, self.b_D), self.activation), ()


@final
class JordanLanguageModel(EmbeddedMachine[JordanState]):
    """`h_t = φ(W (x_t + R e_{t-1}) + b)`, `o_t = V h_t + c`, where e is the vector of the last output.

    `forced`: the last output is known to be the token that is read now (the true one in training and in a prompt, the
    sampled one in generation), so `e_{t-1} = x_t` and all time steps are computed at once. Otherwise the predicted
    distribution comes back, `e_{t-1} = softmax(o_{t-1}) E`, one time step after the other. The weights are the same.
    """

    def __init__(
        self,
        *,
        embedding: Embedding,
        input_dropout: Dropout,
        stack: Stack,
        head: CategoricalHead,
        forced: bool,
        init: Scheme,
        kernel: Wish = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.input_dropout = input_dropout
        width = embedding.weight.shape[1]
        self.r_EE = nn.Parameter(torch.empty(width, width))
        self.stack = stack
        self.head = head
        self.forced = forced
        self.kernel: Wish = kernel
        Filler(init, generator).input(self.r_EE)

    def init_state(self, batch: int) -> JordanState:
        """Before the first output nothing comes back."""
        return JordanState(self.like.new_zeros(batch, self.vocab))

    def read(
        self, x_BTE: Tensor, state: JordanState | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, JordanState]:
        before = state or self.init_state(x_BTE.shape[0])
        if language_choice(forced=self.forced, wish=self.kernel).implementation == "naive":
            with one_sequence():
                return unroll(self.read_one, x_BTE, before, lengths_B)
        y_BTD, _ = self.stack(self._with(x_BTE, x_BTE), None, lengths_B)
        return y_BTD, self._after(_last(y_BTD, lengths_B), before, lengths_B)

    def read_one(self, x_BE: Tensor, state: JordanState) -> tuple[Tensor, JordanState]:
        last_BE = x_BE if self.forced else self.embedding.gain * (state.o_BO @ self.embedding.weight)
        y_BD, _ = self.stack.step(self._with(x_BE, last_BE), self.stack.init_state(x_BE.shape[0]))
        return y_BD, self._after(y_BD, state, None)

    def absorb(
        self, tokens_BT: Tensor, state: JordanState | None = None, lengths_B: Tensor | None = None
    ) -> JordanState:
        """Without the logits of all but the last token."""
        return self.features(tokens_BT, state, lengths_B)[1]

    def _with(self, x: Tensor, last: Tensor) -> Tensor:
        return x + F.linear(last, self.r_EE)

    def _after(self, y_BD: Tensor, before: JordanState, lengths_B: Tensor | None) -> JordanState:
        after = JordanState(returned(self.head(y_BD)).to(before.o_BO.dtype))
        return after if lengths_B is None else where(lengths_B > 0, after, before)


def _last(x: Tensor, lengths_B: Tensor | None) -> Tensor:
    """`[B, ...]`: each row's last time step; of an empty row the first."""
    if lengths_B is None:
        return x[:, -1]
    at_B = (lengths_B - 1).clamp(min=0)
    return x[torch.arange(x.shape[0], device=x.device), at_B]
