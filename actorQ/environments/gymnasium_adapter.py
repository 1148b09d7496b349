"""Adapts one gymnasium task: its observation and action spaces, seeding, ends and pictures."""

from collections.abc import Callable
import contextlib
import dataclasses
import importlib
import sys
from typing import Any

import numpy as np

from actorQ.environments import base
from actorQ.environments import mujoco_gl
from actorQ.environments import native_output
from actorQ.environments import scales
from actorQ.environments import task_errors

_DEFAULT_RENDER_FPS = 30.0


class GymnasiumEnvironment(base.Environment):
    """A gymnasium task with vector, one-hot or pixel observations."""

    def __init__(self, raw: Any, name: str, seed: int, step_limit: float):
        """Adapts a task.

        Args:
            raw: A `gymnasium.Env` without gymnasium's time limit.
            name: What messages call it.
            seed: Given to the first reset; later ones go on from there.
            step_limit: Agent steps per episode.

        Raises:
            TaskError: A space is of a kind that no agent here supports.
        """
        self._raw = raw
        self._name = name
        self._seed: int | None = seed
        self._raw_step = raw.step
        self._closes_at_exit = False
        self._flatten, shape, dtype = _observation_map(raw.observation_space, name)
        to_native, actions = _action_map(raw.action_space, name)
        super().__init__(
            spec=base.EnvironmentSpec(shape, dtype, **actions),
            to_native=to_native,
            step_limit=step_limit,
            render_fps=(raw.metadata or {}).get("render_fps") or _DEFAULT_RENDER_FPS,
        )

    def scale_observations(self) -> None:
        """Scales observations to [-1, 1] from the next one on, where the space bounds them.

        Raises:
            TaskError: The space is no box of vectors, or has no bounds in any dimension.
        """
        spaces = importlib.import_module("gymnasium.spaces")
        space = self._raw.observation_space
        vectors = isinstance(space, spaces.Box) and len(self.spec.observation_shape) == 1
        scale = scales.observation_scale(space.low, space.high) if vectors else None
        if scale is None:
            raise task_errors.no_observation_bounds()
        self.spec = dataclasses.replace(self.spec, observation_scale=scale)

    def _begin(self) -> np.ndarray:
        if self._seed is not None:
            # PyBullet greets on standard output when a task's first reset connects to it.
            quiet = native_output.muted if _is_pybullet(self._raw) else contextlib.nullcontext
            with quiet():
                observation = self._reset(seed=self._seed)
            self._seed = None
        else:
            observation = self._reset()
        observation = self._flatten(observation)
        if observation.shape != self.spec.observation_shape:
            raise task_errors.TaskError(
                f"task {self._name} returned an observation of shape {observation.shape}, but its "
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
        """Describes a task that was written for gym; the error is to be raised."""
        return task_errors.TaskError(
            f"task {self._name} does not have Gymnasium's API, but perhaps that of gym before "
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
        return observation, float(reward), discount, terminated or truncated

    def render(self) -> np.ndarray:
        """Returns a picture of the present state: [H, W, 3] uint8.

        Raises:
            TaskError: The task cannot draw itself, or a library for it is missing.
        """
        if self._raw.render_mode != "rgb_array":
            raise task_errors.TaskError(
                f"task {self._name} has no render mode rgb_array, so that no "
                "picture of it can be taken"
            )
        uses_mujoco = "mujoco" in sys.modules and hasattr(self._raw.unwrapped, "mujoco_renderer")
        if uses_mujoco:
            mujoco_gl.choose_backend()
        try:
            picture = np.array(self._raw.render(), dtype=np.uint8)
        # Missing pygame, OpenGL libraries and drivers all fail in ways of their own.
        except Exception as error:
            remedy = f"; {mujoco_gl.INSTALL_HINT}" if uses_mujoco else ""
            raise task_errors.TaskError(
                f"task {self._name} cannot be rendered ({task_errors.one_line(error)}){remedy}"
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


def _observation_map(
    space: Any, name: str
) -> tuple[Callable[[Any], np.ndarray], tuple[int, ...], np.dtype]:
    """Builds the map from a space's observations to new arrays.

    Returns:
        The map, and the shape and type of its results.
    """
    spaces = importlib.import_module("gymnasium.spaces")
    if isinstance(space, spaces.Box):
        if space.dtype == np.uint8 and len(space.shape) == 3:
            return np.array, space.shape, np.dtype(np.uint8)
        size = int(np.prod(space.shape))
        if len(space.shape) == 1:
            return lambda value: np.array(value, np.float32), (size,), np.dtype(np.float32)
        return (
            lambda value: np.array(value, np.float32).reshape(-1),
            (size,),
            np.dtype(np.float32),
        )
    if not getattr(space, "is_np_flattenable", False):
        raise task_errors.TaskError(
            f"task {name} has the observation space {space}; only spaces that "
            "flatten to a vector are supported"
        )
    # Discrete observations become one-hot, those of Dict and Tuple spaces are joined.
    return (
        lambda value: np.array(spaces.flatten(space, value), np.float32),
        (int(spaces.flatdim(space)),),
        np.dtype(np.float32),
    )


def _action_map(space: Any, name: str) -> tuple[Callable[[Any], Any], dict[str, Any]]:
    """Builds the map from canonical actions to a space's own.

    Returns:
        The map, and the `EnvironmentSpec` fields that describe the actions.
    """
    spaces = importlib.import_module("gymnasium.spaces")
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        to_native = int if start == 0 else lambda action: int(action) + start
        return to_native, {"num_actions": int(space.n), "action_start": start}
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (np.reshape(bound, -1) for bound in (space.low, space.high))
        to_native = scales.continuous_action_map(low, high, space.shape, space.dtype)
        bounds = {"action_low": low, "action_high": high}
        return to_native, {name: bound.astype(np.float32) for name, bound in bounds.items()}
    raise task_errors.TaskError(
        f"task {name} has the action space {space}; only Discrete and "
        "floating-point Box action spaces are supported"
    )
