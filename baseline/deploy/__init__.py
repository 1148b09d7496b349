"""Exports agents for devices and measures the files: `python -m baseline.deploy`.

Imports `qat` and what it imports.
"""
