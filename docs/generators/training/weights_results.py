"""Blocks on stale weights, narrow weights and slow networks.

The blocks stand in `results/staleness-and-communication.md` and `results/slow-networks.md`.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import statistics
from typing import Any

import numpy as np

from actorQ.experiments import results as results_lib
from actorQ.experiments.run_logs import curves
from docs.generators import prose
from docs.generators import tables

_GOOD = 950.0  # A single evaluation of this return shows that a run has learned.
_LINKS = (1000, 100, 20, 2)  # Mbit/s.
_MESSAGES = ("fp32", "8 bits", "4 bits")
_TWO_SEEDS = (0, 1)  # Every link and message has these.

Cell = Mapping[str, Any]


@functools.cache
def _runs(experiment: str) -> dict[int, list[results_lib.Result]]:
    """Returns the runs of an experiment by their varied setting, each in the order of seeds."""
    found: dict[int, list[results_lib.Result]] = {}
    folder = tables.ACTORQ_RESULTS / experiment / "runs"
    for path in sorted(folder.iterdir()):
        result = results_lib.read(str(path))
        if result is not None:
            found.setdefault(result.varied, []).append(result)
    return {value: sorted(runs, key=lambda run: run.seed) for value, runs in found.items()}


def _final(run: results_lib.Result) -> float:
    reward = run.measured.final_reward
    assert reward is not None
    return reward


def _first_good(run: results_lib.Result) -> float:
    """Returns the learner steps of the first single evaluation of 950 and more."""
    rewards = run.measured.rewards
    return next(
        steps for steps, reward in zip(rewards.learner_steps, rewards.returns, strict=True)
        if reward >= _GOOD
    )


def _staleness(runs: Sequence[results_lib.Result]) -> float:
    return statistics.mean(run.measured.staleness_steps or 0.0 for run in runs)


def _best_mean(run: results_lib.Result) -> float:
    """Returns the best running mean of ten evaluations."""
    returns = np.asarray(run.measured.rewards.returns)
    window = curves.DEFAULT_WINDOW
    return float(curves.running_mean(returns, window)[window - 1 :].max())


def _staleness_table() -> str:
    runs = _runs("staleness")
    periods = sorted(runs)
    finals = {period: [_final(run) for run in runs[period]] for period in periods}
    return tables.table(
        ["`--actor_update_period`", *(tables.number(period) for period in periods)],
        [
            ["final return", *(f"{statistics.mean(finals[period]):.1f}" for period in periods)],
            ["lowest of the three seeds", *(f"{min(finals[period]):.1f}" for period in periods)],
            ["staleness, learner steps", *(f"{_staleness(runs[p]):.1f}" for p in periods)],
            ["learner steps until 950", *(
                tables.number(statistics.median(map(_first_good, runs[period])))
                for period in periods
            )],
        ],
    )


@prose.wrapped
def _weights_answer() -> str:
    stale = _staleness(_runs("staleness")[10_000])
    runs = _runs("communication")
    size = _message_bytes(32) / _message_bytes(2)
    lowest = min(_final(run) for run in runs[2])
    return (
        f"**Answer.** Weights that lag by {stale:.0f} learner steps do not spoil the final "
        "policy, but learning takes longer. "
        f"Messages of 2 bits are {size:.0f} times smaller than fp32's, and the three seeds end at "
        f"{lowest:.0f} and more."
    )


@prose.wrapped
def _fallen_seed() -> str:
    """Returns what happened to the seed that ended low."""
    (fallen,) = [
        run for runs in _runs("staleness").values() for run in runs if _final(run) < _GOOD
    ]
    rewards = fallen.measured.rewards
    held = [
        (steps, reward)
        for steps, reward in zip(rewards.learner_steps, rewards.returns, strict=True)
        if _first_good(fallen) <= steps < rewards.learner_steps[-1]
    ]
    lost = rewards.learner_steps[-1] - held[-1][0]
    return (
        f"- One seed fell, at period {fallen.varied}. Its evaluations had "
        f"{int(min(reward for _, reward in held))} and more from step {held[0][0]:,.0f} to "
        f"{held[-1][0]:,.0f}.\n"
        f"- That seed lost the return in the last {lost:.0f} steps. No run of a longer period "
        "ended so."
    )


def _message_bytes(bits: int) -> float:
    runs = _runs("communication")[bits]
    return statistics.mean(run.measured.message_bytes or 0.0 for run in runs)


def _communication_table() -> str:
    runs = _runs("communication")
    widths = sorted(runs, reverse=True)

    def first(bits: int) -> str:
        return ", ".join(tables.number(_first_good(run)) for run in runs[bits])

    seeds = [run.seed for run in runs[widths[0]]]
    return tables.table(
        ["Bits on the wire", *map(str, widths)],
        [
            ["message, KB", *(tables.number(_message_bytes(bits) / 1e3) for bits in widths)],
            *(
                [f"final return, seed {seed}", *(f"{_final(runs[b][seed]):.1f}" for b in widths)]
                for seed in seeds
            ),
            ["first single evaluation of 950, learner steps", *map(first, widths)],
            ["best running mean of ten, mean of the seeds", *(
                f"{statistics.mean(map(_best_mean, runs[bits])):.1f}" for bits in widths
            )],
        ],
    )


@prose.wrapped
def _narrow_reading() -> str:
    """Returns what happened with messages of 2 bits."""
    first, _, last = _runs("communication")[2]
    after = [
        (steps, reward)
        for steps, reward in zip(
            first.measured.rewards.learner_steps, first.measured.rewards.returns, strict=True
        )
        if steps > _first_good(first)
    ]
    fall = min(after, key=lambda pair: pair[1])
    late = list(zip(
        last.measured.rewards.learner_steps, last.measured.rewards.returns, strict=True
    ))
    before = late[-3]
    return (
        "- With 2 bits learning took longest with every seed, and was the least steady.\n"
        f"- Seed 0 fell to {fall[1]:.0f} after {fall[0]:,.0f} steps.\n"
        f"- Seed 2 was at {before[1]:.0f} after {before[0]:,.0f} steps. Only its last two "
        f"evaluations were good, {late[-2][1]:.1f} and {late[-1][1]:.1f}.\n"
        f"- Had the run stopped {late[-1][0] - before[0]:.0f} steps earlier, 2 bits would have "
        "failed."
    )


@functools.cache
def _cells(study: str, part: str) -> list[Cell]:
    record = tables.read_json(tables.ACTORQ_RESULTS / "network" / study / "network.json")
    return [cell for cell in record["cells"] if cell["part"] == part]


def _of(cells: Sequence[Cell], mbit: int, message: str) -> list[Cell]:
    found = [cell for cell in cells if (cell["mbit_s"], cell["message"]) == (mbit, message)]
    return sorted(found, key=lambda cell: cell["seed"])


def _link(mbit: int) -> str:
    return "1 Gbit/s" if mbit == 1000 else f"{mbit} Mbit/s"


def _wide_rows() -> list[Cell]:
    return _cells("first", "rates")


def _wide_table() -> str:
    """Returns the runs of 3x2048."""
    rows = []
    for mbit in _LINKS[:3]:
        for message in _MESSAGES:
            (cell,) = _of(_wide_rows(), mbit, message)
            rows.append([
                _link(mbit), message, f"{cell['message_mb']:.1f}", f"{cell['pull_s']:.2f}",
                f"{cell['staleness']:.1f}", tables.number(cell["actor_steps_s"]),
                f"{cell['learner_steps_s']:.2f}",
            ])
    return tables.table(
        ["Link", "message", "MB", "a pull, s", "staleness, learner steps",
         "actor steps/s", "learner steps/s"],
        rows, text_columns=2,
    )


def _rates(mbit: int, message: str) -> list[float]:
    found = _of(_cells("until_900", "reward"), mbit, message)
    return [cell["actor_steps_s"] for cell in found if cell["seed"] in _TWO_SEEDS]


def _ratio(mbit: int) -> float:
    """Returns the actor steps/s with 4-bit messages over those with fp32 messages."""
    return statistics.mean(_rates(mbit, "4 bits")) / statistics.mean(_rates(mbit, "fp32"))


def _rates_table() -> str:
    """Returns the actors' rates of 3x256."""
    sizes = {m: _of(_cells("until_900", "reward"), 20, m)[0]["message_mb"] for m in _MESSAGES}
    return tables.table(
        ["Link", *(f"{message} ({sizes[message]:.2f} MB)" for message in _MESSAGES),
         "4 bits / fp32"],
        [
            [_link(mbit), *(
                ", ".join(map(tables.number, _rates(mbit, message))) for message in _MESSAGES
            ), f"{_ratio(mbit):.2f}"]
            for mbit in _LINKS
        ],
    )


def _seconds(cell: Cell) -> str:
    return f"{cell['seconds']:.0f}" if cell["reached"] else f"not in {cell['seconds']:.0f}"


def _until_table() -> str:
    """Returns the times to the return of 3x256."""
    rows = []
    for mbit in _LINKS:
        for message in _MESSAGES:
            found = _of(_cells("until_900", "reward"), mbit, message)

            def middle(name: str, found: Sequence[Cell] = found) -> float:
                return statistics.median(cell[name] for cell in found)

            rows.append([
                _link(mbit), message, ", ".join(map(_seconds, found)),
                f"{middle('staleness'):.0f}", f"{middle('pull_s'):.2f}",
                ", ".join(f"{cell['learner_steps_s']:.0f}" for cell in found),
            ])
    return tables.table(
        ["Link", "message", "seconds until 900, by seed", "staleness, learner steps",
         "a pull, s", "learner steps/s, by seed"],
        rows, text_columns=2,
    )


@prose.wrapped
def _network_answer() -> str:
    fp32, four = (_of(_wide_rows(), 20, message)[0]["staleness"] for message in ("fp32", "4 bits"))
    return (
        f"**Answer.** At 20 Mbit/s a 3x2048 policy's weights lag by {fp32:.0f} learner steps with "
        f"fp32 messages, and by {four:.1f} with 4 bits. For 3x256, 4 bits make actors "
        f"{_ratio(20):.1f} times as fast on that link, but learning time changed at 2 Mbit/s only."
    )


@prose.wrapped
def _network_seconds() -> str:
    """Returns the age of the widest policy's weights, and what the fixed length showed."""
    (wide,) = _of(_wide_rows(), 20, "fp32")
    returns = [cell["episode_return"] for cell in _cells("first", "reward")]
    return (
        f"- Weights that lag by {wide['staleness']:.0f} learner steps are about "
        f"{wide['staleness'] / wide['learner_steps_s']:.0f} s old.\n"
        "- The return after 6,000 learner steps was measured too, as the mean of three "
        "evaluations of one seed. "
        f"It was {min(returns):.0f} to {max(returns):.0f} at any width, and says nothing."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "answer": _weights_answer,
    "staleness": _staleness_table,
    "fallen_seed": _fallen_seed,
    "communication": _communication_table,
    "narrow_reading": _narrow_reading,
    "network_answer": _network_answer,
    "network_wide": _wide_table,
    "network_rates": _rates_table,
    "network_until": _until_table,
    "network_caveats": _network_seconds,
}
