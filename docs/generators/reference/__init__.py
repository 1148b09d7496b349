"""Blocks made from the code: flags, columns, settings, experiment files, modules."""
