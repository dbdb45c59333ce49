"""How surprised a model is by a text, where, and whether its own doubts are right."""
