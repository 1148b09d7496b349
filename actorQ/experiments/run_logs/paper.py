"""ActorQ's published end-to-end speed-ups, for comparison with our own.

Source: the results page of QuaRL/ActorQ (Krishnan et al., arXiv:1910.01055), table of FP32 and
Int8 "Time to Reward (s)".
One V100 learner, 4 actors of one 2.2 GHz Xeon core each, policy of 3 layers of 2048.
"""

from typing import NamedTuple


class Published(NamedTuple):
    """One row of the table."""

    name: str  # As the table writes it.
    reward: float  # Return that both precisions reached.
    fp32_s: float  # Seconds to that return with fp32 actors.
    int8_s: float  # Seconds to that return with int8 actors.
    speedup: float


SPEEDUPS = {
    "dm_control,cartpole_balance": Published("Cartpole Balance", 941.22, 870.91, 279.00, 3.12),
    "dm_control,walker_stand": Published("Walker Stand", 947.74, 871.32, 534.37, 1.63),
    "dm_control,hopper_stand": Published("Hopper Stand", 836.41, 2660.41, 1699.17, 1.57),
    "dm_control,reacher_hard": Published("Reacher Hard", 948.12, 1597.00, 875.34, 1.82),
    "dm_control,cheetah_run": Published("Cheetah Run", 732.31, 2517.30, 891.84, 2.82),
    "dm_control,finger_spin": Published("Finger Spin", 810.32, 3256.56, 1065.52, 3.06),
    "dm_control,humanoid_stand": Published("Humanoid Stand", 884.89, 13964.92, 9302.82, 1.51),
    "dm_control,humanoid_walk": Published("Humanoid Walk", 649.91, 17990.66, 6223.35, 2.89),
    # Its return is 198.22 out of at most 200, as in CartPole-v0; CartPole-v1 goes up to 500.
    "gym,CartPole-v0": Published("Cartpole (Gym)", 198.22, 963.67, 260.10, 3.70),
    "gym,MountainCar-v0": Published("Mountain Car (Gym)", -120.62, 2861.80, 1284.32, 2.22),
    "gym,Acrobot-v1": Published("Acrobot (Gym)", -107.45, 912.24, 168.44, 5.41),
}
