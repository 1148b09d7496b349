"""The model of a cluster against closed forms."""

import dataclasses
import math

import numpy as np
import pytest

from actorQ.experiments.cluster import simulation

# 30 steps take 30 ms; a download alone 100 ms; there is news at every look.
ONE = simulation.Cluster(
    actors=1, steps_per_s=1000.0, message_bytes=1e6, insert_bytes=0.0, learner_steps_per_s=400.0,
    batch_size=32, samples_per_insert=16.0, update_period=30, push_period_s=0.0, bandwidth=1e7,
)


def simulate(cluster=ONE, seconds=20.0, seed=0, **changes):
    return simulation.simulate(dataclasses.replace(cluster, **changes), seconds, seed)


def test_one_actor_that_waits_for_every_download():
    found = simulate()
    # A period and a download: 30 steps in 130 ms.
    assert found.steps_per_s == pytest.approx(30 / 0.13, rel=0.01)
    assert found.downloads_per_s == pytest.approx(1 / 0.13, rel=0.01)
    assert found.learner_steps_per_s == pytest.approx(found.steps_per_s / 2)


def test_one_actor_that_waits_for_latency_too():
    assert simulate(latency_s=0.04).steps_per_s == pytest.approx(30 / 0.17, rel=0.01)
    # Also where there is never any news.
    found = simulate(latency_s=0.03, push_period_s=1e9)
    assert found.steps_per_s == pytest.approx(500)
    assert found.downloads_per_s == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("actors", [1, 7, 50])
def test_infinite_bandwidth_gives_all_their_steps(actors, blocking):
    found = simulate(actors=actors, bandwidth=math.inf, blocking=blocking, insert_bytes=500.0)
    assert found.steps_per_s == pytest.approx(1000 * actors)


def test_saturated_link_gives_its_bandwidth_and_no_more():
    found = simulate(actors=40)
    assert found.downloads_per_s == pytest.approx(10, rel=0.02)
    assert found.steps_per_s == pytest.approx(30 * 10, rel=0.02)
    # More actors, the same link.
    assert simulate(actors=80).steps_per_s == pytest.approx(300, rel=0.02)


def test_link_with_room_gives_each_publication_to_each_actor():
    # Every second 4 actors download together for 0.4 s (all look within 1 ms), else they act.
    found = simulate(actors=4, push_period_s=1.0, update_period=1)
    assert found.downloads_per_s == pytest.approx(4, rel=0.03)
    assert found.steps_per_s == pytest.approx(4 * 1000 * 0.6, rel=0.01)


def test_background_pulls_cost_no_steps_but_age():
    found = simulate(actors=40, blocking=False)
    assert found.steps_per_s == pytest.approx(40_000)
    assert found.downloads_per_s == pytest.approx(10, rel=0.02)
    # A round takes 4 s: weights are 4 s old when they arrive, and 8 s when others do.
    assert found.age_s == pytest.approx(6, rel=0.03)


def test_age_without_transfer_is_half_a_publication_and_half_a_period():
    found = simulate(
        actors=50, push_period_s=2.0, bandwidth=math.inf, seconds=200.0, update_period=500,
    )
    # Published every 2 s, seen 0 to 0.5 s later: 1 s and 0.25 s on average.
    assert found.age_s == pytest.approx(1.25, rel=0.05)
    slow = simulate(
        actors=50, push_period_s=2.0, bandwidth=math.inf, seconds=200.0, update_period=500,
        blocking=False, latency_s=0.3,
    )
    assert slow.age_s == pytest.approx(1.55, rel=0.05)


def test_learner_that_is_slower_than_its_actors_takes_what_it_can():
    found = simulate(actors=8, bandwidth=math.inf, learner_steps_per_s=5.0)
    assert dataclasses.replace(ONE, learner_steps_per_s=5.0).demand == 10
    assert (found.steps_per_s, found.learner_steps_per_s) == (pytest.approx(8000), 5)
    # It publishes after each step, actors look 33 times a second.
    assert found.downloads_per_s == pytest.approx(8 * 5, rel=0.02)


def test_learner_without_data_publishes_only_what_it_has_learned():
    # 1000 steps/s at 0.04 samples each: 40 samples, 1.25 steps of 32 a second.
    found = simulate(bandwidth=math.inf, samples_per_insert=0.04)
    assert found.learner_steps_per_s == pytest.approx(1.25)
    assert found.downloads_per_s == pytest.approx(1.25, rel=0.05)


@pytest.mark.parametrize("blocking", [True, False])
def test_inserts_share_the_other_direction(blocking):
    # 100 bytes each over 1e5 bytes/s: 1000 steps/s for all.
    found = simulate(
        actors=20, insert_bytes=100.0, bandwidth=1e5, message_bytes=1.0, blocking=blocking,
    )
    assert found.steps_per_s == pytest.approx(1000, rel=0.01)


def test_equal_seeds_give_equal_outcomes_and_others_hardly_differ():
    cluster = dataclasses.replace(ONE, actors=9, push_period_s=0.5)
    first = simulate(cluster, seed=3)
    assert simulate(cluster, seed=3) == first
    assert simulate(cluster, seed=4).steps_per_s == pytest.approx(first.steps_per_s, rel=0.05)


def test_publications_that_nobody_sees_change_nothing():
    # Jumped over in one go while everyone downloads: the same as if there were few.
    often, seldom = (simulate(actors=40, learner_steps_per_s=rate) for rate in (400.0, 40.0))
    assert often.steps_per_s == pytest.approx(seldom.steps_per_s, rel=0.01)
    assert often.age_s == pytest.approx(seldom.age_s, rel=0.05)


def test_samples_that_the_clock_cannot_count_do_not_stop_it():
    # All actors download, and what the inserts still allow is learned in less than the clock's
    # last digit.
    cluster = dataclasses.replace(ONE, learner_steps_per_s=990.0)
    run = simulation._Simulation(cluster, np.random.default_rng(0), 0.0, 40_000.0)
    run._time, run._allowed, run._idle = 30_000.0, 1.5e-9, set()
    run._acting, run._loading, run._loads = 0, 1, [(1e12, 0, 0.0)]
    for _ in range(3):
        run._next_event()
    assert run._time == 40_000
    assert run._allowed == 0


def test_steps_stay_within_bounds_for_many_shapes():
    for actors in (1, 3, 17):
        for bandwidth in (1e5, 1e7, 1e9):
            for push_period_s in (0.0, 0.5):
                for blocking in (True, False):
                    cluster = dataclasses.replace(
                        ONE, actors=actors, bandwidth=bandwidth, push_period_s=push_period_s,
                        blocking=blocking, insert_bytes=120.0,
                    )
                    found = simulate(cluster, 5.0)
                    most = min(1000 * actors, bandwidth / 120)
                    assert 0 < found.steps_per_s <= most * (1 + 1e-9)
                    assert found.downloads_per_s <= 1.1 * bandwidth / 1e6
                    assert found.age_s >= 0.9 * (1e6 / bandwidth)
