"""Benchmarks: each module measures one part beside what it replaces, in one run.

Imports all of ActorQ but `scripts` and programs.
"""
