"""Rows of results, and the numbers, tables and plots that are made of them.

Imports `formats` and what it imports.
"""
