"""Stuck trainings are seen in their logs, and trainings that go well are left in peace."""

import json
import math
import pathlib
import re

import numpy as np
import pytest

from actorQ.core import config as config_lib
from actorQ.core import health
from actorQ.core import telemetry

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Runs on record whose last policy is no better than the first ones, and runs whose returns fell.
NOT_LEARNED = {
    "final_reward_2048/cartpole_balance-fp32-s2",
    "final_reward_2048/cartpole_balance-int8-s1",
    "tasks/CartPole-v1-zoo-s0",
    "tasks/pendulum_swingup-zoo-s0",
    "tasks/point_mass_easy-zoo-s0",
    "tasks/reacher_easy-zoo-s0",  # Half of its last episodes fail.
    "time_to_reward/MountainCar-v0-sb3-s0",
    "time_to_reward_six/finger_spin-fp32-s1",  # Its best is 31 of 1,000.
    "time_to_reward_six/hopper_stand-fp32-s0",  # Half of its last episodes fail.
    "time_to_reward_six/humanoid_stand-fp32-s0",  # Half an hour is too short for a humanoid.
    "time_to_reward_six/humanoid_stand-fp32-s1",
    "time_to_reward_six/humanoid_stand-fp32-s2",
    "time_to_reward_six/humanoid_stand-int8-s0",
    "time_to_reward_six/humanoid_stand-int8-s1",
    "time_to_reward_six/humanoid_stand-int8-s2",
    "time_to_reward_six/humanoid_walk-fp32-s0",
    "time_to_reward_six/humanoid_walk-fp32-s1",
    "time_to_reward_six/humanoid_walk-fp32-s2",
    "time_to_reward_six/humanoid_walk-int8-s0",
    "time_to_reward_six/humanoid_walk-int8-s1",
    "time_to_reward_six/humanoid_walk-int8-s2",
    "time_to_reward_zen4/cartpole_balance-fp32-s4",
}
# Its actors had learned before the first evaluation, which the logs show and the record does not.
LEARNED_BEFORE = {"tasks/Acrobot-v1-int8-s1"}
FALLEN = {
    "final_reward_2048/cartpole_balance-int8-s1",
    "staleness/cartpole_balance-int8-actor_update_period100-s0",
    "tasks/CartPole-v1-zoo-s0",
    "time_to_reward_six/finger_spin-fp32-s1",
    "time_to_reward_zen4/cartpole_balance-fp32-s4",
}


def recorded():
    """Yields the name of each run on record, its evaluations, those at its end, and its target."""
    for path in sorted((ROOT / "actorQ" / "results").glob("*/runs/*/result.json")):
        measured = json.loads(path.read_text())["measured"]
        returns = (measured.get("rewards") or {}).get("returns") or []
        if len(returns) >= 10 and measured.get("final_returns"):
            name = f"{path.parts[-4]}/{path.parts[-2]}"
            yield name, returns, measured["final_returns"], measured["target"]


def first_of(returns):
    return returns[:3]


def looks(returns):
    """Yields the arguments of `fall` for each look at a run under way."""
    for end in range(10, len(returns) + 1):
        begin = end - min(10, end // 2)
        yield returns[:begin], returns[begin:end]


def test_recorded_runs_that_learned_and_those_that_did_not_are_told_apart():
    runs = list(recorded())
    assert len(runs) > 150
    found = {
        name for name, returns, last, target in runs
        if not health.is_better(first_of(returns), last)
        and not (target is not None and np.mean(last) >= target)
    }
    assert found == NOT_LEARNED | LEARNED_BEFORE


def test_recorded_runs_whose_returns_fell_are_found_at_their_end():
    found = {name for name, returns, last, _ in recorded() if health.fall(returns, last)}
    assert found == FALLEN


def test_few_recorded_runs_look_fallen_on_their_way():
    # Most of these had returned to where they began, and rose again later.
    runs = [any(health.fall(*look) for look in looks(returns)) for _, returns, *_ in recorded()]
    assert 0 < sum(runs) < 0.06 * len(runs)


def test_recorded_noisy_curve_that_rises_never_looks_fallen():
    lines = (ROOT / "docs" / "pictures" / "cheetah_run.csv").read_text().splitlines()
    column = lines[0].split(",").index("episode_return")
    returns = [float(line.split(",")[column]) for line in lines[1:]]
    assert not any(health.fall(*look) for look in looks(returns))
    assert health.is_better(returns[:5], returns[-10:])


@pytest.mark.parametrize("spread", [0.0, 1.0, 300.0])
def test_noise_alone_is_neither_learning_nor_a_fall(spread):
    rng = np.random.default_rng(0)
    falls = betters = 0
    for _ in range(200):
        returns = list(rng.normal(-500.0, spread, 40) if spread else np.full(40, -500.0))
        falls += bool(health.fall(returns[:30], returns[30:]))
        betters += health.is_better(returns[:5], returns[30:])
    assert falls <= 4 and betters <= 12


def test_a_default_run_that_ended_at_622_fell_from_its_best():
    before = [280, 250, 310, 420, 560, 700, 830, 940, 986, 995, 1000, 998, 991, 1000]
    last = [402, 810, 655, 390, 720, 980, 505, 640, 450, 668]
    high, now = health.fall(before, last)
    assert high > 980 and now == pytest.approx(622.0)


@pytest.mark.parametrize(
    ("first", "last", "better"),
    [
        ([-200] * 5, [-200] * 10, False),
        ([-200], [-199], True),
        ([-200], [-200], False),
        ([22, 12, 108, 182, 200], [200] * 10, True),  # It learned meanwhile.
        ([-1400, -1100, -1600], [-1300, -1500, -1200, -1350], False),
        ([-1400, -1100, -1600], [-150, -1, -250, -300], True),
        ([500] * 5, [400] * 10, False),
    ],
)
def test_better_is_meant_by_the_spread(first, last, better):
    assert health.is_better(first, last) is better


@pytest.mark.parametrize(
    ("before", "last"), [([], [1, 2]), ([9, 9], [1, 1]), ([9, 9, 9], [1]), ([9, 9, 9], [9, 9])]
)
def test_too_few_evaluations_or_no_difference_are_no_fall(before, last):
    assert health.fall(before, last) is None


@pytest.mark.parametrize(
    ("shares", "stuck"),
    [
        ([], False),
        ([1.0, 1.0], False),
        ([0.2, 1.0, 0.96, 1.0], True),
        ([1.0, 1.0, 1.0, 0.95], False),
        ([1.0, math.nan, 1.0], False),
    ],
)
def test_bounds_count_in_three_evaluations_in_a_row(shares, stuck):
    assert health.stays_at_bounds(shares) is stuck


@pytest.mark.parametrize(
    ("shares", "out"), [([0.5] * 9, False), ([0.5] * 10, True), ([0.9] * 20 + [0.2] * 10, False)]
)
def test_range_counts_in_ten_rows(shares, out):
    assert health.is_out_of_range(shares) is out


@pytest.mark.parametrize(
    ("rewards", "returns", "batches", "constant"),
    [
        ([(-1, -1)] * 3, [-200] * 3, (-1.0, -0.99999), -1),
        ([(0, 0)] * 2, [0, 0], (0.0, 0.0), 0),
        ([(0, 0)] * 2, [0, 0], (0.0, 0.2), None),  # An actor has found a reward.
        ([(-1, -1)] * 3, [-200] * 3, (-1.0, -0.04), None),  # Replay holds a terminal state.
        ([(1, 1)] * 3, [10, 90, 200], (1.0, 1.0), None),  # CartPole's reward is constant, too.
        ([(-1, -1), (-1, 0)], [-200, -200], (-1.0, -1.0), None),
        ([(-1, -1)], [-200], (-1.0, -1.0), None),
        ([(math.nan, math.nan)] * 2, [0, 0], (0.0, 0.0), None),
    ],
)
def test_one_reward_only_is_meant_by_evaluations_and_replay(rewards, returns, batches, constant):
    lows, highs = zip(*rewards, strict=True)
    columns = {"episode_return": returns, "reward_low": list(lows), "reward_high": list(highs)}
    train = dict(zip(("reward_low", "reward_high"), batches, strict=True))
    assert health.constant_reward(columns, train) == constant


def test_logs_of_an_older_version_tell_nothing_of_rewards():
    assert health.constant_reward({"episode_return": [0, 0]}, {"loss": 1.0}) is None


class Logs:
    """The logs of a run, written as far as the rules read them."""

    def __init__(self, folder, **settings):
        self.folder = folder
        self.config = config_lib.RunConfig(logpath=str(folder), **settings)

    def write(self, process, name, rows):
        fields = telemetry.FIELDS[name]
        lines = [",".join(str(row.get(field, 0.0)) for field in fields) for row in rows]
        (self.folder / process).mkdir(exist_ok=True)
        path = self.folder / process / name
        path.write_text("\n".join([",".join(fields), *lines]) + "\n")

    def evaluations(self, returns, bounds=0.0, reward=(0.0, 1.0)):
        self.write("learner", telemetry.EVALUATION_CSV, [
            {
                "episode_return": value, "actions_at_bounds": bounds,
                "reward_low": reward[0], "reward_high": reward[1],
            }
            for value in returns
        ])

    def train(self, **columns):
        self.write(
            "learner", telemetry.TRAIN_CSV, [{"reward_low": -1.0, **columns} for _ in range(12)]
        )

    def episodes(self, returns_by_version):
        self.write("actor_1", telemetry.EPISODES_CSV, [
            {"model_version": version, "episode_return": value}
            for version, returns in returns_by_version.items() for value in returns
        ])

    def look(self, final=False):
        return health.Watch(self.config).look(final)

    def kinds(self, final=False):
        return [remark.kind for remark in self.look(final).remarks]


@pytest.fixture(name="logs")
def _logs(tmp_path):
    return Logs(tmp_path)


def test_a_run_without_logs_has_no_findings(logs):
    assert logs.look() == logs.look(final=True) == health.Findings("", [])


def test_policy_at_its_bounds_is_reported_only_while_it_has_not_learned(logs):
    logs.train()
    stuck = [-1400, -1100, -1600, -1300, -1500, -1200, -1350]
    logs.evaluations(stuck, bounds=1.0)
    (remark,) = logs.look().remarks
    assert remark.short == "actions at bounds: --invert_gradients=1"
    logs.evaluations([*stuck, *[-150] * 20], bounds=1.0)  # A good bang-bang policy.
    assert not logs.look().remarks and not logs.look(final=True).remarks
    logs.evaluations(stuck, bounds=0.5)
    assert not logs.look().remarks


STUCK = {"invert_gradients": 1, "noise_exponent": 1.0, "epsilon_zeta": 2.0}


@pytest.mark.parametrize("settings", [{}, STUCK])
def test_no_remark_advises_what_is_set_already(tmp_path, settings):
    logs = Logs(tmp_path, average_policy_steps=500 if settings else 0, **settings)
    advised = ""
    for loss in ("policy_loss", "loss"):
        row = {name: 0.0 for name in telemetry.TRAIN_FIELDS}
        if loss == "loss":
            row["policy_loss"] = ""
        logs.write("learner", telemetry.TRAIN_CSV, [row])
        logs.evaluations([0.0] * 20, bounds=1.0, reward=(0.0, 0.0))
        advised += " ".join(part for remark in logs.look(final=True).remarks for part in remark)
    logs.evaluations([200, 300, 600, *[990] * 8, *[622] * 10])
    advised += " ".join(logs.look(final=True).remarks[-1])
    for name in (*STUCK, "average_policy_steps"):
        assert (f"--{name}" in advised) is (not settings), name
    for flag in ("--sigma", "--epsilon_max", "--policy_learning_rate", "--best"):
        assert flag in advised


@pytest.mark.parametrize("side", ["targets_below_vmin", "targets_above_vmax"])
def test_targets_beyond_the_range_are_reported_with_its_flag(logs, side):
    logs.train(**{side: 0.6})
    (remark,) = logs.look().remarks
    assert remark.short == side.replace("_", " ").replace(" v", " --v")
    assert remark.sentence.startswith(f"60% of the critic's targets lie {remark.short[8:]}=")


@pytest.mark.parametrize(("column", "flag"), [("policy_loss", "sigma"), ("loss", "epsilon")])
def test_one_reward_only_is_reported_with_the_algorithms_flag(logs, column, flag):
    row = {name: 0.0 for name in telemetry.TRAIN_FIELDS} | {"reward_low": -1, "reward_high": -1}
    if column == "loss":
        row["policy_loss"] = ""
    logs.write("learner", telemetry.TRAIN_CSV, [row])
    logs.evaluations([-200] * 13, reward=(-1.0, -1.0))
    findings = logs.look(final=True)
    assert findings.not_learned == (
        "Not learned: return -200.0 (the first evaluations had -200.0)."
    )
    (remark,) = findings.remarks
    assert remark.kind == "reward" and f"--{flag}" in remark.sentence
    assert remark.sentence.startswith("Every reward so far was -1: ")


def test_remarks_stay_while_a_resumed_run_waits_for_its_first_step(logs):
    row = dict.fromkeys(telemetry.TRAIN_FIELDS, 0.0) | {"targets_below_vmin": 0.9}
    waiting = dict.fromkeys(telemetry.TRAIN_FIELDS, "")
    logs.write("learner", telemetry.TRAIN_CSV, [*[row] * 12, *[waiting] * 5])
    logs.evaluations([0.0] * 4, reward=(0.0, 0.0))
    assert logs.kinds() == ["reward", "vmin"]


def test_fall_is_reported_with_the_best_weights(logs):
    logs.evaluations([200, 300, 600, *[990] * 8, *[622] * 10])
    findings = logs.look(final=True)
    assert not findings.not_learned
    (remark,) = findings.remarks
    assert remark.sentence == (
        "Returns fell from 990.0 to 622.0: actorQ.evaluate --best plays the best weights, which "
        "are kept. Another run may fall less with --average_policy_steps=500."
    )
    assert logs.kinds() == ["fall"]


def test_run_that_learned_before_its_first_evaluation_has_learned(logs):
    logs.evaluations([193.0, *[192.8] * 10])
    assert logs.look(final=True).not_learned
    logs.episodes({0: [18, 25, 9, 31, 14], 40: [60, 80], 3000: [188, 190, 185, 191]})
    assert not logs.look(final=True).not_learned
    logs.episodes({0: [18, 25, 9, 31, 14], 3000: [22, 17, 30, 12]})
    assert logs.look(final=True).not_learned


def test_run_that_holds_the_return_it_was_to_reach_has_learned(tmp_path):
    """MountainCarContinuous-v0 returned 92 in its third evaluation, and 0 and 97 before."""
    returns = [0.0, 97.0, 92.5, *[92.4] * 10]
    for wanted, learned in ((None, False), (95.0, False), (90.0, True)):
        logs = Logs(tmp_path, stop_return=wanted)
        logs.evaluations(returns)
        assert (not logs.look(final=True).not_learned) is learned, wanted


def test_actors_whose_first_episode_outlasts_the_first_weights_are_compared_with_it(logs):
    logs.evaluations([950, *[960] * 10])
    logs.episodes({200: [300.0], 3000: [500, 700, 800], 9000: [960] * 12})
    assert not logs.look(final=True).not_learned


def test_evaluations_at_the_end_alone_do_not_show_a_policy_that_has_learned(logs, tmp_path):
    logs.evaluations([9.0] * 10)
    found = logs.look(final=True)
    (remark,) = found.remarks
    assert found.too_short and not found.not_learned and "--eval_period_s" in remark.sentence
    assert logs.look() == health.Findings("", [])
    logs.episodes({0: [1, 2, 1, 3, 2], 3000: [8, 9, 8, 9]})
    assert logs.look(final=True) == health.Findings("", [])
    reached = Logs(tmp_path, stop_return=9.0)
    reached.evaluations([9.0] * 10)
    assert reached.look(final=True) == health.Findings("", [])


def test_first_evaluations_of_a_resumed_run_count(logs):
    # The log goes on where it ended. The later part alone shows no progress.
    logs.evaluations([10, 12, 9, 11, 10, *[190] * 20, *[192] * 10])
    assert not logs.look(final=True).not_learned


def test_a_watch_sees_evaluations_that_come_later(logs):
    watch = health.Watch(logs.config)
    logs.evaluations([200, 300, 600, *[990] * 8])
    assert not watch.look().remarks
    logs.evaluations([200, 300, 600, *[990] * 8, *[622] * 10])
    assert [remark.kind for remark in watch.look().remarks] == ["fall"]


def test_every_remark_is_short_sentences(logs):
    logs.train(targets_below_vmin=1.0, targets_above_vmax=1.0)
    logs.evaluations([500] * 10 + [100] * 10, bounds=1.0, reward=(0.0, 1.0))
    remarks = list(logs.look(final=True).remarks)
    row = {name: 0.0 for name in telemetry.TRAIN_FIELDS}
    logs.write("learner", telemetry.TRAIN_CSV, [row])
    logs.evaluations([0.0] * 20, bounds=1.0, reward=(0.0, 0.0))
    remarks += logs.look(final=True).remarks
    assert {remark.kind for remark in remarks} == {"reward", "vmin", "vmax", "bounds", "fall"}
    for remark in remarks:
        assert all(len(part.split()) < 25 for part in remark.sentence.split(". "))
        assert len(remark.short) < 45
        assert remark.sentence.endswith(".") and re.search(r"--\w+", remark.short)
