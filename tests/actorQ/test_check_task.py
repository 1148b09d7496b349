"""The program that tells what a training will make of a task."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from actorQ.core import provenance
from actorQ.environments import checking
from actorQ.environments import suites

TASKS = """
    import gymnasium
    import numpy as np


    class Task(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-9e3, 9e3, (2,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)
        reward = 0.0

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            return self.observe(), {}

        def observe(self):
            return self.np_random.uniform(-8e3, 8e3, 2).astype(np.float32)

        def step(self, action):
            return self.observe(), self.reward, False, False, {}


    class Unseeded(Task):
        reward = 1.0

        def observe(self):
            return np.random.default_rng().uniform(-1, 1, 2).astype(np.float32)


    class Raises(Task):
        def step(self, action):
            raise RuntimeError("no such joint")


    gymnasium.register("Task-v0", entry_point=Task)
    gymnasium.register("Unseeded-v0", entry_point=Unseeded, max_episode_steps=10)
    gymnasium.register("Raises-v0", entry_point=Raises)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "checked_tasks.py").write_text(textwrap.dedent(TASKS))
    return folder


def check(folder, task, *arguments, code=0):
    command = [sys.executable, "-m", "actorQ.check_task", task, "--steps=200", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, timeout=90,
        env={**os.environ, "PYTHONPATH": provenance.ROOT},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_a_task_that_wants_flags_is_told_them(folder):
    text = check(folder, "gym,checked_tasks:Task-v0")
    assert "Observations: 2 numbers." in text
    assert "Actions:      2 to choose from: DQN." in text
    assert "at most 1,000 steps (no limit of its own)" in text
    assert "Same seed:    the same play." in text
    assert "met only rewards of 0" in text
    (line,) = [line for line in text.splitlines() if line.startswith("Train on it:")]
    assert line.split()[3:] == [
        "./run_multiprocess.sh", "--taskstr=gym,checked_tasks:Task-v0", "--epsilon_zeta=2",
        "--epsilon_max=0.3", "--scale_observations=1",
    ]


def test_a_task_that_ignores_its_seed_is_told(folder):
    text = check(folder, "gym,checked_tasks:Unseeded-v0")
    assert "another play from step 0 on" in text
    assert "draw random numbers from self.np_random only" in text
    assert "20 episodes of 10 to 10 steps returned 10 to 10" in text
    assert "Gymnasium:" in text  # Its own check sees it, too.


def test_a_task_that_fails_is_one_line_with_its_place(folder):
    text = check(folder, "gym,checked_tasks:Raises-v0", code=1)
    last = text.strip().splitlines()[-1]
    assert last.startswith("check_task: error: task gym,checked_tasks:Raises-v0 failed in step(): ")
    assert "RuntimeError: no such joint" in last and "checked_tasks.py, line" in last


def test_given_flags_are_part_of_the_command(folder):
    text = check(folder, "gym,LunarLander-v3", "--env_kwargs=gravity:-5.0")
    assert "8 numbers" in text and "4 to choose from" in text
    assert "--taskstr=gym,LunarLander-v3 --env_kwargs=gravity:-5.0" in text


@pytest.mark.parametrize("task", ["dm_control,cheetah_run", "gym,Pendulum-v1"])
def test_the_same_seed_gives_the_same_play(task):
    found = checking.check(lambda: suites.make(task, 3), 250, 0)
    assert found.differs_at is None
    assert found.rewards.shape == (250,) and found.steps_per_s > 0
    assert found.lengths == ([] if "cheetah" in task else [200])
    sentences, flags = checking.advice(found, 2)
    assert [flag for flag in flags if "scale" not in flag] == [] and len(sentences) == len(flags)


def test_a_slow_task_gets_an_actor_for_each_core():
    found = checking.check(lambda: suites.make("gym,Pendulum-v1", 0), 10, 0)
    slow = checking.dataclasses.replace(found, steps_per_s=50.0, rewards=np.arange(3.0))
    assert checking.advice(slow, 8)[1][-1] == "--n_actors=7"
    assert "--n_actors" not in "".join(checking.advice(slow, 2)[1])
