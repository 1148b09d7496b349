"""Units and meanings of the columns of the baseline's CSV files, for `formats`."""

from docs.generators.reference.training_columns import Columns

PTQ: Columns = {
    "algo": ("name", "Algorithm, such as `ppo`; ActorQ's are `d4pg` and `dqn`."),
    "env": ("name", "Environment."),
    "bits": ("name", "`fp32`, `fp16`, `bf16`, or a width from `2` to `32`."),
    "scheme": ("name", "What is quantized: `weights` or `weights+activations`."),
    "granularity": (
        "name",
        "`paper`: a scale for each linear layer, and for each output channel of a convolution. "
        "`channel`: for each output of both.",
    ),
    "rounding": ("name", "`nearest` or `floor`."),
    "seeds": ("numbers", "Seeds of the environments, with commas between."),
    "episodes": ("count", "Episodes over all seeds."),
    "mean": ("return", "Mean of the returns."),
    "std": ("return", "Sample standard deviation of the returns; 0 for a single one."),
    "error": (
        "fraction",
        "E = (fp32 - q) / abs(fp32), positive where reward was lost. Empty for fp32 itself, and "
        "where its mean is zero.",
    ),
    "error_low": ("fraction", "Lower end of E's paired bootstrap 95 % interval, or empty."),
    "error_high": ("fraction", "Upper end of the interval."),
    "weight_min": ("weight", "Smallest weight of the acting path, as evaluated."),
    "weight_max": ("weight", "Largest of these weights."),
    "weight_range": ("weight", "Difference of the two."),
    "weight_width": ("weight", "Width of the central 99 % of these weights."),
    "bytes": (
        "bytes",
        "Packed weights, a float32 scale and a zero point for each tensor or channel, and biases "
        "in fp32.",
    ),
    "seconds": ("s", "Duration of the evaluation."),
    "note": ("text", "Remark for readers, often empty."),
    "commit": ("commit", "Commit of the code."),
    "returns": ("return", "Return of every episode, with spaces between: the first seed's first."),
}
METHODS: Columns = {
    "method": ("name", "Methods, with commas between, or `auto`."),
    "chosen": ("name", "Methods that were applied: those of `method`, or what `auto` chose."),
    "group_size": ("count", "Inputs of an output that share a scale; 0: all of them."),
    "states": ("count", "Calibration states."),
    "agreement": (
        "fraction",
        "Share of the states held out in which the action is full precision's (discrete), or each "
        "component is within 2 % of its range (continuous).",
    ),
    "deviation": (
        "fraction",
        "Mean deviation of continuous actions there, as a share of their range; else empty.",
    ),
}
QAT: Columns = {
    "method": (
        "name", "`control` (full precision), `qat`, or `ptq` (a control quantized afterwards)."
    ),
    "train_seed": ("number", "Seed of the training."),
    "train_steps": ("steps", "Environment steps of the training."),
    "quant_delay": ("steps", "Environment steps before quantization started; empty: never."),
    "ranges": (
        "name",
        "Ranges of activations: `frozen`, `moving`, `learned` (LSQ), for PTQ "
        "`calibrated-EPISODES`, with `-METHOD` behind it unless that is minmax; or empty. `-99` "
        "behind the others: they start from this percentile.",
    ),
    "input_bits": ("bits", "Bits of observations; empty: not quantized."),
    "output_bits": ("bits", "Bits of the policy's output; empty: not quantized."),
    "run": ("name", "Run of the training, as `ENV_<n>`."),
    "hyperparams": (
        "text", "Hyper-parameters that replaced tuned ones: `name:value`, with spaces between."
    ),
    "widths": (
        "text",
        "Bits that differ from the weights', as `activations:4 first:8 last:8`. Older files lack "
        "this column.",
    ),
}
QAT_TABLE: Columns = {
    "algo": ("name", "Algorithm."),
    "env": ("name", "Environment."),
    "train_steps": ("steps", "Environment steps of a training."),
    "hyperparams": ("text", "Hyper-parameters that replaced tuned ones."),
    "evaluation_seeds": ("numbers", "Seeds of the evaluation's environments."),
    "episodes": ("count", "Episodes of an evaluation, over all these seeds."),
    "scheme": ("name", "Tensors that are quantized."),
    "quant_delay": ("steps", "Environment steps before quantization started."),
    "ranges": ("name", "`frozen`, `moving` or `learned`."),
    "granularity": ("name", "Weights that share a range: `paper` or `channel`."),
    "widths": ("text", "Bits that differ from the weights'; see `qat.csv`."),
    "input_bits": ("bits", "Bits of observations."),
    "output": ("True or False", "Whether the policy's output is quantized."),
    "bits": ("bits", "Width of weights and activations."),
    "difference": ("return", "Mean of QAT minus mean of PTQ, paired by training seed."),
    "difference_low": ("return", "Lower end of its 95 % interval."),
    "difference_high": ("return", "Upper end of that interval."),
    "error_qat": ("%", "E of QAT against the controls in fp32."),
    "error_ptq": ("%", "E of PTQ against the controls in fp32."),
    "better": ("text", "Verdict of the interval."),
    "bytes": ("bytes", "Size of the packed weights."),
} | {
    f"{side}_{part}": (unit, meaning)
    for side in ("qat", "ptq", "fp32")
    for part, unit, meaning in (
        ("mean", "return", f"Mean over the trainings: {side}."),
        ("std", "return", "Standard deviation over these trainings."),
        ("seeds", "numbers", "Seeds of these trainings."),
    )
}
FINDINGS: Columns = {
    "algo": ("name", "Algorithm."),
    "env": ("name", "Environment."),
    "width": ("weight", "Width of the central 99 % of the fp32 weights."),
    "error": ("fraction", "E at the precision that `--bits` asked for, 8 bits by default."),
    "low": ("fraction", "Lower end of its 95 % interval."),
    "high": ("fraction", "Upper end of that interval."),
}
MIXED_TIMING: Columns = {
    "policy": ("name", "The paper's policy A, B or C."),
    "threads": ("count", "Threads of torch."),
    "precision": ("name", "Precision that was measured."),
    "asked": ("name", "Precision that was asked for, perhaps `auto`."),
    "gradient_step_ms": ("ms", "Time of a gradient step, median over the turns."),
    "environment_step_ms": ("ms", "Time of everything else for each environment step."),
    "gradient_share": ("fraction", "Gradient steps' part of the time."),
    "hours_per_million_steps": ("h", "Time of a million environment steps."),
    "peak_bytes": ("bytes", "Peak memory of the process, replay included."),
    "gradient_speedup": ("ratio", "fp32's time of gradient steps divided by this one."),
    "speedup": ("ratio", "fp32's run time divided by this one, median over the turns."),
    "speedup_low": ("ratio", "Lower quartile of it."),
    "speedup_high": ("ratio", "Upper quartile of it."),
    "cpu_speedup": ("ratio", "The same in CPU time."),
    "paper_speedup": ("ratio", "The paper's speed-up in fp16."),
}
MIXED_RETURNS: Columns = {
    "precision": ("name", "Precision of the training."),
    "train_seed": ("number", "Seed of the training."),
    "steps": ("steps", "Environment steps of the training."),
    "mean": ("return", "Mean return of the evaluation."),
    "std": ("return", "Its standard deviation over the episodes."),
}
DEPLOYMENT: Columns = {
    "algo": ("name", "Algorithm."),
    "env": ("name", "Environment."),
    "layers": ("units", "Hidden layers."),
    "format": ("name", "`onnx`, `tflite`, `torchscript` or `native`."),
    "bits": ("bits", "Width of the integer file."),
    "scheme": ("name", "Tensors that are quantized."),
    "granularity": ("name", "`paper` or `channel`."),
    "episodes": ("count", "Paired episodes."),
    "fp32_us": ("µs", "Time of one action of the fp32 file, median."),
    "int_us": ("µs", "The same of the integer file."),
    "speedup": ("ratio", "`fp32_us` divided by `int_us`."),
    "fp32_p99_us": ("µs", "99th percentile of the fp32 file's single calls."),
    "int_p99_us": ("µs", "The same of the integer file."),
    "fp32_call_us": ("µs", "Time of one action of a policy of 8 units in fp32: a call's cost."),
    "int_call_us": ("µs", "The same in integers."),
    "fp32_success": ("fraction", "Episodes of fp32 that succeeded, where the task knows success."),
    "int_success": ("fraction", "The same of the integer file."),
    "success_change": ("fraction", "Difference of the two."),
    "success_change_low": ("fraction", "Lower end of its 95 % interval."),
    "success_change_high": ("fraction", "Upper end of that interval."),
    "fp32_return": ("return", "Mean return of the fp32 file."),
    "int_return": ("return", "Mean return of the integer file."),
    "return_change": ("return", "Difference of the two, where the task knows no success."),
    "return_change_low": ("return", "Lower end of its 95 % interval."),
    "return_change_high": ("return", "Upper end of that interval."),
    "fp32_file_bytes": ("bytes", "Size of the fp32 file."),
    "int_file_bytes": ("bytes", "Size of the integer file."),
    "file_ratio": ("ratio", "`fp32_file_bytes` divided by `int_file_bytes`."),
    "fp32_memory_bytes": ("bytes", "Memory that the fp32 policy takes."),
    "int_memory_bytes": ("bytes", "Memory that the integer policy takes."),
    "memory_ratio": ("ratio", "Ratio of the two; empty where a size is noise."),
    "fp32_all_pages_bytes": ("bytes", "Memory of the fp32 policy, with pages of libraries."),
    "int_all_pages_bytes": ("bytes", "The same of the integer policy."),
    "all_pages_ratio": ("ratio", "Ratio of the two; empty where a size is noise."),
    "alike": ("fraction", "States in which both files take the same action."),
    "paper_policy": ("name", "The paper's policy with these layers."),
    "paper_fp32_ms": ("ms", "The paper's latency in fp32."),
    "paper_int8_ms": ("ms", "The paper's latency in int8."),
    "paper_speedup": ("ratio", "The paper's speed-up."),
    "paper_fp32_success": ("fraction", "The paper's success in fp32."),
    "paper_int8_success": ("fraction", "The paper's success in int8."),
    "commit": ("commit", "Commit of the code."),
} | {
    f"{side}_arm_{part}": (unit, meaning)
    for side in ("fp32", "int")
    for part, unit, meaning in (
        ("states", "count", f"States in which ARM code was compared: {side} file."),
        ("alike", "fraction", "States in which ARM and x86 take the same action."),
        ("largest_output", "–", "Largest difference of an output."),
        ("failure", "text", "Reason why there is no comparison."),
    )
}
