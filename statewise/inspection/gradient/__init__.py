"""How far back a loss reaches: gradients through time, Jacobians of the state, and how much memory they leave."""
