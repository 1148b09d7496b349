"""Runs the same processes on a Ray cluster, and mirrors their files to one machine.

Imports `core` and `launch`, and Ray only where it is used.
"""
