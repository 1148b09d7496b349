"""The folder of rl-baselines3-zoo's agents for tests: beside the repository, if it exists."""

import pathlib

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "shared" / "trained-agents"
