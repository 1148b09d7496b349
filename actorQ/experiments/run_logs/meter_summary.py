"""Says in one number for each figure of the broadcaster's meter what a run was like.

A figure separates runs that failed from others as well as it ranks them. The area is the
probability that a failed run has the larger figure, and ties count half. It is the statistic of
Mann and Whitney divided by the number of pairs (Hanley and McNeil 1982). Imports no framework.
"""

from collections.abc import Sequence

import numpy as np

from actorQ.core import telemetry
from actorQ.experiments.run_logs import meter_plot

# Tables have these columns, and say these words of them.
FIGURES = {
    "changed_share": "integers that change with a version",
    "weight_error": "largest relative error of a layer",
    "action_distance": "mean distance of actions (D4PG)",
    "disagreement": "share of other actions (DQN)",
    "lost_q": "Q-value that is lost (DQN)",
    "actions_at_bounds": "fp32 actions at bounds (D4PG)",
    "quantized_actions_at_bounds": "actors' actions at bounds (D4PG)",
    "activation": "largest output of a layer",
}


def figures(run_folder: str) -> dict[str, float]:
    """Returns the median of each figure over the second half of a run; NaN where it has none.

    Args:
      run_folder: Folder of a run.
    """
    logs = meter_plot.read(run_folder)
    versions = logs.get(telemetry.UPDATES_CSV, {})
    compared = logs.get(telemetry.METER_CSV, {})
    errors = [values for name, values in versions.items() if name.startswith("weight_error_")]
    ends = [np.abs(values) for name, values in compared.items() if name.startswith("activation_")]
    rows = {
        **{name: compared[name] for name in FIGURES if name in compared},
        **{name: versions[name] for name in FIGURES if name in versions},
    }
    if errors:
        rows["weight_error"] = np.max(errors, axis=0)
    if ends:
        rows["activation"] = np.max(ends, axis=0)
    if "agreement" in compared:
        rows["disagreement"] = 1.0 - compared["agreement"]
    return {name: _late_median(rows.get(name, np.array([]))) for name in FIGURES}


def _late_median(values: np.ndarray) -> float:
    late = values[len(values) // 2 :]
    late = late[np.isfinite(late)]
    return float(np.median(late)) if len(late) else float("nan")


def area(groups: Sequence[tuple[Sequence[float], Sequence[float]]]) -> float | None:
    """Returns the probability that a failed run has the larger figure than another of its group.

    Args:
      groups: For each group, a figure of the runs that failed, and of the others; NaN does not
        count.

    Returns:
      The share of such pairs; None if there is no pair.
    """
    found = []
    for both in groups:
        failed, learned = (np.array(side)[np.isfinite(side)] for side in both)
        differences = failed[:, None] - learned[None, :]
        found.append(((differences > 0) + 0.5 * (differences == 0)).ravel())
    pairs = np.concatenate(found) if found else np.array([])
    return float(pairs.mean()) if len(pairs) else None
