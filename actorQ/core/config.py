"""The configuration of a run: one frozen dataclass that is CLI, documentation and record.

Every flag of every process is a field of `RunConfig`. Its default, help text, legal values and
kinds are written here alone (`config_flags` makes flags of them). The defaults never change: older
runs and published experiments stand on them. Better ones are in presets.yaml, see `presets`.
Imports no framework.
"""

from collections.abc import Mapping
import dataclasses
import json
import os
from typing import Any

from actorQ.core import errors
from actorQ.core import files
from actorQ.core import precisions
from actorQ.core import settings

ALGORITHMS = ("auto", "d4pg", "dqn")
INFERENCE_MODES = ("pytorch", "native", "tensorflow")
LEARNER_PRECISIONS = ("float32", "bfloat16")
PUSH_PRECISIONS = ("float32", "bfloat16")
AUTO_ON_OFF = ("auto", "on", "off")
DEVICES = ("CPU", "GPU")
TRACKERS = ("none", "wandb")
CONFIG_FILENAME = "config.json"

Kind = settings.Kind
_field = settings.declare


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """All settings of one training run; equal in every process of the run but for `actor_id`.

    Raises:
      errors.UserError: A value is not legal; the message names flag, value and legal values.
    """

    # --- What to train ---
    taskstr: str = _field(
        "dm_control,cartpole_balance",
        "Task as 'suite,task'. Suites: dm_control, gym, mujoco, pybullet, atari. A bare task name "
        "means gym; your own environment is 'gym,my_package:MyEnv-v0'.",
    )
    algorithm: str = _field(
        "auto",
        "Learning algorithm; auto: d4pg for continuous and dqn for discrete actions.",
        choices=ALGORITHMS,
    )
    preset: str = _field(
        "none",
        "Settings for all flags that are not given, from actorQ/core/presets.yaml. auto: those "
        "tuned for the task, or the fallback. fallback: it alone, even if there are tuned ones. "
        "paper: the original's. none: the oldest defaults, which published experiments have. Or "
        "the name of another task's entry.",
    )
    model_str: str = _field(
        "256,256,256",
        "Hidden layer sizes of the policy (or Q) network, units, comma-separated. The papers use "
        "2048,2048,2048.",
    )
    critic_str: str = _field(
        "512,512,512", "Hidden layer sizes of the D4PG critic, units, comma-separated."
    )
    num_episodes: int = _field(
        6000,
        "Number of LEARNER STEPS after which training ends. The name is the original's; it never "
        "counted episodes.",
        low=1, kinds=Kind.CHANGEABLE,
    )
    stop_return: float | None = _field(
        None,
        "Training ends early once --stop_window evaluations in a row reach this return. none: it "
        "makes all steps.",
        kinds=Kind.CHANGEABLE,
    )
    stop_window: int = _field(
        3, "Number of evaluations in a row that must reach --stop_return.", low=1,
        kinds=Kind.CHANGEABLE,
    )
    stop_smoothing: int = _field(
        1,
        "Evaluations in the running mean that --stop_return is compared with; 1: single episodes.",
        low=1, kinds=Kind.CHANGEABLE,
    )
    max_seconds: float = _field(
        0.0,
        "Seconds since the launch after which training ends as it does after its last step; 0: no "
        "limit. A learner that waits for data at that moment gets 30 s more.",
        low=0.0, kinds=Kind.CHANGEABLE,
    )
    max_episode_steps: int = _field(
        1000,
        "Steps after which an episode is cut, where the task does not end it before; 0: the task's "
        "own limit, or 1000 where it has none. A cut-off episode is not terminal.",
        low=0,
    )
    action_limit: float = _field(
        1.0,
        "Size of the largest action, in the task's own units, wherever the task gives no bound.",
        low=1e-6, high=1e6,
    )
    env_kwargs: str = _field(
        "",
        "Arguments for the task's constructor: name:value,name:value, for example "
        "gravity:-5.0,enable_wind:True.",
    )
    scale_observations: int = _field(
        0,
        "1: scale observations to [-1, 1] by the task's own bounds, in the dimensions that have "
        "bounds (vectors of gym, mujoco and pybullet); 0: take them as they come.",
        choices=(0, 1),
    )
    seed: int = _field(
        0, "Seed from which every process derives its own, >= 0.", low=0, high=2**31 - 1
    )

    # --- Quantization ---
    quantize: int = _field(
        8,
        "Precision of the actors' inference, bits: 32, 16, 8, 4 or 3. 4 and 3 bits need "
        "--inference_mode native or tensorflow. The kernels compute 3-bit weights as 4-bit ones.",
        choices=precisions.LEGAL,
    )
    quantize_communication: int = _field(
        32,
        "Width of the weights on the wire, bits, 2 to 32. Below --quantize, weights travel as "
        "packed integers of this width; otherwise they travel in the form of --quantize.",
        low=2, high=32, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    weight_compress: int = _field(
        0,
        "1: code every weight and bias that is still wider than 8 bits in 8 bits, with a loss; 0: "
        "off.",
        choices=(0, 1), kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    compress: int = _field(
        0, "1: compress the whole message without loss (zlib); 0: off.", choices=(0, 1),
        kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    inference_mode: str = _field(
        "pytorch",
        "Backend of the actors' inference. pytorch: its quantized operators; native: our kernels "
        "in C, the fastest at every precision; tensorflow: fp32 with dequantized weights.",
        choices=INFERENCE_MODES, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )

    # --- Actors ---
    n_actors: int = _field(
        1, "Number of actor processes, >= 1.", low=1, high=10_000, kinds=Kind.CHANGEABLE
    )
    actor_id: int = _field(
        1, "Which actor this process is, 1 to --n_actors.", low=1, kinds=Kind.PROCESS
    )
    envs_per_actor: int = _field(
        1,
        "Environments of one actor process, 1 to 64. All take a step in turn, with one policy call "
        "for the batch of their observations.",
        low=1, high=64, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    actor_update_period: int = _field(
        30,
        "Steps of the actor, in all its environments together, between two looks for newer "
        "weights, >= 1.",
        low=1, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    sigma: float = _field(
        0.2,
        "D4PG: largest standard deviation of the Gaussian exploration noise, for actions scaled to "
        "[-1, 1]. Actor i of N uses sigma * (i-1)/(N-1), a single actor uses sigma.",
        low=0.0, kinds=Kind.CHANGEABLE,
    )
    noise_exponent: float = _field(
        0.0,
        "D4PG: exponent z of noise that lasts: its power at frequency f is in proportion to f^-z "
        "(Eberhard et al. 2023). 0: the noise of each step is independent; 1: pink noise.",
        low=0.0, high=2.0, kinds=Kind.CHANGEABLE,
    )
    epsilon_max: float = _field(
        0.05,
        "DQN: largest probability of a random action, or of its beginning with --epsilon_zeta. "
        "Actor i of N uses epsilon_max * i/N.",
        low=0.0, high=1.0, kinds=Kind.CHANGEABLE,
    )
    epsilon_zeta: float = _field(
        0.0,
        "DQN: exponent z >= 1.01 of exploration that lasts. A random action is taken for n steps "
        "with a probability in proportion to n^-z, at most to the episode's end; 0: for one step.",
        low=0.0, kinds=Kind.CHANGEABLE,
    )
    actor_device_placement: str = _field(
        "CPU",
        "Device of the actors' inference, CPU or GPU (fp32 and fp16 only).",
        choices=DEVICES, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    actors_yield: int = _field(
        0,
        "1: actors take the time that the learner leaves, and it has a thread for each core. This "
        "pays where its steps are long, as with images. 0: each actor takes a core.",
        choices=(0, 1), kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )

    # --- Learner ---
    batch_size: int = _field(
        256, "Transitions in one learner step.", low=1, kinds=Kind.CHANGEABLE
    )
    discount: float = _field(
        0.99, "Discount per environment step, for n-step sums and learner alike.", low=0.0, high=1.0
    )
    n_step: int = _field(5, "Steps of the n-step return.", low=1)
    target_update_period: int = _field(
        100, "Learner steps between two copies into the target networks.", low=1,
        kinds=Kind.CHANGEABLE,
    )
    policy_learning_rate: float = _field(
        1e-4, "D4PG: Adam step size of the policy.", low=0.0, kinds=Kind.CHANGEABLE
    )
    critic_learning_rate: float = _field(
        1e-4, "D4PG: Adam step size of the critic.", low=0.0, kinds=Kind.CHANGEABLE
    )
    learning_rate: float = _field(
        1e-4, "DQN: Adam step size of the Q-network.", low=0.0, kinds=Kind.CHANGEABLE
    )
    invert_gradients: int = _field(
        0,
        "D4PG: 1: scale the policy's gradients by an action's distance from the bound that they "
        "push it to, as a share of the range (Hausknecht and Stone 2016, equation 11); 0: scale "
        "them by tanh's derivative, which is next to nothing at both bounds.",
        choices=(0, 1), kinds=Kind.CHANGEABLE,
    )
    learner_fake_quantize: int = _field(
        32,
        "Bits of the quantizer through which the learner's own policy computes, as actors do: 16, "
        "8, 4 or 3; 32: none. Gradients pass it unchanged. With the bits of --quantize, the policy "
        "that is learned and evaluated is the one that acts.",
        choices=precisions.LEGAL, kinds=Kind.DISTRIBUTED,
    )
    average_policy_steps: int = _field(
        0,
        "Learner steps over which the policy that acts and is evaluated is averaged, with weights "
        "that fall by a factor of e over so many steps; 0: it is the newest one.",
        low=0,
    )
    learning_rate_decay_steps: int = _field(
        0,
        "Learner steps over which all Adam step sizes fall linearly to a hundredth, where they "
        "stay; 0: they do not fall.",
        low=0, kinds=Kind.CHANGEABLE,
    )
    max_abs_reward: float | str = _field(
        1.0,
        "DQN: bound to which each environment step's reward is clipped before n-step sums, as is "
        "usual for Atari. The task's largest reward means no clipping. auto: rewards are not "
        "clipped, and the learner finds their scale from the first transitions; on Atari it is 1.",
        low=1e-6,
    )
    vmin: float | str = _field(
        -150.0,
        "D4PG: lowest discounted return that the critic can express. auto: the learner finds it "
        "from the rewards of the first transitions.",
    )
    vmax: float | str = _field(
        150.0,
        "D4PG: highest discounted return that the critic can express. auto: the learner finds it "
        "from the rewards of the first transitions.",
    )
    num_atoms: int = _field(51, "D4PG: atoms of the critic's return distribution.", low=2)
    learner_precision: str = _field(
        "float32",
        "Precision of the learner's matrix products, float32 or bfloat16. bfloat16 is faster on an "
        "AMD Zen 4, and slower on an Intel Xeon whose AMX cannot be used: the learner measures "
        "this at its start and warns. Weights, losses and the optimizer stay float32.",
        choices=LEARNER_PRECISIONS, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    learner_device_placement: str = _field(
        "GPU",
        "Device of the learner, CPU or GPU. Where TensorFlow sees no GPU, the learner uses the CPU "
        "and says so.",
        choices=DEVICES, kinds=Kind.CHANGEABLE,
    )
    learner_compile: str = _field(
        "auto",
        "Whether XLA compiles the learner's step into one program. auto: on a GPU, where a step is "
        "bound by the launch of many small operations; on a CPU XLA makes it slower.",
        choices=AUTO_ON_OFF, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    learner_steps_per_call: int = _field(
        1,
        "Learner steps in one call of TensorFlow, which spares Python's part of the others. "
        "--num_episodes and --eval_period_steps must be multiples of it.",
        low=1, kinds=Kind.DISTRIBUTED,
    )
    learner_threads: int = _field(
        0,
        "CPU threads of the learner's arithmetic; 0: the machine's cores less --n_actors, as if "
        "all actors ran on this machine, and at least one. --actors_yield=1 gives it all.",
        low=0, kinds=Kind.CHANGEABLE,
    )

    # --- Replay ---
    replay_table_max_times_sampled: int = _field(
        16, "Samples per insert: an item leaves replay after so many samples; 0: no limit.", low=0
    )
    samples_per_insert: float = _field(
        0.0,
        "Largest number of samples for each insert on average; it may be below 1. The learner "
        "waits for actors where it would take more; 0: --replay_table_max_times_sampled alone is "
        "the limit.",
        low=0.0,
    )
    replay_table_max_replay_size: int = _field(
        100_000,
        "Largest number of transitions in replay; the oldest leaves first. 0: 1,000,000, or what a "
        "quarter of the machine's memory holds if that is less, as it may be with images.",
        low=0,
    )
    min_replay_size: int = _field(
        2_000,
        "Transitions that replay must hold for learning. Learning starts there, and waits whenever "
        "replay is smaller, as it may be with --replay_table_max_times_sampled.",
        low=1,
    )
    priority_exponent: float = _field(
        0.6, "DQN: exponent of prioritized replay; 0 samples uniformly.", low=0.0,
        kinds=Kind.DISTRIBUTED,
    )
    importance_sampling_exponent: float = _field(
        0.2, "DQN: exponent of the importance weights of prioritized replay.", low=0.0,
        kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )

    # --- Server ---
    port: int = _field(
        8181, "TCP port of the learner's Reverb server; 0: any free one.", low=0, high=65535,
        kinds=Kind.ADDRESS,
    )
    listen: str = _field(
        "local",
        "Who reaches the learner's server. local: processes of this machine. all: every machine of "
        "the network, without a password.",
        choices=("local", "all"), kinds=Kind.ADDRESS,
    )
    server_address: str = _field(
        "",
        "HOST:PORT of the learner, for broadcaster and actors on other machines; empty: this "
        "machine and --port.",
        kinds=Kind.ADDRESS,
    )
    connect_timeout: float = _field(
        120.0,
        "Seconds to wait for a learner, or for first weights, before giving up. A learner that "
        "answers, but is not ready yet, gets up to --data_timeout more.",
        low=0.0, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    transfer_timeout: float = _field(
        600.0,
        "Seconds that an actor's pull or insert, or a push to the server, may take while the "
        "learner answers other questions. 33.6 MB (3x2048, fp32) take 14 s at 20 Mbit/s, times the "
        "number of actors that share the link.",
        low=1.0, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    broadcaster_table_name: str = _field(
        "broadcaster_table", "Reverb table from learner to broadcaster.", kinds=Kind.DISTRIBUTED
    )
    replay_table_name: str = _field(
        "replay_table", "Reverb table of transitions.", kinds=Kind.DISTRIBUTED
    )
    model_table_name: str = _field(
        "model_table", "Reverb table from broadcaster to actors.", kinds=Kind.DISTRIBUTED
    )
    shutdown_table_name: str = _field(
        "shutdown_table", "Reverb table that announces the end.", kinds=Kind.DISTRIBUTED
    )
    push_period_s: float = _field(
        0.5,
        "Minimum seconds between two pushes of weights by the learner; 0: a push after every step. "
        "Pushes never overlap: a late one is followed by the newest weights. See --push_share.",
        low=0.0, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    push_share: float = _field(
        0.02,
        "Largest part of the machine's time that pushes may take, 0 to 1; 0: no limit, as with "
        "--push_period_s=0. After a push that took T CPU seconds on C cores, the next one starts "
        "no sooner than T / C / push_share seconds later. A larger part means fresher weights for "
        "the actors, and costs nothing where the learner waits for them.",
        low=0.0, high=1.0, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    push_precision: str = _field(
        "float32",
        "Form in which weights travel from the learner to the broadcaster, float32 or bfloat16. "
        "bfloat16 halves the bytes: in our benchmark int8 and int4 actors got new weights sooner, "
        "and fp32 actors later. It rounds weights to 8 significant bits, which is less than what "
        "8-bit actors lose anyway.",
        choices=PUSH_PRECISIONS, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )

    # --- Evaluation, logs ---
    eval_period_s: float = _field(
        10.0,
        "Seconds between two evaluation episodes of the learner's policy; 0: none. It is in full "
        "precision, or in that of --learner_fake_quantize.",
        low=0.0, kinds=Kind.CHANGEABLE,
    )
    eval_period_steps: int = _field(
        0,
        "Learner steps between two evaluation episodes, in place of --eval_period_s: equal "
        "progress means equally many, however long it takes; 0: --eval_period_s counts.",
        low=0, kinds=Kind.CHANGEABLE,
    )
    evaluator_process: str = _field(
        "auto",
        "Where evaluation episodes are played. on: in a process of their own, beside learning. "
        "off: in the learner's process, which learns nothing meanwhile. auto: on where there is a "
        "core for it beside those of --n_actors and the learner.",
        choices=AUTO_ON_OFF, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    final_eval_episodes: int = _field(
        10, "Evaluation episodes at the end of training; 0: none.", low=0, kinds=Kind.CHANGEABLE
    )
    checkpoint_period_s: float = _field(
        300.0,
        "Seconds between two checkpoints of the learner. One is always made at the end, and one "
        "for --resume at the beginning. Writing replay takes about 2 CPU seconds for 100,000 "
        "transitions.",
        low=1.0, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    log_period_s: float = _field(
        1.0, "Seconds between two rows of a process's logs.", low=0.05, kinds=Kind.CHANGEABLE
    )
    meter_period_s: float = _field(
        10.0,
        "Seconds between two comparisons of the full-precision and the actors' policy, which the "
        "broadcaster makes on observations from replay; 0: none. They are rarer where they would "
        "take more than 0.5 % of its time.",
        low=0.0, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    logpath: str = _field(
        "logs/run", "Folder of this run's logs and checkpoints (made if missing).",
        kinds=Kind.PROCESS,
    )
    resume: bool = _field(
        False,
        "Continue the run in --logpath from its checkpoint; auto: start it there if it has none. "
        "Launcher and learner take flags that are not given from the run; broadcaster and actors "
        "go on in their logs.",
        kinds=Kind.PROCESS,
    )
    track: str = _field(
        "none",
        "Service that gets the same scalars as TensorBoard. wandb: Weights & Biases, with points "
        "in a local folder only where WANDB_MODE=offline; the package wandb must be installed. "
        "none: no service.",
        choices=TRACKERS, kinds=Kind.CHANGEABLE,
    )
    track_energy: int = _field(
        0,
        "1: log energy and CO2 of each process with codecarbon: measured where the processor's "
        "counters can be read, else modelled from CPU load; CO2 by the grid of $ACTORQ_COUNTRY. "
        "0: off.",
        choices=(0, 1), kinds=Kind.CHANGEABLE,
    )
    restarts: int = _field(
        0, "Number of restarts of this process; it varies the seeds. The launcher sets it.", low=0,
        kinds=Kind.PROCESS,
    )
    data_timeout: float = _field(
        600.0,
        "Seconds without any new transition after which the learner ends the run.",
        low=1.0, kinds=Kind.CHANGEABLE | Kind.DISTRIBUTED,
    )
    run_start_time: float = _field(
        0.0,
        "Start of the run in seconds since 1970, from which logs count; 0: the process's start. "
        "The launcher sets it.",
        low=0.0, kinds=Kind.PROCESS,
    )
    launch_id: int = _field(
        0,
        "Random run id, set by the launcher. Broadcaster and actors refuse a learner with another "
        "id; 0: they accept any.",
        low=0, kinds=Kind.PROCESS,
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            settings.check_range(field, getattr(self, field.name))
        settings.check_together(self)

    @property
    def model_sizes(self) -> tuple[int, ...]:
        """Hidden layer sizes of the policy."""
        return settings.hidden_sizes("model_str", self.model_str)

    @property
    def critic_sizes(self) -> tuple[int, ...]:
        """Hidden layer sizes of the critic."""
        return settings.hidden_sizes("critic_str", self.critic_str)

    @property
    def suite(self) -> str:
        """Suite of the task; a bare task name belongs to gym."""
        suite, comma, _ = self.taskstr.partition(",")
        return suite.strip() if comma else "gym"

    @property
    def most_samples_per_insert(self) -> float:
        """Largest average number of samples of replay for each insert; 0: no limit.

        The rate limiter allows `samples_per_insert`, and an item leaves the table after
        `replay_table_max_times_sampled`.
        """
        limits = (self.samples_per_insert, float(self.replay_table_max_times_sampled))
        return min((limit for limit in limits if limit), default=0.0)

    @property
    def most_transitions(self) -> int:
        """Largest number of transitions in replay; the machine's memory may hold less."""
        return self.replay_table_max_replay_size or settings.MOST_TRANSITIONS

    @property
    def address(self) -> str:
        """HOST:PORT at which broadcaster and actors find the learner."""
        return self.server_address or f"localhost:{self.port}"

    @property
    def table_names(self) -> tuple[str, str, str, str]:
        """Names of the replay, broadcaster, model and shutdown tables."""
        return (
            self.replay_table_name,
            self.broadcaster_table_name,
            self.model_table_name,
            self.shutdown_table_name,
        )

    def save(self, folder: str, **extra: Any) -> None:
        """Writes the configuration and `extra` facts, such as machine and commit, to `folder`."""
        write_record(folder, {"config": dataclasses.asdict(self), **extra})

    @classmethod
    def load(cls, folder: str) -> "RunConfig":
        """Reads the configuration of a run.

        Raises:
          errors.UserError: There is no readable configuration in `folder`.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        try:
            # Settings that this version does not have are dropped, so that older runs load.
            record = load_record(folder)["config"].items()
            return cls(**{name: value for name, value in record if name in names})
        except (AttributeError, TypeError) as error:  # A value has another type.
            path = os.path.join(folder, CONFIG_FILENAME)
            raise errors.UserError(f"{path} is damaged: {error!r}.") from None


def names_of(kinds: settings.Kind) -> frozenset[str]:
    """Returns the settings that are of any of these kinds."""
    fields = dataclasses.fields(RunConfig)
    return frozenset(field.name for field in fields if field.metadata["kinds"] & kinds)


def write_record(folder: str, record: Mapping[str, Any]) -> None:
    """Writes everything that config.json of a run says.

    Raises:
      errors.WriteError: The file cannot be written.
    """
    text = json.dumps(record, indent=1, sort_keys=True)
    files.write(os.path.join(folder, CONFIG_FILENAME), text)


def load_record(folder: str) -> dict[str, Any]:
    """Returns everything that config.json of a run says: config, machine, commit.

    Raises:
      errors.UserError: There is no readable configuration in `folder`.
    """
    path = os.path.join(folder, CONFIG_FILENAME)
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        record["config"]["taskstr"]
        return record
    except (FileNotFoundError, NotADirectoryError):
        raise errors.UserError(
            f"{folder} is not a run folder: it has no {CONFIG_FILENAME}."
        ) from None
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError) as error:  # A ValueError: not JSON, or no text.
        raise errors.UserError(f"{path} is damaged: {error!r}.") from None
