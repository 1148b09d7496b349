"""Mixed-precision training, the paper's first case study: DQN with half the bits.

    python -m baseline.mixed_precision --policy C                  # run time, fp32 against half
    python -m baseline.mixed_precision parity --policy A,B,C       # losses on one recorded replay
    python -m baseline.mixed_precision returns --env CartPole-v1   # whole trainings

Weights and their updates are fp32 (the master copy). Networks compute forward and backward in half
precision through torch's autocast, see `half_precision`. `timing` (the default) and `parity` train
on an Atari game with the paper's policies. `returns` trains, through `baseline.train`, on any task
that DQN has tuned settings for, and its agents are like any others.
"""

from absl import flags

from actorQ.core import cli
from baseline.mixed_precision import study

if __name__ == "__main__":
    study.define_flags()
    flags.adopt_module_key_flags(study)
    cli.run(study.main, takes_arguments=True, name="mixed_precision")
