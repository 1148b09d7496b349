"""The line that sets a run's speed-up beside the actor loop's."""

import dataclasses
import json

import pytest

from actorQ.core import errors
from actorQ.experiments import loading
from actorQ.experiments import results
from actorQ.experiments import specification
from actorQ.experiments.reports import actor_loop_gain
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reporting
from tests.actorQ.experiments.reports import test_reports

COMMON = loading.load_common()
TASK = "dm_control,cartpole_balance"


@pytest.fixture
def loop():
    """The benchmark's figures: int8 at 300, 200 and 250 steps/s, fp32 at 50."""
    actor = {
        "task": TASK, "width": 2048, "loop": "native", "environments": 1,
        "bits": 8, "steps_per_s": [300.0, 200.0, 250.0],
    }
    others = [
        {**actor, "bits": 32, "steps_per_s": [50.0]},
        {**actor, "bits": 4, "steps_per_s": [400.0]},
        {**actor, "width": 256, "steps_per_s": [999.0]},
        {**actor, "loop": "pytorch", "steps_per_s": [999.0]},
        {**actor, "environments": 8, "steps_per_s": [999.0]},
    ]
    return {"machine": {"processor": "a"}, "date": "2026-11-21", "actors": [actor, *others]}


def of_task(loop, task):
    """Returns the benchmark's figures as those of another task."""
    return json.loads(json.dumps(loop).replace(TASK, task))


def rows(processor="a", task="cartpole_balance", fp32=(), bits=(32, 8), seeds=(0,), **values):
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(experiment, COMMON, "laptop", seeds, [task], bits, peers=None)
    done = {}
    for run in runs:
        given = {"time_to_target_s": 40.0, **dict(fp32)} if run.precision == 32 else values
        given = {key: value[run.seed] if isinstance(value, list) else value
                 for key, value in given.items()}
        made = test_reports.result(run, **given)
        done[run.name] = dataclasses.replace(made, machine={"processor": processor})
    material = reporting.Material(experiment, "laptop", runs, done, {}, "")
    return next(iter(reaching.rows_by_task(material).values()))


def test_note_says_what_a_run_keeps_of_the_loops_gain(loop):
    (line,) = actor_loop_gain.notes(TASK, rows(time_to_target_s=10.0), [loop])
    assert "5.00 times as fast" in line and "keeps 0.80 of that (target: 0.9)" in line
    assert "paper" not in line
    missed = dict(outcome=results.MISSED, time_to_target_s=None, censored_at_s=20.0)
    assert "keeps < 0.40 of that" in actor_loop_gain.notes(TASK, rows(**missed), [loop])[0]


def test_note_says_whether_the_learner_hides_what_actors_gain(loop):
    fp32 = dict(learner_steps_per_s=2.0, data_used=1.0)
    int8 = dict(time_to_target_s=4.0, learner_steps_per_s=6.0)
    (line,) = actor_loop_gain.notes(TASK, rows(fp32=fp32, data_used=0.8, **int8), [loop])
    assert "keeps 2.00 of that (target: 0.9), learner steps/s, 3.00 times fp32's, keep 0.60" in line
    assert line.endswith("the learner, which takes 80 % of the data, is the bottleneck itself.")
    (line,) = actor_loop_gain.notes(TASK, rows(fp32=fp32, data_used=0.97, **int8), [loop])
    assert line.endswith("keep 0.60.")
    # An older version noted no rates.
    (line,) = actor_loop_gain.notes(TASK, rows(time_to_target_s=4.0), [loop])
    assert line.endswith("(target: 0.9).")


def test_note_counts_the_seeds_whose_learner_was_the_bottleneck(loop):
    fp32 = dict(learner_steps_per_s=2.0, data_used=1.0)
    int8 = dict(time_to_target_s=4.0, learner_steps_per_s=6.0, data_used=[1.02, 0.9, 1.03])
    (line,) = actor_loop_gain.notes(TASK, rows(fp32=fp32, seeds=(0, 1, 2), **int8), [loop])
    assert line.endswith("which takes 90 % of the data, is the bottleneck itself in 1 of 3 seeds.")


def test_every_precision_has_a_note(loop):
    both = rows(bits=(32, 16, 8, 4), time_to_target_s=8.0)
    lines = actor_loop_gain.notes(TASK, both, [loop])  # fp16 is not in the benchmark.
    assert ["with int8" in lines[0], "with int4" in lines[1]] == [True, True] and len(lines) == 2
    assert "is 8.00 times as fast with int4" in lines[1] and "keeps 0.62 of that" in lines[1]


def test_note_says_where_the_paper_has_more_than_the_loop(loop):
    acrobot = "gym,Acrobot-v1"
    loop = of_task(loop, acrobot)
    (line,) = actor_loop_gain.notes(acrobot, rows(task="Acrobot-v1", time_to_target_s=10.0), [loop])
    assert "The paper's 5.41 is more than this loop allows." in line


def test_note_on_a_task_that_the_paper_has_not(loop):
    stand = "dm_control,cartpole_swingup"
    loop = of_task(loop, stand)
    (line,) = actor_loop_gain.notes(stand, rows(time_to_target_s=10.0), [loop])
    assert "keeps 0.80 of that" in line and "paper" not in line


def test_note_is_of_this_task_network_and_processor_only(loop):
    assert actor_loop_gain.notes(TASK, rows("b", time_to_target_s=10.0), [loop]) == []
    assert actor_loop_gain.notes("gym,Acrobot-v1", rows(time_to_target_s=10.0), [loop]) == []
    assert actor_loop_gain.notes(TASK, rows(time_to_target_s=10.0), []) == []
    wanted = {"model_str": "2048,2048,2048", "inference_mode": "native", "envs_per_actor": 1}
    assert actor_loop_gain.ratio(loop, TASK, wanted, {"processor": "a"}) == 5.0
    for other in (
        {"model_str": "2048,2048"}, {"inference_mode": "pytorch"}, {"envs_per_actor": 8}
    ):
        assert actor_loop_gain.ratio(loop, TASK, {**wanted, **other}, {"processor": "a"}) is None


def test_note_takes_the_first_benchmark_that_has_the_task(loop):
    acrobot = rows(task="Acrobot-v1", time_to_target_s=10.0)
    assert actor_loop_gain.notes("gym,Acrobot-v1", acrobot, [loop]) == []
    both = [loop, of_task(loop, "gym,Acrobot-v1")]
    (line,) = actor_loop_gain.notes("gym,Acrobot-v1", acrobot, both)
    assert "5.00 times as fast" in line


def test_measurements_are_found_wherever_they_are_oldest_first(loop, tmp_path):
    for folder, date in (("a processor/gym", "2026-11-23"), (".", "2026-11-24"), ("z", "2026-1")):
        path = tmp_path / folder / "actor_loop.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**loop, "date": date}))
    found = actor_loop_gain.measurements(str(tmp_path))
    assert [record["date"] for record in found] == ["2026-1", "2026-11-23", "2026-11-24"]
    assert actor_loop_gain.measurements(str(tmp_path / "nothing")) == []


def test_measurement_that_is_damaged_is_one_line(tmp_path):
    (tmp_path / "actor_loop.json").write_text("{")
    with pytest.raises(errors.UserError, match="actor_loop.json cannot be read"):
        actor_loop_gain.measurements(str(tmp_path))


def test_published_benchmark_knows_the_episodes_of_both_cartpoles():
    measured = actor_loop_gain.measurements()[0]
    settings = {"model_str": "2048,2048,2048", "inference_mode": "native", "envs_per_actor": 1}
    for task in (TASK, "gym,CartPole-v0"):
        assert actor_loop_gain.ratio(measured, task, settings, measured["machine"]) > 2
