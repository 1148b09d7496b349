"""Optional figures of a run's energy and CO2, with codecarbon and without internet.

Each process has a tracker of its own:

- CPU: measured by the processors' counters (RAPL) where they can be read, else modelled. The
  counters know no processes, so that every process reports the whole machine. The model takes the
  load of the process alone.
- Memory: modelled, a constant for the machine, which all processes report.
- GPUs: measured by their driver, whole GPUs, which all processes report as well.

CO2 is that energy times a mean of the grid: of the country that ACTORQ_COUNTRY names, else of the
world.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import csv
import datetime
import importlib.util
import json
import logging as std_logging
import math
import os
from typing import NamedTuple

from absl import logging

from actorQ.core import errors
from actorQ.core import telemetry

COUNTRY_VARIABLE = "ACTORQ_COUNTRY"
# codecarbon's column that tells what its figures are of, and the value for whole machines. It is
# set for measured CPUs alone.
_MODE_COLUMN, _MACHINE = "tracking_mode", "machine"
_GRIDS = ("data", "private_infra", "global_energy_mix.json")  # File below codecarbon's folder.


class Estimate(NamedTuple):
    """Energy of one process."""

    process: str
    start: float  # Start of tracking, seconds since 1970.
    duration_s: float
    cpu_kwh: float  # CPU energy of the process alone; of the machine where it is measured.
    memory_kwh: float  # Energy of the machine's memory, or of a part with a least size.
    gpu_kwh: float  # Energy of the machine's GPUs.
    co2_kg_per_kwh: float
    cpu_measured: bool = False
    country: str = ""  # Country whose grid gives the CO2, three letters; empty: the world.

    def part_until(self, moment: float) -> float:
        """Returns the part of `duration_s` that lies before a moment, 0 to 1."""
        if self.duration_s <= 0:
            return 0.0
        return min(1.0, max(0.0, (moment - self.start) / self.duration_s))


def country() -> str:
    """Returns the country that ACTORQ_COUNTRY names, three letters of ISO 3166; "": none is named.

    Raises:
      errors.UserError: There is no such country, or codecarbon has no figure for it.
    """
    given = os.environ.get(COUNTRY_VARIABLE, "").strip()
    spec = importlib.util.find_spec("codecarbon")  # Its import would take a second.
    assert spec is not None and spec.origin is not None, "requirements.txt has it."
    with open(os.path.join(os.path.dirname(spec.origin), *_GRIDS), encoding="utf-8") as file:
        known = json.load(file)
    if not given or given.upper() in known:
        return given.upper()
    import pycountry  # It comes with codecarbon.

    advice = "give three letters of ISO 3166, such as DEU for Germany"
    with contextlib.suppress(LookupError):
        code = pycountry.countries.lookup(given).alpha_3
        advice = f"say {code}"
        if code not in known:
            advice = f"codecarbon has no figure for {code}. Leave it out for the world's mean"
    raise errors.UserError(f"{COUNTRY_VARIABLE}={given} cannot be used: {advice}.")


def factor(code: str) -> str:
    """Returns the name of the factor that energy is multiplied with, for messages.

    Args:
      code: Three letters of a country; empty: the world.
    """
    if code:
        return f"the mean grid of {code}"
    return f"the world's mean grid ({COUNTRY_VARIABLE} names no country)"


@contextlib.contextmanager
def track(enabled: bool, folder: str) -> Iterator[None]:
    """Writes `emissions.csv` into `folder` for the body of the `with` statement, if enabled.

    Raises:
      errors.UserError: ACTORQ_COUNTRY names no country.
    """
    if not enabled:
        yield
        return
    code = country()
    from codecarbon import OfflineEmissionsTracker
    from codecarbon.core import cpu

    # Counters that may not be read are no matter for a warning: the model takes their place.
    std_logging.getLogger("codecarbon").setLevel(std_logging.ERROR)
    measured = cpu.is_rapl_available()
    logging.info(
        "Energy: CPU %s, memory modelled; CO2 by %s.",
        "measured (RAPL, the whole machine)" if measured else "modelled from this process's load",
        factor(code),
    )
    os.makedirs(folder, exist_ok=True)
    with OfflineEmissionsTracker(
        country_iso_code=code or None,
        tracking_mode=_MACHINE if measured else "process",
        force_mode_cpu_load=not measured,
        output_dir=folder,
        output_file=telemetry.EMISSIONS_CSV,
        log_level=std_logging.ERROR,
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
                            row.get(_MODE_COLUMN) == _MACHINE, row.get("country_iso_code") or "",
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

    The modelled CPU energy of all processes is summed. A measured one, memory and GPUs are the
    machine's and count once: the process that reports most of them counts.

    Args:
      estimates: Estimates of all processes.
      until: Seconds since 1970. Later energy is left out, as if power had been constant.
    """
    of_machine = [each for each in estimates if each.cpu_measured]
    if of_machine:
        kwh = max(_by_process(of_machine, "cpu_kwh", until))
    else:
        kwh = sum(_by_process(estimates, "cpu_kwh", until))
    kwh += gpu_kwh(estimates, until)
    kwh += max(_by_process(estimates, "memory_kwh", until), default=0.0)
    return kwh, kwh * max((each.co2_kg_per_kwh for each in estimates), default=0.0)


def describe(estimates: Sequence[Estimate]) -> str:
    """Returns a sentence on the energy and CO2 of a run, with where its figures come from."""
    kwh, co2_kg = total(estimates)
    cpu = "measured" if any(each.cpu_measured for each in estimates) else "modelled"
    gpu = ", GPU measured" if gpu_kwh(estimates) else ""
    grams = f"{1000 * co2_kg / kwh:.0f}" if kwh else "no"
    return (
        f"{1000 * kwh:.3g} Wh (CPU {cpu}, memory modelled{gpu}) and {1000 * co2_kg:.3g} g of CO2, "
        f"at {grams} g/kWh: {factor(estimates[0].country)}."
    )


def _by_process(estimates: Sequence[Estimate], name: str, until: float) -> list[float]:
    sums: dict[str, float] = {}
    for each in estimates:
        amount = getattr(each, name) * each.part_until(until)
        sums[each.process] = sums.get(each.process, 0.0) + amount
    return list(sums.values())
