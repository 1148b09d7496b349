"""The report on many tasks: the time until a reward that others publish, beside peers.

Sides are our one precision, and peers if the experiment has some. `reaching` says how medians are
taken. Imports no framework but matplotlib.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import statistics
from typing import NamedTuple

from actorQ.core import output
from actorQ.core import plotting
from actorQ.experiments import results as results_lib
from actorQ.experiments import specification
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reaching_figures
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import times

FIGURE = "tasks.png"
_COLUMNS = 3  # Panels of the figure side by side.
_PANEL = (3.2, 2.2)  # Width and height, inches.


class Source(NamedTuple):
    """The publication of a reward."""

    name: str
    address: str


_CURL = Source("CURL, State SAC", "https://arxiv.org/abs/2004.04136")
_CLEANRL = Source("CleanRL, RPO", "https://docs.cleanrl.dev/rl-algorithms/rpo/")
_GYM = Source("Gymnasium", "https://gymnasium.farama.org/")
_ZOO = Source(
    "the zoo, SAC", "https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/benchmark.md"
)
SOURCES = {
    "dm_control,cartpole_balance": Source("ActorQ's paper", "https://arxiv.org/abs/1910.01055"),
    "dm_control,cartpole_swingup": _CURL,
    "dm_control,pendulum_swingup": _CLEANRL,
    "dm_control,reacher_easy": _CURL,
    "dm_control,ball_in_cup_catch": _CURL,
    "dm_control,point_mass_easy": _CLEANRL,
    "dm_control,finger_spin": _CURL,
    "dm_control,walker_walk": _CURL,
    "dm_control,cheetah_run": _CURL,
    "gym,CartPole-v1": _GYM,
    "gym,Acrobot-v1": _GYM,
    "gym,LunarLander-v3": _GYM,
    "gym,Pendulum-v1": _ZOO,
    "gym,MountainCarContinuous-v0": _GYM,
    "mujoco,Hopper-v5": _ZOO,
    "atari,Pong": Source("DQN, Mnih et al. 2015", "https://doi.org/10.1038/nature14236"),
}


def write(material: reporting.Material) -> str:
    """Writes table and figure into the report's folder; returns the table."""
    rows = {task: found for task, found in reaching.rows_by_task(material).items() if found}
    draw(rows, material.path(FIGURE))
    return output.markdown_table(*table(rows)) + "\n" + reporting.bullets([
        summary(rows),
        "Times are seconds since the launch, evaluation included. The first evaluation counts "
        "whose mean with those before it (setting stop_smoothing) is at the reward. 'Not reached' "
        "has the best such mean of a run.",
        "A ratio is that of the medians over the seeds of each side. '>' and '<' are bounds, since "
        "one of the sides did not reach the reward.",
        "Steps are those of the whole run, medians over the seeds. A run ends with the reward.",
        *reporting.peer_notes(material.sides()),
        *reporting.notes(material),
    ])


def table(rows_by_task: Mapping[str, reaching.Rows]) -> tuple[list[str], list[list[str]]]:
    """Returns the head of the report's table and its lines, in Markdown.

    Args:
      rows_by_task: Rows of each task, one of them at least.
    """
    peers = _peers(rows_by_task)
    head = ["Task", "Reward", "Source", "Ours, s by seed", "Reached"]
    for peer in peers:
        head += [f"{peer.short_name}, s", "Sooner by"]
    head += ["Environment steps", "Learner steps"]
    for peer in peers:
        head += [f"{peer.short_name}: environment steps", "learner steps"]
    return head, [_line(task, rows, peers) for task, rows in rows_by_task.items()]


def _line(task: str, rows: reaching.Rows, peers: Sequence[reporting.Side]) -> list[str]:
    ours = _ours(rows)
    source = SOURCES.get(task)
    line = [
        specification.short_task(task), f"{reaching.target(rows):g}",
        f"[{source.name}]({source.address})" if source else reporting.NOTHING,
        _seconds(ours) if ours else reporting.NOTHING,
        f"{ours.reached} of {len(ours.results)}" if ours else reporting.NOTHING,
    ]
    for peer in peers:
        gain = sooner_by(rows, peer)
        line += [
            _seconds(rows[peer]) if peer in rows else reporting.NOTHING,
            gain.text() if gain else reporting.NOTHING,
        ]
    for row in (ours, *(rows.get(peer) for peer in peers)):
        line += [_steps(row, "actor_steps"), _steps(row, "learner_steps")]
    return line


def sooner_by(rows: reaching.Rows, peer: reporting.Side) -> times.Speedup | None:
    """Returns the peer's median time over ours; None: one of them has no run."""
    ours = _ours(rows)
    if ours is None or peer not in rows:
        return None
    return times.speedup_between(rows[peer].median, ours.median)


def summary(rows_by_task: Mapping[str, reaching.Rows]) -> str:
    """Returns in a sentence or more how many tasks were learned, and how many of them sooner."""
    sides = [row for rows in rows_by_task.values() if (row := _ours(rows))]
    whole = sum(row.reached == len(row.results) for row in sides)
    if not sides:
        return "Our own runs are not among these results."
    sentences = [f"Every seed reached the reward on {whole} of {len(sides)} tasks."]
    for peer in _peers(rows_by_task):
        found = [gain for rows in rows_by_task.values() if (gain := sooner_by(rows, peer))]
        if not found:
            continue
        sooner = sum(gain.value > 1 and gain.bound in ("", ">") for gain in found)
        sentences.append(
            f"Our median was sooner than {peer.short_name}'s on {sooner} of {len(found)}."
        )
    return " ".join(sentences)


def draw(rows_by_task: Mapping[str, reaching.Rows], path: str) -> None:
    """Draws running means of returns against time: a panel for each task, a line for each run."""
    count = max(1, len(rows_by_task))
    columns = min(_COLUMNS, count)
    lines = -(-count // columns)
    size = (max(7.0, _PANEL[0] * columns), _PANEL[1] * lines + 1.0)
    figure, axes = plotting.new_grid(lines, columns, size)
    for ax in axes[count:]:
        ax.set_visible(False)
    for ax, (task, rows) in zip(axes, rows_by_task.items(), strict=False):
        for side, row in rows.items():
            label = side.short_name if side.is_peer else f"ours, {side.short_name}: each seed"
            for result in row.results:
                if not result.measured.rewards.seconds:
                    continue
                curve = reaching_figures.curve(result)
                ax.step(
                    curve.seconds, curve.smoothed, where="post", color=side.colour, linewidth=1.2,
                    label=label,
                )
        ax.axhline(
            reaching.target(rows), color="0.35", linestyle="--", linewidth=1,
            label="published reward",
        )
        ax.set_xlim(left=0)
        ax.set_title(specification.short_task(task), fontsize=plotting.TEXT)
        ax.tick_params(labelsize=plotting.SMALL)
    figure.supylabel("Evaluation return (running mean)", fontsize=plotting.TEXT)
    plotting.legend_below(figure, _COLUMNS, "Time since the start of the run (s)")
    plotting.save_figure(figure, path)


def _ours(rows: reaching.Rows) -> reaching.Row | None:
    return next((row for side, row in rows.items() if not side.is_peer), None)


def _peers(rows_by_task: Mapping[str, reaching.Rows]) -> list[reporting.Side]:
    sides = dict.fromkeys(side for rows in rows_by_task.values() for side in rows)
    return [side for side in sides if side.is_peer]


def _seconds(row: reaching.Row) -> str:
    """Returns the time to the reward of each seed, or how near it came."""
    return "; ".join(
        output.number(reach.seconds, 0) if reach.reached
        else f"not reached: {_best_mean(result)}"
        for result, reach in zip(row.results, row.reaches, strict=True)
    )


def _best_mean(result: results_lib.Result) -> str:
    returns, window = result.measured.rewards.returns, result.measured.window
    if len(returns) < window:
        return "too few evaluations"
    return f"best mean {output.number(times.best_held(returns, 1, window))}"


def _steps(row: reaching.Row | None, quantity: str) -> str:
    if row is None:
        return reporting.NOTHING
    found = [getattr(result.measured, quantity) for result in row.results]
    return f"{statistics.median(found):,.0f}"
