"""The report on time to reward: table, bars as in the paper, learning curves, energy and CO2.

Medians over the seeds. A seed that missed the reward within its time counts with "more than that":
where it decides the median, the median is a bound too. Imports no framework but matplotlib.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from actorQ.experiments import reporting
from actorQ.experiments import results as results_lib
from actorQ.experiments import specification
from actorQ.experiments import training
from actorQ.scripts import curves
from actorQ.scripts import paper
from actorQ.scripts import speedup_table

_BARS_PNG = "speedup.png"
_PAPER_COLOUR = "0.6"
# arXiv:1910.01055, journal version, abstract: carbon emissions against full-precision training.
_PAPER_CO2 = "1.9 to 3.76"


@dataclasses.dataclass(frozen=True)
class Row:
    """All seeds of one task and precision."""

    task: str
    precision: int
    results: Sequence[results_lib.Result]
    reaches: Sequence[speedup_table.Reach]
    median: speedup_table.Reach

    @property
    def reached(self) -> int:
        """How many seeds reached the reward."""
        return sum(reach.reached for reach in self.reaches)

    def text(self) -> str:
        """Returns the median, and how many seeds reached the reward unless all did."""
        all_of_them = self.reached == len(self.reaches)
        count = "" if all_of_them else f" ({self.reached} of {len(self.reaches)})"
        return self.median.text() + count

    @property
    def final_rewards(self) -> list[float]:
        """Mean return of the last policy of every seed that has one."""
        rewards = [result.measured.final_reward for result in self.results]
        return [reward for reward in rewards if reward is not None]


def write(material: reporting.Material) -> str:
    """Writes tables and figures into the report's folder; returns the tables."""
    tasks = material.tasks()
    table = {
        task: {
            bits: row
            for bits in material.precisions()
            if (row := _row(task, bits, material.group(task, bits)))
        }
        for task in tasks
    }
    text = _summary(table, material.precisions()) + "\n" + _details(table)
    text += "\n" + reporting.bullets([*_notes(table), *reporting.notes(material)])
    energy = _energy(table)
    if energy:
        text += "\n" + energy
    for task, rows in table.items():
        if comparison := _comparison(task, rows):
            name = f"convergence_{specification.short_task(task)}.png"
            verbs = ("median to hold it", "not held (median) in")
            speedup_table.draw(comparison, material.path(name), verbs)
    if any(len(rows) > 1 for rows in table.values()):
        _draw_bars(table, material.path(_BARS_PNG))
    if rows := _csv_rows(table):
        curves.write_csv(material.path("time_to_reward.csv"), rows)
    return text


def median_reach(reaches: Sequence[speedup_table.Reach]) -> speedup_table.Reach:
    """Returns the median; it is a bound where what censored runs would have taken matters."""
    least = float(np.median([reach.seconds for reach in reaches]))
    most = float(
        np.median([reach.seconds if reach.reached else math.inf for reach in reaches])
    )
    evaluation_s = float(np.median([reach.evaluation_s for reach in reaches]))
    return speedup_table.Reach(least, evaluation_s, least == most)


def _row(task: str, bits: int, found: Sequence[results_lib.Result]) -> Row | None:
    reaches = []
    for result in found:
        measured = result.measured
        if measured.time_to_target_s is not None:
            reaches.append(
                speedup_table.Reach(
                    measured.time_to_target_s, measured.evaluation_to_target_s or 0.0, True
                )
            )
        elif measured.censored_at_s is not None:
            reaches.append(
                speedup_table.Reach(
                    measured.censored_at_s,
                    measured.rewards.evaluation_s[-1] if measured.rewards.evaluation_s else 0.0,
                    False,
                )
            )
    return Row(task, bits, found, reaches, median_reach(reaches)) if reaches else None


def _speedup(rows: dict[int, Row], bits: int) -> speedup_table.Speedup | None:
    if bits == 32 or 32 not in rows or bits not in rows:
        return None
    return speedup_table.speedup_between(rows[32].median, rows[bits].median)


def _target(rows: dict[int, Row]) -> float:
    return next(iter(rows.values())).results[0].measured.target


def _summary(table: dict[str, dict[int, Row]], precisions: Sequence[int]) -> str:
    quantized = [bits for bits in precisions if bits != 32]
    header = ["Task", "Reward", *(f"{reporting.precision_name(bits)} s" for bits in precisions)]
    header += [f"{reporting.precision_name(bits)} speed-up" for bits in quantized]
    header += ["paper: reward", "fp32 s", "int8 s", "int8 speed-up"]
    lines = []
    for task, rows in table.items():
        if not rows:
            continue
        line = [task, f"{_target(rows):.2f}"]
        line += [rows[bits].text() if bits in rows else reporting.NOTHING for bits in precisions]
        for bits in quantized:
            speedup = _speedup(rows, bits)
            line.append(speedup.text() if speedup else reporting.NOTHING)
        published = paper.SPEEDUPS.get(task)
        line += [f"{value:.2f}" for value in published[1:]] if published else [
            reporting.NOTHING
        ] * 4
        lines.append(line)
    return curves.markdown_table(header, lines)


def _details(table: dict[str, dict[int, Row]]) -> str:
    header = [
        "Task", "Actors", "Time to reward by seed, s", "evaluation in it, s", "Final reward",
        "Actor steps/s", "vs. fp32", "Learner steps/s", "Data used",
    ]
    lines = []
    for task, rows in table.items():
        for bits, row in rows.items():
            measured = [result.measured for result in row.results]
            rates = [item.actor_steps_per_s for item in measured]
            wide = [r.measured.actor_steps_per_s for r in rows[32].results] if 32 in rows else []
            used = [item.data_used for item in measured if item.data_used is not None]
            lines.append([
                specification.short_task(task),
                reporting.precision_name(bits),
                ", ".join(reach.text() for reach in row.reaches),
                curves.number(row.median.evaluation_s),
                reporting.mean_and_deviation(row.final_rewards),
                reporting.mean(rates, 0),
                _ratio(rates, wide) if bits != 32 else "1",
                reporting.mean([item.learner_steps_per_s for item in measured], 2),
                f"{100 * float(np.mean(used)):.0f} %" if used else reporting.NOTHING,
            ])
    return curves.markdown_table(header, lines)


def _ratio(values: Sequence[float | None], base: Sequence[float | None]) -> str:
    known, wide = ([v for v in side if v is not None] for side in (values, base))
    if not known or not wide or not np.mean(wide):
        return reporting.NOTHING
    return f"{np.mean(known) / np.mean(wide):.2f}"


def _notes(table: dict[str, dict[int, Row]]) -> list[str]:
    lines = [
        "Times are medians over the seeds, from the launch, evaluation included. The reward counts "
        "as held from the first evaluation on at which the running mean had reached it in as many "
        "evaluations in a row as the stop rule says (settings stop_smoothing and stop_window).",
        "'>': not held within that time; such a seed stays in the median, which becomes a bound "
        "where it matters.",
        "Evaluation is the learner's, full-precision at every precision of the actors: one episode "
        "every so many learner steps, so that it costs the same for the same progress.",
        "Data used: samples that the learner took, of those that the actors' inserts allow. Near "
        "100 % the actors are the bottleneck, below it the learner is.",
    ]
    for task, rows in table.items():
        for row in rows.values():
            diverged = [
                f"seed {result.seed}" for result in row.results
                if result.measured.outcome == results_lib.DIVERGED
            ]
            if diverged:
                lines.append(
                    f"{task}, {reporting.precision_name(row.precision)}: training diverged in "
                    f"{', '.join(diverged)}."
                )
        if 32 in rows and len(rows[32].final_rewards) > 1:
            wide = rows[32].final_rewards
            least = float(np.mean(wide) - np.std(wide, ddof=1))
            for bits, row in rows.items():
                if bits != 32 and row.final_rewards and np.mean(row.final_rewards) < least:
                    lines.append(
                        f"**{task}: final reward of {reporting.precision_name(bits)} "
                        f"({np.mean(row.final_rewards):.1f}) is below fp32's mean less its "
                        f"standard deviation ({least:.1f}).**"
                    )
    return lines


def _comparison(task: str, rows: dict[int, Row]) -> speedup_table.Comparison | None:
    """Returns what `speedup_table` draws."""
    sides = []
    for bits, row in rows.items():
        seeds = [result for result in row.results if result.measured.rewards.seconds]
        if not seeds:
            continue
        curve_list = [_curve(result) for result in seeds]
        sides.append(
            speedup_table.Side(
                bits, [training.as_run(result) for result in seeds], curve_list,
                curves.mean_curve(curve_list), row.median, list(row.reaches), math.nan, math.nan,
            )
        )
    if not sides:
        return None
    result = rows[sides[0].precision].results[0]
    algorithm = str(result.settings.get("algorithm", result.kind))
    return speedup_table.Comparison(
        task, algorithm, _target(rows), True, result.measured.window, sides, []
    )


def _curve(result: results_lib.Result) -> curves.Curve:
    rewards = result.measured.rewards
    returns = np.asarray(rewards.returns)
    return curves.Curve(
        np.asarray(rewards.seconds), returns,
        curves.running_mean(returns, result.measured.window), np.asarray(rewards.evaluation_s),
    )


def _draw_bars(table: dict[str, dict[int, Row]], path: str) -> str:
    """Draws speed-ups as the paper does: tasks side by side, the paper's own beside ours."""
    tasks = [task for task, rows in table.items() if 32 in rows and len(rows) > 1]
    quantized = sorted({bits for task in tasks for bits in table[task]} - {32}, reverse=True)
    figure, (ax,) = curves.new_figure()
    figure.set_size_inches(max(7.0, 1.1 * len(tasks) * (len(quantized) + 1) / 2), 4.2)
    width = 0.84 / (len(quantized) + 1)
    for i, bits in enumerate(quantized):
        speedups = [_speedup(table[task], bits) for task in tasks]
        shown = [
            s.value if s is not None and s.bound != "?" and math.isfinite(s.value) else 0.0
            for s in speedups
        ]
        bars = ax.bar(
            np.arange(len(tasks)) + (i - len(quantized) / 2) * width, shown, 0.92 * width,
            color=curves.PRECISION_COLOURS[bits], label=f"{reporting.precision_name(bits)} actors",
        )
        for bar, speedup in zip(bars, speedups, strict=True):
            if speedup is not None and speedup.bound:
                bar.set_hatch("//")  # A bound, or nothing to compare.
        texts = [s.text() if s is not None else "" for s in speedups]
        ax.bar_label(bars, texts, fontsize=7, padding=2)
    published = [paper.SPEEDUPS[t].speedup if t in paper.SPEEDUPS else 0.0 for t in tasks]
    bars = ax.bar(
        np.arange(len(tasks)) + len(quantized) / 2 * width, published, 0.92 * width,
        color=_PAPER_COLOUR, label="paper, int8",
    )
    ax.bar_label(bars, [f"{value:.2f}" if value else "" for value in published], fontsize=7,
                 padding=2)
    ax.axhline(1.0, color="0.35", linewidth=1, linestyle="--")
    names = [specification.short_task(task).replace("_", "\n") for task in tasks]
    ax.set_xticks(np.arange(len(tasks)), names, fontsize=8)
    ax.tick_params(axis="x", length=0)
    ax.set_xlim(-0.6, max(len(tasks), 4) - 0.4)  # One task's bars do not fill the panel.
    ax.set_ylabel("Time to reward: fp32 / quantized")
    ax.margins(y=0.12)
    figure.legend(loc="outside lower center", ncols=len(quantized) + 1, frameon=False)
    return curves.save_figure(figure, path)


def _csv_rows(table: dict[str, dict[int, Row]]) -> list[dict[str, object]]:
    lines = []
    for task, rows in table.items():
        published = paper.SPEEDUPS.get(task)
        for bits, row in rows.items():
            speedup = _speedup(rows, bits)
            known = speedup is not None and speedup.bound != "?"
            lines.append({
                "task": task,
                "precision": reporting.precision_name(bits),
                "target": _target(rows),
                "seeds": len(row.reaches),
                "seeds_reached": row.reached,
                "median_s": row.median.seconds,
                "median_is_bound": int(not row.median.reached),
                "median_evaluation_s": row.median.evaluation_s,
                "seconds_by_seed": ";".join(reach.text() for reach in row.reaches),
                "speedup": speedup.value if known else "",
                "speedup_bound": speedup.bound if known else "",
                "final_reward": float(np.mean(row.final_rewards)) if row.final_rewards else "",
                "paper_speedup": published.speedup if published and bits == 8 else "",
            })
    return lines


def _energy(table: dict[str, dict[int, Row]]) -> str:
    """Returns the table of energy and CO2 to reward, or "" where no run has logged them."""
    lines = []
    for task, rows in table.items():
        for bits, row in rows.items():
            known = [
                (result.measured.energy, reach)
                for result, reach in zip(row.results, row.reaches, strict=True)
                if result.measured.energy is not None
                and result.measured.energy.kwh_to_target is not None
            ]
            if not known:
                continue
            # `Reach` with watt hours and grams in place of seconds: the same censoring.
            watt_hours, grams = (
                median_reach([
                    speedup_table.Reach(1e3 * getattr(energy, name), 0.0, reach.reached)
                    for energy, reach in known
                ])
                for name in ("kwh_to_target", "co2_kg_to_target")
            )
            lines.append((task, bits, watt_hours, grams))
    if not lines:
        return ""
    wide = {task: (wh, g) for task, bits, wh, g in lines if bits == 32}
    cells = []
    for task, bits, watt_hours, grams in lines:
        ratios = [
            speedup_table.speedup_between(base, mine).text() if bits != 32 else "1"
            for base, mine in zip(wide.get(task, ()), (watt_hours, grams), strict=False)
        ] or [reporting.NOTHING] * 2
        cells.append([
            specification.short_task(task), reporting.precision_name(bits), _amount(watt_hours),
            ratios[0], _amount(grams), ratios[1],
        ])
    header = ["Task", "Actors", "Energy to reward, Wh", "fp32 / this", "CO2 to reward, g",
              "fp32 / this"]
    return curves.markdown_table(header, cells) + "\n" + reporting.bullets([
        "Energy and CO2: medians over the seeds of codecarbon's estimate for all processes, "
        "modelled from CPU load and a constant for memory, not measured; until the reward was "
        f"held, as if power were constant. The paper says {_PAPER_CO2} times less CO2.",
    ])


def _amount(reach: speedup_table.Reach) -> str:
    return ("" if reach.reached else "> ") + f"{reach.seconds:.3g}"
