"""Names of precisions and algorithms. Imports no framework."""

FP32, BF16, FP16 = "fp32", "bf16", "fp16"
AUTO = "auto"  # Half precision where that is faster, see `precision_choice`.
NAMES = (FP32, BF16, FP16)
CHOICES = (AUTO, *NAMES)

ALGO_ALIASES = {"ppo2": "ppo"}  # The names of stable-baselines 2.
# Algorithms of `baseline.train`, each with the kind of actions that it needs (None: any).
ALGOS: dict[str, str | None] = {
    "a2c": None, "ppo": None, "dqn": "Discrete", "ddpg": "Box",
}


def canonical_algo(name: str) -> str:
    """Returns the name of an algorithm as used here: lower case, `ppo2` is `ppo`."""
    name = name.strip().lower()
    return ALGO_ALIASES.get(name, name)
