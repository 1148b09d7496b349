"""Blocks of results/ptq.md: agents quantized after their training.

E = (fp32 - q) / |fp32| of the mean returns, as in `baseline.study.intervals`. The means are over
the agents of rl-baselines3-zoo. Our Breakout agent has blocks of its own.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import statistics

from baseline.study import intervals
from baseline.study import paper
from baseline.study import rows as rows_lib
from baseline.study import sweeps as sweeps_lib
from baseline.study import width_relation
from docs.generators import tables

ALGORITHMS = ("a2c", "ppo", "dqn", "ddpg")
# By the name of a way to quantize: its scheme, its granularity, and words for a table.
SCHEMES = {
    "weights": ("weights", "paper", "weights, the paper's scheme"),
    "channel": ("weights", "channel", "weights, a scale for each output"),
    "activations": ("weights+activations", "paper", "weights and activations"),
}
_BREAKOUT = "BreakoutNoFrameskip-v4"
_INT8 = "8"
_WIDTHS = ("fp16", "bf16", "16", "12", "10", "8", "6", "4", "2")
_NARROW = ("8", "6", "4", "2")
# Mean returns in the zoo's benchmark.md of the agents that see the time that is left.
_PUBLISHED = {
    ("a2c", "HalfCheetahBulletEnv-v0"): 2107, ("a2c", "Walker2DBulletEnv-v0"): 858,
    ("ppo", "HalfCheetahBulletEnv-v0"): 2925, ("ppo", "Walker2DBulletEnv-v0"): 2110,
    ("ddpg", "HopperBulletEnv-v0"): 1157,
}


@functools.cache
def _rows() -> tuple[rows_lib.Row, ...]:
    path = tables.BASELINE_RESULTS / "ptq" / rows_lib.CSV_NAME
    return tuple(rows_lib.read(str(path)))


@functools.cache
def sweeps(name: str) -> tuple[sweeps_lib.Sweep, ...]:
    """Returns the agents' sweeps, Breakout's included, for a key of `SCHEMES`."""
    scheme, granularity, _ = SCHEMES[name]
    found = sweeps_lib.sweeps(_rows(), [scheme], granularity, wanted=(_INT8,))
    return tuple(sweep for sweep in found if sweep.quantized)


def _zoo(name: str, algo: str) -> list[sweeps_lib.Sweep]:
    return [one for one in sweeps(name) if one.algo == algo and one.env != _BREAKOUT]


def agents_of(algo: str) -> int:
    """Returns the number of the zoo's agents of an algorithm."""
    return len(_zoo("weights", algo))


def _mean(name: str, members: Sequence[sweeps_lib.Sweep], drawn: bool) -> intervals.Interval:
    scheme = SCHEMES[name][0]
    pairs = [(one.fp32.returns, one.quantized[scheme][_INT8].returns) for one in members]
    return intervals.mean_over_agents(pairs, resample_agents=drawn)


@functools.cache
def mean_errors(algo: str) -> dict[str, intervals.Interval]:
    """Returns the mean E at int8 of the zoo's agents of an algorithm, for each of `SCHEMES`.

    The intervals are over episodes of these agents.
    """
    return {name: _mean(name, _zoo(name, algo), drawn=False) for name in SCHEMES}


@functools.cache
def drawn_error(algo: str) -> intervals.Interval:
    """Returns the mean E at int8, weights, with an interval that draws agents as well."""
    return _mean("weights", _zoo("weights", algo), drawn=True)


@functools.cache
def error_with_breakout() -> intervals.Interval:
    """Returns PPO's mean E at int8, weights, with our Breakout agent."""
    return _mean("weights", [one for one in sweeps("weights") if one.algo == "ppo"], drawn=False)


def _errors(name: str, algo: str, bits: str) -> list[float]:
    """Returns E of the zoo's agents at a width, in percent."""
    scheme = SCHEMES[name][0]
    return [
        100 * error
        for one in _zoo(name, algo)
        if (error := one.quantized[scheme][bits].error) is not None
    ]


def _row(name: str, algo: str, env: str, bits: str) -> rows_lib.Row:
    (sweep,) = [one for one in sweeps(name) if (one.algo, one.env) == (algo, env)]
    return sweep.quantized[SCHEMES[name][0]][bits]


def percent(value: float, digits: int = 1) -> str:
    """Returns a number of percent as text, for example "-0.2 %"."""
    return f"{intervals.fixed(value, digits)} %"


def _interval(row: rows_lib.Row) -> str:
    """Returns E with its interval, to one decimal."""
    if row.error is None or row.error_low is None or row.error_high is None:
        return "n/a"
    low, high = (intervals.fixed(100 * end, 1) for end in (row.error_low, row.error_high))
    return f"{percent(100 * row.error)} [{low}, {high}]"


def answer() -> str:
    """Returns the answer of the page."""
    losses = {}
    for algo in ALGORITHMS:
        error = mean_errors(algo)["weights"].error
        losses[algo] = percent(100 * (error or 0.0), 2)
    theirs = {algo: percent(paper.MEANS[algo].error_int8, 2) for algo in ALGORITHMS}
    return (
        f"**Answer.** With 8-bit weights A2C and PPO agents keep their reward: their mean loss is\n"
        f"{losses['a2c']} and {losses['ppo']}. DQN loses {losses['dqn']} and DDPG {losses['ddpg']},"
        f" more than the paper's {theirs['dqn']} and {theirs['ddpg']}."
    )


def means() -> str:
    """Returns the table of mean E at int8 by algorithm and way to quantize."""
    head = ["Mean E at int8"]
    head += [f"{algo.upper()} ({agents_of(algo)} agents)" for algo in ALGORITHMS]
    published = [percent(paper.MEANS[algo].error_int8, 2) for algo in ALGORITHMS]
    rows = [["the paper's, other agents", *published]]
    for name, (_, _, words) in SCHEMES.items():
        cells = []
        for algo in ALGORITHMS:
            mean = mean_errors(algo)[name]
            missed = mean.low is not None and 100 * mean.low > paper.MEANS[algo].error_int8
            cells.append(mean.text() + " **missed**" * missed)
        rows.append([words, *cells])
    return tables.table(head, rows)


def widths() -> str:
    """Returns mean and median E of the paper's scheme at every width."""
    rows = []
    for algo in ALGORITHMS:
        for label, function in (("mean", statistics.mean), ("median", statistics.median)):
            cells = [percent(function(_errors("weights", algo, bits))) for bits in _WIDTHS]
            rows.append([algo.upper() if label == "mean" else "", label, *cells])
    return tables.table(["Algorithm", "E", *_WIDTHS], rows, text_columns=2)


def other_widths() -> str:
    """Returns mean and median E of the other two ways to quantize."""
    rows = []
    for name in ("channel", "activations"):
        for algo in ALGORITHMS:
            errors = [_errors(name, algo, bits) for bits in _NARROW]
            cells = [
                f"{percent(statistics.mean(found))} "
                f"({intervals.fixed(statistics.median(found), 1)})"
                for found in errors
            ]
            words = SCHEMES[name][2] if algo == ALGORITHMS[0] else ""
            rows.append([words, algo.upper(), *cells])
    head = ["Quantized", "Algorithm", *(f"{bits} bits" for bits in _NARROW)]
    return tables.table(head, rows, text_columns=2)


def agents() -> str:
    """Returns a row for each of the zoo's agents: width of its weights, and E at int8."""
    rows = []
    for algo in ALGORITHMS:
        for one in _zoo("weights", algo):
            cells = [_interval(_row(name, algo, one.env, _INT8)) for name in SCHEMES]
            rows.append([
                f"{algo.upper()} {one.shown_env}", f"{one.fp32.weight_width:.2f}",
                f"{tables.number(one.fp32.mean, 1)} ± {one.fp32.std:.1f}", *cells,
            ])
    head = ["Agent", "Width of weights", "fp32 return", "E, weights",
            "E, a scale for each output", "E, weights and activations"]
    return tables.table(head, rows)


def more_bits() -> str:
    """Returns E of DQN's and DDPG's agents with 10 and 12 bits."""
    rows = []
    for algo in ("dqn", "ddpg"):
        for one in _zoo("weights", algo):
            cells = [
                _interval(_row(name, algo, one.env, bits))
                for bits in ("10", "12") for name in ("weights", "channel")
            ]
            rows.append([f"{algo.upper()} {one.shown_env}", *cells])
    head = ["Agent", "10 bits", "10 bits, a scale for each output",
            "12 bits", "12 bits, a scale for each output"]
    return tables.table(head, rows)


def published() -> str:
    """Returns fp32 returns beside the zoo's for the agents that see the time that is left."""
    rows = []
    for (algo, env), theirs in _PUBLISHED.items():
        (fp32,) = rows_lib.find(_rows(), algo=algo, env=env, bits="fp32")
        ours = tables.number(fp32.mean)
        rows.append([f"{algo.upper()} {env}", ours, tables.number(theirs)])
    return tables.table(["Agent", "Our fp32 return", "The zoo's"], rows)


@functools.cache
def relations(with_breakout: bool) -> list[width_relation.Relation]:
    """Returns how E at int8 goes with the width of weights, over environments and algorithms."""
    chosen = [one for one in sweeps("weights") if with_breakout or one.env != _BREAKOUT]
    points, _ = width_relation.points(chosen, "weights", _INT8)
    kinds = (width_relation.ENVIRONMENTS, width_relation.ALGORITHMS)
    return [width_relation.relation(points, over) for over in kinds]


def relation_table() -> str:
    """Returns pairs, p and verdict of the paper's finding on the width of weights."""
    rows = []
    for with_breakout in (False, True):
        for found in relations(with_breakout):
            if with_breakout and found.over == width_relation.ALGORITHMS:
                continue  # No other agent plays Breakout: nothing changes.
            agents_in = "with our Breakout agent" if with_breakout else "the zoo's agents"
            holds = found.p_wider <= width_relation.SIGNIFICANCE
            rows.append([
                f"over {found.over}", agents_in,
                f"{found.agreeing} of {found.agreeing + found.opposing}",
                f"{found.p_wider:.3f}", "holds" if holds else "not confirmed",
            ])
    head = ["Compared", "Agents", "Pairs in which the wider agent lost more", "p", "Verdict"]
    return tables.table(head, rows, text_columns=2)


def breakout_answer() -> str:
    """Returns the answer of Breakout's page."""
    (sweep,) = [one for one in sweeps("weights") if one.env == _BREAKOUT]
    found = sweep.quantized["weights"]
    return (
        f"**Answer.** Of {sweep.fp32.mean:.1f} points in fp32 it keeps {found['10'].mean:.1f} with "
        f"10 bits, {found[_INT8].mean:.1f} with 8 and {found['4'].mean:.1f} with 4.\nWith 2 bits "
        "it plays hardly better than at random."
    )


def breakout() -> str:
    """Returns our Breakout agent's mean score at every precision."""
    (sweep,) = [one for one in sweeps("weights") if one.env == _BREAKOUT]
    found = sweep.quantized["weights"]
    order = [bits for bits in _WIDTHS if bits in found]
    ours = [f"{row.mean:.1f}" for row in (sweep.fp32, *(found[bits] for bits in order))]
    theirs = paper.rewards("ppo", _BREAKOUT)
    if theirs is None:
        raise ValueError("The paper's table has PPO's Breakout.")
    printed = {"fp32": theirs.fp32, "fp16": theirs.fp16, _INT8: theirs.int8}
    cells = [f"{printed[bits]:g}" if bits in printed else "" for bits in ("fp32", *order)]
    head = ["Mean score", "fp32", *order]
    return tables.table(head, [["ours, 30 games", *ours], ["the paper's agent", *cells]])


def breakout_facts() -> str:
    """Returns what our Breakout agent does to the mean, and how few games differ."""
    (sweep,) = [one for one in sweeps("weights") if one.env == _BREAKOUT]
    games = len(set(sweep.fp32.returns))
    curve = tables.csv_rows(tables.BASELINE_RESULTS / "atari" / "learning_curve.csv")
    score = float(curve[-1]["running_mean"])
    lost = sweep.quantized["weights"][_INT8]
    narrower = all(
        sweep.fp32.weight_width < one.fp32.weight_width
        for one in sweeps("weights") if one.env != _BREAKOUT
    )
    width = "the narrowest of all" if narrower else "not the narrowest"
    return (
        f"- In fp32 the {sweep.fp32.episodes} games have only {games} different scores.\n"
        f"- While the policy sampled its actions in training, it scored {score:.0f}.\n"
        f"- At int8 the agent loses {_interval(lost)}, though its weights are {width}.\n"
        f"- With this agent counted, PPO's mean E at int8 is {error_with_breakout().text()}."
    )


def counts() -> str:
    """Returns the numbers of rows and episodes, and the commits of the rows."""
    zoo = [row for row in _rows() if row.env != _BREAKOUT]
    lines = [
        f"- The zoo's agents have {tables.number(len(zoo))} rows with "
        f"{tables.number(sum(row.episodes for row in zoo))} episodes."
    ]
    commits: dict[str, list[rows_lib.Row]] = {}
    for row in _rows():
        commits.setdefault(row.commit[:7], []).append(row)
    for commit, found in commits.items():
        lines.append(f"- Commit {commit} measured {len(found)} rows: {_described(found)}.")
    return "\n".join(lines)


def _described(rows: Sequence[rows_lib.Row]) -> str:
    """Returns the kind of agents that rows are of."""
    if all(row.env == _BREAKOUT for row in rows):
        return "our Breakout agent"
    bullet = all(row.env.endswith("BulletEnv-v0") for row in rows)
    return "PyBullet's agents" if bullet else "the other agents"


def drawn() -> str:
    """Returns the intervals of DQN's and DDPG's means if agents were drawn, too."""
    lines = []
    for algo in ("dqn", "ddpg"):
        found = drawn_error(algo)
        ends = [f"{100 * end:.2f}" for end in (found.low or 0.0, found.high or 0.0)]
        lines.append(
            f"- If agents were drawn as well as episodes, {algo.upper()}'s interval would be "
            f"[{', '.join(ends)}]."
        )
    return "\n".join(lines)


def uncertain() -> str:
    """Returns for how many agents the interval of E at int8 leaves zero out."""
    points, _ = width_relation.points(
        [one for one in sweeps("weights") if one.env != _BREAKOUT], "weights", _INT8
    )
    certain = sum(point.certain for point in points)
    return (
        f"For {certain} of the {len(points)} agents the interval of E leaves zero out. The order "
        "of the others is luck."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "answer": answer, "means": means, "widths": widths, "other_widths": other_widths,
    "agents": agents, "more_bits": more_bits, "published": published,
    "relations": relation_table, "breakout_answer": breakout_answer, "breakout": breakout,
    "breakout_facts": breakout_facts, "counts": counts, "drawn": drawn, "uncertain": uncertain,
}
