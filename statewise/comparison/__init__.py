"""Studies across models: the same budget, several seeds, one report."""
