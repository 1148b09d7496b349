"""Names of algorithms, of precisions, and of how tensors are quantized. Imports no framework."""

FP32, BF16, FP16 = "fp32", "bf16", "fp16"
HALVES = FP16, BF16

# Precisions of a training.
AUTO = "auto"  # Half precision where that is faster, see `precision_choice`.
NAMES = (FP32, BF16, FP16)
CHOICES = (AUTO, *NAMES)

# Quantization: what is quantized, and which numbers share a scale. The first is the default.
SCHEMES = WEIGHTS, WEIGHTS_AND_ACTIVATIONS = "weights", "weights+activations"
GRANULARITIES = PAPER, CHANNEL = "paper", "channel"

MASKABLE = "maskable_ppo"
# The name of stable-baselines 2, and how people write those of sb3-contrib.
ALGO_ALIASES = {
    "ppo2": "ppo", "qr-dqn": "qrdqn", "qr_dqn": "qrdqn", "maskableppo": MASKABLE,
    "maskable-ppo": MASKABLE, "ppo_mask": MASKABLE,
}
# Algorithms that are refused by name, with the reason.
REFUSED_ALGOS = {
    **dict.fromkeys(
        ("ppo_lstm", "ppo-lstm", "recurrent_ppo", "recurrent-ppo", "recurrentppo"),
        "RecurrentPPO remembers earlier observations in an LSTM: a policy with a memory has no "
        "quantized form here.",
    ),
    "crossq": (
        "CrossQ normalizes by batch renormalization (BatchRenorm), which has no quantized form "
        "here."
    ),
}
# Algorithms of `baseline.train`, each with the kind of actions that it needs (None: any).
ALGOS: dict[str, str | None] = {
    "a2c": None, "ppo": None, "dqn": "Discrete", "ddpg": "Box", "td3": "Box", "sac": "Box",
}


def canonical_algo(name: str) -> str:
    """Returns the name of an algorithm as used here: lower case, `ppo2` is `ppo`."""
    name = name.strip().lower()
    return ALGO_ALIASES.get(name, name)
