"""The optional figures of energy and CO2, without internet."""

import csv
import logging
import time

import pytest

from actorQ.core import energy
from actorQ.core import errors
from actorQ.core import telemetry


@pytest.fixture(autouse=True)
def _no_country(monkeypatch):
    monkeypatch.delenv(energy.COUNTRY_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ("DE", "say DEU."),
        ("Germany", "say DEU."),
        ("de ", "say DEU."),
        ("GB", "say GBR."),
        ("VAT", "no figure for VAT. Leave it out"),
        ("XYZ", "three letters of ISO 3166"),
        ("1", "three letters of ISO 3166"),
    ],
)
def test_name_that_is_no_country_s_is_refused_with_the_right_one(monkeypatch, given, advice):
    monkeypatch.setenv(energy.COUNTRY_VARIABLE, given)
    with pytest.raises(errors.UserError) as refused:
        energy.country()
    assert str(refused.value).startswith(f"ACTORQ_COUNTRY={given.strip()} cannot be used: ")
    assert advice in str(refused.value)


@pytest.mark.parametrize(
    ("given", "code", "grams"),
    [("DEU", "DEU", 381), ("fra", "FRA", None), ("", "", 475), (None, "", 475)],
)
def test_factor_is_the_named_country_s_or_the_world_s_and_is_said(
    tmp_path, monkeypatch, caplog, given, code, grams
):
    caplog.set_level(logging.INFO)
    if given is not None:
        monkeypatch.setenv(energy.COUNTRY_VARIABLE, given)
    assert energy.country() == code
    with energy.track(True, str(tmp_path / "learner")):
        sum(i * i for i in range(200_000))
    (estimate,) = energy.read(str(tmp_path))
    assert estimate.country == code
    said = energy.describe([estimate])
    for text in (caplog.text, said):
        assert f"the mean grid of {code}" in text if code else "the world's mean grid" in text
    assert f"at {grams} g/kWh: " in said or grams is None
    assert "(CPU modelled, memory modelled)" in said


class Counters:
    """Folders as of Linux's powercap, with a counter of one processor."""

    def __init__(self, folder):
        self.zone = folder / "intel-rapl" / "intel-rapl:0"
        self.zone.mkdir(parents=True)
        (self.zone / "name").write_text("package-0\n")
        (self.zone / "max_energy_range_uj").write_text("262143328850\n")
        self.set_joules(1000)

    def set_joules(self, joules):
        (self.zone / "energy_uj").write_text(f"{round(joules * 1e6)}\n")


@pytest.fixture
def counters(tmp_path, monkeypatch):
    """Lets codecarbon find counters where the test has them."""
    from codecarbon.core import cpu

    made = Counters(tmp_path / "powercap")
    monkeypatch.setattr(cpu, "_get_candidate_bases", lambda folder: [str(tmp_path / "powercap")])
    exists = cpu.os.path.exists
    monkeypatch.setattr(
        cpu.os.path, "exists", lambda path: "intel-rapl/subsystem" in str(path) or exists(path)
    )
    return made


def test_energy_is_measured_where_counters_can_be_read(tmp_path, counters):
    run = tmp_path / "run"
    with energy.track(True, str(run / "learner")):
        time.sleep(0.2)
        counters.set_joules(1000 + 3600)
    (estimate,) = energy.read(str(run))
    assert estimate.cpu_measured
    assert estimate.cpu_kwh == pytest.approx(0.001)
    assert "(CPU measured, memory modelled)" in energy.describe([estimate])


def test_counters_that_only_root_may_read_leave_the_model(tmp_path, counters, monkeypatch, caplog):
    from codecarbon.core import cpu

    monkeypatch.setattr(cpu.os, "access", lambda path, mode: False)
    with energy.track(True, str(tmp_path / "run" / "learner")):
        time.sleep(0.1)
    (estimate,) = energy.read(str(tmp_path / "run"))
    assert not estimate.cpu_measured
    assert "Permission denied" not in caplog.text


def test_measured_cpu_energy_is_the_machine_s_and_counts_once():
    estimates = [
        energy.Estimate("actor_1", 0.0, 100.0, 4.0, 1.0, 0.0, 0.5, True, "DEU"),
        energy.Estimate("learner", 0.0, 100.0, 5.0, 1.0, 0.0, 0.5, True, "DEU"),
    ]
    assert energy.total(estimates) == pytest.approx((6.0, 3.0))


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
