"""Trainings of other projects' agents, as peers of ours in experiments."""
