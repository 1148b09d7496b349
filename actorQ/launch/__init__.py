"""Starts the processes of a run on this machine, watches over them and ends them.

Imports `core` alone: it knows the processes by their modules' names.
"""
