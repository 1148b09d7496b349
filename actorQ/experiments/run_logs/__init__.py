"""Figures that reports, scripts and benchmarks take from the logs of runs."""
