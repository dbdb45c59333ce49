"""Questions about memory, asked of models that are made for it."""
