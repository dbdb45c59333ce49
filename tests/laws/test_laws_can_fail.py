"""Machines broken on purpose. Each names the law it was made to break, and every law that must notice.

Some laws follow from others (who peeks ahead cannot be split), so a flaw may be caught more than once;
the sets are exact: no law stays silent that should speak, and none cries wolf.
"""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from statewise.core import Mixer, detach, laws, one_step, unroll


class Memory(NamedTuple):
    h_BD: Tensor


class Sound(Mixer[Memory]):
    """A lawful machine, to be broken below: `h' = tanh(x + U h)`."""

    def __init__(self) -> None:
        super().__init__()
        self.input_width = self.output_width = 3
        generator = torch.Generator().manual_seed(0)
        self.u_DD = nn.Parameter(0.5 * torch.randn(3, 3, dtype=torch.float64, generator=generator))

    def init_state(self, batch: int) -> Memory:
        return Memory(self.u_DD.new_zeros(batch, 3))

    def sound_step(self, x_BD: Tensor, state: Memory) -> tuple[Tensor, Memory]:
        h_BD = torch.tanh(x_BD + state.h_BD @ self.u_DD.mT)
        return h_BD, Memory(h_BD)

    def step(self, x_BD: Tensor, state: Memory) -> tuple[Tensor, Memory]:
        return self.sound_step(x_BD, state)

    def forward(
        self, x_BTD: Tensor, state: Memory | None = None, lengths_B: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        return unroll(self.sound_step, x_BTD, state or self.init_state(len(x_BTD)), lengths_B)


def inside(x_BTD: Tensor, lengths_B: Tensor | None) -> Tensor:
    """1 before a row's end, 0 past it."""
    time = x_BTD.shape[1]
    end_B1 = x_BTD.new_full((len(x_BTD), 1), time) if lengths_B is None else lengths_B[:, None]
    return (torch.arange(time) < end_B1)[:, :, None].to(x_BTD)


class PeeksAhead(Sound):
    """Each output sees the next input."""

    def forward(self, x_BTD, state=None, lengths_B=None):
        y_BTD, after = super().forward(x_BTD, state, lengths_B)
        known_BTD = x_BTD * inside(x_BTD, lengths_B)
        return y_BTD + torch.cat([known_BTD[:, 1:], torch.zeros_like(known_BTD[:, :1])], dim=1), after


class WritesInPlace(Sound):
    """Saves memory while decoding, by writing the new state over the old one."""

    def step(self, x_BD: Tensor, state: Memory) -> tuple[Tensor, Memory]:
        h_BD, after = self.sound_step(x_BD, state)
        if torch.is_grad_enabled():
            return h_BD, after
        state.h_BD.copy_(h_BD)
        return h_BD, state


class MixesRows(Sound):
    """Adds a little of the batch's mean, as a batch norm does."""

    def sound_step(self, x_BD: Tensor, state: Memory) -> tuple[Tensor, Memory]:
        h_BD, _ = super().sound_step(x_BD, state)
        h_BD = h_BD + 1e-3 * h_BD.mean(0)
        return h_BD, Memory(h_BD)


class StepsDifferently(Sound):
    """A second definition of the same thing, nearly right."""

    def step(self, x_BD: Tensor, state: Memory) -> tuple[Tensor, Memory]:
        h_BD, after = self.sound_step(x_BD, state)
        return h_BD * (1 + 1e-6), after


class IgnoresLengths(Sound):
    def forward(self, x_BTD, state=None, lengths_B=None):
        return super().forward(x_BTD, state)


class ForgetsAtTheSeam(Sound):
    """Outputs also see the last input but the state does not hold it, so the first of a segment cannot."""

    def forward(self, x_BTD, state=None, lengths_B=None):
        y_BTD, after = super().forward(x_BTD, state, lengths_B)
        last_BTD = torch.cat([torch.zeros_like(x_BTD[:, :1]), x_BTD[:, :-1]], dim=1)
        return y_BTD + last_BTD * inside(x_BTD, lengths_B), after


class DetachesTheSeam(Sound):
    """Right values, but nothing flows back from one segment to the one before."""

    def forward(self, x_BTD, state=None, lengths_B=None):
        y_BTD, after = super().forward(x_BTD, state, lengths_B)
        return y_BTD, detach(after)


class RemembersOnTheModule(Sound):
    """Hands out a rounded state and keeps the exact one on itself, for whoever brings back the same object."""

    key: Tensor | None = None
    exact: Tensor | None = None

    def forward(self, x_BTD, state=None, lengths_B=None):
        known = state is not None and state.h_BD is self.key
        before = Memory(self.exact) if known else state or self.init_state(len(x_BTD))
        y_BTD, after = super().forward(x_BTD, before, lengths_B)
        rounded_BD = after.h_BD.bfloat16().to(after.h_BD)
        if lengths_B is not None:
            rounded_BD = torch.where((lengths_B > 0)[:, None], rounded_BD, before.h_BD)
        self.key, self.exact = rounded_BD, after.h_BD
        return y_BTD, Memory(rounded_BD)

    def step(self, x_BD: Tensor, state: Memory) -> tuple[Tensor, Memory]:
        return one_step(self.forward, x_BD, state)


class LosesDigits(Sound):
    """Exact on paper: adds a large number and takes it away again."""

    def sound_step(self, x_BD: Tensor, state: Memory) -> tuple[Tensor, Memory]:
        return super().sound_step((x_BD + 1e4) - 1e4, state)


class AcceptsAnyState(Sound):
    """Takes whatever it is given, and lets it broadcast."""

    def forward(self, x_BTD, state=None, lengths_B=None):
        return super().forward(x_BTD, state, lengths_B)

    def step(self, x_BD: Tensor, state: Memory) -> tuple[Tensor, Memory]:
        return self.sound_step(x_BD, state)


AcceptsAnyState.step = AcceptsAnyState.step.__wrapped__  # type: ignore[method-assign]  # without the guard


BROKEN = [
    (PeeksAhead, "causal", {"causal", "split", "step"}),
    (WritesInPlace, "pure", {"pure"}),
    (MixesRows, "rows", {"rows", "ragged"}),
    (StepsDifferently, "step", {"step"}),
    (IgnoresLengths, "ragged", {"ragged"}),
    (ForgetsAtTheSeam, "split", {"split", "step"}),
    (DetachesTheSeam, "split", {"split", "step", "ragged"}),
    (RemembersOnTheModule, "fork", {"fork"}),
    (AcceptsAnyState, "refuses", {"refuses"}),
]


def broken_laws(make: type[Sound]) -> set[str]:
    """Each law on a fresh machine and a fresh case: a machine that writes must not spoil the next law."""
    return {name for name, law in laws.EXACT.items() if law(machine := make(), laws.make_case(machine)) > 1e-10}


def test_a_sound_machine_breaks_none() -> None:
    assert broken_laws(Sound) == set()


@pytest.mark.parametrize(("make", "named", "caught_by"), BROKEN, ids=[row[0].__name__ for row in BROKEN])
def test_a_broken_machine_is_caught(make: type[Sound], named: str, caught_by: set[str]) -> None:
    found = broken_laws(make)
    assert named in found
    assert found == caught_by


def test_every_law_has_a_machine_that_breaks_it() -> None:
    assert {named for _, named, _ in BROKEN} == set(laws.EXACT)


def test_a_detached_seam_is_seen_in_the_gradients_alone() -> None:
    machine = DetachesTheSeam()
    case = laws.make_case(machine)
    with torch.no_grad():
        assert laws.split(machine, case) <= 1e-12
    assert laws.split(machine, case) > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_lost_digits_break_precision(dtype: torch.dtype) -> None:
    assert laws.precision(Sound(), dtype) <= laws.BOUNDS[dtype]
    assert laws.precision(LosesDigits(), dtype) > laws.BOUNDS[dtype]


def test_what_is_not_a_number_is_not_close() -> None:
    nan, one = torch.tensor([float("nan")]), torch.ones(1)
    assert laws.distance([nan], [one]) == float("inf")
    assert laws.distance([one], [nan]) == float("inf")
    assert laws.distance([torch.ones(2)], [one]) == float("inf")
