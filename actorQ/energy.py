"""Optional estimate of a process's energy and CO2 with codecarbon, without internet.

Without access to the processor's counters (RAPL) codecarbon models power from CPU load and a
constant for memory: the figures are then modelled, not measured.
"""

from collections.abc import Iterator
import contextlib
import logging
import os

from actorQ import telemetry


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
