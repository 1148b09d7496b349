"""Units and meanings of the columns of ActorQ's CSV files, for `formats`."""

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
    "evaluation_s": (
        "s, cumulative",
        "Time that evaluation took from the learner's thread, this episode included.",
    ),
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
    "meter_s": ("CPU s, cumulative", "Time that the meter took until before this version's end."),
    "changed_share": (
        "fraction", "Integers of the weights that differ from those of the version before."
    ),
}
METER: Columns = _TIME | {
    "model_version": ("version", "Version that was measured."),
    "observations": ("count", "Observations from replay in the comparison."),
    "observation_low": ("–", "Lowest number in these observations."),
    "observation_high": ("–", "Highest number in them."),
    "action_distance": (
        "–", "D4PG only: mean distance of the two policies' action numbers, scaled to [-1, 1]."
    ),
    "action_distance_max": ("–", "D4PG only: largest distance."),
    "actions_at_bounds": (
        "fraction", "D4PG only: action numbers of the full-precision policy beyond +-0.99."
    ),
    "quantized_actions_at_bounds": ("fraction", "D4PG only: the same of the actors' policy."),
    "agreement": ("fraction", "DQN only: observations for which both choose the same action."),
    "lost_q": (
        "scaled return",
        "DQN only: full-precision Q-value of the best action less that of the actors' choice.",
    ),
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
RUNS: Columns = {
    "experiment": ("name", "Experiment."),
    "profile": ("name", "Profile."),
    "task": ("name", "Task as `suite,task`."),
    "kind": ("name", "`training`, or a peer: `acme`, `sb3`."),
    "precision": ("name", "Precision of the actors: `fp32`, `fp16`, `int8`, `int4` or `int3`."),
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
    "evaluation_s": ("s", "Time that evaluations took from the learner's thread."),
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
    "energy_kwh": ("kWh", "Energy of all processes. Memory's part is modelled."),
    "co2_kg": ("kg", "CO2 of that energy."),
    "energy_to_target_kwh": ("kWh", "Energy until the target was held, or the last evaluation."),
    "co2_to_target_kg": ("kg", "CO2 of that energy."),
    "cpu_energy": ("name", "Whether the CPUs' part of the energy is `measured` or `modelled`."),
    "grid": ("text", "Factor of the CO2, with its country; `world`: none was named."),
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
