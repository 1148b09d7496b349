"""The learning curve of a training run: its scores, steps and files."""

import csv

import pytest

from actorQ.core import errors
from baseline.train import learning_curve


def write(path, rows, header='#{"t_start": 0.0, "env_id": "CartPole-v1"}'):
    path.write_text(f"{header}\nr,l,t\n" + "".join(f"{r},{n},0.1\n" for r, n in rows))


def test_read_takes_environments_in_turn(tmp_path):
    write(tmp_path / "0.monitor.csv", [(1, 10), (3, 30)])
    write(tmp_path / "1.monitor.csv", [(2, 15)])
    steps, scores = learning_curve.read(tmp_path)
    assert scores.tolist() == [1, 2, 3]
    assert steps.tolist() == [20, 30, 80]


def test_read_leaves_out_a_line_that_was_not_finished(tmp_path):
    write(tmp_path / "0.monitor.csv", [(1, 10)])
    with open(tmp_path / "0.monitor.csv", "a") as file:
        file.write("7")
    assert learning_curve.read(tmp_path)[1].tolist() == [1]


def test_draw_writes_figure_and_running_mean(tmp_path):
    write(tmp_path / "0.monitor.csv", [(score, 1) for score in range(150)])
    path = learning_curve.draw(tmp_path, tmp_path / "out")
    assert path.stat().st_size > 5000
    with open(tmp_path / "out" / "learning_curve.csv") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["environment_steps", "running_mean"]
    assert rows[1] == ["1", "0"]
    assert rows[-1] == ["150", "99.5"]  # The mean of 50 to 149.


@pytest.mark.parametrize(
    ("header", "unit"),
    [
        ('#{"t_start": 0.0, "env_id": "BreakoutNoFrameskip-v4"}', "frames"),
        ('#{"t_start": 0.0, "env_id": "ALE/Breakout-v5"}', "environment_steps"),
        ('#{"t_start": 0.0}', "environment_steps"),
        ("#[]", "environment_steps"),
        ("", "environment_steps"),
    ],
)
def test_steps_of_atari_games_are_called_frames(tmp_path, header, unit):
    write(tmp_path / "0.monitor.csv", [(1, 10)], header)
    learning_curve.draw(tmp_path)
    lines = (tmp_path / "learning_curve.csv").read_text().splitlines()
    assert lines == [f"{unit},running_mean", "10,1"]


def test_a_folder_without_scores_is_refused(tmp_path):
    with pytest.raises(errors.UserError, match="no scores"):
        learning_curve.draw(tmp_path)
