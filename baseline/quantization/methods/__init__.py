"""Post-training methods, one a module: each takes a network and states, and changes weights.

`pipeline` applies them in order. Imports the modules of `quantization` beside it.
"""
