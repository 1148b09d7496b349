"""The time of actors by phase, from hand-written logs."""

import os

import pytest

from actorQ.core import errors
from actorQ.core import telemetry
from actorQ.experiments.run_logs import actor_time
from actorQ.experiments.run_logs import curves
from actorQ.scripts import breakdown_table
from tests.actorQ.experiments import log_files


def load(folder):
    return actor_time.load(curves.load_run(folder))


def test_breakdown_golden(tmp_path):
    item = load(log_files.breakdown_run(tmp_path, "r", 8))
    # Actors 1 and 2: 1000 and 2000 steps, 1 and 2 s of inference; warm-up's 50 s do not count.
    assert (item.actors, item.steps, item.elapsed_s, item.steady) == (2, 1500, 10, True)
    assert item.seconds["inference"] == pytest.approx(1.5)
    assert item.phases_us["inference"] == pytest.approx(1000)
    assert item.phases_us["load_state_dict"] == pytest.approx(350)
    # Per second of inference: 0.1 + 1 + 0.2 + 0.3 + 0.05 + 0.35 = 2 s.
    assert item.total_s == pytest.approx(3)
    assert item.share("inference") == pytest.approx(50)
    assert item.share("environment") == pytest.approx(5)
    assert (item.convert_ms, item.message_bytes, item.fp32_bytes) == (20, 1000, 4000)
    assert item.staleness_steps == 6


def test_breakdown_of_a_stretch_leaves_out_the_rows_around_it(tmp_path):
    (run,) = curves.load_runs([log_files.breakdown_run(tmp_path, "r", 8, actors=1)])
    item = actor_time.load(run, 10.5, 20)
    # From the second row on: 200 to 1100 steps in 9 s.
    assert (item.steps, item.elapsed_s, item.steady) == (900, 9, True)
    assert item.seconds["inference"] == pytest.approx(1)
    assert item.staleness_steps == 8
    assert not actor_time.load(run, 10.5, 19).steady
    with pytest.raises(errors.UserError, match="no row between 21 and inf s"):
        actor_time.load(run, 21)


def test_breakdown_counts_loads(tmp_path):
    folder = log_files.breakdown_run(tmp_path, "r", 8, actors=1)
    values = {phase: [1.0, 2.0] for phase in telemetry.PHASES}
    log_files.write_log(
        f"{folder}/actor_1/phases.csv", seconds=[10, 20], actor_steps=[100, 1100],
        staleness_steps=[1, 1], pulls=[3, 8], **values,
    )
    assert load(folder).loads == 5


def test_breakdown_phases_begin_with_the_papers():
    assert list(actor_time.PHASE_NAMES.values()) == [
        "step (inference)", "pull", "deserialize", "load_state_dict", "environment", "insert"
    ]
    assert set(actor_time.PHASE_NAMES) == {column.removesuffix("_s") for column in telemetry.PHASES}


def test_breakdown_of_a_single_row_says_so(tmp_path):
    folder = log_files.make_run(tmp_path, "r", 8)
    log_files.write_log(
        f"{folder}/actor_1/phases.csv", seconds=[3], actor_steps=[1000], staleness_steps=[""],
        **{phase: [1.0] for phase in telemetry.PHASES},
    )
    log_files.write_log(
        f"{folder}/broadcaster/updates.csv", seconds=[1], convert_s=[1], message_bytes=[1],
        fp32_bytes=[4],
    )
    item = load(folder)
    assert not item.steady
    assert item.phases_us["pull"] == 1000
    text = breakdown_table.markdown({"r": item})
    assert "include warm-up" in text and "n/a" in text


def test_breakdown_adds_up_the_lives_of_a_restarted_actor(tmp_path):
    folder = log_files.breakdown_run(tmp_path, "r", 8, actors=1)
    values = {phase: [1.0, 2.0, 0.5, 1.0] for phase in telemetry.PHASES}
    log_files.write_log(
        f"{folder}/actor_1/phases.csv", seconds=[10, 20, 30, 35],
        actor_steps=[100, 1100, 50, 550], staleness_steps=[1, 1, 1, 1], **values,
    )
    item = load(folder)
    # 1000 steps in 10 s and 1 s a phase, then 500 steps in 5 s and 0.5 s a phase.
    assert (item.steps, item.elapsed_s, item.seconds["pull"]) == (1500, 15, 1.5)


def test_breakdown_leaves_out_the_time_in_which_an_actor_was_dead(tmp_path):
    folder = log_files.breakdown_run(tmp_path, "r", 8, actors=1)
    values = {phase: [1.0, 2.0, 3.0, 3.0, 3.5] for phase in telemetry.PHASES}
    log_files.write_log(
        f"{folder}/actor_1/phases.csv", seconds=[10, 11, 12, 24, 25],
        actor_steps=[100, 200, 300, 300, 350], staleness_steps=[1, 1, 1, 1, 1], **values,
    )
    item = load(folder)
    assert (item.steps, item.elapsed_s, item.seconds["pull"]) == (250, 3, 2.5)


def test_breakdown_leaves_out_an_actor_without_rows(tmp_path):
    folder = log_files.breakdown_run(tmp_path, "r", 8)
    os.makedirs(f"{folder}/actor_3")
    item = load(folder)
    assert item.actors == 2
    assert "left out: No log at" in breakdown_table.markdown({"r": item})


def test_breakdown_without_logs_is_a_user_error(tmp_path):
    empty = log_files.make_run(tmp_path, "e", 8)
    with pytest.raises(errors.UserError, match="has no logs of actors"):
        load(empty)
    os.makedirs(f"{empty}/actor_1")
    with pytest.raises(errors.UserError, match="No log at .*phases.csv"):
        load(empty)
    folder = log_files.breakdown_run(tmp_path, "r", 8)
    os.remove(f"{folder}/broadcaster/updates.csv")
    with pytest.raises(errors.UserError, match="No log at .*updates.csv"):
        load(folder)
