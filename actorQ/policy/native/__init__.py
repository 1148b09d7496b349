"""Quantized policies in C, for `--inference_mode native`: kernels, their build, and ctypes."""
