"""Which past a model reads during training: teacher forcing, scheduled sampling, free running; the exposure gap.

B batch, T time, V vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, assert_never

import torch
from torch import Tensor
from torch.nn import functional as F

from statewise.core import Machine, State, uniforms, where, within_rows
from statewise.layers import one_sequence
from statewise.specs import ForcingSpec, FreeRunning, ScheduledSampling, TeacherForcing

S = TypeVar("S", bound=State)

# From the output at one time step, the true next input, and a uniform draw a row: the next input.
Feedback = Callable[[Tensor, Tensor, Tensor], Tensor]
# Outputs and targets, both with time on axis 1, to a loss `[B, T]`.
Score = Callable[[Tensor, Tensor], Tensor]


def truth_probability(policy: ForcingSpec, step: int) -> float:
    """With which probability an input is the truth at a step (from 0)."""
    match policy:
        case TeacherForcing():
            return 1.0
        case FreeRunning():
            return 0.0
        case ScheduledSampling():
            return policy.end + (policy.start - policy.end) * _left(policy, step)
        case _:
            assert_never(policy)


def _left(policy: ScheduledSampling, step: int) -> float:
    """The share of the schedule that is left, from 1 at `start` to 0 at `end`."""
    match policy.schedule:
        case "constant":
            return 1.0
        case "linear":
            return max(0.0, 1 - step / policy.steps)
        case "exponential":
            return float(policy.k**step)
        case "inverse_sigmoid":
            late = step / policy.k - math.log(policy.k)  # k / (k + e^(i/k)) without an overflow
            return math.exp(-late) / (1 + math.exp(-late)) if late > 0 else 1 / (1 + math.exp(late))
        case _:
            assert_never(policy.schedule)


# -------------------------------------------------------------------- what is fed back


def feed_tokens(choice: Literal["sample", "best"] = "sample") -> Feedback:
    """From logits `[B, V]` to a token. No gradient passes through a choice."""

    def feed(logits_BV: Tensor, truth_B: Tensor, uniform_B: Tensor) -> Tensor:
        if choice == "best":
            return logits_BV.argmax(-1)
        cumulative_BV = logits_BV.detach().double().softmax(-1).cumsum(-1)
        # Scaled by the last entry, so that rounding cannot leave the draw beyond the end.
        below_BV = cumulative_BV <= uniform_B[:, None] * cumulative_BV[:, -1:]
        return below_BV.sum(-1).clamp(max=logits_BV.shape[-1] - 1)

    return feed


def feed_values(value: Callable[[Tensor, Tensor], Tensor], *, through: bool = False) -> Feedback:
    """From a machine's output and a uniform draw to real values, through `value`: its mean, or a sample.

    What the input holds beyond those values (covariates) is known and stays the truth. With `through`, the
    gradient flows along what is fed back too.
    """

    def feed(output: Tensor, truth_BI: Tensor, uniform_B: Tensor) -> Tensor:
        own_BC = value(output, uniform_B)
        own_BC = own_BC if through else own_BC.detach()
        return torch.cat([own_BC.to(truth_BI), truth_BI[:, own_BC.shape[1] :]], dim=1)

    return feed


# -------------------------------------------------------------------- the forward pass


def forced_forward(
    model: Machine[S],
    inputs: Tensor,
    state: S | None = None,
    *,
    truth_probability: float,
    key: Sequence[int],
    lengths_B: Tensor | None = None,
    feedback: Feedback | None = None,
    before: Tensor | None = None,
    first_row: int = 0,
    first_time: int = 0,
) -> tuple[Tensor, S]:
    """`model(inputs, state)`, but each input is the truth only with a probability, else what the model gave.

    With probability 1 it is that call itself. Otherwise the machine runs step by step, with a random choice
    for every row and time step: a function of `key`, of the row and of the time alone, so a batch may be cut
    into rows (`first_row`) or segments (`first_time`, with `before`, the last output of the segment before).
    Without `before`, the first input is the truth: there is no output yet.
    """
    assert 0 <= truth_probability <= 1
    if truth_probability == 1:
        return model(inputs, state, lengths_B)
    state = model.init_state(len(inputs)) if state is None else state
    coin_BT, uniform_BT = _draws(inputs, key, first_row=first_row, first_time=first_time)
    truth_BT = coin_BT < truth_probability
    with one_sequence():
        return _unrolled(model, inputs, state, truth_BT, uniform_BT, feedback or feed_tokens(), lengths_B, before)


def _draws(inputs: Tensor, key: Sequence[int], *, first_row: int, first_time: int) -> tuple[Tensor, Tensor]:
    """For every row and time step: the draw between truth and model, and the draw of the model's sample."""
    batch, time = inputs.shape[:2]
    both = uniforms(key, rows=batch, times=time, kinds=2, first_row=first_row, first_time=first_time)
    both = both.to(inputs.device)
    return both[:, :, 0], both[:, :, 1]


def _unrolled(
    model: Machine[S],
    inputs: Tensor,
    state: S,
    truth_BT: Tensor,
    uniform_BT: Tensor,
    feedback: Feedback,
    lengths_B: Tensor | None,
    before: Tensor | None,
) -> tuple[Tensor, S]:
    outputs = []
    y_B = before
    for t, x_B in enumerate(inputs.unbind(1)):
        if y_B is not None and not bool(truth_BT[:, t].all()):
            x_B = where(truth_BT[:, t], x_B, feedback(y_B, x_B, uniform_BT[:, t]))
        y_B, state = within_rows(t, lengths_B, model.step(x_B, state), before=state)
        outputs.append(y_B)
    return torch.stack(outputs, dim=1), state


# -------------------------------------------------------------------- the gap


class ExposureGap(NamedTuple):
    """Mean loss at each position, over the rows that reach it, under three pasts; see `exposure_gap`."""

    teacher_T: Tensor
    own_T: Tensor
    foreign_T: Tensor | None
    count_T: Tensor
    prefix: int
    own: int

    @property
    def gap_T(self) -> Tensor:
        """What it costs to have read oneself."""
        return self.own_T - self.teacher_T

    @property
    def excess_T(self) -> Tensor:
        """What it costs beyond having read something else that is true: above 0, own text misleads."""
        assert self.foreign_T is not None, "there was only one row: nothing foreign to read"
        return self.own_T - self.foreign_T


def nats(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="none").view_as(targets_BT)


@torch.no_grad()
def exposure_gap(
    model: Machine[Any],
    inputs: Tensor,
    targets: Tensor,
    state: Any = None,
    *,
    prefix: int = 1,
    own: int | None = None,
    lengths_B: Tensor | None = None,
    feedback: Feedback | None = None,
    score: Score = nats,
    seed: int = 0,
) -> ExposureGap:
    """Loss along the sequence when the machine has read its own output, and when it has read the truth.

    Position t scores the true target given the inputs up to t. The first `prefix` inputs are true, the next
    `own` (default: all the others) are what the machine gave, and then the truth is read again. So inside
    the stretch this is the loss of free running, and after it the loss that is left once the true past is
    back. `foreign` reads, in the stretch, the truth of another row: text that is true but does not belong.
    """
    batch, time = inputs.shape[:2]
    assert 1 <= prefix <= time, "the first input is always the truth"
    own = time - prefix if own is None else min(own, time - prefix)
    state = model.init_state(batch) if state is None else state
    feedback = feedback or feed_tokens()
    at_T = torch.arange(time, device=inputs.device)
    stretch_BT = ((at_T >= prefix) & (at_T < prefix + own)).expand(batch, time)
    _, uniform_BT = _draws(inputs, (seed,), first_row=0, first_time=0)

    def curve(outputs: Tensor) -> Tensor:
        loss_BT = score(outputs, targets).double()
        return (loss_BT * inside_BT).sum(0) / count_T.clamp(min=1)

    inside_BT = torch.ones(batch, time, dtype=torch.bool, device=inputs.device)
    if lengths_B is not None:
        inside_BT = at_T < lengths_B[:, None]
    count_T = inside_BT.sum(0)
    teacher, _ = model(inputs, state, lengths_B)
    written, _ = _unrolled(model, inputs, state, ~stretch_BT, uniform_BT, feedback, lengths_B, None)
    foreign = None
    if batch > 1:
        other = inputs.roll(1, dims=0)
        chosen_BT = stretch_BT if lengths_B is None else stretch_BT & (at_T < lengths_B.roll(1)[:, None])
        mixed = torch.where(chosen_BT.view(batch, time, *[1] * (inputs.dim() - 2)), other, inputs)
        foreign, _ = model(mixed, state, lengths_B)
    return ExposureGap(
        curve(teacher), curve(written), None if foreign is None else curve(foreign), count_T, prefix, own
    )
