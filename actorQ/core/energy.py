"""Optional estimate of a run's energy and CO2 with codecarbon, without internet.

Each process has a tracker of its own, and power is modelled, not measured: from its CPU load, and a
constant for the machine's memory, which all of them report, as they do whole GPUs (whose driver
measures theirs). The processor's own counters (RAPL), which know no processes, are not used where
they could be.
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
    """What one process is estimated to have used."""

    process: str
    start: float  # Of tracking, seconds since 1970.
    duration_s: float
    cpu_kwh: float  # Its own.
    memory_kwh: float  # Of the machine's memory, or a part of it that has a least size.
    gpu_kwh: float  # Of the machine's GPUs.
    co2_kg_per_kwh: float

    def part_until(self, moment: float) -> float:
        """Returns the part of `duration_s` that lies before a moment, 0 to 1."""
        if self.duration_s <= 0:
            return 0.0
        return min(1.0, max(0.0, (moment - self.start) / self.duration_s))


@contextlib.contextmanager
def track(enabled: bool, folder: str) -> Iterator[None]:
    """Writes `emissions.csv` into `folder` for what runs inside, if enabled."""
    if not enabled:
        yield
        return
    from codecarbon import OfflineEmissionsTracker

    os.makedirs(folder, exist_ok=True)
    tracker = OfflineEmissionsTracker(
        country_iso_code=os.environ.get("ACTORQ_COUNTRY", "USA"),
        tracking_mode="process",
        force_mode_cpu_load=True,
        output_dir=folder,
        output_file=telemetry.EMISSIONS_CSV,
        log_level=logging.ERROR,
        allow_multiple_runs=True,
    )
    tracker.start()
    try:
        yield
    finally:
        tracker.stop()


def read(run_folder: str) -> list[Estimate]:
    """Returns the estimates of a run's processes, one for each time that one was started.

    Args:
      run_folder: of a run that was started with --track_energy=1; without it there are none.

    Raises:
      errors.UserError: a file is damaged.
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
                    parts = (float(row[f"{part}_energy"]) for part in ("cpu", "ram", "gpu"))
                    whole, co2_kg = float(row["energy_consumed"]), float(row["emissions"])
                    estimates.append(
                        Estimate(
                            process, end - duration_s, duration_s, *parts,
                            co2_kg / whole if whole > 0 else 0.0,
                        )
                    )
        except (ValueError, KeyError, TypeError) as error:
            raise errors.UserError(f"{path} is damaged: {error!r}.") from None
    return estimates


def gpu_kwh(estimates: Sequence[Estimate], until: float = math.inf) -> float:
    """Returns the part of `total`'s kWh that GPUs have taken."""
    return max(_by_process(estimates, "gpu_kwh", until), default=0.0)


def total(estimates: Sequence[Estimate], until: float = math.inf) -> tuple[float, float]:
    """Returns kWh and kg of CO2 of a run's processes, all on one machine.

    Each process's own CPU time counts. Memory and GPUs are the machine's, and count once: as in
    the process that reports most of them.

    Args:
      estimates: of all processes.
      until: seconds since 1970; as if power had been the same all the time.
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
