"""Trainings of other projects' agents, to compare ours with in experiments."""
