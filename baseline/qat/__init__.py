"""Quantization-aware training: `python -m baseline.qat`.

Imports `train` and what it imports.
"""
