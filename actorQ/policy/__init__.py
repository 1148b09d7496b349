"""A policy network as numbers: shape, quantizers, packed forms, and the backends that compute it.

Imports `core` and `environments`. Only the `sonnet_*` and `tensorflow_*` modules import TensorFlow.
"""
