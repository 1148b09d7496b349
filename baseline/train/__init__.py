"""Trains agents with the zoo's tuned settings: `python -m baseline.train`.

Imports `study` and what it imports.
"""
