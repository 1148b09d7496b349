"""Optional estimate of a run's energy and CO2 with codecarbon, without internet.

Each process has a tracker of its own. Power is modelled, not measured:

- CPU: from the load of the process. The processor's own counters (RAPL) know no processes, and are
  not used even where there are any.
- Memory: a constant for the machine, which all processes report.
- GPUs: whole GPUs, measured by their driver, which all processes report as well.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import csv
import datetime
import logging
import math
import os
from typing import NamedTuple

from actorQ.core import errors
from actorQ.core import telemetry


class Estimate(NamedTuple):
    """Estimated energy of one process."""

    process: str
    start: float  # Start of tracking, seconds since 1970.
    duration_s: float
    cpu_kwh: float  # CPU energy of the process alone.
    memory_kwh: float  # Energy of the machine's memory, or of a part with a least size.
    gpu_kwh: float  # Energy of the machine's GPUs.
    co2_kg_per_kwh: float

    def part_until(self, moment: float) -> float:
        """Returns the part of `duration_s` that lies before a moment, 0 to 1."""
        if self.duration_s <= 0:
            return 0.0
        return min(1.0, max(0.0, (moment - self.start) / self.duration_s))


@contextlib.contextmanager
def track(enabled: bool, folder: str) -> Iterator[None]:
    """Writes `emissions.csv` into `folder` for the body of the `with` statement, if enabled."""
    if not enabled:
        yield
        return
    from codecarbon import OfflineEmissionsTracker

    os.makedirs(folder, exist_ok=True)
    with OfflineEmissionsTracker(
        country_iso_code=os.environ.get("ACTORQ_COUNTRY", "USA"),
        tracking_mode="process",
        force_mode_cpu_load=True,
        output_dir=folder,
        output_file=telemetry.EMISSIONS_CSV,
        log_level=logging.ERROR,
        allow_multiple_runs=True,
    ):
        yield


def read(run_folder: str) -> list[Estimate]:
    """Returns the estimates of a run's processes, one for each time that one was started.

    Args:
      run_folder: Folder of a run that was started with --track_energy=1; others have no estimates.

    Raises:
      errors.UserError: A file is damaged.
    """
    estimates = []
    for process in sorted(os.listdir(run_folder)):
        path = os.path.join(run_folder, process, telemetry.EMISSIONS_CSV)
        if not os.path.isfile(path):
            continue
        try:
            with open(path, newline="", encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    end = datetime.datetime.fromisoformat(row["timestamp"]).timestamp()
                    duration_s = float(row["duration"])
                    cpu, ram, gpu = (float(row[f"{part}_energy"]) for part in ("cpu", "ram", "gpu"))
                    whole, co2_kg = float(row["energy_consumed"]), float(row["emissions"])
                    estimates.append(
                        Estimate(
                            process, end - duration_s, duration_s, cpu, ram, gpu,
                            co2_kg / whole if whole > 0 else 0.0,
                        )
                    )
        except (ValueError, KeyError, TypeError) as error:
            raise errors.UserError(f"{path} is damaged: {error!r}.") from None
    return estimates


def gpu_kwh(estimates: Sequence[Estimate], until: float = math.inf) -> float:
    """Returns the share of GPUs in `total`, kWh."""
    return max(_by_process(estimates, "gpu_kwh", until), default=0.0)


def total(estimates: Sequence[Estimate], until: float = math.inf) -> tuple[float, float]:
    """Returns kWh and kg of CO2 of a run's processes, all on one machine.

    The CPU energy of all processes is summed. Memory and GPUs are the machine's and count once:
    the process that reports most of them counts.

    Args:
      estimates: Estimates of all processes.
      until: Seconds since 1970. Later energy is left out, as if power had been constant.
    """
    kwh = sum(_by_process(estimates, "cpu_kwh", until)) + gpu_kwh(estimates, until)
    kwh += max(_by_process(estimates, "memory_kwh", until), default=0.0)
    return kwh, kwh * max((each.co2_kg_per_kwh for each in estimates), default=0.0)


def _by_process(estimates: Sequence[Estimate], name: str, until: float) -> list[float]:
    sums: dict[str, float] = {}
    for each in estimates:
        amount = getattr(each, name) * each.part_until(until)
        sums[each.process] = sums.get(each.process, 0.0) + amount
    return list(sums.values())
