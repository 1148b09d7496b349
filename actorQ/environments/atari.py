"""Serves Atari games with the usual preprocessing (Mnih et al., 2015; Machado et al., 2018).

- Up to 30 no-ops follow a reset.
- An action lasts 4 frames. A screen is the maximum over the last 2 of them, in grey and scaled to
  84x84. An observation stacks the last 4 screens: [84, 84, 4] uint8, the newest last.
- An episode is a whole game: losing a life does not end it. It lasts at most 27 000 agent steps
  (108 000 frames, half an hour).
- Rewards are the game's own points. An agent that wants clipped rewards clips them itself.
"""

import importlib
from typing import Any

import numpy as np

from actorQ.environments import base
from actorQ.environments import gymnasium_adapter
from actorQ.environments import gymnasium_suites
from actorQ.environments import task_errors

_FRAME_SKIP = 4
_STACK = 4
_NOOP_MAX = 30
_SCREEN_SIZE = 84
_GAME_STEPS = 27_000  # Agent steps of four frames.
_FRAMES_PER_S = 60
_ENTRY_MODULE = "ale_py"
_NO_FRAME_SKIP = "NoFrameskip"


class AtariEnvironment(gymnasium_adapter.GymnasiumEnvironment):
    """A game whose last four screens are stacked along the last axis."""

    def __init__(self, raw: Any, name: str, seed: int, options: base.Options):
        """Adapts a game.

        Args:
          raw: The preprocessed game, [84, 84] uint8.
          name: Name for messages.
          seed: Seed of the first reset.
          options: What a user has chosen.
        """
        super().__init__(raw, name, seed, options, _GAME_STEPS)
        shape = (_SCREEN_SIZE, _SCREEN_SIZE, _STACK)
        # gymnasium's FrameStackObservation stacks along the first axis and copies deeply.
        self._flatten = self._push
        self._stack = np.zeros(shape, np.uint8)
        self.spec = base.EnvironmentSpec(shape, np.dtype(np.uint8), self.spec.num_actions)
        self.render_fps = _FRAMES_PER_S / _FRAME_SKIP

    def _begin(self) -> np.ndarray:
        observation = super()._begin()
        # The first screen fills the stack: an episode shows nothing of the one before it.
        observation[...] = observation[..., -1:]
        return observation

    def _push(self, screen: np.ndarray) -> np.ndarray:
        """Returns a new stack that ends in a screen: [84, 84, 4] uint8."""
        stack = np.empty_like(self._stack)
        # A shift by one byte to the left moves every pixel's older screens into place. Copying
        # channel by channel takes eight times as long.
        stack.reshape(-1)[:-1] = self._stack.reshape(-1)[1:]
        stack[..., -1] = screen
        self._stack = stack
        return stack


def make(suite: str, task: str, seed: int, options: base.Options) -> base.Environment:
    """Builds a game; see `suites.make`. An agent's step is four frames.

    `Pong` and `PongNoFrameskip-v4` are the same. `ALE/Pong-v5` and `PongNoFrameskip-v0` repeat the
    previous action in a quarter of the frames.
    """
    gymnasium = gymnasium_suites.import_gymnasium()
    games = list_tasks(suite)
    name = f"{suite},{task}"
    spec = gymnasium.registry.get(f"{task}{_NO_FRAME_SKIP}-v4" if task in games else task)
    # Other ids of a game differ in skipped frames or kind of observation, which are fixed here.
    if spec is None or not (
        spec.namespace == "ALE" or (_is_atari(spec) and spec.name.endswith(_NO_FRAME_SKIP))
    ):
        raise task_errors.unknown_task(
            suite, task, games, "write Pong, PongNoFrameskip-v4 or ALE/Pong-v5"
        )
    # ALE would print its name and version with the first game.
    ale_py = importlib.import_module(_ENTRY_MODULE)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    # The game draws grey screens only. Drawing coloured ones as well takes longer than playing.
    kwargs = {"frameskip": 1, "obs_type": "grayscale"}
    if fixed := sorted(kwargs.keys() & options.kwargs.keys()):
        raise task_errors.TaskError(
            f"--env_kwargs cannot set {' and '.join(fixed)}, which Atari's preprocessing fixes: "
            "leave it out"
        )
    kwargs |= options.kwargs
    raw = gymnasium_suites.build(gymnasium, spec, name, **kwargs)
    try:
        raw = gymnasium.wrappers.AtariPreprocessing(
            raw, noop_max=_NOOP_MAX, frame_skip=_FRAME_SKIP, screen_size=_SCREEN_SIZE
        )
    except gymnasium.error.DependencyNotInstalled as error:
        raise task_errors.TaskError(
            f"suite atari needs OpenCV ({task_errors.one_line(error)}); `pip install "
            "opencv-python-headless` provides it"
        ) from error
    return AtariEnvironment(raw, name, seed, options)


def list_tasks(suite: str) -> list[str]:
    """Lists the games, such as `Pong`; see `suites.list_tasks`."""
    del suite  # The module serves only one.
    gymnasium = gymnasium_suites.import_gymnasium()
    with task_errors.importing("suite atari", "ale-py opencv-python-headless"):
        gymnasium.register_envs(importlib.import_module(_ENTRY_MODULE))
    suffix = f"{_NO_FRAME_SKIP}-v4"
    return sorted(
        spec.id.removesuffix(suffix)
        for spec in gymnasium.registry.values()
        if _is_atari(spec) and spec.id.endswith(suffix)
    )


def _is_atari(spec: Any) -> bool:
    """Returns whether a registered task is one of ale_py's."""
    return str(spec.entry_point).startswith(_ENTRY_MODULE)
