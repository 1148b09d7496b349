"""Names of the precisions that networks can be trained in. Imports no framework."""

FP32, BF16, FP16 = "fp32", "bf16", "fp16"
AUTO = "auto"  # Half precision where that is faster, see `precision_choice`.
NAMES = (FP32, BF16, FP16)
CHOICES = (AUTO, *NAMES)
