"""The schemes of the study: after training, and fake quantizers for training.

Imports `tasks`.
"""
