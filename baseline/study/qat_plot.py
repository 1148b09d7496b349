"""Lays a study of quantization-aware training out as the paper draws it: fp32, 8*, then 8 to 2.

8* is the fp32 agent quantized to int8 after training. Beyond the paper: the same agents quantized
after training to every width, for comparison.
"""

from collections.abc import Mapping
from collections.abc import Sequence

from baseline.study import qat_comparison
from baseline.study import qat_study
from baseline.study import sweep_panel
from baseline.study.qat_rows import TrainedRow

_INT8_NOTE = "8*: the fp32 agents quantized to int8 after training"
_PTQ_LABEL = "PTQ of the fp32 agents"
_COLOURS = {"frozen": sweep_panel.BLUE, "moving": sweep_panel.GREEN}  # Of QAT, by ranges.


def words(studies: Sequence[qat_study.Study]) -> sweep_panel.Words:
    """Returns what the legend of plots of these studies says."""
    with_int8 = any(study.ptq and "8" in study.ptq.rows for study in studies)
    return sweep_panel.Words(
        "lowest to highest training seed", "each training seed", _INT8_NOTE if with_int8 else ""
    )


def make_panels(studies: Sequence[qat_study.Study]) -> list[sweep_panel.Panel]:
    """Returns what a plot of each study shows; the same curve has one name in all of them."""
    several = len({sweep.kind.ranges for study in studies for sweep in study.qat}) > 1
    return [_make_panel(study, several) for study in studies]


def _make_panel(study: qat_study.Study, several_ranges: bool) -> sweep_panel.Panel:
    """Lays out fp32, QAT as the strong and PTQ as the light line, over training seeds."""
    series = []
    for sweep in study.qat:
        ranges = sweep.kind.ranges
        label = f"QAT, {ranges} ranges" if several_ranges else "QAT"
        series.append(sweep_panel.Series(label, _COLOURS[ranges], _points(sweep)))
    if study.ptq is not None:
        points = _points(study.ptq)
        int8 = [point._replace(bits=sweep_panel.INT8) for point in points if point.bits == "8"]
        series.append(
            sweep_panel.Series(
                _PTQ_LABEL, sweep_panel.VERMILLION, [*int8, *points], light=True
            )
        )
    fp32 = _point(sweep_panel.FP32, study.control)
    return sweep_panel.Panel(_title(study), fp32, series, fp32_place=True)


def _title(study: qat_study.Study) -> str:
    trainings, episodes = len(study.train_seeds), study.any_control.episodes
    sweeps = [*study.qat, *([study.ptq] if study.ptq else [])]
    counts = [len(rows) for sweep in sweeps for rows in sweep.rows.values()]
    up_to = "up to " if min(len(study.control), *counts) < trainings else ""
    return (
        f"{study.algo} {study.shown_env}, {up_to}{trainings} training seed{'s' * (trainings > 1)}, "
        f"{episodes} episode{'s' * (episodes > 1)} each"
    )


def _points(sweep: qat_study.Sweep) -> list[sweep_panel.Point]:
    return [_point(bits, rows) for bits, rows in sweep.rows.items()]


def _point(bits: str, rows: Mapping[int, TrainedRow]) -> sweep_panel.Point:
    """Returns a point whose band reaches from the lowest to the highest training."""
    found = qat_comparison.cell(rows)
    low, high = min(found.seed_means), max(found.seed_means)
    if len(found.seeds) == 1:
        low = high = None
    return sweep_panel.Point(bits, found.mean, low, high, found.seed_means)
