"""Predicted rates against those of a machine whose costs are known."""

import dataclasses

import pytest

from actorQ.benchmarks import advising
from actorQ.benchmarks import prediction
from actorQ.benchmarks import short_runs
from actorQ.core import config as config_lib

STEP_S, INSERT_S = 0.010, 10e-6  # Of the learner.
ACTOR_S = {(32, 1): 1000e-6, (8, 1): 200e-6, (4, 1): 150e-6, (8, 4): 120e-6}


def measured():
    """Rates of one actor beside a learner that never waits, on a core each."""
    found = {}
    for (bits, environments), seconds in ACTOR_S.items():
        rate = 1 / seconds
        steps = (1 - rate * INSERT_S) / STEP_S
        found[prediction.Crew(1, bits, environments)] = short_runs.Rates(
            rate, steps, 1e6 * seconds, 1e3 / steps, {}
        )
    return found


@pytest.fixture
def costs():
    return prediction.costs(measured())


def predicted(costs, crew, cores=2, samples=0.0, threads=1):
    return prediction.predict(costs, crew, cores, threads, samples, 100)


def test_costs_are_found_again(costs):
    assert costs.learner_step_s == pytest.approx(STEP_S, rel=1e-6)
    assert costs.insert_s == pytest.approx(INSERT_S, rel=1e-6)
    assert costs.actor_step_s == pytest.approx(ACTOR_S)


def test_an_insert_that_seems_to_cost_less_than_nothing_costs_nothing():
    # The learner spends less of its time where more transitions come.
    found = {
        crew: dataclasses.replace(rates, learner_cpu_ms=10 - rates.actor_steps_per_s / 2000)
        for crew, rates in measured().items()
    }
    costs = prediction.costs(found)
    assert costs.insert_s == 0.0 and 0 < costs.learner_step_s < 0.010


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
    assert fast.learner_steps_per_s < slow.learner_steps_per_s  # Inserts cost its time.
    assert fast.data_used < slow.data_used < 1


def test_cores_beyond_the_learners_carry_an_actor_each(costs):
    four = predicted(costs, prediction.Crew(4, 32), cores=8, samples=0.5, threads=4)
    assert four.actor_steps_per_s == pytest.approx(4000)
    # Two actors on two cores leave the learner two thirds of a core, and get its idle time.
    two = predicted(costs, prediction.Crew(2, 32), cores=2)
    assert two.actor_steps_per_s == pytest.approx((2 - 2 / 3) * 1000, rel=1e-3)
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
