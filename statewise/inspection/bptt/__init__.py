"""The laboratory of truncation: what each way to cut time does to the gradient, and what it saves."""
