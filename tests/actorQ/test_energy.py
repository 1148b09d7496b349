"""The optional energy estimate, without internet."""

import csv

from actorQ import energy
from actorQ import telemetry


def test_track_writes_an_estimate(tmp_path):
    with energy.track(True, str(tmp_path)):
        sum(i * i for i in range(2_000_000))
    with open(tmp_path / telemetry.EMISSIONS_CSV, newline="") as file:
        (row,) = list(csv.DictReader(file))
    assert float(row["energy_consumed"]) > 0
    assert float(row["emissions"]) > 0
    assert float(row["duration"]) > 0


def test_track_disabled_writes_nothing(tmp_path):
    with energy.track(False, str(tmp_path)):
        pass
    assert not list(tmp_path.iterdir())
