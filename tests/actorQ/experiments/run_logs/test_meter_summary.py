"""Tests the one number that stands for each figure of a run, and how well figures separate runs."""

import math

import pytest

from actorQ.core import run_logger
from actorQ.core import telemetry
from actorQ.experiments.run_logs import meter_summary
from tests.actorQ.experiments import log_files


def test_figures_are_medians_of_the_second_half(tmp_path):
    folder = log_files.make_run(tmp_path, "r", 8)
    logger = run_logger.RunLogger(folder, telemetry.BROADCASTER)
    for version in range(6):
        changed = {"changed_share": 0.1 * version} if version != 4 else {}
        logger.write(
            telemetry.UPDATES_CSV, version, model_version=version, weight_error_a=0.2,
            weight_error_b=0.01 * version, **changed,
        )
        logger.write(
            telemetry.METER_CSV, version, model_version=version, agreement=0.75,
            lost_q=float(version), activation_low_a=-9.0 - version, activation_high_a=2.0,
        )
    logger.close()
    found = meter_summary.figures(folder)
    assert found["changed_share"] == pytest.approx(0.4)  # Of 0.3 and 0.5: one version has none.
    assert found["weight_error"] == pytest.approx(0.2)
    assert found["disagreement"] == pytest.approx(0.25)
    assert (found["lost_q"], found["activation"]) == (4.0, 13.0)
    assert math.isnan(found["action_distance"]) and math.isnan(found["actions_at_bounds"])
    assert list(found) == list(meter_summary.FIGURES)


def test_a_run_without_a_meter_has_no_figures(tmp_path):
    found = meter_summary.figures(log_files.make_run(tmp_path, "r", 8))
    assert all(math.isnan(value) for value in found.values())


@pytest.mark.parametrize(
    ("failed", "learned", "area"),
    [
        ([3, 4], [1, 2], 1.0), ([1, 2], [3, 4], 0.0), ([1, 3], [2, 2], 0.5), ([2], [2, 2], 0.5),
        ([2, 4, 9], [1, 3, math.nan], 5 / 6), ([], [1], None), ([1], [math.nan], None),
    ],
)
def test_area_is_the_probability_of_a_larger_figure(failed, learned, area):
    assert meter_summary.area([(failed, learned)]) == area


def test_area_compares_within_groups_alone():
    assert meter_summary.area([([2], [1]), ([20], [10])]) == 1.0
    assert meter_summary.area([([2], [1]), ([10, 20], [30])]) == pytest.approx(1 / 3)
    assert meter_summary.area([([2], []), ([], [3])]) is None
    assert meter_summary.area([]) is None
