"""The page on six further tasks, where both precisions, one or none held the reward."""

import pytest

from actorQ.experiments import loading
from actorQ.experiments import results
from actorQ.experiments import specification
from docs.generators import tables
from docs.generators.training import reward_runs
from docs.generators.training import time_to_reward_six
from tests.actorQ.experiments.reports import test_reports

COMMON = loading.load_common()
ZEN_4 = "AMD EPYC (family 25, model 17)"


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "ACTORQ_RESULTS", tmp_path / "actorQ" / "results")
    monkeypatch.setattr(reward_runs, "rows", reward_runs.rows.__wrapped__)
    return tmp_path / "actorQ" / "results" / "time_to_reward_six" / "runs"


def publish(
    folder, task, bits, seconds, held, steps_per_s, returns, seed=0, processor=ZEN_4
):
    experiment = loading.load("time_to_reward", COMMON)
    (run,) = specification.expand(
        experiment, COMMON, "laptop", [seed], [task], [bits], peers=None
    )
    count = len(returns)
    rewards = results.Rewards(
        list(range(count)), list(range(count)), [10.0 * i for i in range(count)], returns,
        [0.0] * count,
    )
    made = test_reports.result(
        run, time_to_target_s=seconds if held else None, rewards=rewards, data_used=1.0,
        censored_at_s=None if held else seconds, actor_steps_per_s=steps_per_s, target=100.0,
        learner_steps_per_s=steps_per_s / 100,
    )
    made.machine["processor"] = processor
    (folder / run.name).mkdir(parents=True)
    results.write(made, str(folder / run.name))


def test_rows_that_held_their_rewards_and_rows_that_did_not(folder):
    publish(folder, "reacher_hard", 32, 1000.0, True, 500.0, [200.0] * 12)
    publish(folder, "reacher_hard", 8, 250.0, True, 2000.0, [200.0] * 12)
    publish(folder, "hopper_stand", 32, 3600.0, False, 500.0, [50.0] * 12)
    publish(folder, "hopper_stand", 8, 800.0, True, 1500.0, [200.0] * 12)
    # The best mean of ten that three evaluations in a row have is 3.
    publish(folder, "humanoid_walk", 32, 3600.0, False, 400.0, [3.0] * 12 + [1.0] * 10)
    publish(folder, "humanoid_walk", 8, 3600.0, False, 1000.0, [9.0] * 12)
    for name in ("humanoid_stand", "cheetah_run", "finger_spin"):
        publish(folder, name, 32, 3600.0, False, 500.0, [1.0] * 12)
        publish(folder, name, 8, 3600.0, False, 1500.0, [1.0] * 12)
    assert time_to_reward_six.cells("dm_control,reacher_hard") == [
        "1,000.0", "250.0", "**4.00** (1 seed)"
    ]
    assert time_to_reward_six.cells("dm_control,hopper_stand") == [
        "> 3,600.0", "800.0", "**> 4.50** (1 seed)"
    ]
    assert time_to_reward_six.cells("dm_control,humanoid_walk") == [
        "3 in 3,600 s", "9 in 3,600 s", "steps/s: **2.50** (1 seed)"
    ]
    assert time_to_reward_six.gains() == [4.0]
    answer = time_to_reward_six.BLOCKS["answer"]().replace("\n", " ")
    assert "the paper's reward 4.0 times as soon, on 1 of the six tasks." in answer
    assert "On hopper_stand only int8 actors held it." in answer
    assert "2.5 to 4.0 times the steps" in answer
    lines = time_to_reward_six.BLOCKS["runs"]().splitlines()
    assert len(lines) == 2 + 12
    assert "| humanoid_walk | fp32 | 0 | > 3,600.0 |" in lines[-2]
    assert len(time_to_reward_six.BLOCKS["main"]().splitlines()) == 2 + 6
    assert "humanoid_walk | int8 |" in time_to_reward_six.BLOCKS["commits"]()


def test_rates_of_two_processors_stand_apart(folder):
    for seed, processor, fp32, int8 in (
        (0, ZEN_4, 500.0, 2000.0),
        (1, "Intel Xeon, a", 500.0, 1000.0),
        (2, "Intel Xeon, a", 500.0, 1200.0),
    ):
        for bits, steps_per_s in ((32, fp32), (8, int8)):
            publish(
                folder, "finger_spin", bits, 1800.0, False, steps_per_s, [float(seed)] * 12,
                seed, processor,
            )
    assert time_to_reward_six.cells("dm_control,finger_spin") == [
        "1 in 1,800 s", "1 in 1,800 s",
        "steps/s: **4.00** (AMD EPYC, 1 seed), **2.20** (Intel Xeon, 2 seeds)",
    ]


def test_a_run_with_too_few_evaluations_holds_no_reward(folder):
    for seed, count in ((0, 12), (1, 11)):
        for bits in (32, 8):
            publish(folder, "finger_spin", bits, 1800.0, False, 500.0, [5.0 + seed] * count, seed)
    fp32, int8, _ = time_to_reward_six.cells("dm_control,finger_spin")
    assert fp32 == int8 == "5 in 1,800 s"
    lines = time_to_reward_six.BLOCKS["runs"]().splitlines()
    assert [line.split(" | ")[5] for line in lines[2:]] == ["5.0", "–"] * 2
