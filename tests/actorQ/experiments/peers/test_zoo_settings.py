"""Which entry of the zoo a task takes, and what is read from it."""

import pytest

from actorQ.core import errors
from actorQ.core import yaml_files
from actorQ.experiments.peers import zoo_settings


@pytest.mark.parametrize(
    ("algorithm", "taskstr", "entry"),
    [
        ("sac", "gym,Pendulum-v1", "Pendulum-v1"),
        ("sac", "MountainCarContinuous-v0", "MountainCarContinuous-v0"),  # Of the suite gym.
        ("sac", "mujoco,Hopper-v5", "Hopper-v4"),
        ("sac", "dm_control,walker_walk", "HalfCheetah-v4"),
        ("sac", "gym,my_tasks:MyEnv-v0", "default"),
        ("dqn", "gym,CartPole-v1", "CartPole-v1"),
        ("dqn", "gym,LunarLander-v3", "LunarLander-v3"),
    ],
)
def test_read_takes_the_tasks_own_entry_or_the_nearest(algorithm, taskstr, entry):
    assert zoo_settings.read(algorithm, taskstr).entry == entry


def test_read_turns_texts_into_values():
    tuned = zoo_settings.read("sac", "gym,MountainCarContinuous-v0")
    assert tuned.steps == 50_000 and tuned.falling_step_size is None
    assert tuned.settings["policy_kwargs"] == {
        "log_std_init": -3.67, "net_arch": [64, 64], "use_expln": True
    }
    assert "n_timesteps" not in tuned.settings and tuned.settings["learning_rate"] == 3e-4
    falling = zoo_settings.read("sac", "gym,LunarLanderContinuous-v3")
    assert falling.falling_step_size == 7.3e-4 and "learning_rate" not in falling.settings


@pytest.mark.parametrize("algorithm", ["sac", "dqn"])
def test_read_every_entry_is_values_or_refused_in_one_line(algorithm):
    entries = yaml_files.read(f"{zoo_settings._folder()}/{algorithm}.yml")
    refused = []
    for entry in entries:
        try:
            tuned = zoo_settings.read(algorithm, f"gym,{entry}")
        except errors.UserError as error:
            refused.append(entry)
            assert "which the peer does not take" in str(error)
        else:
            assert tuned.entry == entry and tuned.steps > 0
    assert len(refused) < len(entries) / 2


def test_texts_are_read_and_not_run():
    with pytest.raises(ValueError):
        zoo_settings._value("dict(a=open('x'))")
