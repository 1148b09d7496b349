"""Draws the scores of a training run: every episode's, and their running mean.

    python -m baseline.learning_curve logs/zoo/ppo/CartPole-v1_1

It writes `learning_curve.png` and `.csv` into the run's folder or `--out`.
"""

from absl import flags

from actorQ.core import cli
from baseline.train import learning_curve

if __name__ == "__main__":
    learning_curve.define_flags()
    flags.adopt_module_key_flags(learning_curve)
    cli.run(learning_curve.main, takes_arguments=True, name="learning_curve")
