"""Where a model looks: exact weights of every layer and head, and alignments between two texts."""
