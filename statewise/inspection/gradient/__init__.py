"""Gradients through time, Jacobians of the state, memory length."""

from statewise.inspection.gradient.unshared import chosen_variance as chosen_variance
from statewise.inspection.gradient.unshared import gradient_norms as gradient_norms
