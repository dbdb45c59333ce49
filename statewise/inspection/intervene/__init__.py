"""Interventions on the state, and their effect."""
