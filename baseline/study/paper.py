"""The paper's figures, as printed: rewards after quantization, mixed precision, deployment.

Source: the tables "Inference speed on RasPi-3b and success rate", "Mixed precision v/s Fp32
training rewards", and "A2C / DQN / PPO / DDPG rewards for Fp32, Fp16 and int8" of Krishnan et al.,
Quantized Reinforcement Learning (arXiv:1910.01055; here from the authors' slides). Rewards are
rounded to whole numbers there, and E is in percent. Imports nothing.

The figures stand as printed, even where they look odd: A2C's "Seaguest" is Seaquest.
"""

from typing import NamedTuple


class Rewards(NamedTuple):
    """One printed row; E = (fp32 - quantized) / |fp32| in percent, above zero is a loss."""

    env: str  # The table's spelling.
    fp32: float
    fp16: float
    error_fp16: float
    int8: float
    error_int8: float


class Mean(NamedTuple):
    """The printed mean of E over a table's environments, in percent."""

    error_fp16: float
    error_int8: float


REWARDS: dict[str, tuple[Rewards, ...]] = {
    "a2c": (
        Rewards("Breakout", 379, 371, 2.11, 350, 7.65),
        Rewards("SpaceInvaders", 717, 667, 6.97, 634, 11.58),
        Rewards("BeamRider", 3087, 3060, 0.87, 2793, 9.52),
        Rewards("MsPacman", 1915, 1915, 0.00, 2045, -6.79),
        Rewards("Qbert", 5002, 5002, 0.00, 5611, -12.18),
        Rewards("Seaguest", 782, 756, 3.32, 753, 3.71),
        Rewards("CartPole", 500, 500, 0.00, 500, 0.00),
        Rewards("Pong", 20, 20, 0.00, 19, 5.00),
    ),
    "ppo": (
        Rewards("Breakout", 400, 400, 0.00, 368, 8.00),
        Rewards("SpaceInvaders", 698, 662, 5.16, 684, 2.01),
        Rewards("BeamRider", 1655, 1820, -9.97, 1697, -2.54),
        Rewards("MsPacman", 1735, 1735, 0.00, 1845, -6.34),
        Rewards("Qbert", 15010, 15010, 0.00, 14425, 3.90),
        Rewards("Seaquest", 1782, 1784, -0.11, 1795, -0.73),
        Rewards("CartPole", 500, 500, 0.00, 500, 0.00),
        Rewards("Pong", 20, 20, 0.00, 20, 0.00),
    ),
    "dqn": (
        Rewards("Breakout", 214, 217, -1.40, 78, 63.55),
        Rewards("SpaceInvaders", 586, 625, -6.66, 509, 13.14),
        Rewards("BeamRider", 925, 823, 11.03, 721, 22.05),
        Rewards("MsPacman", 1433, 1429, 0.28, 2024, -41.24),
        Rewards("Qbert", 641, 641, 0.00, 616, 3.90),
        Rewards("Seaquest", 1709, 1885, -10.30, 1582, 7.43),
        Rewards("CartPole", 500, 500, 0.00, 500, 0.00),
        Rewards("Pong", 21, 21, 0.00, 21, 0.00),
    ),
    "ddpg": (
        Rewards("Walker2D", 1890, 1929, -2.06, 1866, 1.27),
        Rewards("HalfCheetah", 2553, 2551, 0.08, 2473, 3.13),
        Rewards("BipedalWalker", 98, 90, 8.16, 83, 15.31),
        Rewards("MountainCarContinuous", 92, 92, 0.00, 92, 0.00),
    ),
}

MEANS: dict[str, Mean] = {
    "a2c": Mean(1.66, 2.31),
    "ppo": Mean(-0.62, 0.54),
    "dqn": Mean(-0.88, 8.60),
    "ddpg": Mean(1.54, 4.93),
}

# The paper's names of environments that are not Atari games, by Gymnasium's. Its HalfCheetah and
# Walker2D are PyBullet's; MuJoCo's of these names have other rewards and are other rows.
_ENVIRONMENTS = {
    "CartPole-v1": "CartPole",  # A return of 500: not CartPole-v0.
    "MountainCarContinuous-v0": "MountainCarContinuous",
    "BipedalWalker-v2": "BipedalWalker",
    "BipedalWalker-v3": "BipedalWalker",
    "HalfCheetahBulletEnv-v0": "HalfCheetah",
    "Walker2DBulletEnv-v0": "Walker2D",
}
_AS_PRINTED = {("a2c", "Seaquest"): "Seaguest"}


def rewards(algo: str, env: str) -> Rewards | None:
    """Returns the paper's row for an environment, if it has one.

    Args:
      algo: "a2c", "ppo", "dqn" or "ddpg"; other algorithms have no row.
      env: Gymnasium's name, e.g. "CartPole-v1", "PongNoFrameskip-v4" or "ALE/Pong-v5".
    """
    name = _ENVIRONMENTS.get(env)
    if env.endswith("NoFrameskip-v4"):
        name = env.removesuffix("NoFrameskip-v4")
    elif env.startswith("ALE/"):
        name = env.removeprefix("ALE/").partition("-")[0]
    if name is None:
        return None
    name = _AS_PRINTED.get((algo, name), name)
    return next((row for row in REWARDS.get(algo, ()) if row.env == name), None)


class Deployment(NamedTuple):
    """A printed row of the deployment case study: point-to-point navigation on a Raspberry Pi 3b.

    Attributes:
      name: name of the policy, as printed.
      layers: units of its network's hidden layers.
      fp32_ms: inference time of fp32.
      int8_ms: inference time of int8.
      fp32_success: share of successful episodes of fp32, in percent.
      int8_success: share of successful episodes of int8, in percent.
      speedup: speed-up, as printed.
    """

    name: str
    layers: tuple[int, ...]
    fp32_ms: float
    int8_ms: float
    fp32_success: float
    int8_success: float
    speedup: float


# Table "Inference speed on RasPi-3b and success rate". "3L, MLP, 64 nodes" are three layers of 64.
DEPLOYMENT = (
    Deployment("Policy I", (64, 64, 64), 0.147, 0.124, 60, 45, 1.18),
    Deployment("Policy II", (256, 256, 256), 133.49, 9.53, 74, 60, 14.0),
    Deployment("Policy III", (4096, 512, 1024), 208.115, 11.036, 86, 75, 18.85),
)
DEPLOYMENT_MEMORY_RATIO = 4.0  # "18x speed up, 4x memory reduction".


def deployment(layers: tuple[int, ...]) -> Deployment | None:
    """Returns the case study's row for a network's hidden layers, if it has one."""
    return next((row for row in DEPLOYMENT if row.layers == layers), None)


class MixedPrecision(NamedTuple):
    """A printed row of the mixed-precision case study: DQN on Pong.

    Attributes:
      name: name of the policy, as printed.
      filters: filters of each of its three convolutions.
      units: units of its dense layer.
      fp32_minutes: run time of the training in fp32.
      half_minutes: run time with fp16 and a master copy of the weights in fp32.
      speedup: speed-up, as printed; Policy A's minutes would give 0.81.
    """

    name: str
    filters: int
    units: int
    fp32_minutes: float
    half_minutes: float
    speedup: float


# Table "Mixed precision v/s Fp32 training rewards", and the table of the policies before it.
MIXED_PRECISION = {
    "A": MixedPrecision("Policy A", 128, 128, 127, 156, 0.87),
    "B": MixedPrecision("Policy B", 512, 512, 179, 172, 1.04),
    "C": MixedPrecision("Policy C", 1024, 2048, 391, 242, 1.61),
}
