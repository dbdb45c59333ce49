"""Attention weights of every layer and head, and alignments between two texts."""
