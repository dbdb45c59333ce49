"""Surprisal, calibration, and the use of context."""
