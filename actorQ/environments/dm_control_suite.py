"""Serves the tasks of the DeepMind Control Suite as `dm_control,DOMAIN_TASK`.

If this module imports dm_control first, `physics.render` does not work (see `mujoco_gl`), but
`Environment.render` does.
"""

import importlib
import types
from typing import Any

from absl import logging
import dm_env
import numpy as np

from actorQ.environments import base
from actorQ.environments import mujoco_gl
from actorQ.environments import scales
from actorQ.environments import task_errors

_RENDER_HEIGHT = 240  # Pixels.
_RENDER_WIDTH = 320  # Pixels.
# The suite's rewards lie in [0, 1] (arXiv:1801.00690, section 3), but for those of this domain.
_REWARD_BOUNDS = (0.0, 1.0)
_UNBOUNDED_DOMAIN = "lqr"


class DmControlEnvironment(base.Environment):
    """A Control Suite task, its observations joined to one vector in the suite's own order."""

    def __init__(
        self,
        name: str,
        raw: dm_env.Environment,
        options: base.Options,
        reward_bounds: tuple[float, float] | None = _REWARD_BOUNDS,
    ):
        """Adapts a task.

        Args:
          name: Name for messages.
          raw: The `dm_control.rl.control.Environment`.
          options: What a user has chosen.
          reward_bounds: Lowest and highest reward; None for no bounds.
        """
        actions = raw.action_spec()
        low, high, note = scales.action_range(
            np.broadcast_to(actions.minimum, actions.shape),
            np.broadcast_to(actions.maximum, actions.shape),
            options.action_limit,
        )
        parts = raw.observation_spec().values()
        size = sum(int(np.prod(part.shape)) for part in parts)
        self._all_vectors = all(len(part.shape) == 1 for part in parts)
        self._raw = raw
        self._physics_error = importlib.import_module("dm_control.rl.control").PhysicsError
        self._newest = np.zeros(size, np.float32)  # Newest observation.
        self._camera: mujoco_gl.Camera | None = None
        super().__init__(
            name=name,
            spec=base.EnvironmentSpec(
                (size,), np.dtype(np.float32), action_low=low.astype(np.float32),
                action_high=high.astype(np.float32), reward_bounds=reward_bounds,
            ),
            to_native=scales.continuous_action_map(low, high, actions.shape, np.dtype(np.float32)),
            limit=base.StepLimit(options.max_episode_steps, raw._step_limit),
            render_fps=1.0 / raw.control_timestep(),
        )
        self.notes += [note] if note else []

    def _begin(self) -> np.ndarray:
        self._newest = self._flatten(self._raw.reset().observation)
        return self._newest

    def _advance(self, action: np.ndarray) -> tuple[np.ndarray, float, float, bool]:
        # dm_control's own discount is 1 at its time limit and 0 at a true end.
        try:
            step_type, reward, discount, observation = self._raw.step(action)
        except self._physics_error as error:
            logging.log_first_n(
                logging.WARNING,
                "The simulation has diverged (%s), which ends the episode (logged once).",
                1,
                error,
            )
            # This is a true end with nothing to gain, as in dm_control's composer. With a discount
            # of 1, the action would be worth as much as the state in which it was taken.
            return self._newest.copy(), 0.0, 0.0, True
        over = step_type is dm_env.StepType.LAST
        self._newest = self._flatten(observation)
        return self._newest, float(reward), float(discount), over

    def _flatten(self, observation: dict[str, Any]) -> np.ndarray:
        """Joins the entries of an observation: [D] float32."""
        parts = tuple(observation.values())
        if not self._all_vectors:
            parts = tuple(np.ravel(part) for part in parts)
        return np.concatenate(parts, dtype=np.float32, casting="same_kind")

    def render(self) -> np.ndarray:
        """Returns a picture of the present state: [H, W, 3] uint8."""
        if self._camera is None:
            self._camera = mujoco_gl.Camera(
                self._raw.physics.model.ptr, _RENDER_HEIGHT, _RENDER_WIDTH
            )
            self._close_at_exit()
        return self._camera.picture(self._raw.physics.data.ptr)

    def close(self) -> None:
        """Frees the simulation and, where pictures were taken, the OpenGL context."""
        if self._camera is not None:
            self._camera.close()
            self._camera = None
        self._raw.close()


def make(suite: str, task: str, seed: int, options: base.Options) -> base.Environment:
    """Builds a task such as `ball_in_cup_catch`; see `suites.make`.

    The lowest 32 bits of the seed count.
    """
    control_suite = _import_suite()
    # Domain names contain underscores, so the joined name is looked up rather than split.
    names = {f"{domain}_{name}": (domain, name) for domain, name in control_suite.ALL_TASKS}
    if task not in names:
        raise task_errors.unknown_task(suite, task, names)
    name = f"{suite},{task}"
    kwargs = {**options.kwargs, "random": seed % 2**32}
    with mujoco_gl.deferred(), task_errors.building(name):
        raw = control_suite.load(*names[task], task_kwargs=kwargs)
    bounds = None if names[task][0] == _UNBOUNDED_DOMAIN else _REWARD_BOUNDS
    return DmControlEnvironment(name, raw, options, bounds)


def list_tasks(suite: str) -> list[str]:
    """Lists the tasks, such as `cheetah_run`; see `suites.list_tasks`."""
    del suite  # The module serves only one.
    return sorted(f"{domain}_{name}" for domain, name in _import_suite().ALL_TASKS)


def _import_suite() -> types.ModuleType:
    """Imports `dm_control.suite` without OpenGL."""
    with task_errors.importing("the dm_control suite", "dm_control mujoco"), mujoco_gl.deferred():
        from dm_control import suite
    return suite
