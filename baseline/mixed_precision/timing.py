"""Run time of DQN's training, fp32 against half precision: sides in turns, each in its process.

Every side (a precision) has a process of its own, which has a peak memory of its own. Only one of
them works at a time. A turn is a stretch of ordinary training: environment steps, with a gradient
step after every fourth.
"""

from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import contextlib
import dataclasses
import multiprocessing
import os
import statistics
import time
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

from absl import logging
import numpy as np

from actorQ.core import errors
from actorQ.core import output
from actorQ.core import timing
from baseline.quantization import names as precision_lib
from baseline.study import bars
from baseline.study import paper
from baseline.study import parallel

if TYPE_CHECKING:
    from baseline.mixed_precision import wide_policies
    from baseline.train import precision_choice

NAME = "mixed_precision_timing"
_WARM_UP_TURNS = 1
_HEADER = (
    "policy", "threads", "precision", "gradient step ms", "environment step ms",
    "gradient steps' share", "run time per 1M steps h", "peak memory MB", "gradient step: speed-up",
    "run time: speed-up", "the paper's",
)


@dataclasses.dataclass(frozen=True)
class AtariSettings:
    """Settings of timing and parity; see the flags of `mixed_precision`.

    Attributes:
      env: Atari game.
      policies: Names in `paper.MIXED_PRECISION`.
      precision: Precision to compare with fp32; auto (timing only): chosen for each policy.
      gradient_steps: Gradient steps in a turn (timing), or in all (parity).
      transitions: Transitions in the replay buffer.
      seed: Seed of everything random.
      device: "cpu" or "cuda".
    """

    env: str
    policies: tuple[str, ...]
    precision: str
    gradient_steps: int
    transitions: int
    seed: int
    device: str


@dataclasses.dataclass(frozen=True)
class Settings(AtariSettings):
    """The measurement's settings: each of these numbers of torch's threads, turns of a side."""

    threads: tuple[int, ...]
    turns: int


class Turn(NamedTuple):
    """A stretch of training.

    Attributes:
      seconds: Seconds in all.
      gradient_s: Seconds in gradient steps.
      cpu_s: CPU seconds of all threads.
    """

    seconds: float
    gradient_s: float
    cpu_s: float


@dataclasses.dataclass(frozen=True)
class Row:
    """A side's figures.

    Attributes:
      policy: Name in `paper.MIXED_PRECISION`.
      threads: Threads of torch.
      precision: Measured precision.
      asked: Precision that was asked for, perhaps auto.
      reason: Reason why it became `precision`.
      turns: Turns in their order.
      peak_bytes: Peak memory of the process (on a GPU: of the GPU), with the replay buffer.
    """

    policy: str
    threads: int
    precision: str
    asked: str
    reason: str
    turns: tuple[Turn, ...]
    peak_bytes: int


def run(settings: Settings, out: str | None) -> list[Row]:
    """Measures and reports; returns the rows, fp32 first for each policy and number of threads.

    Raises:
      errors.UserError: The environment is no Atari game, or the folder cannot be written.
    """
    if out:
        output.make_folder(out)
    rows = []
    for policy in settings.policies:  # A policy's figures are kept even if the next one fails.
        for threads in settings.threads:
            with parallel.stopped_by_signals():
                rows += measure(settings, policy, threads)
        report(rows, settings, out)
    return rows


def measure(settings: Settings, policy: str, threads: int) -> list[Row]:
    """Returns a policy's row in fp32, and its row in the precision asked for if that differs.

    Args:
      settings: Settings of the measurement.
      policy: One of its policies.
      threads: Threads of torch.
    """
    asked, reason = settings.precision, "as asked for"
    precision = asked
    if asked == precision_lib.AUTO:
        with _process() as process:
            precision, reason = process.submit(_choose, settings, policy, threads).result()
        logging.info("Policy %s, %d thread(s): %s, %s.", policy, threads, precision, reason)
    sides = [(precision_lib.FP32, precision_lib.FP32, "the reference")]
    if asked != precision_lib.FP32:
        sides.append((precision, asked, reason))
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(_process()) for _ in sides]
        for process, (precision, name, _) in zip(processes, sides, strict=True):
            process.submit(_build, settings, policy, threads, precision, name).result()
        turns: list[list[Turn]] = [[] for _ in sides]
        for number in range(settings.turns):
            for process, (_, name, _), found in zip(processes, sides, turns, strict=True):
                found.append(process.submit(_take_turn, name, settings.gradient_steps).result())
            logging.info("Policy %s: turn %d of %d.", policy, number + 1, settings.turns)
        peaks = [
            process.submit(_peak, name).result()
            for process, (_, name, _) in zip(processes, sides, strict=True)
        ]
    return [
        Row(policy, threads, *side, tuple(found), peak)
        for side, found, peak in zip(sides, turns, peaks, strict=True)
    ]


@contextlib.contextmanager
def _process() -> Iterator[futures.Executor]:
    """Gives a process whose `_models` stay from call to call."""
    others = multiprocessing.active_children()
    process = futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    try:
        with parallel.starting_workers():
            process.submit(os.getpid)  # The process starts with its first task.
        yield process
        process.shutdown()
    except BaseException as error:
        parallel.end(process, others)
        if isinstance(error, futures.process.BrokenProcessPool):
            raise errors.UserError(
                "A measuring process died (out of memory? Policy C takes some 4 GB for each "
                "precision): --policy chooses others."
            ) from None
        raise


# --- Called in a side's process ---

_models: dict[str, "wide_policies.TimedDqn"] = {}  # Keys are precisions as asked for.


def _choose(settings: Settings, policy: str, threads: int) -> "precision_choice.Choice":
    model = _model(settings, policy, threads)
    from baseline.train import precision_choice

    return precision_choice.choose(model)


def _build(settings: Settings, policy: str, threads: int, precision: str, name: str) -> None:
    model = _model(settings, policy, threads)
    from baseline.mixed_precision import wide_policies
    from baseline.train import half_precision

    half_precision.apply(model, precision)
    _models[name] = model
    # These steps are random, up to the last one before gradient steps begin.
    wide_policies.play(model, model.learning_starts)
    for _ in range(_WARM_UP_TURNS):
        _take_turn(name, settings.gradient_steps)


def _model(settings: Settings, policy: str, threads: int) -> "wide_policies.TimedDqn":
    import torch

    from actorQ.core import allocator
    from actorQ.core import lean_imports

    allocator.keep_large_blocks()  # A training does so, too.
    torch.set_num_threads(threads)
    with lean_imports.without("tensorboard"):  # It imports TensorFlow.
        from baseline.mixed_precision import wide_policies
    return wide_policies.make(
        settings.env, policy, settings.seed, settings.device,
        settings.transitions // wide_policies.TRAIN_FREQ * wide_policies.TRAIN_FREQ,
    )


def _take_turn(name: str, gradient_steps: int) -> Turn:
    from baseline.mixed_precision import wide_policies

    model = _models[name]
    wall, cpu, gradient_s = time.perf_counter(), time.process_time(), model.gradient_s
    wide_policies.play(model, gradient_steps * wide_policies.TRAIN_FREQ)
    return Turn(
        time.perf_counter() - wall, model.gradient_s - gradient_s, time.process_time() - cpu
    )


def _peak(name: str) -> int:
    from baseline.mixed_precision import wide_policies

    return wide_policies.peak_bytes(_models[name].device)


# --- The report ---


def summary(row: Row, reference: Row, settings: Settings) -> dict[str, Any]:
    """Returns a row's medians and speed-ups; a speed-up is the median over the turns.

    Args:
      row: Row of any precision.
      reference: Row of fp32, whose turns were between those of `row`.
      settings: Settings of both.
    """
    steps = settings.gradient_steps
    environment_steps = 4 * steps
    whole = [turn.seconds for turn in row.turns]
    gradient = [turn.gradient_s for turn in row.turns]
    rest = [turn.seconds - turn.gradient_s for turn in row.turns]
    speedups = {
        name: [
            getattr(full, field) / getattr(turn, field)
            for turn, full in zip(row.turns, reference.turns, strict=True)
        ]
        for name, field in (("gradient", "gradient_s"), ("whole", "seconds"), ("cpu", "cpu_s"))
    }
    low, high = np.percentile(speedups["whole"], (25, 75))
    return {
        "policy": row.policy, "threads": row.threads, "precision": row.precision,
        "asked": row.asked,
        "gradient_step_ms": 1e3 * statistics.median(gradient) / steps,
        "environment_step_ms": 1e3 * statistics.median(rest) / environment_steps,
        "gradient_share": statistics.median(
            part / all_ for part, all_ in zip(gradient, whole, strict=True)
        ),
        "hours_per_million_steps": statistics.median(whole) / environment_steps * 1e6 / 3600,
        "peak_bytes": row.peak_bytes,
        "gradient_speedup": statistics.median(speedups["gradient"]),
        "speedup": statistics.median(speedups["whole"]),
        "speedup_low": float(low), "speedup_high": float(high),
        "cpu_speedup": statistics.median(speedups["cpu"]),
        "paper_speedup": paper.MIXED_PRECISION[row.policy].speedup,
    }


def report(rows: Sequence[Row], settings: Settings, out: str | None) -> None:
    """Prints the table; with `out` writes it (.md), the medians (.csv) and every turn (.json).

    Raises:
      errors.UserError: The folder cannot be written.
    """
    references = {
        (row.policy, row.threads): row for row in rows if row.asked == precision_lib.FP32
    }
    summaries = [summary(row, references[row.policy, row.threads], settings) for row in rows]
    timing.report(
        NAME,
        f"DQN on {settings.env}: medians of {settings.turns} turns of {settings.gradient_steps} "
        "gradient steps (batches of 32) with 4 environment steps each, both precisions in turns, "
        f"on {settings.device}",
        _HEADER,
        [_cells(each) for each in summaries],
        {
            "settings": dataclasses.asdict(settings), "medians": summaries,
            "rows": [
                {**dataclasses.asdict(row), "turns": [turn._asdict() for turn in row.turns]}
                for row in rows
            ],
        },
        out,
        notes=[
            "run time: environment steps (one in a hundred actions is random) and gradient steps "
            "together, [quartiles of the turns]; the paper's is of whole trainings with fp16 on "
            "its GPU",
            "memory: of the process (on a GPU: the GPU's), with a replay buffer of "
            f"{settings.transitions} transitions (a training has 100,000, 5.6 GB)",
            *(
                f"policy {row.policy}, {row.threads} thread(s): auto is {row.precision}: "
                f"{row.reason}"
                for row in rows if row.asked == precision_lib.AUTO
            ),
        ],
    )
    if out:
        output.write_csv(os.path.join(out, f"{NAME}.csv"), summaries)
        draw(summaries, os.path.join(out, f"{NAME}.png"))


def draw(summaries: Sequence[dict[str, Any]], path: str) -> None:
    """Draws the speed-ups of half precision beside the paper's, if there is any.

    Args:
      summaries: Rows of the table of medians.
      path: File to write, a PNG.
    """
    compared = {
        f"{paper.MIXED_PRECISION[each['policy']].name}, {each['precision']}, "
        f"{each['threads']} thread{'s' * (each['threads'] != 1)}": bars.Bar(
            each["speedup"], each["paper_speedup"], each["precision"]
        )
        for each in summaries if each["asked"] != precision_lib.FP32
    }
    if compared:
        bars.draw(compared, "Speed-up: run time in fp32 / in half precision", path)


def _cells(each: dict[str, Any]) -> list[str]:
    size = paper.MIXED_PRECISION[each["policy"]]
    compared = each["asked"] != precision_lib.FP32
    automatic = each["asked"] == precision_lib.AUTO
    return [
        f"{each['policy']} (3x{size.filters}, {size.units})", str(each["threads"]),
        f"{each['precision']} (auto)" if automatic else each["precision"],
        f"{each['gradient_step_ms']:.2f}", f"{each['environment_step_ms']:.2f}",
        f"{100 * each['gradient_share']:.0f}%", f"{each['hours_per_million_steps']:.2f}",
        f"{each['peak_bytes'] / 1e6:.0f}",
        f"{each['gradient_speedup']:.2f}" if compared else "",
        f"{each['speedup']:.2f} [{each['speedup_low']:.2f}, {each['speedup_high']:.2f}]"
        if compared else "",
        f"{each['paper_speedup']:.2f}" if compared else "",
    ]
