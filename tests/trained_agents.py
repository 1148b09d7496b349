"""Where agents of rl-baselines3-zoo lie for tests: beside the repository, if anywhere."""

import pathlib

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "shared" / "trained-agents"
