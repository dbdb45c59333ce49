"""Three ways for a machine to end what it writes, behind one contract.

A sequence is a prompt that is read and a content x_1 … x_n that is written. Content is entered through one
extra symbol, the `edge`; after it and after every x_t the model says whether it is over and, if not, what
comes next. All three give a probability to the same thing, content and length together, so their nats compare.

    end        one more symbol to choose:     Π_t P(x_t)  ·  P(edge)
    bernoulli  a yes or no at every step:     Π_t (1 - s_t) P(x_t)  ·  s_n
    remaining  the length comes first:        P(n)  ·  Π_t P(x_t given n - t steps to go)

B batch, P prompt time, T content time with the edge, E embedding width, D feature width, V content symbols,
K parts of a mixture of lengths.
"""

from abc import abstractmethod
from typing import Any, Generic, TypeVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from statewise.core import Machine, State, check_input, is_known, past_end
from statewise.layers import Dropout, Embedding, make_linear
from statewise.models.head import TiedHead
from statewise.models.token_machine import TokenMachine
from statewise.specs import UserError


class Body(nn.Module):
    """Symbols (content and edge) to features: an embedding, and any machine over vectors.

    With `tie`, who chooses symbols from the features uses the embedding's matrix once more.
    """

    def __init__(
        self,
        *,
        embedding: Embedding,
        machine: Machine[Any],
        width: int,
        input_dropout: Dropout | None = None,
        tie: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.input_dropout = input_dropout or Dropout(0.0)
        self.machine = machine
        self.width = width
        self.tie = tie

    @property
    def vocab(self) -> int:
        """Content symbols; the edge is the symbol after them."""
        return self.embedding.weight.shape[0] - 1

    def read(
        self, tokens_BT: Tensor, state: "State | None", lengths_B: Tensor | None, *, told_BTE: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """`told_BTE` is added to the vectors of the symbols."""
        x_BTE = self.embedding(tokens_BT)
        x_BTE = x_BTE if told_BTE is None else x_BTE + told_BTE
        y_BTD, after = self.machine(self.input_dropout(x_BTE), state, lengths_B)
        return y_BTD, after


S = TypeVar("S", bound=State)


class Terminating(Machine[S], Generic[S]):
    """Symbols in; logits of the content symbols and, last, of the end out."""

    step_axes = 1
    body: Body

    @property
    def vocab(self) -> int:
        return self.body.vocab

    @property
    def edge(self) -> int:
        return self.body.vocab

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        return torch.randint(self.vocab + 1, (batch, time), generator=generator).to(self.like.device)

    @abstractmethod
    def features(self, tokens_BT: Tensor, state: S | None, lengths_B: Tensor | None) -> tuple[Tensor, S]: ...

    @abstractmethod
    def outputs(self, y: Tensor, state: S) -> Tensor:
        """Of features, the `[..., V + 1]` logits."""

    @abstractmethod
    def begin(
        self, summary_BD: Tensor, state: S, *, length_B: Tensor | None = None, uniform_B: Tensor | None = None
    ) -> S:
        """The state before the edge, with the length given, sampled by `uniform_B`, or else its median."""

    @abstractmethod
    def nats(
        self, summary_BD: Tensor, outputs_BTV: Tensor, content_BT: Tensor, length_B: Tensor, *, smoothing: float = 0.0
    ) -> Tensor:
        """`-log P` of content and length, where they fall: position t is after x_t. 0 past the end.

        `smoothing` is the share of each symbol's target that is spread over all symbols. A yes or no and a
        length are not smoothed.
        """

    @abstractmethod
    def told(self, prompt: int, length: int) -> Tensor | None:
        """Vectors to add to those of a prompt, the edge and a content of such lengths, `[T, E]`; None: nothing."""

    def chances(self, outputs: Tensor) -> Tensor:
        """Of `[..., V + 1]` outputs the probability that each symbol comes next and, last, that it is over."""
        return self.log_chances(outputs).exp()

    @abstractmethod
    def log_chances(self, outputs: Tensor) -> Tensor: ...

    @abstractmethod
    def over(self, state: S, time: int = 1) -> Tensor | None:
        """`[B, T]`: whether it is over after each of `time` symbols from a state on, where that knows it; or None."""

    @abstractmethod
    def predicted_length(self, summary_BD: Tensor, uniform_B: Tensor | None = None) -> Tensor | None:
        """`[B]`: the median of the predicted length, or a sample of it; None: the length is not predicted."""

    @abstractmethod
    def decided(self, summary_BD: Tensor, state: S) -> Tensor:
        """`[B]`: the log probability of what `begin` decided before the first symbol."""

    @abstractmethod
    def stops(self, outputs_BV: Tensor, state: S, *, uniform_B: Tensor | None = None) -> Tensor:
        """Whether it is over after the last symbol read: sampled, or else the more probable case."""

    def forward(self, tokens_BT: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        check_input(tokens_BT, lengths_B)
        y_BTD, after = self.features(tokens_BT, state, lengths_B)
        return past_end(self.outputs(y_BTD, after), lengths_B), after

    def step(self, token_B: Tensor, state: S) -> tuple[Tensor, S]:
        outputs_B1V, after = self(token_B[:, None], state)
        return outputs_B1V[:, 0], after

    def condition(self, prompt_BP: Tensor, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        """Read a prompt: the features after its last symbol, and the state."""
        check_input(prompt_BP, lengths_B)
        y_BPD, state = self.features(prompt_BP, None, lengths_B)
        if lengths_B is None:
            return y_BPD[:, -1], state
        if is_known(lengths_B) and bool((lengths_B < 1).any()):
            raise UserError("a prompt is empty", fix=f"begin it with a symbol; {self.edge}, the edge, is always there")
        return y_BPD[torch.arange(y_BPD.shape[0], device=y_BPD.device), lengths_B - 1], state

    def loss(self, prompt_BP: Tensor, prompt_length_B: Tensor | None, content_BN: Tensor, length_B: Tensor) -> Tensor:
        """Nats of each row's content and length, `[B, T]`: one parallel pass over the prompt, one over the rest."""
        summary_BD, state = self.condition(prompt_BP, prompt_length_B)
        state = self.begin(summary_BD, state, length_B=length_B)
        edge_B1 = content_BN.new_full((content_BN.shape[0], 1), self.edge)
        outputs_BTV, _ = self(torch.cat([edge_B1, content_BN], dim=1), state, length_B + 1)
        return self.nats(summary_BD, outputs_BTV, content_BN, length_B)


def targets_by_step(outputs_BTV: Tensor, content_BT: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The next symbol at each position (arbitrary at the last), where content continues, and where it ends."""
    next_BT = F.pad(content_BT, (0, outputs_BTV.shape[1] - content_BT.shape[1]))
    at_T = torch.arange(outputs_BTV.shape[1], device=length_B.device)
    return next_BT, at_T < length_B[:, None], at_T == length_B[:, None]


def surprise(logits_BTV: Tensor, chosen_BT: Tensor, smoothing: float) -> Tensor:
    nats_N = F.cross_entropy(
        wide(logits_BTV).flatten(0, 1), chosen_BT.flatten(), reduction="none", label_smoothing=smoothing
    )
    return nats_N.view_as(chosen_BT)


def wide(logits: Tensor) -> Tensor:
    """In float32 at least."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class _EndsByOutput(Terminating[State]):
    """The outputs say whether it is over: nothing is decided before the first symbol."""

    def init_state(self, batch: int) -> State:
        return first_state(self.body, batch)

    def features(self, tokens_BT: Tensor, state: "State | None", lengths_B: Tensor | None) -> tuple[Tensor, State]:
        return self.body.read(tokens_BT, state, lengths_B)

    def begin(
        self, summary_BD: Tensor, state: State, *, length_B: Tensor | None = None, uniform_B: Tensor | None = None
    ) -> State:
        return state

    def told(self, prompt: int, length: int) -> Tensor | None:
        return None

    def over(self, state: State, time: int = 1) -> Tensor | None:
        return None

    def predicted_length(self, summary_BD: Tensor, uniform_B: Tensor | None = None) -> Tensor | None:
        return None

    def decided(self, summary_BD: Tensor, state: State) -> Tensor:
        return summary_BD.new_zeros(summary_BD.shape[0], dtype=torch.float64)


@final
class EndSymbol(_EndsByOutput):
    """The edge is one more symbol to choose: when it is chosen, it is over."""

    def __init__(self, *, body: Body, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.body = body
        self.head = make_head(body, body.vocab + 1, generator)

    def outputs(self, y: Tensor, state: State) -> Tensor:
        logits: Tensor = self.head(y)
        return logits

    def nats(
        self, summary_BD: Tensor, outputs_BTV: Tensor, content_BT: Tensor, length_B: Tensor, *, smoothing: float = 0.0
    ) -> Tensor:
        next_BT, goes_on_BT, ends_BT = targets_by_step(outputs_BTV, content_BT, length_B)
        nats_BT = surprise(outputs_BTV, next_BT.masked_fill(ends_BT, self.edge), smoothing)
        return nats_BT.masked_fill(~(goes_on_BT | ends_BT), 0.0)

    def log_chances(self, outputs: Tensor) -> Tensor:
        return wide(outputs).log_softmax(-1)

    def stops(self, outputs_BV: Tensor, state: State, *, uniform_B: Tensor | None = None) -> Tensor:
        if uniform_B is None:
            return outputs_BV.argmax(-1) == self.edge
        return uniform_B < outputs_BV.double().softmax(-1)[:, self.edge]


@final
class BernoulliStop(_EndsByOutput):
    """Symbols and a stop probability: `s_t = σ(w · y_t + b)` is the probability that x_t was the last."""

    def __init__(self, *, body: Body, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.body = body
        self.head = make_head(body, body.vocab, generator)
        self.stop = make_linear(body.width, 1, generator=generator)

    def outputs(self, y: Tensor, state: State) -> Tensor:
        return torch.cat([self.head(y), self.stop(y)], dim=-1)

    def nats(
        self, summary_BD: Tensor, outputs_BTV: Tensor, content_BT: Tensor, length_B: Tensor, *, smoothing: float = 0.0
    ) -> Tensor:
        next_BT, goes_on_BT, ends_BT = targets_by_step(outputs_BTV, content_BT, length_B)
        stop_BT = wide(outputs_BTV[:, :, -1])
        going_BT = surprise(outputs_BTV[:, :, :-1], next_BT, smoothing) + F.softplus(stop_BT)
        return going_BT.masked_fill(~goes_on_BT, 0.0) + F.softplus(-stop_BT).masked_fill(~ends_BT, 0.0)

    def log_chances(self, outputs: Tensor) -> Tensor:
        symbols, stop = wide(outputs[..., :-1]), wide(outputs[..., -1:])
        return torch.cat([symbols.log_softmax(-1) + F.logsigmoid(-stop), F.logsigmoid(stop)], dim=-1)

    def stops(self, outputs_BV: Tensor, state: State, *, uniform_B: Tensor | None = None) -> Tensor:
        if uniform_B is None:
            return outputs_BV[:, -1] > 0
        return uniform_B < outputs_BV[:, -1].double().sigmoid()


def make_head(body: Body, symbols: int, generator: torch.Generator | None) -> nn.Module:
    if body.tie:
        return TiedHead(body.embedding, symbols, body.width, generator)
    return make_linear(body.width, symbols, generator=generator)


def first_state(body: Body, batch: int) -> State:
    state: State = body.machine.init_state(batch)
    return state


@final
class EndAsToken(TokenMachine[S]):
    """Any terminating machine as a search over tokens expects it: the edge is one more token, and choosing it ends.

    Its logits are log probabilities. Where the state counts the steps to go, the end is certain when none is left
    and impossible before.
    """

    def __init__(self, model: Terminating[S]) -> None:
        super().__init__()
        self.model = model

    @property
    def vocab(self) -> int:
        return self.model.vocab + 1

    def init_state(self, batch: int) -> S:
        return self.model.init_state(batch)

    def forward(self, tokens_BT: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        state = self.init_state(tokens_BT.shape[0]) if state is None else state
        outputs_BTV, after = self.model(tokens_BT, state, lengths_B)
        return past_end(self._told(self.model.log_chances(outputs_BTV), state), lengths_B), after

    def step(self, token_B: Tensor, state: S) -> tuple[Tensor, S]:
        outputs_BV, after = self.model.step(token_B, state)
        return self._told(self.model.log_chances(outputs_BV)[:, None], state)[:, 0], after

    def _told(self, log_BTV: Tensor, state: S) -> Tensor:
        over_BT = self.model.over(state, log_BTV.shape[1])
        if over_BT is None:
            return log_BTV
        is_end_V = torch.arange(log_BTV.shape[2], device=log_BTV.device) == self.model.edge
        end_V = torch.zeros_like(log_BTV[0, 0]).masked_fill(~is_end_V, -torch.inf)
        return torch.where(over_BT[:, :, None], end_V, log_BTV)
