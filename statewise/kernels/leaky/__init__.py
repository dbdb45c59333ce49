"""Leaky integration: the equation. It has no faster form: the fast Elman ops know no leak."""

from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.leaky.naive import LeakyWeights as LeakyWeights
from statewise.kernels.leaky.naive import leaky as leaky
from statewise.kernels.leaky.naive import leaky_step as leaky_step


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("Elman", obstacles=["leak"], wish=wish)
