"""Figures, tables and pages as data and as pictures: nothing here knows what they are about."""
