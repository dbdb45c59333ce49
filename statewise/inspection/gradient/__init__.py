"""Gradients through time, Jacobians of the state, memory length."""
