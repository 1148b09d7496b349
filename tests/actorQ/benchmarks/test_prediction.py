"""Predicted rates against those of a machine whose costs are known."""

import dataclasses

import pytest

from actorQ.benchmarks import advising
from actorQ.benchmarks import prediction
from actorQ.benchmarks import short_runs
from actorQ.core import config as config_lib

STEP_S = 0.010  # CPU time of a learner step.
ACTOR_S = {(32, 1): 1000e-6, (8, 1): 200e-6, (4, 1): 150e-6, (8, 4): 120e-6}


def measured():
    """Rates of one actor beside a learner that never waits, on a core each."""
    found = {}
    for (bits, environments), seconds in ACTOR_S.items():
        found[prediction.Crew(1, bits, environments)] = short_runs.Rates(
            1 / seconds, 1 / STEP_S, 1e6 * seconds, 1e3 * STEP_S, {}
        )
    return found


@pytest.fixture
def costs():
    return prediction.costs(measured())


def predicted(costs, crew, cores=2, samples=0.0):
    return prediction.predict(costs, crew, cores, samples, 100)


def test_costs_are_found_again(costs):
    assert costs.learner_step_s == pytest.approx(STEP_S)
    assert costs.learner_rate == pytest.approx(1 / STEP_S)
    assert costs.actor_step_s == pytest.approx(ACTOR_S)


def test_one_slow_run_does_not_count():
    found = measured()
    found[prediction.Crew(1, 8)] = dataclasses.replace(
        found[prediction.Crew(1, 8)], learner_steps_per_s=20.0
    )
    assert prediction.costs(found).learner_rate == pytest.approx(1 / STEP_S)


@pytest.mark.parametrize("side", ACTOR_S)
def test_without_a_limit_the_measured_rates_come_out_again(costs, side):
    crew = prediction.Crew(1, *side)
    found = predicted(costs, crew)
    assert found.actor_steps_per_s == pytest.approx(measured()[crew].actor_steps_per_s)
    assert found.learner_steps_per_s == pytest.approx(measured()[crew].learner_steps_per_s)
    assert found.data_used == 1.0


def test_few_samples_make_the_actors_the_bottleneck(costs):
    slow, fast = (predicted(costs, prediction.Crew(1, bits), samples=0.5) for bits in (32, 8))
    assert slow.learner_steps_per_s == pytest.approx(1000 * 0.5 / 100)
    assert fast.learner_steps_per_s / slow.learner_steps_per_s == pytest.approx(5.0)
    assert slow.data_used == fast.data_used == 1.0


def test_many_samples_make_the_learner_the_bottleneck(costs):
    slow, fast = (predicted(costs, prediction.Crew(1, bits), samples=32) for bits in (32, 8))
    assert fast.learner_steps_per_s == slow.learner_steps_per_s == pytest.approx(1 / STEP_S)
    assert fast.data_used < slow.data_used < 1


def test_cores_beyond_the_learners_carry_an_actor_each(costs):
    four = predicted(costs, prediction.Crew(4, 32), cores=8, samples=0.5)
    assert four.actor_steps_per_s == pytest.approx(4000)
    assert four.learner_steps_per_s == pytest.approx(4000 * 0.5 / 100)
    # Beside two actors on two cores the learner gets between its fair share and a whole core.
    two = predicted(costs, prediction.Crew(2, 32), cores=2)
    assert 2 / 3 < two.learner_steps_per_s * STEP_S < 1
    assert two.actor_steps_per_s == pytest.approx((2 - two.learner_steps_per_s * STEP_S) * 1000)
    # They get the time of a learner that waits.
    idle = predicted(costs, prediction.Crew(2, 32), cores=2, samples=0.01)
    assert 1900 < idle.actor_steps_per_s < 2000


def test_the_best_has_the_fastest_learner_and_the_fewest_processes(costs):
    crews = advising.crews_for(config_lib.RunConfig(inference_mode="native"), 2)
    assert {crew.actors for crew in crews} == {1, 2}
    found = {crew: predicted(costs, crew, samples=0.1) for crew in crews}
    assert prediction.best(found) == prediction.Crew(2, 8, 4)  # Actors are all that counts.
    found = {crew: predicted(costs, crew, samples=1000.0) for crew in crews}
    assert prediction.best(found).actors == 1


@pytest.mark.parametrize(
    ("cores", "numbers"), [(2, [1, 2]), (4, [1, 2, 3]), (8, [1, 2, 4, 7]), (16, [1, 2, 4, 8, 15])]
)
def test_crews_reach_up_to_one_actor_for_each_core(cores, numbers):
    crews = advising.crews_for(config_lib.RunConfig(inference_mode="native"), cores)
    assert sorted({crew.actors for crew in crews}) == numbers
    text = advising.table({crew: prediction.Prediction(100.0, 10.0, 0.5) for crew in crews})
    assert text.count("50%") == len(crews) == 4 * len(numbers)


def test_short_runs_have_no_limit_of_samples():
    config = config_lib.RunConfig(
        taskstr="gym,CartPole-v1", samples_per_insert=0.5, replay_table_max_times_sampled=16,
        model_str="64,64", inference_mode="native",
    )
    run = advising.Unlimited(config, prediction.Crew(1, 4, 2))
    flags = run.flags("folder")
    assert "--quantize=4" in flags and "--envs_per_actor=2" in flags
    assert "--replay_table_max_times_sampled=0" in flags and "--model_str=64,64" in flags
    assert not any(flag.startswith("--samples_per_insert=0.5") for flag in flags)
