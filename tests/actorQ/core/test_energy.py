"""The optional energy estimate, without internet."""

import csv
import time

import pytest

from actorQ.core import energy
from actorQ.core import errors
from actorQ.core import telemetry


def test_track_writes_an_estimate(tmp_path):
    with energy.track(True, str(tmp_path)):
        sum(i * i for i in range(2_000_000))
    with open(tmp_path / telemetry.EMISSIONS_CSV, newline="") as file:
        (row,) = list(csv.DictReader(file))
    assert float(row["energy_consumed"]) > 0
    assert float(row["emissions"]) > 0
    assert float(row["duration"]) > 0


def test_read_gives_what_track_wrote(tmp_path):
    before = time.time()
    with energy.track(True, str(tmp_path / "learner")):
        sum(i * i for i in range(200_000))
    (estimate,) = energy.read(str(tmp_path))
    assert estimate.process == "learner"
    assert estimate.cpu_kwh >= 0 and estimate.memory_kwh > 0
    with open(tmp_path / "learner" / telemetry.EMISSIONS_CSV, newline="") as file:
        (row,) = list(csv.DictReader(file))
    whole = (float(row["energy_consumed"]), float(row["emissions"]))
    assert energy.total([estimate]) == pytest.approx(whole, rel=1e-6)
    assert before - 2 < estimate.start < time.time()
    middle = estimate.start + estimate.duration_s / 2
    assert estimate.part_until(middle) == pytest.approx(0.5, abs=1e-3)
    assert (estimate.part_until(0.0), estimate.part_until(time.time() + 9)) == (0.0, 1.0)


def test_read_without_estimates_is_empty(tmp_path):
    (tmp_path / "learner").mkdir()
    assert energy.read(str(tmp_path)) == []


def test_total_counts_memory_and_gpus_once_and_every_process_cpu():
    # Two lives of the learner, 100 s each, beside an actor.
    estimates = [
        energy.Estimate("actor_1", 0.0, 200.0, 4.0, 2.0, 0.0, 0.5),
        energy.Estimate("learner", 0.0, 100.0, 1.0, 1.1, 3.0, 0.5),
        energy.Estimate("learner", 100.0, 100.0, 2.0, 1.1, 3.0, 0.5),
    ]
    assert energy.total(estimates) == pytest.approx((7.0 + 2.2 + 6.0, 7.6))
    # Half of the time: all of the learner's first life, half of the actor.
    assert energy.total(estimates, 100.0) == pytest.approx((3.0 + 1.1 + 3.0, 3.55))
    assert energy.total([]) == (0.0, 0.0)
    assert energy.gpu_kwh(estimates) == 6.0 and energy.gpu_kwh([]) == 0.0


def test_read_damaged_names_the_file(tmp_path):
    (tmp_path / "learner").mkdir()
    (tmp_path / "learner" / telemetry.EMISSIONS_CSV).write_text("timestamp,duration\nnow,1\n")
    with pytest.raises(errors.UserError, match="emissions.csv is damaged"):
        energy.read(str(tmp_path))


def test_track_disabled_writes_nothing(tmp_path):
    with energy.track(False, str(tmp_path)):
        pass
    assert not list(tmp_path.iterdir())
