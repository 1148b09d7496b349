"""Tests `baseline.collate` and `baseline.study.sweet_spots` on sweeps that were never measured."""

import os
import subprocess

from matplotlib import figure as mpl_figure
import numpy as np
from PIL import Image
import pytest

from actorQ.core import errors
from baseline import collate
from baseline.study import rows as rows_lib
from baseline.study import sweep_plots
from baseline.study import sweeps as sweeps_lib
from baseline.study import sweet_spots
from tests.baseline import sweep_rows

BOTH = "weights+activations"


def both_schemes(**settings):
    rows = sweep_rows.make_sweep(**settings)
    return rows + sweep_rows.make_sweep(scheme=BOTH, **{"knee": 7.0, **settings})[1:]


def write_rows(path, rows):
    for row in rows:
        rows_lib.append(str(path), row)
    return str(path)


def check_png(path):
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("L"))
    assert min(pixels.shape) > 300
    assert (pixels < 128).mean() > 0.005  # Something is drawn.


def panel_of(rows):
    (sweep,) = sweeps_lib.sweeps(rows)
    return sweet_spots.make_panel(sweep, "title")


def drawn(panel, **settings):
    ax = mpl_figure.Figure().subplots()
    sweep_plots.draw_panel(ax, panel, sweep_plots.Words(), **settings)
    return ax


def test_make_panel_has_means_intervals_and_seeds():
    rows = both_schemes(widths=("fp16", "8", "4"), noise=30.0)
    panel = panel_of(rows)
    assert [series.label for series in panel.series] == ["weights", "weights and activations"]
    assert [point.bits for point in panel.series[0].points] == ["fp16", "8", "4"]
    point, row = panel.series[0].points[1], rows[2]
    assert (point.bits, row.bits) == ("8", "8")
    assert point.mean == pytest.approx(np.mean(row.returns))
    assert point.low < point.mean < point.high
    expected = [np.mean(row.returns[start : start + 10]) for start in (0, 10, 20)]
    assert point.seed_means == pytest.approx(expected)
    assert panel.fp32.mean == rows[0].mean


def test_make_panel_marks_best_and_sweet_spot():
    # Losses: 2^(2 (5 - bits)) of the reward: 1.6 % at 8 bits, 25 % at 6.
    panel = panel_of(sweep_rows.make_sweep(knee=5.0, noise=1.0, widths=("16", "8", "6", "4")))
    assert (panel.series[0].best, panel.series[0].fewest) == ("16", "8")


def test_draw_panel_axis_runs_from_wide_to_narrow_with_halves_apart():
    ax = drawn(panel_of(both_schemes()))
    left, right = ax.get_xlim()
    assert left > 32 > 2 > right
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert set(labels) == {"fp16", "bf16", *sweep_rows.WIDTHS}
    places = dict(zip(labels, ax.get_xticks(), strict=True))
    assert places["bf16"] > places["fp16"] > places["32"] == 32


def test_draw_panel_draws_the_means():
    panel = panel_of(sweep_rows.make_sweep(widths=("8", "4", "2")))
    line = next(line for line in drawn(panel).lines if len(line.get_xdata()) == 3)
    assert list(line.get_xdata()) == [8, 4, 2]
    assert list(line.get_ydata()) == [point.mean for point in panel.series[0].points]


def test_draw_panel_equal_rewards_stay_a_flat_line():
    rows = sweep_rows.make_sweep(reward=500.0, noise=0.0, widths=("32", "30"))
    low, high = drawn(panel_of(rows)).get_ylim()
    assert low < 450 and high > 550


@pytest.mark.parametrize("small", (False, True))
@pytest.mark.parametrize(
    "settings",
    (
        {"widths": ("8",)},
        {"widths": ("fp16",)},
        {"episodes": 1, "seeds": "0"},
        {"episodes": 2, "seeds": "0,2,4"},  # A seed without an episode.
        {"reward": 0.0, "noise": 0.0},
        {"reward": -1500.0, "noise": 300.0},
        {"widths": ("13", "7", "3")},
    ),
)
def test_draw_panel_of_little_data_works(settings, small):
    drawn(panel_of(sweep_rows.make_sweep(**settings)), small=small)


def test_collate_one_pair_writes_its_figure_and_numbers(tmp_path):
    rows = both_schemes(algo="ppo", env="LunarLander-v2", noise=1.0)
    text, paths = sweet_spots.collate(rows, ("ppo", "LunarLander-v2"), str(tmp_path / "new"))
    assert paths == [str(tmp_path / "new" / "ppo_LunarLander-v2.png")]
    check_png(paths[0])
    assert "ppo LunarLander-v3, 30 episodes (seeds 0, 2, 4)" in text
    lines = [line for line in text.splitlines() if line.startswith("| weights")]
    assert len(lines) == 2 * 18
    assert "sweet spot, the fewest bits not shown to cost more than 2 % of the reward: 8" in text
    # Today's name will do as well.
    assert sweet_spots.collate(rows, ("ppo", "LunarLander-v3"), str(tmp_path))[0] == text


def test_collate_all_writes_every_figure_and_grids(tmp_path):
    rows = both_schemes(algo="ppo", env="ALE/Pong-v5")
    for env in ("A-v0", "B-v0", "C-v0", "D-v0"):
        rows += sweep_rows.make_sweep("a2c", env, widths=("16", "8", "2"))
    rows += sweep_rows.make_sweep("dqn", "OnlyFp32-v0", widths=())
    text, paths = sweet_spots.collate(rows, None, str(tmp_path))
    assert sorted(map(os.path.basename, paths)) == [
        "a2c_A-v0.png", "a2c_B-v0.png", "a2c_C-v0.png", "a2c_D-v0.png",
        "overview_a2c.png", "overview_ppo.png", "ppo_ALE_Pong-v5.png",
    ]
    for path in paths:
        check_png(path)
    assert len([line for line in text.splitlines() if line.startswith("| ")]) == 2 + 4 + 2


def test_collate_of_what_was_not_measured_names_the_command(tmp_path):
    rows = sweep_rows.make_sweep("ppo", "CartPole-v1")
    rows += sweep_rows.make_sweep("ppo", "OnlyFp32-v0", widths=())
    rows += sweep_rows.make_sweep("ppo", "NoFp32-v0")[1:]
    rows += sweep_rows.make_sweep("ppo", "Floor-v0", widths=("8",), rounding="floor")
    rows += sweep_rows.make_sweep("ppo", "Others-v0", widths=("8",), episodes=12)[1:]
    rows += sweep_rows.make_sweep("ppo", "Others-v0", widths=())
    for env, reason in (
        ("Ant-v3", "Nothing is measured of ppo Ant-v3 .*CartPole-v1"),
        ("OnlyFp32-v0", "only fp32"),
        ("NoFp32-v0", "no fp32 row"),
        ("Floor-v0", "no row of paper granularity and nearest rounding with fp32's seeds"),
        ("Others-v0", "no row of paper granularity and nearest rounding with fp32's seeds and "
         "episodes"),
    ):
        with pytest.raises(errors.UserError, match=f"{reason}.*benchmark.sh ppo {env}"):
            sweet_spots.collate(rows, ("ppo", env), str(tmp_path))
    for pair, names in ((None, "ALGO ENV"), (("ppo", "Floor-v0"), "ppo Floor-v0")):
        with pytest.raises(
            errors.UserError,
            match=f"channel granularity.*benchmark.sh {names} --granularity channel measures",
        ):
            sweet_spots.collate(rows, pair, str(tmp_path), granularity="channel")


def test_collate_of_other_settings_names_them_and_keeps_the_papers(tmp_path):
    rows = sweep_rows.make_sweep("ppo", "CartPole-v1", widths=("8",))
    rows += sweep_rows.make_sweep(
        "ppo", "CartPole-v1", widths=("8",), granularity="channel", rounding="floor"
    )[1:]
    pair = ("ppo", "CartPole-v1")
    _, (papers,) = sweet_spots.collate(rows, pair, str(tmp_path))
    text, (other,) = sweet_spots.collate(
        rows, pair, str(tmp_path), granularity="channel", rounding="floor"
    )
    assert [os.path.basename(path) for path in (papers, other)] == [
        "ppo_CartPole-v1.png", "ppo_CartPole-v1_channel_floor.png"
    ]
    assert ", channel granularity, floor rounding\n" in text
    _, drawn = sweet_spots.collate(
        rows, None, str(tmp_path), granularity="channel", rounding="floor"
    )
    assert os.path.basename(drawn[-1]) == "overview_ppo_channel_floor.png"


def test_command_takes_ppo2_and_writes_beside_the_results(tmp_path, run_commands):
    path = write_rows(tmp_path / "out" / "ptq.csv", sweep_rows.make_sweep(widths=("8", "2")))
    (done,) = run_commands("collate", [["ppo2", "CartPole-v1", "--results", path]], cwd=tmp_path)
    assert done.code == 0, done
    assert done.out.splitlines()[-1] == str(tmp_path / "out" / "plots" / "ppo_CartPole-v1.png")
    check_png(done.out.splitlines()[-1])


@pytest.mark.parametrize(
    "arguments, message",
    (
        (["ppo", "CartPole-v1"], "no results in quantized/ptq.csv"),
        (["ppo"], "takes an algorithm and an environment"),
        (["--all", "ppo", "CartPole-v1"], "takes an algorithm and an environment"),
    ),
)
def test_command_mistakes_get_one_line(tmp_path, run_commands, arguments, message):
    (done,) = run_commands("collate", [arguments], cwd=tmp_path)
    assert message in done.error("collate")


def test_create_all_pngs_draws_all(tmp_path):
    path = write_rows(tmp_path / "ptq.csv", sweep_rows.make_sweep(widths=("8", "2")))
    script = os.path.join(os.path.dirname(collate.__file__), "create_all_pngs.sh")
    done = subprocess.run(
        [script, path, f"--out={tmp_path}/here"],
        capture_output=True, text=True, cwd=tmp_path, timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(tmp_path / "here")) == ["overview_ppo.png", "ppo_CartPole-v1.png"]
