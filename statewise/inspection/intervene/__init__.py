"""Touch what a model remembers, and see what that does."""
