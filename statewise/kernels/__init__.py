"""Pure functions on tensors, one folder an op: `naive.py` is the equation, faster files stand beside it."""
