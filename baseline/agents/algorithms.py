"""Algorithms that `baseline.train` trains. Imports no framework."""

# The kind of action space that each can choose from; None: any.
TRAINED: dict[str, str | None] = {"a2c": None, "ppo": None, "dqn": "Discrete", "ddpg": "Box"}
