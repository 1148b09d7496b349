"""Figures of one run."""

import pytest

from actorQ.core import errors
from actorQ.core import run_logger
from actorQ.core import telemetry
from actorQ.experiments.run_logs import meter_plot
from actorQ.experiments.run_logs import plots
from tests.actorQ.experiments import log_files


def episodes(folder, seconds):
    log_files.write_log(
        f"{folder}/actor_1/episodes.csv", seconds=seconds, episode_return=[9] * len(seconds)
    )


# --- plot_run ---


def test_plot_run_draws_both_figures(tmp_path):
    folder = log_files.learner(log_files.breakdown_run(tmp_path, "r", 8), [10, 20, 30], [0, 5, 9])
    episodes(folder, [10, 20])
    paths = plots.plot_run(folder)
    assert paths == [
        f"{folder}/plots/learning_curve.png", f"{folder}/plots/throughput.png"
    ]
    for path in paths:
        log_files.check_figure(path)


@pytest.mark.parametrize("kind", ["d4pg", "dqn"])
@pytest.mark.parametrize("rows", [1, 3])
def test_plot_run_draws_what_the_meter_saw(tmp_path, kind, rows):
    folder = log_files.make_run(tmp_path, "r", 8)
    episodes(folder, [10, 20])
    logger = run_logger.RunLogger(folder, telemetry.BROADCASTER)
    for version in range(rows):
        changed = {"changed_share": 0.5} if version else {}
        logger.write(
            telemetry.UPDATES_CSV, version, model_version=version, weight_error_head=0.25, **changed
        )
        compared = {"agreement": 0.75, "lost_q": 0.1}
        if kind == "d4pg":
            compared = {"action_distance": 0.1, "action_distance_max": 1.0}
        logger.write(
            telemetry.METER_CSV, version, model_version=version, activation_low_head=-3.0,
            activation_high_head=2.0, **compared,
        )
    logger.close()
    *_, path = plots.plot_run(folder)
    assert path == f"{folder}/plots/quantization.png"
    log_files.check_figure(path)
    panels = meter_plot._panels(meter_plot.read(folder))
    expected = ["Integers\nchanged (%)", "Weight error\n(%)"] if rows > 1 else []
    expected += {
        "d4pg": ["Action\ndistance"], "dqn": ["Other\nactions (%)", "Lost Q"]
    }[kind]
    assert list(panels) == [*expected, "Largest\nactivation"]
    (activations,) = panels["Largest\nactivation"]
    assert activations.layer == "head" and set(activations.values) == {3.0}
    if kind == "dqn":
        assert set(panels["Other\nactions (%)"][0].values) == {25.0}


def test_plot_run_copes_with_single_rows(tmp_path):
    folder = log_files.make_run(tmp_path, "r", 8)
    log_files.write_log(f"{folder}/learner/evaluation.csv", seconds=[3], episode_return=[1],
              evaluation_s=[1])
    log_files.write_log(f"{folder}/learner/train.csv", seconds=[3], actor_steps_per_s=[50],
              learner_steps_per_s=[0])
    episodes(folder, [2])
    for path in plots.plot_run(folder):
        log_files.check_figure(path)


def test_plot_run_draws_what_there_is(tmp_path):
    folder = log_files.make_run(tmp_path, "r", 8)
    episodes(folder, [2, 3])
    assert plots.plot_run(folder) == [f"{folder}/plots/learning_curve.png"]


def test_plot_run_without_logs_is_a_user_error(tmp_path):
    with pytest.raises(errors.UserError, match="has no logs to draw"):
        plots.plot_run(log_files.make_run(tmp_path, "r", 8))
