"""The contract: a sequence model is a state machine, `y, state = machine(x, state)`.

B batch, T time, D width.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from statewise.core.context import is_symbolic, kept_loop
from statewise.core.representation import Described
from statewise.core.state import State, leaves, map_state, onto, rows, where, within_rows
from statewise.core.state_check import StateCheck, guard_sequence, guard_step

S = TypeVar("S", bound=State)
Step = Callable[[Tensor, S], tuple[Tensor, S]]


class Machine(Described, ABC, Generic[S]):
    """Anything that reads along time and remembers: a mixer, a stack of them, a whole language model.

    The laws it keeps are in `statewise.core.laws`. `forward` and `step` are two forms of one
    definition; concrete machines write the natural one and derive the other. Each refuses a state that is not of
    this machine or not of the rows of its input (`statewise.core.state_check`).
    """

    step_axes: ClassVar[int | None] = None  # of what `step` reads; None: it is not checked
    like: Tensor  # holds nothing; it follows the machine to its device and dtype, so that states can too

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("like", torch.empty(0), persistent=False)
        self._state_check: StateCheck | None = None  # made by the first call

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, guard in (
            ("forward", guard_sequence),
            ("absorb", guard_sequence),
            ("step", guard_step),
            ("step_", guard_step),
        ):
            method = cls.__dict__.get(name)
            if method is not None and not getattr(method, "__isabstractmethod__", False):
                setattr(cls, name, guard(method))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_state_check": None}  # functions cannot be pickled; the next call makes them again

    @abstractmethod
    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        """Random input of the kind this machine reads: what the laws are tried on."""

    @abstractmethod
    def init_state(self, batch: int) -> S:
        """The state before anything was read."""

    @abstractmethod
    def forward(self, x: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
        """Read `x` (time on axis 1) from `state`. Past a row's length, outputs are 0 and its state rests."""

    @abstractmethod
    def step(self, x: Tensor, state: S) -> tuple[Tensor, S]:
        """Read one time step (no time axis)."""

    def absorb(self, x: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> S:
        """`forward` for the state alone: what only makes the outputs may be left out."""
        return self(x, state, lengths_B)[1]

    def reserve(self, state: S, tokens: int) -> tuple[S, int]:
        """A state that means the same, made ready for `step_`, and how many tokens it has room for: `tokens` or fewer.

        A state that grows gets memory of its own, and free room in it. One of fixed size needs neither.
        """
        return state, tokens

    def step_(self, x: Tensor, state: S) -> tuple[Tensor, S]:
        """`step` without gradients that may write into the room that `reserve` made, and go on with what it returns.

        It writes only where nothing was: every state on the way stays what it is, and can be kept, saved and
        forked. A second continuation from one of them starts with a `reserve` of its own.
        """
        return self.step(x, state)

    if TYPE_CHECKING:  # nn.Module.__call__ is untyped; this types every caller, and costs no call

        def __call__(self, x: Tensor, state: S | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, S]: ...


class Mixer(Machine[S]):
    """Carries information along time: `[B, T, input_width]` to `[B, T, output_width]`. Concrete mixers are final."""

    step_axes = 2
    input_width: int
    output_width: int

    def sample_input(self, batch: int, time: int, *, generator: torch.Generator) -> Tensor:
        x_BTI = torch.randn(batch, time, self.input_width, dtype=torch.float64, generator=generator)
        return x_BTI.to(self.like)

    def wide_zeros(self, *shape: int) -> Tensor:
        """The beginning of a sum over time: in float32 at least, because half precision soon rounds every term away."""
        return self.like.new_zeros(shape, dtype=torch.promote_types(self.like.dtype, torch.float32))


class Encoder(Described, ABC):
    """A function of the whole input, for what cannot be read step by step: no `step` is faked.

    The laws it keeps are in `statewise.encoders.laws`.
    """

    axes: ClassVar[int] = 1  # of the input, between batch and width
    input_width: int
    output_width: int

    @abstractmethod
    def forward(self, x_BTD: Tensor, lengths_B: Tensor | None = None) -> Tensor: ...


class Composer(Described, ABC, Generic[S]):
    """Children to one parent, for trees. A node's state is of the composer's own type; axis 0 counts nodes."""

    input_width: int
    output_width: int
    arity: int | None  # the most children a node may have; None: any number

    @abstractmethod
    def absent(self) -> S:
        """One row: what stands for a child that is not there."""

    @abstractmethod
    def forward(self, x_NI: Tensor, children: S) -> S:
        """N parents, from what stands at each and from its children, every leaf `[N, K, ...]`."""

    @abstractmethod
    def shown(self, state: S) -> Tensor:
        """The vector `[N, output_width]` that a node shows to the world."""


def unroll(step: Step[S], x: Tensor, state: S, lengths_B: Tensor | None = None) -> tuple[Tensor, S]:
    """`forward` out of `step`: one time step at a time."""
    y, after = unroll_many(step, (x,), state, lengths_B)
    # Under autocast a step may answer in a lower precision; what is carried on keeps the one it came in.
    return y, map_state(lambda new, old: new.to(old.dtype), after, state)


def unroll_vector(
    step: Callable[[Tensor, Tensor], Tensor], x: Tensor, h: Tensor, lengths_B: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`unroll` of a step whose output is its new state, a vector."""

    def step_twice(x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = step(x, h)
        return h, h

    return unroll(step_twice, x, h, lengths_B)


def unroll_many(
    step: Callable[..., tuple[Tensor, S]], inputs: Sequence[Tensor], state: S, lengths_B: Tensor | None
) -> tuple[Tensor, S]:
    """`unroll` for a step that takes several inputs: `step(*inputs_at_t, state)`."""
    time = inputs[0].shape[1]
    if is_symbolic(time):
        return _kept(step, inputs, state, lengths_B, time)
    outputs = []
    for t, inputs_at_t in enumerate(zip(*(value.unbind(1) for value in inputs), strict=True)):
        y, state = within_rows(t, lengths_B, step(*inputs_at_t, state), before=state)
        outputs.append(y)
    return torch.stack(outputs, dim=1), state


def _kept(
    step: Callable[..., tuple[Tensor, S]], inputs: Sequence[Tensor], state: S, lengths_B: Tensor | None, time: int
) -> tuple[Tensor, S]:
    """`unroll_many` of any number of time steps."""

    def built(parts: Sequence[Tensor]) -> S:
        remaining = iter(parts)
        return map_state(lambda _: next(remaining), state)

    def loop_step(before: Sequence[Tensor], inputs: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        t_1, *at_t = inputs
        y, after = within_rows(t_1[0], lengths_B, step(*at_t, built(before)), before=built(before))
        return [leaf for _, leaf in leaves(after)], y

    t_1T = torch.arange(time, device=inputs[0].device)[None]
    after, y = kept_loop(loop_step, [leaf for _, leaf in leaves(state)], (t_1T, *inputs))
    return y, built(after)


def one_step(forward: Callable[[Tensor, S], tuple[Tensor, S]], x: Tensor, state: S) -> tuple[Tensor, S]:
    """`step` out of `forward`: a sequence of one time step."""
    y, state = forward(x.unsqueeze(1), state)
    return y[:, 0], state


def forward_with_resets(
    machine: Callable[[Tensor, Any, Tensor | None], tuple[Tensor, Any]],
    x: Tensor,
    state: S,
    resets_BT: Tensor,
    *,
    initial: S,
) -> tuple[Tensor, S]:
    """Read `x`, starting a row afresh *before* each position where `resets_BT` is true.

    One call whatever the number of documents: every stretch between two resets becomes a row of its
    own in a ragged batch. That this changes nothing else is what the laws `rows` and `ragged` say.

    Where the stretches lie is found out where `resets_BT` is: left on the host, nobody has to wait for a device.
    """
    batch, time = resets_BT.shape
    starts_BT = resets_BT.clone()
    starts_BT[:, 0] = True
    row_N, begin_N = starts_BT.nonzero(as_tuple=True)  # row-major, so a row's stretches are consecutive
    first_N = begin_N == 0
    end_N = torch.cat([begin_N[1:], begin_N.new_tensor([time])])
    end_N = torch.where(torch.cat([first_N[1:], first_N.new_ones(1)]), time, end_N)
    length_N = end_N - begin_N

    at_NL = begin_N[:, None] + torch.arange(int(length_N.max()), device=begin_N.device)
    inside_M = (at_NL < end_N[:, None]).flatten().nonzero()[:, 0]
    carried_N = first_N & ~resets_BT[row_N, begin_N]
    last_B = first_N.nonzero()[:, 0][1:].sub(1)
    last_B = torch.cat([last_B, last_B.new_tensor([len(row_N) - 1])])

    at_NL = at_NL.clamp(max=time - 1)
    row_N, at_NL, inside_M, carried_N, length_N, last_B = (
        onto(x.device, part) for part in (row_N, at_NL, inside_M, carried_N, length_N, last_B)
    )
    x_NL = x[row_N[:, None], at_NL]
    before = where(carried_N, rows(state, row_N), rows(initial, torch.zeros_like(row_N)))
    y_NL, after = machine(x_NL, before, length_N)
    y = y_NL.flatten(0, 1)[inside_M].view(batch, time, *y_NL.shape[2:])
    return y, rows(after, last_B)


class Stacked(ABC):
    """A module in which several matrices stand one below the other: gates, or queries, keys and values.

    One product serves them all, but an optimiser that looks at a matrix as a whole has to see them apart.
    """

    @abstractmethod
    def stacked(self) -> Mapping[str, Sequence[int]]:
        """By a parameter's name, the rows of each matrix in it; none for a table of gains, biases or filters."""
