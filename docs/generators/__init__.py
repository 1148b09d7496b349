"""Modules for groups of blocks that `python -m docs.generate` writes into the pages.

A module has `BLOCKS`, from a name to the function that returns the block's Markdown.
"""
