"""Sets of runs: what they are (`definitions/`), the runner, their results and reports.

Imports all of ActorQ but `benchmarks`, `scripts` and programs.
"""
