"""The report on many tasks: its table and its figure, with whatever results there are."""

import pytest

from actorQ.experiments import loading
from actorQ.experiments import results
from actorQ.experiments import specification
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reporting
from actorQ.experiments.reports import tasks
from tests.actorQ.experiments.reports import test_reports

COMMON = loading.load_common()
PEER = reporting.Side("zoo", 32)
RETURNS = [1.0, 5.0, 3.0]


def missed(seconds, returns=RETURNS):
    count = len(returns)
    rewards = results.Rewards([1.0] * count, [1.0] * count, [1.0] * count, returns, [0.1] * count)
    return dict(
        outcome="missed", time_to_target_s=None, evaluation_to_target_s=None,
        censored_at_s=float(seconds), rewards=rewards, window=2,
    )


def material(folder, name="tasks", **measured):
    """Has results of the runs whose names are given, with '_' for '-'."""
    experiment = loading.load(name, COMMON)
    runs = specification.expand(experiment, COMMON, "laptop")
    done = {
        run.name: test_reports.result(run, **measured[key])
        for run in runs if (key := run.name.replace("-", "_")) in measured
    }
    return reporting.Material(experiment, "laptop", runs, done, {}, str(folder))


def cells(text, task):
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {task} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_report_has_each_seed_and_the_peer(tmp_path):
    found = material(
        tmp_path,
        walker_walk_int8_s0=dict(time_to_target_s=100.0, actor_steps=3e5, learner_steps=9e3),
        walker_walk_int8_s1=dict(time_to_target_s=120.0, actor_steps=2e5, learner_steps=8e3),
        walker_walk_int8_s2=missed(900),
        walker_walk_zoo_s0=dict(time_to_target_s=600.0, actor_steps=1e4, learner_steps=4e4),
    )
    text = tasks.write(found)
    assert cells(text, "walker_walk") == [
        "walker_walk", "5", "[CURL, State SAC](https://arxiv.org/abs/2004.04136)",
        "100; 120; not reached: best mean 4.0", "2 of 3", "600", "5.00", "200,000", "8,000",
        "10,000", "40,000",
    ]
    assert "Every seed reached the reward on 0 of 1 tasks." in text
    assert "Our median was sooner than SB3 zoo's on 1 of 1." in text
    assert "rl-baselines3-zoo" in text and "with our settings" not in text
    assert (tmp_path / tasks.FIGURE).stat().st_size > 1000


def test_report_of_a_part_of_the_runs(tmp_path):
    found = material(
        tmp_path,
        Acrobot_v1_int8_s0=missed(900, []), Acrobot_v1_zoo_s0=missed(900),
        Pendulum_v1_zoo_s0=dict(time_to_target_s=30.0), CartPole_v1_int8_s0={},
    )
    text = tasks.write(found)
    ours, reached, theirs, gain = cells(text, "Acrobot-v1")[3:7]
    assert (ours, reached) == ("not reached: too few evaluations", "0 of 1")
    assert (theirs, gain) == ("not reached: best mean 4.0", "n/a")
    assert cells(text, "Pendulum-v1")[3:7] == ["–", "–", "30", "–"]
    assert cells(text, "CartPole-v1")[3:7] == ["10", "1 of 1", "–", "–"]
    assert "Every seed reached the reward on 1 of 2 tasks." in text
    assert "zoo's on 0 of 1." in text


def test_report_of_peers_alone_counts_no_tasks_of_ours(tmp_path):
    text = tasks.write(material(tmp_path, Pendulum_v1_zoo_s0=dict(time_to_target_s=30.0)))
    assert "Our own runs are not among these results." in text and "0 of 0" not in text


def test_report_without_a_peer_has_none_of_its_columns(tmp_path):
    text = tasks.write(material(tmp_path, "tasks_pong", Pong_int8_s0={}))
    assert len(cells(text, "Pong")) == 7 and "SB3" not in text


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        (dict(time_to_target_s=100.0), missed(900), "> 9.00"),
        (missed(900), dict(time_to_target_s=90.0), "< 0.10"),
        (missed(900), missed(900), "n/a"),
    ],
)
def test_ratio_is_a_bound_where_one_side_missed(tmp_path, ours, theirs, text):
    found = material(tmp_path, walker_walk_int8_s0=ours, walker_walk_zoo_s0=theirs)
    (rows,) = reaching.rows_by_task(found).values()
    assert tasks.sooner_by(rows, PEER).text() == text


@pytest.mark.parametrize("name", ["tasks", "tasks_pong"])
def test_every_reward_has_its_source(name):
    assert tasks.SOURCES.keys() >= set(loading.load(name, COMMON).tasks)
