"""Serves every process: settings, files, logs, errors, command lines.

Imports nothing else of ours, and no framework.
"""
