"""Truncated BPTT: bias, variance, memory and time of each policy."""

from statewise.inspection.bptt.blocks import BlockGradients as BlockGradients
from statewise.inspection.bptt.blocks import block_gradients as block_gradients
