"""Output recurrence: the equation, free running and forced. The fast Elman ops feed back the state, not the output."""

from typing import get_args

from statewise.core import Tool
from statewise.kernels.choice import Choice, Implementation, Wish, choose
from statewise.kernels.jordan.naive import JordanWeights as JordanWeights
from statewise.kernels.jordan.naive import hidden as hidden
from statewise.kernels.jordan.naive import jordan as jordan
from statewise.kernels.jordan.naive import jordan_forced as jordan_forced
from statewise.kernels.jordan.naive import jordan_step as jordan_step
from statewise.kernels.jordan.naive import returned as returned


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("Elman", obstacles=["output recurrence"], wish=wish)


def language_choice(*, forced: bool, wish: Wish = "auto") -> Choice:
    """Given the last outputs, all time steps are one product; otherwise each waits for the one before."""
    obstacles = [] if forced else ["output that is not known in advance"]
    traced: dict[Tool, Implementation] = dict.fromkeys(get_args(Tool), "batched")
    return choose("Jordan", obstacles=obstacles, wish=wish, fast=("batched",), traced=traced)
