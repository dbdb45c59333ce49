"""What mixers share that leave their recurrence to a kernel.

B batch, T time, I input width, D output width.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar

import torch
from torch import Tensor

from statewise.core import Mixer, State, check_input, full_signature
from statewise.kernels import Choice, Wish
from statewise.layers import Filler, Scheme

S = TypeVar("S", bound=State)
V = TypeVar("V", bound=tuple[Tensor])


class MixerOptions(TypedDict, total=False):
    """What every mixer of a kernel takes besides its own options; the defaults stand at `KernelMixer.prepare`."""

    input_width: int | None  # `width`, where there is none
    init: Scheme  # where the weights start
    kernel: Wish  # which implementation
    generator: torch.Generator | None  # what the weights are drawn from


class KernelMixer(Mixer[S]):
    """A mixer with a choice of kernels. Its constructor takes `MixerOptions` and calls `prepare` first."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.__signature__ = full_signature(cls.__init__, KernelMixer.prepare)

    def prepare(
        self,
        width: int,
        output_width: int | None = None,
        /,
        *,
        input_width: int | None = None,
        init: Scheme = "orthogonal",
        kernel: Wish = "auto",
        generator: torch.Generator | None = None,
    ) -> Filler:
        """Sets its widths and its kernel; the rest of the constructor fills the weights by what this returns."""
        super().__init__()
        self.input_width = input_width or width
        self.output_width = output_width or width
        self.kernel: Wish = kernel
        return Filler(init, generator)

    @abstractmethod
    def choice(self) -> Choice:
        """Which implementation `forward` will run, and why."""


class VectorMixer(KernelMixer[V]):
    """A mixer whose state is its last output, one vector: `forward` is `_read`, `step` is `_step`."""

    make_state: Callable[[Tensor], V]

    @abstractmethod
    def _read(self, x_BTI: Tensor, h_BD: Tensor | None, lengths_B: Tensor | None) -> tuple[Tensor, Tensor]:
        """Outputs and last vector. Without a vector it begins at zeros."""

    @abstractmethod
    def _step(self, x_BI: Tensor, h_BD: Tensor) -> Tensor: ...

    def init_state(self, batch: int) -> V:
        return self.make_state(self.like.new_zeros(batch, self.output_width))

    def forward(self, x: Tensor, state: V | None = None, lengths_B: Tensor | None = None) -> tuple[Tensor, V]:
        check_input(x, lengths_B, width=self.input_width)
        y_BTD, h_BD = self._read(x, None if state is None else state[0], lengths_B)
        return y_BTD, self.make_state(h_BD)

    def step(self, x: Tensor, state: V) -> tuple[Tensor, V]:
        h_BD = self._step(x, state[0])
        return h_BD, self.make_state(h_BD)
