"""The actor's process: it acts with quantized weights, writes transitions and pulls newer weights.

Imports `wire` and what `wire` imports. Never imports TensorFlow or `learner`.
"""
