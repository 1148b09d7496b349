"""Blocks of the results of trainings with quantized actors, and of their parts."""
