"""Ends of episodes that only wrappers around the monitor know of, such as those of a time limit.

SB3's evaluation counts an episode only if the monitor noted its end. Without a note the evaluation
would play for ever, and the file of scores would lack the episode.
"""

import time
from typing import Any

import gymnasium as gym
from stable_baselines3.common import atari_wrappers
from stable_baselines3.common import env_util
from stable_baselines3.common import monitor

from baseline.agents import evaluation


class NotedEnds(gym.Wrapper):
    """Notes such ends as the monitor inside would, and may refuse episodes without an end."""

    def __init__(self, env: gym.Env, must_end: bool = False):
        """Wraps an environment.

        Args:
          env: Environment with SB3's monitor somewhere inside.
          must_end: Whether an episode that does not end is an error.
        """
        super().__init__(env)
        inside = env_util.unwrap_wrapper(env, monitor.Monitor)
        assert isinstance(inside, monitor.Monitor)
        self._monitor = inside
        lives = env_util.unwrap_wrapper(env, atari_wrappers.EpisodicLifeEnv)
        self._lives = lives if isinstance(lives, atari_wrappers.EpisodicLifeEnv) else None
        self._longest = evaluation.longest(env) if must_end else None

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Takes one step; see `gymnasium.Env.step`.

        Raises:
          errors.UserError: The episode has to end and does not.
        """
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            # If only a life was lost, the game goes on, and the monitor is right.
            over = self._lives is None or self._lives.was_real_done
            if "episode" not in info and over:
                info = {**info, "episode": self._note(info)}
        elif self._longest is not None and len(self._monitor.rewards) >= self._longest:
            raise evaluation.endless(
                "An episode of an evaluation (--eval_freq)", self._longest
            )
        return observation, reward, terminated, truncated, info

    def _note(self, info: dict[str, Any]) -> dict[str, Any]:
        inside = self._monitor
        seconds = time.time() - inside.t_start
        episode_return, length = sum(inside.rewards), len(inside.rewards)
        inside.episode_returns.append(episode_return)
        inside.episode_lengths.append(length)
        inside.episode_times.append(seconds)
        episode = {
            "r": round(episode_return, 6), "l": length, "t": round(seconds, 6),
            **{key: info[key] for key in inside.info_keywords}, **inside.current_reset_info,
        }
        if inside.results_writer:
            inside.results_writer.write_row(episode)
        return episode
