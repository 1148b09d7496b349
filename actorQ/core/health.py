"""Rules that see a stuck training in its logs, and say which flag helps.

Each rule states its threshold in its docstring. Returns are noisy, so that differences of means
count in their standard errors, from the spread of the returns on both sides. Learner and launcher
read the same logs, here and on a cluster. Imports no framework.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import math
import os
import statistics
from typing import NamedTuple

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import settings
from actorQ.core import telemetry

BOUND = 0.99  # An action number beyond +-BOUND counts as at its bound.

_FIRST = 3  # Evaluations that show the policy at the start: a quick run has learned by the fifth.
_WINDOW = 10  # Most evaluations in a running mean.
_SHORT_WINDOW = 5  # Evaluations in the running mean of a short run.
_SMALLEST_WINDOW = 3
_SMALLEST_LAST = 5  # Evaluations that a running mean needs while training goes on.
_BETTER_ERRORS = 2.0  # Standard errors by which a policy is better than at the start.
_ACTORS_BETTER_ERRORS = 3.0  # The same for actors' episodes, which vary with their exploration.
_BETTER_SHARE = 0.05  # Share of the range of all returns, likewise.
_FALL_ERRORS = 4.0  # Standard errors that make a fall: the best of many means is high by luck, too.
_FALL_SHARE = 0.25  # Share of the range of all returns, likewise.
_BOUNDS_SHARE = 0.95
_BOUNDS_EVALUATIONS = 3
_RANGE_SHARE = 0.25
_RANGE_ROWS = 10
_CONSTANT_EVALUATIONS = 2
_CONSTANT_TOLERANCE = 1e-3  # Rewards per step are float32 quotients.
_ACTOR_EPISODES = 20
_LASTING = {"noise_exponent": "1", "epsilon_zeta": "2"}  # Values that make exploration last.


class Remark(NamedTuple):
    """A finding in words.

    Attributes:
      kind: Name of the rule.
      short: Text for the live line.
      sentence: The finding and the flag that helps, in one sentence or two.
    """

    kind: str
    short: str
    sentence: str


class Findings(NamedTuple):
    """Everything that the logs say at one moment.

    Attributes:
      not_learned: Sentence on a policy that is no better than at the start; "" otherwise.
      remarks: One remark for each rule that holds, the most telling first.
      too_short: Whether a run ended before anything showed what its policy had at the start.
    """

    not_learned: str = ""
    remarks: Sequence[Remark] = ()
    too_short: bool = False


def is_better(
    first: Sequence[float], last: Sequence[float], standard_errors: float = _BETTER_ERRORS
) -> bool:
    """Returns whether the last returns are better than the first ones.

    Their means must differ by two standard errors, and by 5 % of the range of all these returns.

    Args:
      first: Returns at the start.
      last: Returns now.
      standard_errors: Standard errors that count in place of two.
    """
    gain = statistics.fmean(last) - statistics.fmean(first)
    limits = standard_errors * _standard_error(first, last), _BETTER_SHARE * _range(first, last)
    return gain > max(limits)


def fall(before: Sequence[float], last: Sequence[float]) -> tuple[float, float] | None:
    """Returns the best running mean before and the last mean, if returns fell; None otherwise.

    The last mean must be below the best one by four standard errors of both, and by a quarter of
    the range of all returns. A running mean is over a third of the evaluations before, but over
    five to ten of them. Where there are fewer than five, it is over all; fewer than three tell
    nothing.

    Args:
      before: Returns of the evaluations before the last ones.
      last: Returns of the last evaluations.
    """
    if len(before) < _SMALLEST_WINDOW or len(last) < 2:
        return None
    size = min(len(before), max(_SHORT_WINDOW, min(_WINDOW, len(before) // 3)))
    windows = [before[end - size : end] for end in range(size, len(before) + 1)]
    best = max(windows, key=statistics.fmean)
    high, now = statistics.fmean(best), statistics.fmean(last)
    # The spreads count apart: a good policy often has none, and a bad one has much.
    error = math.sqrt(
        statistics.variance(best) / size + statistics.variance(last) / len(last)
    )
    limits = _FALL_ERRORS * error, _FALL_SHARE * _range(before, last)
    return (high, now) if high - now > max(limits) else None


def stays_at_bounds(shares: Sequence[float]) -> bool:
    """Returns whether a policy's actions are at their bounds.

    In each of the last three evaluations over 95 % of all action numbers must be beyond +-0.99.
    A bang-bang policy that has learned does so as well: ask `is_better` before you report it.

    Args:
      shares: Share of the action numbers at their bounds, for each evaluation.
    """
    newest = shares[-_BOUNDS_EVALUATIONS:]
    at_bounds = [share > _BOUNDS_SHARE for share in newest]  # False for NaN.
    return len(newest) == _BOUNDS_EVALUATIONS and all(at_bounds)


def is_out_of_range(shares: Sequence[float]) -> bool:
    """Returns whether the critic's targets pile up at an end of its range.

    Over a quarter of their probability mass must lie beyond that end, as the mean of the last ten
    rows of the log.

    Args:
      shares: Share of the mass beyond the end, for each row of the log.
    """
    newest = shares[-_RANGE_ROWS:]
    return len(newest) == _RANGE_ROWS and statistics.fmean(newest) > _RANGE_SHARE


def constant_reward(
    evaluations: Mapping[str, Sequence[float]], train: Mapping[str, float]
) -> float | None:
    """Returns the only reward that was ever seen; None if there were several, or too few data.

    At least two evaluations, and all batches from replay, must have had one reward and no other.
    A constant reward is worth learning from where episodes end: evaluations must have equal
    returns, and replay no terminal state. Rewards of batches may differ by a thousandth, as
    rounding does that.

    Args:
      evaluations: Columns of the log of evaluations.
      train: Newest row of the learner's log.
    """
    lows, highs = evaluations.get("reward_low"), evaluations.get("reward_high")
    if not lows or not highs or len(lows) < _CONSTANT_EVALUATIONS:
        return None
    returns = evaluations["episode_return"]
    # A comparison with NaN is false: evaluations of an older version noted no rewards.
    if not all(reward == lows[0] for reward in (*lows, *highs)) or _range(returns):
        return None
    low, high = train.get("reward_low", math.nan), train.get("reward_high", math.nan)
    same = high - low <= _CONSTANT_TOLERANCE * max(abs(low), abs(high))
    return lows[0] if same else None


class Watch:
    """Reads the logs of a run under way, and those of evaluations only when they have grown."""

    def __init__(self, config: config_lib.RunConfig):
        """Reads nothing yet.

        Args:
          config: Configuration of the run, with its folder.
        """
        self._config = config
        learner = os.path.join(config.logpath, telemetry.LEARNER)
        self._train = os.path.join(learner, telemetry.TRAIN_CSV)
        self._evaluation = os.path.join(learner, telemetry.EVALUATION_CSV)
        self._seen: tuple[int, int] | None = None
        self._columns: Mapping[str, Sequence[float]] = {}
        self._first: Sequence[float] = ()
        self._last: Sequence[float] = ()
        self._fall: tuple[float, float] | None = None
        self._better = True
        self._too_short = False

    def look(self, final: bool = False) -> Findings:
        """Returns the findings so far.

        Args:
          final: Whether the run is over, so that its last evaluations are of one policy.
        """
        self._read_evaluations(final)
        # Rows before the first step, such as those after a resumption, have no such numbers.
        rows = [
            row for row in telemetry.last_rows(self._train, 2 * _RANGE_ROWS) if "reward_low" in row
        ]
        remarks = [
            self._reward_remark(rows[-1] if rows else {}),
            self._range_remark(rows, "targets_below_vmin", "vmin", "below", "lower"),
            self._range_remark(rows, "targets_above_vmax", "vmax", "above", "higher"),
            self._bounds_remark(),
            self._fall_remark(),
            self._start_remark(),
        ]
        return Findings(
            self._not_learned() if final else "",
            [found for found in remarks if found is not None],
            self._too_short,
        )

    def _read_evaluations(self, final: bool) -> None:
        try:
            state = (os.path.getsize(self._evaluation), int(final))
        except OSError:
            return
        if state == self._seen:
            return
        try:
            self._columns = telemetry.read_csv(self._evaluation)
        except errors.UserError:  # The log has no whole row yet.
            return
        self._seen = state
        returns = self._columns.get("episode_return", [])
        count = min(_WINDOW, len(returns) // 2)
        if final:
            count = min(len(returns), self._config.final_eval_episodes or max(1, count))
        before, last = returns[: len(returns) - count], returns[len(returns) - count :]
        self._first, self._last = before[:_FIRST], last
        self._fall = fall(before, last) if final or count >= _SMALLEST_LAST else None
        # A run may have learned before its first evaluation. Then its actors show this.
        good = (
            not last
            or self._is_good(last)
            or bool(self._first and is_better(self._first, last))
            or self._actors_better()
        )
        self._better = good or not self._first
        self._too_short = not good and not self._first

    def _is_good(self, returns: Sequence[float]) -> bool:
        """Returns whether returns are what the run was to reach, however good they began."""
        wanted = self._config.stop_return
        return wanted is not None and statistics.fmean(returns) >= wanted

    def _actors_better(self) -> bool:
        """Returns whether the actors' last episodes are better than those with the first weights.

        Exploration is in both. The means must differ by three standard errors.
        """
        first: list[float] = []
        last: list[float] = []
        try:
            folders = telemetry.actor_folders(self._config.logpath)
        except errors.UserError:
            return False
        for folder in folders:
            path = os.path.join(folder, telemetry.EPISODES_CSV)
            rows = telemetry.first_rows(path, _ACTOR_EPISODES)
            # An episode may outlast the first weights. It is still the least trained one.
            untrained = [row for row in rows if row.get("model_version") == 0] or rows[:1]
            newest = [
                row for row in telemetry.last_rows(path, _WINDOW) if row.get("model_version", 0) > 0
            ]
            first += [row["episode_return"] for row in untrained if "episode_return" in row]
            last += [row["episode_return"] for row in newest if "episode_return" in row]
        return bool(first and last) and is_better(first, last, _ACTORS_BETTER_ERRORS)

    def _not_learned(self) -> str:
        if self._better:
            return ""
        return (
            f"Not learned: return {statistics.fmean(self._last):.1f} (the first evaluations had "
            f"{statistics.fmean(self._first):.1f})."
        )

    def _reward_remark(self, train: Mapping[str, float]) -> Remark | None:
        reward = constant_reward(self._columns, train)
        if reward is None:
            return None
        # Exploration that lasts helps most. Where it is on, more of it is left.
        if "policy_loss" in train:  # D4PG
            flag, lasting, value = "sigma", "noise_exponent", self._config.noise_exponent
        else:
            flag, lasting, value = "epsilon_max", "epsilon_zeta", self._config.epsilon_zeta
        short, remedy = f"--{flag}", f"with a larger --{flag}"
        if not value:
            short = f"--{lasting}"
            remedy = f"with --{lasting}={_LASTING[lasting]}, or {remedy}"
        return Remark(
            "reward", f"only rewards of {reward:g}: {short}",
            f"Every reward so far was {reward:g}: explore more, {remedy}.",
        )

    def _range_remark(
        self, rows: Sequence[Mapping[str, float]], column: str, flag: str, side: str, other: str
    ) -> Remark | None:
        shares = [row[column] for row in rows if column in row]
        if not is_out_of_range(shares):
            return None
        share, limit = statistics.fmean(shares[-_RANGE_ROWS:]), getattr(self._config, flag)
        if limit == settings.AUTO:
            bound, remedy = f"the --{flag} that was found", f"give a {other} --{flag}"
        else:
            bound, remedy = f"--{flag}={limit:g}", f"take a {other} --{flag}, or auto"
        return Remark(
            flag, f"targets {side} --{flag}",
            f"{share:.0%} of the critic's targets lie {side} {bound}: {remedy}.",
        )

    def _bounds_remark(self) -> Remark | None:
        shares = self._columns.get("actions_at_bounds")
        if self._better or not shares or not stays_at_bounds(shares):
            return None
        remedy, short = "a smaller --policy_learning_rate", "--policy_learning_rate"
        if not self._config.invert_gradients:
            remedy, short = f"--invert_gradients=1, or {remedy}", "--invert_gradients=1"
        return Remark(
            "bounds", f"actions at bounds: {short}",
            f"The policy's actions stay at their bounds: try {remedy}.",
        )

    def _start_remark(self) -> Remark | None:
        if not self._too_short:
            return None
        return Remark(
            "start", "no evaluation at the start: --eval_period_s",
            "No evaluation shows what the policy had at the start: train longer, or evaluate more "
            "often (--eval_period_s).",
        )

    def _fall_remark(self) -> Remark | None:
        if self._fall is None:
            return None
        high, now = self._fall
        remedy = "actorQ.evaluate --best plays the best weights, which are kept"
        if not self._config.average_policy_steps:
            remedy += ". Another run may fall less with --average_policy_steps=500"
        return Remark(
            "fall", "returns fell: evaluate --best",
            f"Returns fell from {high:.1f} to {now:.1f}: {remedy}.",
        )


def _range(*groups: Sequence[float]) -> float:
    values = [value for group in groups for value in group]
    return max(values) - min(values)


def _standard_error(first: Sequence[float], last: Sequence[float]) -> float:
    """Returns the standard error of the difference of two means, from the pooled spread."""
    freedom = len(first) + len(last) - 2
    if freedom < 1:
        return 0.0
    squares = sum(
        (value - mean) ** 2
        for group in (first, last) for mean in (statistics.fmean(group),) for value in group
    )
    return math.sqrt(squares / freedom * (1 / len(first) + 1 / len(last)))
