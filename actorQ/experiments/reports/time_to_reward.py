"""The report on time to reward: tables, bars as in the paper, learning curves, energy and CO2.

Sides are the precisions of our actors, and peers if the experiment has some. `reaching` says how
medians are taken. Imports no framework but matplotlib.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import statistics

import numpy as np

from actorQ.core import output
from actorQ.experiments import results as results_lib
from actorQ.experiments import specification
from actorQ.experiments import training
from actorQ.experiments.reports import actor_loop_gain
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reaching_figures
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import paper
from actorQ.experiments.run_logs import times

BOUND = (
    "'>' says that the reward was not held within that time. Such a seed stays in the median, "
    "which becomes a bound if it depends on that seed."
)
_BARS_PNG = "speedup.png"
# Carbon emissions against full-precision training: arXiv:1910.01055, journal version, abstract.
_PAPER_CO2 = "1.9 to 3.76"
_GPU_ENERGY = (
    "The energy of GPUs is in it, whoever used them; NVIDIA's driver measured it."
)
_OTHER_HOURS = 3.0  # Runs that take turns are closer, but for the longest ones.
_SECONDS_PER_HOUR = 3600.0


def write(material: reporting.Material) -> str:
    """Writes tables and figures into the report's folder; returns the tables."""
    table = reaching.rows_by_task(material)
    text = _summary(table, material.sides()) + "\n" + _details(table)
    text += "\n" + reporting.bullets([*_notes(table), *reporting.notes(material)])
    energy = _energy(table)
    if energy:
        text += "\n" + energy
    for task, rows in table.items():
        if rows:
            name = f"convergence_{specification.short_task(task)}.png"
            reaching_figures.draw_curves(task, rows, material.path(name))
    reaching_figures.draw_bars(table, material.path(_BARS_PNG))
    if lines := _csv_rows(table):
        output.write_csv(material.path("time_to_reward.csv"), lines)
    return text


def _summary(table: Mapping[str, reaching.Rows], sides: Sequence[reporting.Side]) -> str:
    quantized = [side for side in sides if not side.is_peer and side.precision != 32]
    others = [side for side in sides if side.is_peer and reaching.INT8 in sides]
    header = ["Task", "Reward", *(f"{side.short_name} s" for side in sides)]
    header += [f"{side.short_name} speed-up" for side in quantized]
    header += [f"int8 over {side.short_name}" for side in others]
    header += ["paper: reward", "fp32 s", "int8 s", "int8 speed-up"]
    most = max((len(row.reaches) for rows in table.values() for row in rows.values()), default=0)
    lines = []
    for task, rows in table.items():
        if not rows:
            continue
        line = [task, f"{reaching.target(rows):.2f}"]
        line += [rows[side].text(most) if side in rows else reporting.NOTHING for side in sides]
        line += [reaching.speedup_text(rows, side) or reporting.NOTHING for side in quantized]
        line += [
            reaching.speedup_text(rows, reaching.INT8, side) or reporting.NOTHING
            for side in others
        ]
        published = paper.SPEEDUPS.get(task)
        line += [f"{value:.2f}" for value in published[1:]] if published else [
            reporting.NOTHING
        ] * 4
        lines.append(line)
    return output.markdown_table(header, lines)


def _details(table: Mapping[str, reaching.Rows]) -> str:
    header = [
        "Task", "Actors", "Time to reward by seed, s", "evaluation in it, s", "each",
        "Final reward", "Actor steps/s", "vs. fp32", "Learner steps/s", "Data used",
    ]
    lines = []
    for task, rows in table.items():
        wide = rows[reaching.FP32].results if reaching.FP32 in rows else ()
        for side, row in rows.items():
            measured = [result.measured for result in row.results]
            rates = [item.actor_steps_per_s for item in measured]
            used = [item.data_used for item in measured if item.data_used is not None]
            lines.append([
                specification.short_task(task),
                row.name,
                ", ".join(reach.text() for reach in row.reaches),
                output.number(row.median.evaluation_s),
                reporting.mean([_seconds_of_an_evaluation(item) for item in measured], 2),
                reporting.of_all(row.final_rewards, len(row.results)),
                reporting.mean(rates, 0),
                _ratio(row.results, wide) if side != reaching.FP32 else "1",
                reporting.mean([item.learner_steps_per_s for item in measured], 2),
                f"{100 * float(np.mean(used)):.0f} %" if used else reporting.NOTHING,
            ])
    return output.markdown_table(header, lines)


def _seconds_of_an_evaluation(measured: results_lib.Measured) -> float | None:
    spent = measured.rewards.evaluation_s
    return spent[-1] / len(spent) if spent else None


def _ratio(
    found: Sequence[results_lib.Result], base: Sequence[results_lib.Result]
) -> str:
    known, wide = (
        [rate for r in side if (rate := r.measured.actor_steps_per_s) is not None]
        for side in reporting.of_shared_seeds(found, base)
    )
    if not known or not wide or not np.mean(wide):
        return reporting.NOTHING
    return f"{np.mean(known) / np.mean(wide):.2f}"


def _notes(table: Mapping[str, reaching.Rows]) -> list[str]:
    lines = [
        "Times are medians over the seeds, from the launch, evaluation included. A run holds the "
        "reward when its running mean is at the reward in several evaluations in a row; the first "
        "of them counts (settings stop_smoothing and stop_window).",
        "Speed-ups and other ratios are those of the seeds that both sides have.",
        BOUND,
        "The learner evaluates its full-precision policy at every precision of the actors: one "
        "episode every so many learner steps, equally many for the same progress. An episode takes "
        "longer beside some actors than beside others: see \"each\".",
        "Data used is the part of the samples that the actors' inserts allow which the learner "
        "took. Near 100 % the actors are the bottleneck, below it the learner is. Above 100 %, "
        "samples that replay's first filling allows are among those taken.",
        *_peer_notes(table),
    ]
    loops = actor_loop_gain.measurements()
    for task, rows in table.items():
        lines += _without_evaluation(task, rows)
        lines += actor_loop_gain.notes(task, rows, loops)
        lines += _of_other_hours(task, rows)
        published = paper.SPEEDUPS.get(task)
        if published and rows and (target := reaching.target(rows)) != published.reward:
            lines.append(f"{task}: held {target:g} here, {published.reward:g} in the paper.")
        lines += reporting.below_fp32(
            task,
            rows[reaching.FP32].final_rewards if reaching.FP32 in rows else [],
            {
                row.name: row.final_rewards for side, row in rows.items()
                if not side.is_peer and side != reaching.FP32
            },
        )
    return lines


def _peer_notes(table: Mapping[str, reaching.Rows]) -> list[str]:
    """Returns lines on the peers: their agents, and shared settings in which they differ."""
    lines = reporting.peer_notes(dict.fromkeys(side for rows in table.values() for side in rows))
    for task, rows in table.items():
        ours = next((row for side, row in rows.items() if not side.is_peer), None)
        for side, row in rows.items():
            if not side.is_peer or ours is None:
                continue
            mine, theirs = ours.results[0].settings, row.results[0].settings
            differing = [
                f"{name} {theirs[name]}, ours {mine[name]}" for name in theirs
                if name not in training.AXES and name in mine and theirs[name] != mine[name]
            ]
            if differing:
                lines.append(f"{task}, {row.name}, has settings of its own: "
                             f"{'; '.join(differing)}.")
    return lines


def _without_evaluation(task: str, rows: reaching.Rows) -> list[str]:
    """Returns a line on int8's ratios without evaluation: peers evaluate with their own code."""
    ratios = []
    for base in rows:
        whole, rest = (
            reaching.speedup(rows, reaching.INT8, base, evaluated) for evaluated in (True, False)
        )
        wanted = base.is_peer or base == reaching.FP32
        if wanted and whole is not None and rest is not None and not rest.bound:
            ratios.append(f"over {base.short_name} {rest.text()} (with it {whole.text()})")
    if not ratios:
        return []
    return [f"{task}, without what evaluation took of each side's time: int8 {', '.join(ratios)}."]


def _of_other_hours(task: str, rows: reaching.Rows) -> list[str]:
    """Returns a line on each side whose runs are from other hours than fp32's."""
    if reaching.FP32 not in rows:
        return []
    lines = []
    for row in rows.values():
        own, base = reporting.of_shared_seeds(row.results, rows[reaching.FP32].results)
        apart = [
            abs((one.launched - other.launched).total_seconds()) / _SECONDS_PER_HOUR
            for one, other in zip(own, base, strict=True) if one.launched and other.launched
        ]
        if not apart or len(apart) < len(own):
            continue
        hours = statistics.median(apart)
        if hours >= _OTHER_HOURS:
            lines.append(
                f"{task}: {row.name}'s runs were launched {hours:.0f} hours from fp32's (median of "
                "the seeds): what else the machine did then is in their ratios."
            )
    return lines


def _csv_rows(table: Mapping[str, reaching.Rows]) -> list[dict[str, object]]:
    lines = []
    for task, rows in table.items():
        published = paper.SPEEDUPS.get(task)
        for side, row in rows.items():
            over_fp32 = reaching.speedup(rows, side)
            if over_fp32 is not None and over_fp32.bound == "?":
                over_fp32 = None
            int8_over_it = reaching.speedup(rows, reaching.INT8, side) if side.is_peer else None
            lines.append({
                "task": task,
                "agent": row.name.partition(",")[0] if side.is_peer else "ActorQ",
                "precision": reporting.precision_name(side.precision),
                "target": reaching.target(rows),
                "seeds": len(row.reaches),
                "seeds_reached": row.reached,
                "median_s": row.median.seconds,
                "median_is_bound": int(not row.median.reached),
                "median_evaluation_s": row.median.evaluation_s,
                "seconds_by_seed": ";".join(reach.text() for reach in row.reaches),
                "speedup": over_fp32.value if over_fp32 else "",
                "speedup_bound": over_fp32.bound if over_fp32 else "",
                "int8_over_it": "" if int8_over_it is None else int8_over_it.text(),
                "final_reward": float(np.mean(row.final_rewards)) if row.final_rewards else "",
                "paper_speedup": (
                    published.speedup if published and side == reaching.INT8 else ""
                ),
            })
    return lines


def _energy(table: Mapping[str, reaching.Rows]) -> str:
    """Returns the table of energy and CO2 to reward, or "" if no run has logged them."""
    cells = []
    for task, rows in table.items():
        amounts = {
            side: [reaching.amounts(row, name) for name in ("kwh_to_target", "co2_kg_to_target")]
            for side, row in rows.items()
        }
        base = amounts.get(reaching.FP32, [{}, {}])
        most = max((len(found) for both in amounts.values() for found in both), default=0)
        for side, row in rows.items():
            if not amounts[side][0]:
                continue
            cells.append([specification.short_task(task), row.name])
            for of_fp32, own in zip(base, amounts[side], strict=True):
                ratio = reaching.ratio_of_medians(of_fp32, own)
                cells[-1] += [
                    _amount(list(own.values()), most),
                    "1" if side == reaching.FP32 else (
                        reporting.NOTHING if ratio is None else ratio.text()
                    ),
                ]
            cells[-1] += results_lib.energy_origins(row.results)
    if not cells:
        return ""
    header = ["Task", "Actors", "Energy to reward, Wh", "fp32 / this", "CO2 to reward, g",
              "fp32 / this", "CPU energy", "Grid"]
    return output.markdown_table(header, cells) + "\n" + reporting.bullets([
        "Energy and CO2 are medians over the seeds. CPU energy is modelled from the load of all "
        "processes, or measured by the processors' counters for the whole machine. Memory is a "
        "constant of the machine. Grid is the factor of CO2.",
        "They count until the reward was held, as if power were constant, without the seconds in "
        f"which processes start. The paper says {_PAPER_CO2} times less CO2.",
        *([_GPU_ENERGY] if _of_gpus(table) else []),
    ])


def _of_gpus(table: Mapping[str, reaching.Rows]) -> bool:
    return any(
        result.measured.energy is not None and result.measured.energy.gpu_kwh
        for rows in table.values() for row in rows.values() for result in row.results
    )


def _amount(reaches: Sequence[times.Reach], most: int) -> str:
    median = reaching.median_reach(reaches)
    bound = "" if median.reached else "> "
    return f"{bound}{median.seconds:.3g}{reaching.seeds_text(reaches, most)}"
