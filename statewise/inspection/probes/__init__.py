"""Memory tasks for models that are trained for them."""
