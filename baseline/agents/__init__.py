"""Trained agents: found, read safely, evaluated, calibrated and saved again.

Imports `quantization` and the folders below it.
"""
