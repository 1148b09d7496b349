"""Lays out QAT's rewards beside PTQ and full precision, as Markdown and as rows of a CSV."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from actorQ.core import output
from baseline.study import intervals
from baseline.study import qat_comparison
from baseline.study import rows as rows_lib
from baseline.study import sweeps
from baseline.study.qat_comparison import Cell
from baseline.study.qat_comparison import Comparison
from baseline.study.qat_rows import TrainedRow

_TOLERATED = f"{100 * sweeps.TOLERATED_LOSS:g} %"
_HEADER = (
    "Bits", "QAT", "PTQ", "fp32", "QAT - PTQ [95 % interval]", "E, QAT", "E, PTQ", "Better",
    "Seeds", "Bytes",
)
_SUMMARY_HEADER = (
    "Agent", "Trainings", "fp32", "Fewest bits, QAT", "Fewest bits, PTQ", "QAT >= PTQ",
    "QAT better", "PTQ better",
)
NOTES = (
    "QAT, PTQ and fp32: mean return, ± the standard deviation of the training seeds' means. Seeds: "
    "the number of trainings of each. PTQ is the fp32 agent of the same training seed, quantized.",
    "QAT - PTQ: the difference over training seeds that both have. Interval: bootstrap over "
    "training seeds, within each over its episodes, paired by seed and start. With three trainings "
    "it is coarse: it reaches about from the lowest training to the highest. Better: the method "
    "that the interval shows to be better; one training shows nothing.",
    "E = (fp32 - q) / |fp32|: the share of fp32's mean return that is lost, over training seeds "
    f"that both have; {output.NOT_AVAILABLE} where the interval of fp32's mean includes zero.",
    "Fewest bits: the narrowest width at which, as at all wider ones measured, E is at most "
    f"{_TOLERATED}. QAT >= PTQ: the number of shared widths at which it holds. Trainings: the "
    "fewest that a width has, to the most.",
    "Bytes: the acting path's weights, packed, their scales, and biases in fp32.",
)


class Compared(NamedTuple):
    """A sweep of QAT with its study and its comparisons, the widest first."""

    study: qat_comparison.Study
    sweep: qat_comparison.TrainedSweep
    widths: Sequence[Comparison]

    @property
    def name(self) -> str:
        """Algorithm and environment, and the kind if the study has two of them."""
        ranges = f", {self.sweep.kind.name}" if len(self.study.qat) > 1 else ""
        return f"{self.study.algo} {self.study.shown_env}{ranges}"


def compared(studies: Sequence[qat_comparison.Study]) -> list[Compared]:
    """Returns the comparisons of every sweep of every study."""
    return [
        Compared(study, sweep, qat_comparison.compare(study, sweep))
        for study in studies
        for sweep in study.qat
    ]


def markdown(found: Sequence[Compared]) -> str:
    """Returns the summary, a table for each sweep, and what the columns mean."""
    cells = [_summary_cells(one) for one in found]
    parts = [f"## QAT against PTQ\n\n{output.markdown_table(_SUMMARY_HEADER, cells)}"]
    for one in found:
        digits = _digits(one)
        table = output.markdown_table(
            _HEADER, [_width_cells(one.study, width, digits) for width in one.widths]
        )
        facts = "".join(f"- {line}\n" for line in _facts(one))
        parts.append(f"## {one.name}\n\n{table}\n{facts}")
    parts.append("".join(f"- {note}\n" for note in NOTES))
    return "\n".join(parts)


def csv_rows(found: Sequence[Compared]) -> list[dict[str, Any]]:
    """Returns a row for every width of every sweep; E in percent."""
    rows: list[dict[str, Any]] = []
    for study, sweep, widths in found:
        control = study.any_control
        fp32 = qat_comparison.cell(study.control)
        for width in widths:
            difference = width.difference or intervals.Interval(None, None, None)
            rows.append(
                {
                    "algo": study.algo, "env": study.shown_env,
                    "train_steps": control.train_steps, "hyperparams": control.hyperparams,
                    "evaluation_seeds": control.seeds, "episodes": control.episodes,
                    **sweep.kind._asdict(), "bits": width.bits,
                    **_csv_cell("qat", width.qat),
                    **_csv_cell("ptq", width.ptq),
                    **_csv_cell("fp32", fp32),
                    "difference": difference.error, "difference_low": difference.low,
                    "difference_high": difference.high,
                    "error_qat": _percent(width.qat_error), "error_ptq": _percent(width.ptq_error),
                    "better": width.better, "bytes": width.num_bytes,
                }
            )
    return rows


def _summary_cells(one: Compared) -> list[str]:
    summary = qat_comparison.summary(one.widths)
    counts = [
        f"{count} of {summary.compared}" if summary.compared else output.NOT_AVAILABLE
        for count in (summary.at_least, summary.qat_better, summary.ptq_better)
    ]
    return [
        one.name,
        _trainings(one),
        _mean(qat_comparison.cell(one.study.control), _digits(one)),
        _fewest(summary.qat_fewest, [width.qat_error for width in one.widths]),
        _fewest(summary.ptq_fewest, [width.ptq_error for width in one.widths]),
        *counts,
    ]


def _trainings(one: Compared) -> str:
    """Returns '3', or '2 to 3' where a width lacks trainings."""
    cells = [side for width in one.widths for side in (width.qat, width.ptq) if side]
    least = min(len(one.study.control), *(len(side.seeds) for side in cells))
    most = len(one.study.train_seeds)
    return str(most) if least == most else f"{least} to {most}"


def _fewest(bits: str | None, errors: Sequence[float | None]) -> str:
    if all(error is None for error in errors):
        return output.NOT_AVAILABLE
    return bits or "none"


def _width_cells(study: qat_comparison.Study, width: Comparison, digits: int) -> list[str]:
    difference = output.NOT_AVAILABLE
    if width.difference is not None:
        numbers = [n for n in width.difference[:3] if n is not None]
        first, *ends = (intervals.fixed(number, digits) for number in numbers)
        difference = f"{first} [{', '.join(ends)}]" if ends else first
    return [
        width.bits,
        _mean(width.qat, digits),
        _mean(width.ptq, digits),
        _mean(qat_comparison.cell(study.control), digits),
        difference,
        _share(width.qat_error),
        _share(width.ptq_error),
        width.better or output.NOT_AVAILABLE,
        _seeds(study, width),
        str(width.num_bytes),
    ]


def _seeds(study: qat_comparison.Study, width: Comparison) -> str:
    """Returns '3', or 'QAT 3, PTQ 2, fp32 3' where these are not the same trainings."""
    seeds = {
        "QAT": width.qat.seeds if width.qat else (),
        "PTQ": width.ptq.seeds if width.ptq else (),
        "fp32": tuple(study.control),
    }
    if len(set(seeds.values())) == 1:
        return str(len(study.control))
    return ", ".join(f"{name} {len(found)}" for name, found in seeds.items())


def _facts(one: Compared) -> list[str]:
    """Returns lines on the trainings, on missing rows and on rows that were left out."""
    study, control = one.study, one.study.any_control
    replaced = f", {control.hyperparams}" if control.hyperparams else ""
    facts = [
        f"Trained for {control.train_steps} steps with {_named(study.train_seeds)}{replaced}; "
        f"evaluated on {control.episodes} episodes each ({_named(control.seeds.split(','))}).",
        f"QAT: quantized from step {one.sweep.kind.quant_delay} on, {_kind(one.sweep.kind)}.",
    ]
    if study.ptq:
        facts.append(f"PTQ: {_kind(study.ptq.kind)}.")
    lacking = _lacking("QAT", one.sweep.rows, one)
    lacking += _lacking("PTQ", study.ptq.rows, one) if study.ptq else ["PTQ"]
    seeds = [seed for seed in study.train_seeds if seed not in study.control]
    if seeds:
        lacking.append(f"fp32 of {_named(seeds)}")
    if lacking:
        facts.append(f"Not measured: {'; '.join(lacking)}.")
    if study.left_out:
        rows = "row is" if study.left_out == 1 else "rows are"
        facts.append(
            f"{study.left_out} other {rows} left out: other trainings or evaluations of this pair."
        )
    return facts


def _kind(kind: qat_comparison.Kind) -> str:
    bits = kind.input_bits
    # "calibrated-30": see `qat_rows.calibrated`; "frozen-99": see `QatSettings.ranges_text`.
    ranges, _, rest = kind.ranges.partition("-")
    number, _, method = rest.partition("-")
    start = f" over {number} episodes" if kind.quant_delay is None else f" from {number} %"
    start += f" by {method}" if method else ""
    further = rows_lib.in_words(granularity=kind.granularity)
    return (
        f"ranges {ranges}{start if number else ''}{further}"
        f"{f', bits {kind.widths}' if kind.widths else ''}, observations "
        f"{'not quantized' if bits is None else f'at {bits} bits'}, output "
        f"{'quantized' if kind.output else 'not quantized'}"
    )


def _lacking(
    name: str, rows: Mapping[str, Mapping[int, TrainedRow]], one: Compared
) -> list[str]:
    """Returns 'QAT of seed 1 at 3, 2 bits' for trainings without some of the widths."""
    seeds_by_widths: dict[tuple[str, ...], list[int]] = {}
    for seed in one.study.train_seeds:
        widths = tuple(w.bits for w in one.widths if seed not in rows.get(w.bits, {}))
        seeds_by_widths.setdefault(widths, []).append(seed)
    return [
        f"{name} of {_named(seeds)} at {', '.join(widths)} bits"
        for widths, seeds in seeds_by_widths.items()
        if widths
    ]


def _named(seeds: Sequence[int | str]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _digits(one: Compared) -> int:
    """Returns the number of decimals of returns, one for all of a pair."""
    largest = abs(qat_comparison.cell(one.study.control).mean)
    return 0 if largest >= 1000 else 1 if largest >= 10 else 2


def _mean(side: Cell | None, digits: int) -> str:
    if side is None:
        return output.NOT_AVAILABLE
    text = intervals.fixed(side.mean, digits)
    return text if side.std is None else f"{text} ± {intervals.fixed(side.std, digits)}"


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _share(share: float | None) -> str:
    return output.NOT_AVAILABLE if share is None else f"{intervals.fixed(100 * share, 1)} %"


def _csv_cell(name: str, side: Cell | None) -> dict[str, Any]:
    if side is None:
        return {f"{name}_mean": None, f"{name}_std": None, f"{name}_seeds": None}
    seeds = " ".join(map(str, side.seeds))
    return {f"{name}_mean": side.mean, f"{name}_std": side.std, f"{name}_seeds": seeds}
