"""Quantized policies in C for `--inference_mode native`: kernels, build, and calls by ctypes."""
