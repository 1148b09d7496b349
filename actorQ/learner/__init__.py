"""The learner's process: it samples replay, learns, evaluates and publishes weights.

Imports `wire` and what `wire` imports. Never imports torch or `actor`.
"""
