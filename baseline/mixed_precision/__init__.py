"""The case study of mixed-precision training: `python -m baseline.mixed_precision`.

Imports `train` and what it imports.
"""
