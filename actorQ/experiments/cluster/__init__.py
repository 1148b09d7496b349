"""A simulation of how many actors saturate a learner: `python -m actorQ.experiments.cluster`."""
