"""The result of one run: its description, where and when it was made, and its measurement.

Every run, of whatever kind, has its result in RUN/result.json; `runs.csv` collects them. Imports no
framework.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import json
import os
from typing import Any

from actorQ.core import errors
from actorQ.core import files
from actorQ.core import precisions
from actorQ.core import provenance
from actorQ.core import telemetry

RESULT_FILENAME = "result.json"
PHYSICAL_CORES = "physical_cores"  # Key among the facts of the machine.
PHASES = tuple(phase.removesuffix("_s") for phase in telemetry.PHASES)

REACHED = "reached"  # The run has held its target.
MISSED = "missed"  # The run has not held its target within its time.
TRAINED = "trained"  # The run has no target and ended as planned.
DIVERGED = "diverged"  # Numbers became infinite; the run counts as one that missed its target.


@dataclasses.dataclass(frozen=True)
class Rewards:
    """Evaluations during training, in their order: lists of one length."""

    seconds: Sequence[float]  # Since the launch.
    learner_steps: Sequence[float]
    actor_steps: Sequence[float]
    returns: Sequence[float]
    evaluation_s: Sequence[float]  # Seconds spent on evaluation so far.


@dataclasses.dataclass(frozen=True)
class Energy:
    """Energy of all processes together; memory's part is modelled, and GPUs' is measured."""

    kwh: float
    co2_kg: float
    # Until the target was held, or until the last evaluation if it was missed; power is taken as
    # constant. None in a run without a target.
    kwh_to_target: float | None
    co2_kg_to_target: float | None
    gpu_kwh: float | None = None  # The GPUs' part of `kwh`; None: an older version.
    # Whether counters have measured the CPUs' part, for the whole machine. It is modelled from the
    # processes' load otherwise, and in older versions (None).
    cpu_measured: bool | None = None
    # Country whose grid gives the CO2, three letters; "": the world; None: an older version.
    country: str | None = None

    @property
    def origin(self) -> str:
        """Tells whether the CPUs' part is 'measured' or 'modelled'."""
        return "measured" if self.cpu_measured else "modelled"

    @property
    def grid(self) -> str:
        """The factor of CO2, such as '381 g/kWh (DEU)'."""
        grams = f"{1000 * self.co2_kg / self.kwh:.0f} g/kWh" if self.kwh else ""
        return grams if self.country is None else f"{grams} ({self.country or 'world'})".lstrip()


@dataclasses.dataclass(frozen=True)
class Measured:
    """Measured figures of a run; times are seconds since the launch and include evaluation."""

    outcome: str
    target: float | None  # Return to hold.
    time_to_target_s: float | None  # First of the evaluations in a row that held it.
    evaluation_to_target_s: float | None  # Seconds of evaluation in that time.
    censored_at_s: float | None  # Until then a run missed its target.
    final_returns: Sequence[float]  # Evaluations of the last policy, after the end of training.
    rewards: Rewards
    evaluation_s: float
    learner_steps: float
    actor_steps: float
    learner_steps_per_s: float | None  # While the learner learned.
    actor_steps_per_s: float | None  # In the same time; all actors together.
    data_used: float | None  # Samples taken over samples that the inserts allow; 1: all.
    staleness_steps: float | None  # Learner steps that actors' weights lag behind, mean over time.
    message_bytes: float | None  # Median size of the weights on their way to the actors.
    fp32_bytes: float | None  # Size of the same weights in fp32.
    energy: Energy | None
    window: int = 1  # Evaluations in the running mean that must reach the target.
    # An actor's time while the learner learned, mean over the actors. None: it is not known, or an
    # older version did not note it.
    phases_us: Mapping[str, float] | None = None  # µs per step, by phase (`PHASES`).
    step_us: float | None = None  # From one step to the next by the clock, µs.
    steps_per_load: float | None = None  # Actor steps between two loads of newer weights.
    learner_device: str | None = None  # Where the learner ran; None: an older version.
    # Whether evaluation had a process beside the learner; None: a peer, or an older version.
    evaluation_process: bool | None = None

    @property
    def final_reward(self) -> float | None:
        """Mean return of the last policy, else of the last evaluations; None after divergence."""
        if self.outcome == DIVERGED:
            return None
        returns = list(self.final_returns) or list(self.rewards.returns[-self.window :])
        return sum(returns) / len(returns) if returns else None

    @property
    def part_of_fp32(self) -> float | None:
        """Size of a message to the actors as a part of the weights in fp32."""
        if not self.message_bytes or not self.fp32_bytes:
            return None
        return self.message_bytes / self.fp32_bytes


@dataclasses.dataclass(frozen=True)
class Result:
    """One run and its outcome."""

    experiment: str
    profile: str
    smoke: bool
    name: str
    kind: str
    task: str
    precision: int
    seed: int
    varied: Any
    settings: Mapping[str, Any]
    command: str
    git_commit: str
    machine: Mapping[str, Any]
    date: str  # Date of the launch.
    parallel: int  # Runs at a time.
    wall_s: float  # From the launch to the end of the last process.
    cpu_s: float | None  # CPU time of all its processes; None if other runs ran beside it.
    measured: Measured

    @property
    def precision_name(self) -> str:
        """'fp32', 'fp16', 'int8', 'int4' or 'int3'."""
        return precisions.NAMES[self.precision]

    @property
    def cores(self) -> int | None:
        """The physical cores that the run could use; None if that was not noted."""
        machine = self.machine  # Earlier versions noted only usable cores.
        return machine.get(PHYSICAL_CORES, machine.get("usable_cores"))

    @property
    def launched(self) -> datetime.datetime | None:
        """The moment of the launch; None if `date` cannot be read."""
        try:
            return datetime.datetime.strptime(self.date, provenance.DATE_FORMAT)
        except ValueError:
            return None


def write(result: Result, folder: str) -> None:
    """Writes a result into a run's folder, as a whole or not at all.

    Raises:
      errors.UserError: The result cannot be written.
    """
    text = json.dumps(dataclasses.asdict(result), indent=1) + "\n"
    files.write(os.path.join(folder, RESULT_FILENAME), text)


def read(folder: str) -> Result | None:
    """Returns the result in a run's folder, or None where there is none.

    Raises:
      errors.UserError: The result is damaged, or of another version.
    """
    path = os.path.join(folder, RESULT_FILENAME)
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        measured = dict(content.pop("measured"))
        measured["rewards"] = Rewards(**measured["rewards"])
        energy = measured["energy"]
        measured["energy"] = Energy(**energy) if energy is not None else None
        return Result(**content, measured=Measured(**measured))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise errors.UserError(f"Cannot read {path}: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.UserError(f"{path} is damaged: {error!r}. Delete it to repeat the run.") from (
            None
        )


def energy_origins(found: Iterable[Result]) -> tuple[str, str]:
    """Returns where the CPU energy of runs comes from, and their factors of CO2, for tables."""
    known = [result.measured.energy for result in found if result.measured.energy is not None]
    return (
        " and ".join(sorted({energy.origin for energy in known})),
        ", ".join(sorted({energy.grid for energy in known})),
    )


def csv_row(result: Result) -> dict[str, object]:
    """Returns the cells of a run; those without a value are empty."""
    measured, energy = result.measured, result.measured.energy

    def of(source: object, *names: str) -> dict[str, object]:
        return {name: getattr(source, name) for name in names}

    cells = {
        **of(result, "experiment", "profile", "task", "kind"),
        "precision": result.precision_name,
        **of(result, "varied", "seed"),
        **of(measured, "outcome", "target", "time_to_target_s", "evaluation_to_target_s"),
        **of(measured, "censored_at_s", "final_reward"),
        **of(result, "wall_s", "cpu_s"),
        **of(measured, "evaluation_s", "learner_steps", "actor_steps", "learner_steps_per_s"),
        **of(measured, "actor_steps_per_s", "data_used", "staleness_steps", "message_bytes"),
        **of(measured, "fp32_bytes", "step_us", "steps_per_load"),
        **{f"{phase}_us": (measured.phases_us or {}).get(phase) for phase in PHASES},
        "energy_kwh": energy.kwh if energy else None,
        "co2_kg": energy.co2_kg if energy else None,
        "energy_to_target_kwh": energy.kwh_to_target if energy else None,
        "co2_to_target_kg": energy.co2_kg_to_target if energy else None,
        "cpu_energy": energy.origin if energy else None,
        "grid": energy.grid if energy else None,
        **of(measured, "learner_device"),
        **of(result, "parallel", "date", "git_commit"),
        "processor": result.machine.get("processor"),
        "command": result.command,
    }
    return {name: "" if value is None else value for name, value in cells.items()}
