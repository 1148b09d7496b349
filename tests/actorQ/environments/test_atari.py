"""Atari games have the standard preprocessing."""

import numpy as np
import pytest

from actorQ.environments import suites
from actorQ.environments import task_errors


def test_atari_matches_gymnasiums_wrappers():
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    reference = gymnasium.wrappers.FrameStackObservation(
        gymnasium.wrappers.AtariPreprocessing(gymnasium.make("PongNoFrameskip-v4")), 4
    )
    with suites.make("atari,Pong", 5) as environment:
        expected, _ = reference.reset(seed=5)
        timestep = environment.reset()
        for index in range(60):
            np.testing.assert_array_equal(timestep.observation, np.moveaxis(expected, 0, -1))
            expected, reward, *_ = reference.step(index // 10 % 6)
            timestep = environment.step(index // 10 % 6)
            assert timestep.reward == reward
    reference.close()


def test_atari_lost_life_ends_nothing():
    with suites.make("atari,BreakoutNoFrameskip-v4", 0) as environment:
        environment.reset()
        lives = environment._raw.ale.lives()
        for _ in range(300):
            timestep = environment.step(1)
            if environment._raw.ale.lives() < lives:
                break
        assert environment._raw.ale.lives() == lives - 1
        assert timestep.mid() and timestep.discount == 1.0


def test_atari_own_limit_is_half_an_hour():
    with suites.make("atari,Pong", 0, max_episode_steps=10**6) as environment:
        assert environment.step_limit == 27_000
    with suites.make("atari,Pong", 0) as environment:
        assert environment.step_limit == 27_000


def test_atari_arguments_reach_the_game_but_those_of_the_preprocessing_are_refused():
    with suites.make("atari,Pong", 0, env_kwargs="mode:1,difficulty:1") as environment:
        assert environment._raw.unwrapped._game_mode == 1
    with pytest.raises(task_errors.TaskError, match="--env_kwargs cannot set frameskip"):
        suites.make("atari,Pong", 0, env_kwargs="frameskip:2")


def test_atari_ids_set_sticky_actions():
    for task, probability in (("Pong", 0.0), ("PongNoFrameskip-v4", 0.0), ("ALE/Pong-v5", 0.25)):
        with suites.make(f"atari,{task}", 0) as environment:
            ale = environment._raw.ale
            assert ale.getFloat("repeat_action_probability") == probability
