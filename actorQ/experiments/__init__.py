"""Sets of runs: their definitions, the runner, their results and reports.

Imports all of ActorQ but `benchmarks`, `scripts` and programs.
"""
