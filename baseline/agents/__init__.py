"""Trained agents: found, read safely, evaluated, calibrated and saved again.

Imports `quantization` and what it imports.
"""
