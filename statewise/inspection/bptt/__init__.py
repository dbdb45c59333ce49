"""Truncated BPTT: bias, variance, memory and time of each policy."""
