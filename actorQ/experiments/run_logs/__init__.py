"""Readers of the logs of runs, for reports, scripts and benchmarks."""
