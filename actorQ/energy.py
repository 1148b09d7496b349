"""Optional estimate of a process's energy and CO2 with codecarbon, without internet.

Without access to the processor's counters (RAPL) codecarbon models power from CPU load and a
constant for memory: the figures are then modelled, not measured.
"""

from collections.abc import Iterator
import contextlib
import csv
import datetime
import logging
import os
from typing import NamedTuple

from actorQ import errors
from actorQ import telemetry


class Estimate(NamedTuple):
    """What one process is estimated to have used."""

    process: str
    start: float  # Of tracking, seconds since 1970.
    duration_s: float
    energy_kwh: float
    co2_kg: float

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
                    energy_kwh, co2_kg = float(row["energy_consumed"]), float(row["emissions"])
                    estimates.append(
                        Estimate(process, end - duration_s, duration_s, energy_kwh, co2_kg)
                    )
        except (ValueError, KeyError, TypeError) as error:
            raise errors.UserError(f"{path} is damaged: {error!r}.") from None
    return estimates
