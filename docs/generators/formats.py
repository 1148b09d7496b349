"""Tables of the columns of every CSV file, for `reference/formats.md` and its second page.

Names of columns come from the code that writes a file, or from the header of a committed file. A
name without a meaning here stops `docs.generate`.
"""

import ast
from collections.abc import Callable
from collections.abc import Iterable
import csv
import pathlib

from actorQ.core import telemetry
from actorQ.experiments import results
from baseline.study import qat_rows
from baseline.study import rows as rows_lib
from docs.generators import tables

Columns = dict[str, tuple[str, str]]  # Name to unit and meaning.

_TIME: Columns = {
    "seconds": (
        "s", "Time since the launch of the run, without the time between an end and a `--resume`."
    ),
    "unix_time": ("s", "Time since 1970."),
}
_VERSION = "Version of the weights: learner steps plus the versions that crashes lost."
_REFUSED = "messages so far"

TRAIN: Columns = _TIME | {
    "learner_steps": ("steps", "Learner steps done."),
    "learner_steps_per_s": ("steps/s", "Rate since the row before."),
    "actor_steps": ("steps", "Environment steps of all actors, which are transitions inserted."),
    "actor_steps_per_s": ("steps/s", "Rate since the row before, all actors together."),
    "replay_size": ("transitions", "Transitions in replay."),
    "model_version": ("version", f"Newest weights pushed. {_VERSION}"),
    "pushes": ("count", "Pushes of weights that reached the server."),
    "push_snapshot_s": ("s, cumulative", "Time that pushing took from the learner's thread."),
    "push_insert_s": ("s, cumulative", "Time of copying and inserting, in the background."),
    "evaluation_s": ("s, cumulative", "Time that evaluation took from the learner's thread."),
    "checkpoint_s": ("s, cumulative", "Time that checkpoints took from the learner's thread."),
    "loss": ("–", "D4PG: loss of the critic. DQN: Huber loss of scaled returns."),
    "policy_loss": ("–", "D4PG only: loss of the policy."),
    "q_mean": ("return", "Mean Q-value of the batch. DQN: of the best action, unscaled."),
    "gradient_norm": (
        "–", "Global norm of the critic's or Q-network's gradient, before it is clipped."
    ),
    "policy_gradient_norm": ("–", "D4PG only: the same of the policy."),
    "reward_low": (
        "reward/step", "Lowest reward of all batches so far, as the weighted mean of n steps."
    ),
    "reward_high": ("reward/step", "Highest reward, likewise."),
    "targets_below_vmin": (
        "fraction", "D4PG only: the critic's targets below `--vmin`, as probability mass."
    ),
    "targets_above_vmax": ("fraction", "D4PG only: the targets above `--vmax`, likewise."),
}
EVALUATION: Columns = _TIME | {
    "learner_steps": ("steps", "Learner steps done."),
    "actor_steps": ("steps", "Environment steps of all actors."),
    "episode_return": ("return", "Sum of the episode's rewards, not clipped."),
    "episode_length": ("steps", "Environment steps of the episode."),
    "episode_s": ("s", "Time that this episode took."),
    "evaluation_s": ("s, cumulative", "Time of evaluation so far, this episode included."),
    "reward_low": ("reward", "Lowest reward of the episode."),
    "reward_high": ("reward", "Highest reward of the episode."),
    "actions_at_bounds": (
        "fraction", "D4PG only: the episode's action numbers beyond +-0.99, scaled to [-1, 1]."
    ),
}
UPDATES: Columns = _TIME | {
    "model_version": ("version", "Version that was converted."),
    "decode_s": ("s", "Time to decode the learner's message."),
    "convert_s": ("s", "Time to quantize and to convert to the actors' form."),
    "encode_s": ("s", "Time to encode the message for the actors."),
    "insert_s": ("s", "Time to insert it into the model table."),
    "message_bytes": ("bytes", "Size of the message for the actors."),
    "fp32_bytes": ("bytes", "Size of the same weights in fp32."),
    "refused": (_REFUSED, "Messages of the learner that were damaged."),
}
EPISODES: Columns = _TIME | {
    "actor_steps": ("steps", "Environment steps of this actor."),
    "episodes": ("count", "Episodes of this actor."),
    "episode_return": ("return", "Sum of the episode's rewards, not clipped."),
    "episode_length": ("steps", "Environment steps of the episode."),
    "model_version": ("version", "Version of the weights in use."),
    "staleness_steps": (
        "learner steps", "Steps by which these weights lag behind the learner: the newest value."
    ),
}
PHASES: Columns = _TIME | {
    "actor_steps": ("steps", "Environment steps of this actor."),
    "pulls": ("count", "Weights loaded so far."),
    "refused": (_REFUSED, "Messages that were damaged or did not fit."),
    "model_version": ("version", "Version of the weights in use."),
    "staleness_steps": (
        "learner steps",
        "Steps by which the weights in use lag behind the learner: mean since the row before.",
    ),
    "environment_s": ("s, cumulative", "Environment step and reset."),
    "inference_s": ("s, cumulative", "Policy and exploration: the paper's `step` time."),
    "insert_s": ("s, cumulative", "N-step sums, and the insert into replay."),
    "pull_s": (
        "s, cumulative",
        "Question for news, and receipt of a message when there is one. It runs on a second "
        "thread, but for the first weights.",
    ),
    "deserialize_s": (
        "s, cumulative",
        "Message to packed weights: the paper's `deserialize`. It runs on the second thread, too.",
    ),
    "load_state_dict_s": (
        "s, cumulative", "Packed weights into the policy: the paper's `load_state_dict`."
    ),
    "transfer_s": ("s, cumulative", "Part of `pull_s` in which looks brought new weights."),
}
_LOGS = {
    telemetry.TRAIN_CSV: TRAIN,
    telemetry.EVALUATION_CSV: EVALUATION,
    telemetry.UPDATES_CSV: UPDATES,
    telemetry.EPISODES_CSV: EPISODES,
    telemetry.PHASES_CSV: PHASES,
}

RUNS: Columns = {
    "experiment": ("name", "Experiment."),
    "profile": ("name", "Profile."),
    "task": ("name", "Task as `suite,task`."),
    "kind": ("name", "`training`, or a peer: `acme`, `sb3`."),
    "precision": ("name", "Precision of the actors: `fp32`, `fp16`, `int8` or `int4`."),
    "varied": ("–", "Value of the setting that the experiment varies."),
    "seed": ("number", "Seed of the run."),
    "outcome": (
        "name",
        "`reached`, `missed` or `diverged` for a run with a target, `trained` for one without.",
    ),
    "target": ("return", "Reward to hold."),
    "time_to_target_s": ("s", "Time from the launch until the target was held."),
    "evaluation_to_target_s": ("s", "Part of that time that evaluation took."),
    "censored_at_s": ("s", "A run that missed its target did so at least until then."),
    "final_reward": (
        "return",
        "Mean return of the last policy, or of the last evaluations where it was not evaluated.",
    ),
    "wall_s": ("s", "Time from the launch to the end of the last process."),
    "cpu_s": ("CPU s", "CPU time of all processes. It is empty where runs ran side by side."),
    "evaluation_s": ("s", "Time of all evaluations."),
    "learner_steps": ("steps", "Learner steps at the end."),
    "actor_steps": ("steps", "Environment steps of all actors at the end."),
    "learner_steps_per_s": ("steps/s", "Rate while the learner learned."),
    "actor_steps_per_s": ("steps/s", "Rate in the same time, all actors together."),
    "data_used": (
        "fraction", "Samples taken, divided by the samples that the inserts allow."
    ),
    "staleness_steps": ("learner steps", "Lag of the actors' weights, mean over time."),
    "message_bytes": ("bytes", "Median size of a message for the actors."),
    "fp32_bytes": ("bytes", "Size of the same weights in fp32."),
    "step_us": ("µs", "Time from one step of an actor to the next by the clock."),
    "steps_per_load": ("steps", "Steps of an actor between two loads of newer weights."),
    "environment_us": ("µs/step", "An actor's time in this phase, as in `phases.csv`."),
    "inference_us": ("µs/step", "The same."),
    "insert_us": ("µs/step", "The same."),
    "pull_us": ("µs/step", "The same, on the second thread."),
    "deserialize_us": ("µs/step", "The same, on the second thread."),
    "load_state_dict_us": ("µs/step", "The same."),
    "energy_kwh": ("kWh", "Energy of all processes, modelled for CPU and memory."),
    "co2_kg": ("kg", "CO2 of that energy."),
    "energy_to_target_kwh": ("kWh", "Energy until the target was held, or the last evaluation."),
    "co2_to_target_kg": ("kg", "CO2 of that energy."),
    "learner_device": ("name", "Device of the learner."),
    "parallel": ("count", "Runs at a time."),
    "date": ("date", "Moment of the launch."),
    "git_commit": ("commit", "Commit of the code at the launch."),
    "processor": ("name", "Processor of the machine."),
    "command": ("text", "Command of the run."),
}

# Columns of the files in `report` folders of experiments.
REPORTS: Columns = {
    "task": ("name", "Task as `suite,task`."),
    "agent": ("name", "`ActorQ`, or the peer's agent."),
    "setting": ("name", "Setting that varies."),
    "value": ("–", "Its value."),
    "precision": ("name", "Precision of the actors."),
    "phase": ("name", "Phase of an actor's step."),
    "target": ("return", "Reward to hold."),
    "seeds": ("count", "Runs with a result."),
    "seeds_reached": ("count", "Runs that held the reward."),
    "median_s": ("s", "Median time to the reward, or a lower bound of it."),
    "median_is_bound": ("0 or 1", "1: the median run missed the reward."),
    "median_evaluation_s": ("s", "Part of that time that evaluation took."),
    "seconds_by_seed": ("s", "Time of each seed, with `;` between; `>` marks a miss."),
    "speedup": ("ratio", "fp32's median divided by this one."),
    "speedup_bound": ("sign", "`>` or `<`: the speed-up is a bound; `?`: neither held the reward."),
    "int8_over_it": ("ratio", "Time of a peer divided by that of our int8 actors."),
    "final_reward": ("return", "Mean final reward over the seeds."),
    "paper_speedup": ("ratio", "The paper's speed-up."),
    "final_reward_std": ("return", "Sample standard deviation over the seeds."),
    "final_reward_by_seed": ("return", "Final reward of each seed, with `;` between."),
    "staleness_steps": (
        "learner steps", "Lag of the actors' weights: mean over the seeds, `breakdown`: median."
    ),
    "learner_steps_per_s": ("steps/s", "Rate of the learner."),
    "actor_steps_per_s": ("steps/s", "Rate of all actors together."),
    "actor_steps_per_s_by_seed": ("steps/s", "The same of each seed, with `;` between."),
    "speedup_over_fp32": ("ratio", "Rate divided by that of fp32 with as many actors."),
    "model_actor_steps_per_s": ("steps/s", "Rate that the simulation of a cluster gives."),
    "data_used": ("fraction", "Samples taken, divided by the samples that the inserts allow."),
    "step_us": ("µs", "Time from one step of an actor to the next by the clock."),
    "us_per_step": ("µs/step", "Time in the phase."),
    "us_per_step_by_seed": ("µs/step", "The same of each seed, with `;` between."),
    "share_percent": ("%", "The phase's part of all phases."),
    "step_speedup": ("ratio", "`step_us` of fp32 divided by this one."),
    "paper_phases_us": ("µs/step", "Time in the four phases that the paper measures."),
    "paper_phases_speedup": ("ratio", "The same of fp32 divided by this one."),
    "steps_per_load": ("steps", "Steps of an actor between two loads of newer weights."),
    "message_bytes": ("bytes", "Size of a message for the actors."),
    "message_part_of_fp32": ("fraction", "Size of a message divided by the weights in fp32."),
    "cores": ("count", "Physical cores that the run could use."),
}
_REPORT_FILES = {  # Shown name to a committed file.
    "`time_to_reward.csv`": "time_to_reward/report/time_to_reward.csv",
    "sweeps": "staleness/report/staleness.csv",
    "`breakdown.csv`": "breakdown/report/breakdown.csv",
    "`throughput.csv`": "throughput/report/throughput.csv",
}

CLUSTER: Columns = {
    "pulls": ("name", "`blocking` or `background`: how actors download."),
    "bandwidth_bit_per_s": ("bit/s", "Bandwidth of the learner's link; empty: no limit."),
    "learner_steps_per_s": ("steps/s", "Speed of a learner that never waits for data."),
    "demand_env_steps_per_s": ("steps/s", "Environment steps that such a learner asks for."),
    "precision": ("name", "Precision of the actors."),
    "actors_needed": ("count", "Actors that saturate the learner; empty: none of the tried do."),
    "why_none": ("text", "Reason why there is no such number."),
    "actors_shown": ("count", "Actors to which the next columns belong."),
    "env_steps_per_s": ("steps/s", "Environment steps of these actors together."),
    "reached_learner_steps_per_s": ("steps/s", "Speed of the learner with them."),
    "downloads_per_s": ("1/s", "Downloads of weights, all actors together."),
    "age_s": ("s", "Age of the weights in use."),
    "age_learner_steps": ("learner steps", "The same in learner steps."),
}

PLAYED: Columns = {
    "task": ("name", "Task."),
    "actors_bits": ("bits", "Precision of the actors in the training."),
    "seed": ("number", "Seed of the training."),
    "learner_steps": ("steps", "Learner steps of the training."),
    "played_bits": ("bits", "Precision in which the last policy was played."),
    "mean_return": ("return", "Mean of the episodes."),
    "std_return": ("return", "Their standard deviation."),
    "episodes": ("count", "Episodes that were played."),
}
SOAK: Columns = {
    "seconds": ("s", "Time since the start."),
    "process": ("name", "Process of the run."),
    "rss_mb": ("MB", "Memory that it holds."),
    "open_files": ("count", "Files that it has open."),
    "threads": ("count", "Threads that it has."),
}

SPEEDUP: Columns = {
    "task": ("name", "Task as `suite,task`."),
    "algorithm": ("name", "`d4pg` or `dqn`."),
    "precision": ("name", "Precision of the actors."),
    "seeds": ("count", "Runs."),
    "seeds_reached": ("count", "Runs that held the reward."),
    "target_return": ("return", "Reward to hold."),
    "best_mean_return": ("return", "Highest point of the mean curve."),
    "reached": ("0 or 1", "1: the median run held the reward."),
    "seconds": ("s", "Median time to the reward, or a lower bound of it."),
    "evaluation_seconds": ("s", "Part of that time that evaluation took."),
    "seed_seconds": ("s", "Time of each seed, with `;` between; `>` marks a miss."),
    "speedup": ("ratio", "fp32's time divided by this one."),
    "speedup_bound": ("sign", "`>` or `<`: the speed-up is a bound."),
    "actor_steps_per_s": ("steps/s", "Rate of all actors together, mean over the seeds."),
    "learner_steps_per_s": ("steps/s", "Rate of the learner, mean over the seeds."),
    "paper_return": ("return", "The paper's reward on this task."),
    "paper_seconds": ("s", "The paper's time."),
    "paper_speedup": ("ratio", "The paper's speed-up of int8."),
}
BREAKDOWN: Columns = {
    "run": ("path", "Run folder."),
    "task": ("name", "Task as `suite,task`."),
    "precision": ("name", "Precision of the actors."),
    "actor_update_period": ("steps", "Steps of an actor between two looks for weights."),
    "actors": ("count", "Actors with a log."),
    "phase": ("name", "Phase of an actor's step."),
    "seconds": ("s", "Time in the phase, mean over the actors."),
    "share_percent": ("%", "Its part of all phases."),
    "us_per_step": ("µs/step", "Time in the phase for each step."),
    "steady_state": ("0 or 1", "0: the log has one row, so that warm-up is included."),
    "steps_per_actor": ("steps", "Environment steps, mean over the actors."),
    "staleness_steps": ("learner steps", "Lag of the weights at looks for newer ones, median."),
    "convert_ms": ("ms", "Time of a conversion, median."),
    "message_bytes": ("bytes", "Size of a message for the actors, median."),
    "fp32_bytes": ("bytes", "Size of the same weights in fp32."),
}

PTQ: Columns = {
    "algo": ("name", "Algorithm: `a2c`, `ppo`, `dqn`, `ddpg`, `td3`, `sac`, or ActorQ's `d4pg`."),
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
QAT: Columns = {
    "method": (
        "name", "`control` (full precision), `qat`, or `ptq` (a control quantized afterwards)."
    ),
    "train_seed": ("number", "Seed of the training."),
    "train_steps": ("steps", "Environment steps of the training."),
    "quant_delay": ("steps", "Environment steps before quantization started; empty: never."),
    "ranges": (
        "name",
        "Ranges of activations: `frozen`, `moving`, for PTQ `calibrated-EPISODES`, or empty.",
    ),
    "input_bits": ("bits", "Bits of observations; empty: not quantized."),
    "output_bits": ("bits", "Bits of the policy's output; empty: not quantized."),
    "run": ("name", "Run of the training, as `ENV_<n>`."),
    "hyperparams": (
        "text", "Hyper-parameters that replaced tuned ones: `name:value`, with spaces between."
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
    "ranges": ("name", "`frozen` or `moving`."),
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
    "format": ("name", "`onnx`, `tflite` or `torchscript`."),
    "bits": ("bits", "Width of the integer file."),
    "scheme": ("name", "Tensors that are quantized."),
    "granularity": ("name", "`paper` or `channel`."),
    "episodes": ("count", "Paired episodes."),
    "fp32_us": ("µs", "Time of one action of the fp32 file, median."),
    "int_us": ("µs", "The same of the integer file."),
    "speedup": ("ratio", "`fp32_us` divided by `int_us`."),
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
_ACTORQ_FILES = {
    "cluster": ("cluster/cluster.csv", CLUSTER),
    "played": ("int4/returns.csv", PLAYED),
    "soak": ("faults/soak.csv", SOAK),
}
_BASELINE_FILES = {
    "qat_table": ("qat/table.csv", QAT_TABLE),
    "findings": ("findings/findings.csv", FINDINGS),
    "mixed_timing": ("mixed_precision/mixed_precision_timing.csv", MIXED_TIMING),
    "mixed_returns": ("mixed_precision/mixed_precision_returns.csv", MIXED_RETURNS),
}
_HEAD = ("Column", "Unit", "Meaning")


def table_of(names: Iterable[str], columns: Columns) -> str:
    """Returns a table of columns.

    Args:
        names: Names of the columns, in the file's order.
        columns: Their units and meanings.

    Raises:
        KeyError: A column has no meaning.
    """
    return tables.table(_HEAD, [(f"`{name}`", *columns[name]) for name in names], 3)


def header(path: pathlib.Path) -> list[str]:
    """Returns the names of a CSV file's columns."""
    with open(path, encoding="utf-8", newline="") as file:
        return next(csv.reader(file))


def keys_of(module: str, function: str) -> list[str]:
    """Returns the texts that are keys of dictionaries in a function's source, in its order.

    The module is not imported, as some load whole frameworks.

    Args:
        module: Path of the module, from the repository's root.
        function: Name of the function.
    """
    tree = ast.parse((tables.ROOT / module).read_text(encoding="utf-8"))
    (found,) = (
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function
    )
    rows = [node for node in ast.walk(found) if isinstance(node, ast.Dict)]
    keys = [key.value for row in rows for key in row.keys if isinstance(key, ast.Constant)]
    return [key for key in keys if isinstance(key, str)]


def log(name: str) -> str:
    """Returns the columns of a process's log, by the name of the file."""
    return table_of(telemetry.FIELDS[name], _LOGS[name])


def runs() -> str:
    """Returns the columns of an experiment's `runs.csv`."""
    folder = next((tables.ACTORQ_RESULTS / "time_to_reward" / "runs").iterdir())
    result = results.read(str(folder))
    assert result is not None
    return table_of(results.csv_row(result), RUNS)


def script(name: str, columns: Columns) -> str:
    """Returns the columns of the table that one of `actorQ.scripts` writes."""
    return table_of(keys_of(f"actorQ/scripts/{name}.py", "csv_rows"), columns)


def reports() -> str:
    """Returns the columns of the tables in experiments' reports."""
    files = {
        shown: header(tables.ACTORQ_RESULTS / path) for shown, path in _REPORT_FILES.items()
    }
    names = dict.fromkeys(name for columns in files.values() for name in columns)
    rows = []
    for name in names:
        having = [shown for shown, columns in files.items() if name in columns]
        shown = "all" if len(having) == len(files) else ", ".join(having)
        unit, meaning = REPORTS[name]
        rows.append((f"`{name}`", unit, shown, meaning))
    return tables.table(("Column", "Unit", "Files", "Meaning"), rows, 4)


def qat() -> str:
    """Returns the columns that `qat.csv` has behind those of `ptq.csv`."""
    names = rows_lib.columns(qat_rows.TrainedRow)[len(rows_lib.columns()):]
    return table_of(names, QAT)


def of_actorq(name: str) -> str:
    """Returns the columns of a committed file of ActorQ."""
    path, columns = _ACTORQ_FILES[name]
    return table_of(header(tables.ACTORQ_RESULTS / path), columns)


def of_baseline(name: str) -> str:
    """Returns the columns of a committed file of the baseline study."""
    path, columns = _BASELINE_FILES[name]
    return table_of(header(tables.BASELINE_RESULTS / path), columns)


def deployment() -> str:
    """Returns the columns of `deployment.csv`: those of the committed file, then newer ones."""
    names = header(tables.BASELINE_RESULTS / "deployment" / "deployment.csv")
    newer = keys_of("baseline/deploy/device_tables.py", "row")
    return table_of(dict.fromkeys([*names, *newer]), DEPLOYMENT)


BLOCKS: dict[str, Callable[[], str]] = {
    "train": lambda: log(telemetry.TRAIN_CSV),
    "evaluation": lambda: log(telemetry.EVALUATION_CSV),
    "updates": lambda: log(telemetry.UPDATES_CSV),
    "episodes": lambda: log(telemetry.EPISODES_CSV),
    "phases": lambda: log(telemetry.PHASES_CSV),
    "runs": runs,
    "reports": reports,
    "cluster": lambda: of_actorq("cluster"),
    "played": lambda: of_actorq("played"),
    "soak": lambda: of_actorq("soak"),
    "speedup": lambda: script("speedup_table", SPEEDUP),
    "breakdown": lambda: script("breakdown_table", BREAKDOWN),
    "ptq": lambda: table_of(rows_lib.columns(), PTQ),
    "qat": qat,
    "qat_table": lambda: of_baseline("qat_table"),
    "findings": lambda: of_baseline("findings"),
    "mixed_timing": lambda: of_baseline("mixed_timing"),
    "mixed_returns": lambda: of_baseline("mixed_returns"),
    "deployment": deployment,
}
