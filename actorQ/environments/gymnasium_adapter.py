"""Adapts one gymnasium task: its seeding, steps, ends and pictures."""

import contextlib
import dataclasses
import importlib
import math
import re
import sys
from typing import Any
import warnings

import numpy as np

from actorQ.environments import base
from actorQ.environments import mujoco_gl
from actorQ.environments import native_output
from actorQ.environments import scales
from actorQ.environments import spaces
from actorQ.environments import task_errors

_DEFAULT_RENDER_FPS = 30.0
_COLOURS = re.compile(r"\x1b\[\d*m")  # A terminal's, in Gymnasium's warnings.


class GymnasiumEnvironment(base.Environment):
    """A gymnasium task with vector, one-hot or pixel observations."""

    def __init__(
        self, raw: Any, name: str, seed: int, options: base.Options, own_limit: int | None
    ):
        """Adapts a task.

        Args:
          raw: A `gymnasium.Env` without gymnasium's time limit.
          name: Name for messages.
          seed: Seed of the first reset. Later resets continue from there.
          options: What a user has chosen.
          own_limit: The task's limit of agent steps per episode; None for none.

        Raises:
          TaskError: A space is of a kind that no agent here supports.
        """
        self._raw = raw
        self._seed: int | None = seed
        self._raw_step = raw.step
        self._closes_at_exit = False
        self._observations = spaces.Observations.of(raw.observation_space, name)
        self._flatten = self._observations.convert
        actions = spaces.Actions.of(raw.action_space, name, options.action_limit)
        super().__init__(
            name=name,
            spec=base.EnvironmentSpec(
                self._observations.shape, self._observations.dtype, **actions.fields
            ),
            to_native=actions.to_native,
            limit=base.StepLimit(
                options.max_episode_steps, math.inf if own_limit is None else own_limit
            ),
            render_fps=(raw.metadata or {}).get("render_fps") or _DEFAULT_RENDER_FPS,
        )
        self.notes += [note for note in (self._observations.note, actions.note) if note]

    def scale_bytes(self) -> None:
        """Scales bytes among vectors to [0, 1] from the next observation on."""
        scale = scales.byte_scale(self._observations.largest_bytes)
        self.spec = dataclasses.replace(self.spec, observation_scale=scale)

    def complaints(self) -> list[str]:
        """Returns what Gymnasium's own check says of the task, and spoils its random numbers."""
        checker = importlib.import_module("gymnasium.utils.env_checker")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                checker.check_env(self._raw, skip_render_check=True)
            # The check runs the task's own code, and asserts.
            except Exception as error:
                return [" ".join(str(error).split()) or type(error).__name__]
        texts = (_COLOURS.sub("", str(warning.message)) for warning in caught)
        lines = (" ".join(text.removeprefix("WARN: ").split()) for text in texts)
        return list(dict.fromkeys(lines))

    def scale_observations(self) -> None:
        """Scales observations to [-1, 1] from the next one on, where the space bounds them.

        Raises:
          TaskError: The space is no box of vectors, or has no bounds in any dimension.
        """
        space = self._raw.observation_space
        box = importlib.import_module("gymnasium.spaces").Box
        vectors = isinstance(space, box) and len(self.spec.observation_shape) == 1
        scale = scales.observation_scale(space.low, space.high) if vectors else None
        if scale is None:
            raise task_errors.no_observation_bounds()
        self.spec = dataclasses.replace(self.spec, observation_scale=scale)

    def _begin(self) -> np.ndarray:
        if self._seed is not None:
            # PyBullet prints a greeting when a task's first reset connects to it.
            quiet = native_output.muted if _is_pybullet(self._raw) else contextlib.nullcontext
            with quiet():
                observation = self._reset(seed=self._seed)
            self._seed = None
        else:
            observation = self._reset()
        observation = self._flatten(observation)
        if observation.shape != self.spec.observation_shape:
            raise task_errors.TaskError(
                f"task {self.name} returned an observation of shape {observation.shape}, but its "
                f"observation_space promises {self.spec.observation_shape}"
            )
        scale = self.spec.observation_scale
        return observation if scale is None else scale(observation)

    def _reset(self, **seed: int) -> Any:
        """Resets the task itself; returns its observation."""
        try:
            result = self._raw.reset(**seed)
        except TypeError as error:
            if "unexpected keyword argument 'seed'" not in str(error):
                raise
            raise self._old_api("its reset() takes no seed") from error
        if not isinstance(result, tuple) or len(result) != 2:
            raise self._old_api("its reset() does not return (observation, info)")
        return result[0]

    def _old_api(self, problem: str) -> task_errors.TaskError:
        """Returns the error for a task that was written for gym."""
        return task_errors.TaskError(
            f"task {self.name} lacks Gymnasium's API, and perhaps has that of gym before "
            f"0.26: {problem} (see gymnasium.farama.org, Migration Guide)"
        )

    def _advance(self, action: Any) -> tuple[np.ndarray, float, float, bool]:
        result = self._raw_step(action)
        try:
            observation, reward, terminated, truncated, _ = result
        except (TypeError, ValueError) as error:
            raise self._old_api(
                "its step() does not return (observation, reward, terminated, truncated, info)"
            ) from error
        observation = self._flatten(observation)
        scale = self.spec.observation_scale
        if scale is not None:
            observation = scale(observation)
        discount = 0.0 if terminated else 1.0
        return observation, self._number(reward), discount, terminated or truncated

    def _number(self, reward: Any) -> float:
        """Returns a reward as a number."""
        try:
            if not isinstance(reward, str):
                return float(reward)
        except (TypeError, ValueError):
            pass
        raise task_errors.TaskError(
            f"task {self.name} gave the reward {reward!r}, a {type(reward).__name__}: its step() "
            "must return one number. Sum the parts of a reward in a gymnasium.RewardWrapper"
        )

    def render(self) -> np.ndarray:
        """Returns a picture of the present state: [H, W, 3] uint8.

        Raises:
          TaskError: The task cannot draw itself, or a library for it is missing.
        """
        if self._raw.render_mode != "rgb_array":
            raise task_errors.TaskError(
                f"task {self.name} has no render mode rgb_array, so that no "
                "picture of it can be taken"
            )
        uses_mujoco = "mujoco" in sys.modules and hasattr(self._raw.unwrapped, "mujoco_renderer")
        if uses_mujoco:
            mujoco_gl.choose_backend()
        try:
            picture = np.array(self._raw.render(), dtype=np.uint8)
        # A missing pygame, OpenGL library or driver each fails in its own way.
        except Exception as error:
            remedy = f"; {mujoco_gl.INSTALL_HINT}" if uses_mujoco else ""
            raise task_errors.TaskError(
                f"task {self.name} cannot be rendered ({task_errors.one_line(error)}){remedy}"
            ) from error
        if uses_mujoco and not self._closes_at_exit:
            self._closes_at_exit = True
            self._close_at_exit()
        return picture

    def close(self) -> None:
        """Frees the task's simulation."""
        self._raw.close()


def _is_pybullet(raw: Any) -> bool:
    """Returns whether a task runs in PyBullet."""
    return hasattr(raw.unwrapped, "physicsClientId")
