"""Blocks of results/beside-others: our figures beside those that others publish."""

from collections.abc import Iterator
from collections.abc import Mapping
import functools
import statistics
from typing import Any

import yaml

from actorQ.experiments import specification
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reporting
from actorQ.experiments.run_logs import paper
from docs.generators import prose
from docs.generators import tables
from docs.generators.training import gpu
from docs.generators.training import reward_runs
from docs.generators.training import time_to_reward_six

_FILE = tables.ROOT / "docs" / "results" / "published_by_others.yaml"
_PAPER = "[paper](https://arxiv.org/abs/1910.01055)"
_OURS = "[ours](time-to-reward.md)"
_SIX = "[ours](time-to-reward-six.md)"
_PEERS = "[ours](time-to-reward-peers.md)"
_PAPERS_MACHINE = "V100, 4 cores"
_WIDTHS = (64, 256, 512, 1024, 2048)
# Names of actorQ.benchmarks.inference for engine and precision.
_ENGINES = (
    "native int8", "native int4", "native fp32", "ORT int8", "ORT fp32", "torch int8", "torch fp32",
)
_MICRO = 1e6


@functools.cache
def _published() -> Mapping[str, list[dict[str, str]]]:
    found: Mapping[str, list[dict[str, str]]] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return found


def _trainings() -> str:
    head = ["Task", "System", "Hardware", "Result", "Time", "Date", "Source"]
    lines = []
    for task in dict.fromkeys(one["task"] for one in _published()["trainings"]):
        name = specification.short_task(task)
        for cells in (*_ours(task), *_papers(task), *_theirs(task)):
            lines.append([name, *cells])
            name = ""
    return tables.table(head, lines, 7)


def _ours(task: str) -> Iterator[list[str]]:
    """Yields our own rows: the main setting, the one with many samples per insert, a GPU."""
    if task in time_to_reward_six.TASKS:
        rows, source = time_to_reward_six.rows()[task], _SIX
    else:
        rows, source = reward_runs.rows("time_to_reward")[task], _OURS
    for side in (reward_runs.INT8, reward_runs.FP32):
        yield _our_row(rows[side], f"ActorQ, {rows[side].name} actors", source)
    if task != reward_runs.CARTPOLE_BALANCE:
        return
    wider = reward_runs.rows("wider_noise")[task][reward_runs.INT8]
    yield _our_row(wider, "ActorQ, int8 actors, `--sigma 0.5`", _OURS)
    bound = reward_runs.rows("learner_bound")[task]
    names = {
        reward_runs.INT8: "ActorQ, int8 actors, 16 samples per insert",
        reward_runs.FP32: "ActorQ, fp32 actors, 16 samples per insert",
        reward_runs.SB3: "SB3's TD3, run by us",
        reward_runs.ACME: "Acme's D4PG, run by us",
    }
    for side, name in names.items():
        yield _our_row(bound[side], name, _PEERS)
    int8 = gpu.run("int8").held
    yield [
        "ActorQ, int8 actors, GPU learner", "H200, 16 cores, Intel Xeon", "941.22 held",
        f"{tables.number(int8.seconds)} s, 1 seed", "2026-11", "[ours](gpu.md)",
    ]


def _our_row(row: reaching.Row, name: str, source: str) -> list[str]:
    date = max(result.date for result in row.results)[:7]
    reward = f"{row.results[0].measured.target:g}"
    if not row.median.reached:
        reward = f"{time_to_reward_six.best(row):.0f} of {reward}"
    seeds = reporting.seeds(len(row.results))
    processors = dict.fromkeys(map(reward_runs.processor, row.results))
    hardware = f"2 cores, {reward_runs.joined(processors)}"
    time = f"{tables.number(row.median.seconds)} s, {seeds}"
    return [name, hardware, f"{reward} held", time, date, source]


def _papers(task: str) -> Iterator[list[str]]:
    row = paper.SPEEDUPS[task]
    for side, seconds in (("int8", row.int8_s), ("fp32", row.fp32_s)):
        yield [
            f"the paper's ActorQ, {side} actors", _PAPERS_MACHINE, f"{row.reward:g} reached",
            f"{tables.number(seconds)} s", "2021", _PAPER,
        ]


def _theirs(task: str) -> Iterator[list[str]]:
    for one in _published()["trainings"]:
        if one["task"] == task:
            yield [
                one["system"], one["hardware"], one["result"], one["time"], one["date"],
                f"[source]({one['source']})",
            ]


def _other_tasks() -> str:
    names = ("task", "system", "hardware", "result", "time", "date")
    return tables.table(
        ["Task", "System", "Hardware", "Result", "Time", "Date", "Source"],
        [
            [*(one[name] for name in names), f"[source]({one['source']})"]
            for one in _published()["other_tasks"]
        ],
        7,
    )


@functools.cache
def _benchmark() -> Mapping[str, Any]:
    path = tables.ACTORQ_RESULTS / "benchmarks" / "inference.json"
    found: Mapping[str, Any] = tables.read_json(path)
    return found


def microseconds(width: int, engine: str) -> float:
    """Returns the median time of one observation through three layers of a width.

    Args:
      width: Units of each layer.
      engine: Engine and precision as the benchmark names them, e.g. 'native int8'.
    """
    medians: list[float] = _benchmark()[f"3x{width}"]["seconds"][engine]
    return _MICRO * statistics.median(medians)


def _our_inference() -> str:
    head = ["Engine", *(f"3x{width}, µs" for width in _WIDTHS)]
    lines = [
        [engine, *(tables.number(microseconds(width, engine), 1) for width in _WIDTHS)]
        for engine in _ENGINES
    ]
    return tables.table(head, lines)


def _their_inference() -> str:
    names = ("engine", "network", "hardware", "microseconds", "date")
    return tables.table(
        ["Engine", "Network", "Hardware", "µs", "Date", "Source"],
        [
            [*(one[name] for name in names), f"[source]({one['source']})"]
            for one in _published()["inference"]
        ],
        6,
    )


@prose.wrapped
def _answer() -> str:
    rows = reward_runs.rows("time_to_reward")
    balance, stand = (
        tables.number(rows[task][reward_runs.INT8].median.seconds)
        for task in (reward_runs.CARTPOLE_BALANCE, reward_runs.WALKER_STAND)
    )
    return (
        "**Answer.** "
        "On two cores int8 actors held cartpole_balance's and walker_stand's rewards after "
        f"{balance} and {stand} s, sooner than SLM-Lab's and CleanRL's whole trainings end. "
        "Systems that simulate on a GPU are far faster on CartPole and Acrobot."
    )


BLOCKS: dict[str, reward_runs.Block] = {
    "answer": _answer,
    "trainings": _trainings,
    "other_tasks": _other_tasks,
    "our_inference": _our_inference,
    "their_inference": _their_inference,
}
