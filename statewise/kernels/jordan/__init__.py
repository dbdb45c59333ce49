"""Output recurrence: the equation, free running and forced. The fast Elman ops feed back the state, not the output."""

from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.jordan.naive import JordanWeights as JordanWeights
from statewise.kernels.jordan.naive import jordan as jordan
from statewise.kernels.jordan.naive import jordan_forced as jordan_forced
from statewise.kernels.jordan.naive import jordan_step as jordan_step


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("Elman", obstacles=["output recurrence"], wish=wish)
