"""The deep transition: the equation. It has no faster form: the fast Elman ops have one layer a step."""

from statewise.kernels.choice import Choice, Wish, choose
from statewise.kernels.deep_rnn.naive import TransitionWeights as TransitionWeights
from statewise.kernels.deep_rnn.naive import transition as transition
from statewise.kernels.deep_rnn.naive import transition_step as transition_step


def choice(*, wish: Wish = "auto") -> Choice:
    return choose("Elman", obstacles=["deep transition"], wish=wish)
