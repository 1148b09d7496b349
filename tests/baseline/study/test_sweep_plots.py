"""Tests `baseline.study.sweep_plots` on studies of QAT: panels, and what matplotlib is given."""

import dataclasses

from matplotlib import figure as mpl_figure
import pytest

from baseline.study import qat_collate
from baseline.study import qat_comparison
from baseline.study import qat_rows
from baseline.study import sweep_plots
from tests.baseline import trained_rows


def panel_of(rows):
    (panel,) = qat_collate.make_panels(qat_comparison.studies(rows))
    return panel


def drawn(panel, **settings):
    figure = mpl_figure.Figure()
    ax = figure.subplots()
    sweep_plots.draw_panel(ax, panel, settings.pop("words", sweep_plots.Words()), **settings)
    return ax


def labels_of(panel, **settings):
    return sorted(drawn(panel, **settings).get_legend_handles_labels()[1], key=str.lower)


def moving(rows):
    return [row for row in trained_rows.make_study(ranges="moving") if row.method == "qat"]


def test_panel_has_fp32_qat_and_ptq_with_bands_over_trainings():
    panel = panel_of(trained_rows.make_study(spread=10.0))
    assert panel.title == "ppo CartPole-v1, 3 training seeds, 6 episodes each"
    assert panel.fp32 == ("fp32", 110.0, 100.0, 120.0, (100.0, 110.0, 120.0))
    qat, ptq = panel.series
    assert [point.bits for point in qat.points] == list("8765432")
    assert qat.points[-1] == ("2", 50.0, 40.0, 60.0, (40.0, 50.0, 60.0))
    assert (qat.label, qat.light, ptq.light) == ("QAT", False, True)
    assert [point.bits for point in ptq.points] == ["8*", *"8765432"]
    assert ptq.points[0][1:] == ptq.points[1][1:]
    assert ptq.points[-1].mean == 10.0


def test_draw_panel_axis_is_the_papers():
    ax = drawn(panel_of(trained_rows.make_study()))
    labels = {tick: label.get_text() for tick, label in zip(
        ax.get_xticks(), ax.get_xticklabels(), strict=True
    )}
    assert [labels[tick] for tick in sorted(labels, reverse=True)] == ["fp32", "8*", *"8765432"]
    left, right = ax.get_xlim()
    assert left > max(labels) and right < 2
    ticks = sorted(labels, reverse=True)
    assert ticks[1] - ticks[2] > ticks[2] - ticks[3]  # The gutter.


def test_draw_panel_draws_lines_dots_and_bands():
    ax = drawn(panel_of(trained_rows.make_study(spread=10.0)))
    curves = [line for line in ax.lines if len(line.get_xdata()) == 7]
    qat, ptq = curves
    assert list(qat.get_xdata()) == [8, 7, 6, 5, 4, 3, 2]
    assert list(qat.get_ydata()) == pytest.approx([110.0] * 6 + [50.0])
    assert qat.get_linewidth() > ptq.get_linewidth() and qat.get_zorder() > ptq.get_zorder()
    dots = [line for line in ax.lines if line.get_marker() == "."]
    assert len(dots) == 1 + 7 + 8
    assert {tuple(line.get_ydata()) for line in dots} >= {(100, 110, 120), (40, 50, 60)}
    (dashed,) = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert set(dashed.get_ydata()) == {110.0}
    (span,) = ax.patches
    assert (span.get_y(), span.get_y() + span.get_height()) == pytest.approx((100.0, 120.0))
    assert [line.get_marker() for line in ax.lines].count("D") == 2
    assert not [
        line for line in drawn(panel_of(trained_rows.make_study(spread=10.0)), small=True).lines
        if line.get_marker() == "."
    ]


@pytest.mark.parametrize("reward", (500.0, -200.0, 0.0))
def test_draw_panel_equal_rewards_stay_a_flat_line_in_the_middle(reward):
    nothing = {bits: 0.0 for bits in trained_rows.WIDTHS}
    ax = drawn(panel_of(trained_rows.make_study(reward, qat=nothing, ptq=nothing)))
    low, high = ax.get_ylim()
    assert (low + high) / 2 == pytest.approx(reward, abs=1e-9)
    assert high - low >= max(abs(reward) / 4, 0.01)


@pytest.mark.parametrize("small", (False, True))
@pytest.mark.parametrize(
    "settings",
    (
        {"train_seeds": (5,)},
        {"ptq": {}},
        {"qat": {"4": 0.0}, "ptq": {}},
        {"qat": {"4": 0.0}, "ptq": {"2": 3.0}},
        {"qat": {"16": 0.0, "8": 0.0, "2": 3.0}},
        {"reward": -1500.0, "spread": 100.0},
    ),
)
def test_draw_panel_of_little_data_works(settings, small):
    ax = drawn(panel_of(trained_rows.make_study(**settings)), small=small)
    assert "fp32" in [label.get_text() for label in ax.get_xticklabels()]


def test_panel_of_one_training_has_no_bands():
    panel = panel_of(trained_rows.make_study(train_seeds=(5,)))
    assert panel.title.startswith("ppo CartPole-v1, 1 training seed,")
    assert {point.low for series in panel.series for point in series.points} == {None}
    assert not drawn(panel).patches
    for small in (False, True):
        assert labels_of(panel, small=small) == ["fp32", "PTQ of the fp32 agents", "QAT"]


def test_panel_with_missing_trainings_says_up_to():
    panel = panel_of(trained_rows.make_study()[:-1])
    assert "up to 3 training seeds" in panel.title
    assert panel.series[1].points[-1].seed_means == (0.0, 0.0)


def test_frozen_and_moving_are_two_curves_of_the_same_names_in_every_panel():
    rows = trained_rows.make_study()
    rows += moving(rows)
    rows += trained_rows.make_study(env="Acrobot-v1", ptq={})
    alone, both = qat_collate.make_panels(qat_comparison.studies(rows))
    assert [series.label for series in alone.series] == ["QAT, frozen ranges"]
    assert [series.label for series in both.series] == [
        "QAT, frozen ranges", "QAT, moving ranges", "PTQ of the fp32 agents",
    ]
    colours = [series.colour for series in both.series]
    assert len(set(colours)) == 3 and alone.series[0].colour == colours[0]


def test_kinds_of_the_same_ranges_have_colours_of_their_own():
    rows = trained_rows.make_study()
    rows += [
        dataclasses.replace(row, widths="last:8") for row in rows if row.method == qat_rows.QAT
    ]
    panel = panel_of(rows)
    assert [series.label for series in panel.series] == [
        "QAT, frozen ranges", "QAT, frozen ranges, last:8", "PTQ of the fp32 agents",
    ]
    assert len({series.colour for series in panel.series}) == 3


def test_words_tell_what_bands_dots_and_8_are():
    studies = qat_comparison.studies(trained_rows.make_study(spread=1.0))
    words = qat_collate.words(studies)
    (panel,) = qat_collate.make_panels(studies)
    curves = {"fp32", "QAT", "PTQ of the fp32 agents", "band: lowest to highest training seed"}
    assert set(labels_of(panel, words=words)) == curves | {"dots: each training seed"}
    assert set(labels_of(panel, words=words, small=True)) == curves
    assert words.note.startswith(sweep_plots.INT8)
    assert qat_collate.words(qat_comparison.studies(trained_rows.make_study(ptq={}))).note == ""
