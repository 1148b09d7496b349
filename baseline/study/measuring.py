"""Quantizes an agent, evaluates it, and adds the row: `ptq` does so once, `sweep` often."""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import os
import pathlib
import re
import time
from typing import Any

from absl import logging

from actorQ.core import errors
from actorQ.core import provenance
from baseline.agents import agent as agent_lib
from baseline.agents import calibration
from baseline.agents import evaluation
from baseline.agents import post_training
from baseline.quantization import recipes
from baseline.quantization import schemes
from baseline.quantization import weight_statistics
from baseline.study import method_rows
from baseline.study import qat_rows
from baseline.study import row_agents
from baseline.study import rows as rows_lib

_CALIBRATED = re.compile(r"\bcalibrated-(\d+)")  # A part of a row's note.


def key(
    algo: str, env: str, scheme: schemes.Scheme, seeds: Sequence[int], episodes: int
) -> rows_lib.Key:
    """Returns the key of a row with so many episodes for each seed."""
    return rows_lib.Key(
        algo, env, scheme.bits, scheme.scheme, scheme.granularity, scheme.rounding,
        ",".join(map(str, seeds)), episodes * len(seeds),
    )


@dataclasses.dataclass(frozen=True)
class Request:
    """One row to measure.

    Attributes:
      algo: one of `finding.ALGORITHMS`; for ActorQ: d4pg, dqn.
      env: environment; ActorQ's have a comma: "dm_control,cheetah_run".
      scheme: how to quantize; bits "fp32" make the row that others are compared with.
      folder: folder of agents in the zoo's layout; for ActorQ: a run folder.
      out: folder that gets the quantized agents (BITS/...) and the rows (ptq.csv).
      seeds: seeds of the environments.
      episodes: episodes for each seed.
      calibration_episodes: episodes that find the ranges of activations.
      note: remark for the row.
      input_bits: bits of observations, where activations are quantized to integers; None: the
        scheme's.
      output: whether the last layer's output is quantized with the activations.
      calibration_states: states that methods other than minmax calibrate with, at most.
    """

    algo: str
    env: str
    scheme: schemes.Scheme
    folder: str
    out: str
    seeds: tuple[int, ...]
    episodes: int
    calibration_episodes: int = calibration.EPISODES
    note: str = ""
    input_bits: int | None = None
    output: bool = False
    calibration_states: int = post_training.STATES

    @property
    def key(self) -> rows_lib.Key | method_rows.MethodKey:
        """The key of the row."""
        scheme = self.scheme
        if scheme.calibrates:
            return method_rows.MethodKey(self.evaluation, scheme.method, scheme.group_size)
        return self.evaluation

    @property
    def evaluation(self) -> rows_lib.Key:
        """The key of the evaluation, which does not tell methods apart."""
        return key(self.algo, self.env, self.scheme, self.seeds, self.episodes)

    @property
    def kind(self) -> type[rows_lib.Row]:
        """The class of the row."""
        return method_rows.MethodRow if self.scheme.calibrates else rows_lib.Row

    @property
    def row_note(self) -> str:
        """The row's note: `note`, and the calibration unless it is the default."""
        other = self.scheme.activations and self.calibration_episodes != calibration.EPISODES
        calibrated = qat_rows.calibrated(self.calibration_episodes) if other else ""
        return "; ".join(part for part in (self.note, calibrated) if part)

    @property
    def full_precision(self) -> "Request":
        """The request for the row that this one is compared with."""
        return dataclasses.replace(self, scheme=schemes.Scheme(schemes.FP32))

    @property
    def csv_path(self) -> str:
        """The file of the row."""
        calibrates = self.scheme.calibrates
        return os.path.join(self.out, method_rows.CSV_NAME if calibrates else rows_lib.CSV_NAME)

    def rows(self) -> dict[Any, rows_lib.Row]:
        """Returns the rows of its file that are there, by key."""
        return rows_lib.measured_rows(self.csv_path, self.kind)


def measure(
    request: Request,
    agent: agent_lib.Agent | None = None,
    states: post_training.States | None = None,
    save: bool = True,
) -> rows_lib.Row:
    """Quantizes, saves, evaluates, and appends the row (and fp32's, where that is missing).

    Args:
      request: the row.
      agent: the agent, which is quantized in place; None: it is loaded here.
      states: the agent's states for methods that calibrate; None: they are collected here.
      save: whether the quantized agent is written.

    Raises:
      errors.UserError: the agent cannot be loaded or quantized, or the folder holds rows of
        another agent of the same name.
    """
    if agent is None:
        agent = row_agents.load_agent(request.algo, request.env, request.folder)
    row_agents.check_same_agent(request, agent.path)
    if agent.quantization is not None:
        earlier = agent.quantization[0]
        remark = f"the agent had {earlier.bits} bits before ({earlier.scheme})"
        note = "; ".join(part for part in (request.note, remark) if part)
        request = dataclasses.replace(request, note=note)
    reference = None
    if request.scheme.bits != schemes.FP32:
        baseline = request.full_precision
        if baseline.key not in baseline.rows():
            _measure(baseline, agent, None)
        # The row comes from the file, which has fewer digits, so that E is the same next time.
        reference = baseline.rows()[baseline.key]
    return _measure(request, agent, reference, states, save)


def _measure(
    request: Request,
    agent: agent_lib.Agent,
    reference: rows_lib.Row | None,
    states: post_training.States | None = None,
    save: bool = True,
) -> rows_lib.Row:
    outcome = None
    if reference is not None and request.scheme.calibrates:
        settings = post_training.Settings(
            request.calibration_states, request.calibration_episodes, request.input_bits,
            request.output,
        )
        if states is None:
            states = post_training.collect(agent, settings)
        outcome = post_training.quantize(agent, request.scheme, settings, states)
        log_outcome(request, outcome)
        num_bytes = outcome.num_bytes
    elif reference is not None:
        ranges = None
        if request.scheme.activations:
            ranges = calibration.ranges(
                agent, request.calibration_episodes, input_bits=request.input_bits,
                output=request.output,
            )
        num_bytes = schemes.quantize_weights(agent.network, request.scheme)
        agent.note_quantization(request.scheme, ranges)
    else:
        num_bytes = schemes.quantize_weights(agent.network, schemes.Scheme(schemes.FP32))
    if reference is not None and save:
        agent.save(quantized_folder(request))
    started = time.perf_counter()
    returns = play(agent, request.seeds, request.episodes)
    seconds = time.perf_counter() - started
    row = row_of(
        agent, request.evaluation, returns, None if reference is None else reference.returns,
        bytes=num_bytes, seconds=seconds, note=request.row_note,
    )
    if outcome is not None and states is not None:
        row = method_rows.of_method(
            row, method=request.scheme.method, chosen=outcome.method,
            group_size=request.scheme.group_size, states=len(states.calibration),
            agreement=outcome.agreement.alike, deviation=outcome.agreement.mean,
        )
    rows_lib.append(request.csv_path, row)
    return row


def play(agent: agent_lib.Agent, seeds: Sequence[int], episodes: int) -> list[float]:
    """Returns the returns of so many episodes for each seed, seed-major."""
    return [
        episode.episode_return
        for seed in seeds
        for episode in evaluation.evaluate(agent.make_env, agent.act, episodes, seed)
    ]


def row_of(
    agent: agent_lib.Agent,
    key: rows_lib.Key,
    returns: Sequence[float],
    fp32_returns: Sequence[float] | None = None,
    **columns: Any,
) -> rows_lib.Row:
    """Returns the row of an evaluation, with facts about the agent's weights and the code.

    `columns` are the row's bytes, seconds and note; see `rows.measured` for the returns.
    """
    spread = weight_statistics.spread(agent.weights())
    return rows_lib.measured(
        key,
        returns,
        fp32_returns,
        weight_min=spread.minimum,
        weight_max=spread.maximum,
        weight_range=spread.range,
        weight_width=spread.width,
        commit=provenance.git_commit(),
        **columns,
    )


def quantized_folder(request: Request) -> pathlib.Path:
    """Returns the quantized agent's folder: OUT/BITS, and settings other than the default.

    A method's commas become plus signs there.
    """
    scheme = request.scheme
    parts = [scheme.bits]
    if scheme.activations:
        parts.append("activations")
    parts += rows_lib.not_default(
        granularity=scheme.granularity, rounding=scheme.rounding
    ).values()
    if scheme.method != recipes.MINMAX:
        parts.append(scheme.method.replace(",", "+"))
    if scheme.group_size:
        parts.append(f"groups{scheme.group_size}")
    return pathlib.Path(request.out, "-".join(parts))


def check_same_calibration(requests: Iterable[Request], rows: Iterable[rows_lib.Row]) -> None:
    """Refuses to mix rows of one agent with ranges from other numbers of episodes.

    The default calibration found the ranges of rows without a note.

    Raises:
      errors.UserError: requests and rows have different calibrations.
    """
    there = {}
    for row in rows:
        if row.scheme == schemes.WEIGHTS_AND_ACTIVATIONS:
            noted = _CALIBRATED.search(row.note)
            there[row.algo, row.env] = int(noted[1]) if noted else calibration.EPISODES
    for request in requests:
        asked = request.calibration_episodes
        found = there.get((request.algo, request.env), asked)
        if request.scheme.activations and found != asked:
            raise errors.UserError(
                f"{request.csv_path} holds rows of {request.algo} {request.env} with ranges from "
                f"{found} --calibration_episodes, not {asked}: give another --out."
            )


def summary(row: rows_lib.Row, reference: rows_lib.Row | None = None) -> str:
    """Returns a row for people, one line."""
    unusual = _unusual(row)
    how = f" ({', '.join(unusual)})" if unusual else ""
    if isinstance(row, method_rows.MethodRow) and row.chosen != row.method:
        how = f" ({', '.join([*unusual, f'chosen: {row.chosen}'])})"
    text = (
        f"{row.algo} {row.env} {row.bits:>4}{how}: return {row.mean:.2f} +- {row.std:.2f} over "
        f"{row.episodes} episodes"
    )
    if row.error is not None:
        text += f", E {100 * row.error:+.2f} %"
        if row.error_low is not None and row.error_high is not None:
            text += f" [{100 * row.error_low:+.2f}, {100 * row.error_high:+.2f}]"
    if reference is not None:
        text += f" (fp32 {reference.mean:.2f})"
    if isinstance(row, method_rows.MethodRow):
        text += f", agreement {100 * row.agreement:.2f} %"
    return f"{text}, {row.bytes} bytes, {row.seconds:.1f} s"


def _unusual(how: rows_lib.Row | schemes.Scheme) -> list[str]:
    """Returns in what a quantization differs from the paper's, such as ["channel", "floor"]."""
    plain = schemes.Scheme(how.bits)
    names = ("scheme", "granularity", "rounding")
    found = [getattr(how, name) for name in names if getattr(how, name) != getattr(plain, name)]
    if isinstance(how, method_rows.MethodRow | schemes.Scheme):
        found += [how.method] if how.method != recipes.MINMAX else []
        found += [f"groups of {how.group_size}"] if how.group_size else []
    return found


def parse_seeds(text: str, flag: str = "seeds") -> tuple[int, ...]:
    """Returns the seeds of "0,2,4".

    Raises:
      errors.UserError: these are not different numbers, 0 or more.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len({*map(int, parts)}) != len(parts):
        raise errors.UserError(
            f"--{flag}={text!r} are not different numbers, 0 or more, such as 0,2,4."
        )
    return tuple(map(int, parts))


def log_outcome(request: Request, outcome: post_training.Outcome) -> None:
    """Logs how far the actions agree, and what `auto` has compared."""
    if outcome.tried:
        compared = ", ".join(f"{method} {found}" for method, found in outcome.tried.items())
        logging.info(
            "%s %s: auto chose %s by the actions in states held out of the calibration: %s.",
            request.algo, request.env, outcome.method, compared,
        )
    else:
        logging.info(
            "%s %s: %s acts as full precision in %s of the states held out of the calibration.",
            request.algo, request.env, outcome.method, outcome.agreement,
        )


def log_start(request: Request) -> None:
    """Logs the request that is going to be measured."""
    bits = request.scheme.bits
    logging.info(
        "%s %s at %s (%s), %d episodes for each of the seeds %s.",
        request.algo, request.env, f"{bits} bits" if bits.isdecimal() else bits,
        ", ".join(dict.fromkeys([request.scheme.scheme, *_unusual(request.scheme)])),
        request.episodes, ", ".join(map(str, request.seeds)),
    )
