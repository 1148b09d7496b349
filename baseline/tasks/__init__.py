"""The tasks that agents of the study play, by their names in the zoo.

Imports nothing else of `baseline`.
"""
