"""Evaluation episodes are played beside the learner, by a process that ends with it."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import seeding
from actorQ.environments import evaluation
from actorQ.environments import suites
from actorQ.learner import evaluator_process
from actorQ.policy import algorithms
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import inference

STEPS = 5
CONFIG = config_lib.RunConfig(
    taskstr="gym,Pendulum-v1", model_str="16,16", max_episode_steps=60, inference_mode="native",
    evaluator_process="on",
)


def never():
    return False


def architecture():
    return architecture_lib.make(suites.make_for(CONFIG, 0).spec, CONFIG.model_sizes)


def random_weights(seed):
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in architecture().parameter_shapes.items()
    }


@pytest.fixture(name="process")
def _process():
    process = evaluator_process.EvaluatorProcess(CONFIG, STEPS)
    yield process
    process.close()


def test_its_episodes_are_those_of_the_learners_own_process(process):
    environment = suites.make_for(
        CONFIG, seeding.derive(CONFIG.seed, "evaluation environment", STEPS)
    )
    backend = inference.make_backend(architecture(), 32, "native")
    player = evaluation.GreedyPlayer(
        environment, backend, algorithms.policy_module("d4pg").greedy
    )
    for seed in (1, 2, 2):  # Later episodes start in other states, with newer weights.
        process.begin(random_weights(seed))
        inference.load_weights(backend, random_weights(seed), 32)
        found, wanted = process.take(never, wait=True), player.play()
        assert found._replace(seconds=0.0) == wanted._replace(seconds=0.0)
        assert found.length == 60 and found.actions_at_bounds > 0


def test_nobody_waits_for_an_episode_without_asking_to(process):
    process.begin(random_weights(1))
    assert process.take(never, wait=False) is None  # The process has not even started.
    started = time.monotonic()
    assert process.take(lambda: True, wait=True) is None  # Training has to stop.
    assert time.monotonic() - started < 1.0
    assert process.take(never, wait=True) is not None


def test_it_is_started_again_and_plays_the_episode_that_was_asked_for(process, caplog):
    process.begin(random_weights(1))
    before = process.take(never, wait=True)
    first = process._process.pid
    os.kill(first, signal.SIGKILL)
    process.begin(random_weights(1))
    after = process.take(never, wait=True)
    assert after.length == 60 and process._process.pid != first
    assert after.episode_return != before.episode_return  # It starts in other states.
    assert "exit code -9: it is started again" in caplog.text


def test_a_process_that_always_fails_ends_training_with_advice(monkeypatch):
    monkeypatch.setattr(evaluator_process, "MODULE", "actorQ.no_such_module")
    process = evaluator_process.EvaluatorProcess(CONFIG, STEPS)
    process.begin(random_weights(1))
    with pytest.raises(errors.UserError, match="3 times in a row.*--evaluator_process=off"):
        process.take(never, wait=True)
    process.close()


def test_a_process_that_hangs_does_not_keep_the_learner_from_its_end(process):
    process.begin(random_weights(1))
    os.kill(process._process.pid, signal.SIGSTOP)
    started = time.monotonic()
    process.close()
    assert time.monotonic() - started < 2.0


def test_it_ends_with_the_learner_whatever_ends_that(tmp_path):
    program = textwrap.dedent(f"""
        import os
        from tests.actorQ.learner import test_evaluator_process as test
        process = test.evaluator_process.EvaluatorProcess(test.CONFIG, 0)
        process.begin(test.random_weights(1))
        process.take(test.never, wait=True)
        print(process._process.pid, flush=True)
        os.kill(os.getpid(), {int(signal.SIGKILL)})
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    until = time.monotonic() + 10.0
    while os.path.exists(f"/proc/{int(done.stdout)}"):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_it_cannot_be_started_by_hand():
    done = subprocess.run(
        [sys.executable, "-m", evaluator_process.MODULE], stderr=subprocess.PIPE, text=True,
        check=False,
    )
    assert done.returncode != 0 and "see --evaluator_process" in done.stderr


@pytest.mark.parametrize(
    ("asked", "cores", "wanted"),
    [("auto", 4, True), ("auto", 3, False), ("on", 1, True), ("off", 64, False)],
)
def test_auto_wants_a_core_beside_two_actors_and_the_learner(asked, cores, wanted, monkeypatch):
    monkeypatch.setattr(evaluator_process.provenance, "usable_cores", lambda: cores)
    config = config_lib.RunConfig(n_actors=2, evaluator_process=asked)
    assert evaluator_process.wanted(config) == wanted
