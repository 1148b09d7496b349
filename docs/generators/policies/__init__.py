"""Blocks of the results of quantized policies: after training, in training, on devices."""
