"""The page of all results: `python -m baseline.report`.

Imports anything but programs.
"""
