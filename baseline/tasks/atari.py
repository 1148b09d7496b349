"""Tells Atari games by their specification in gymnasium's registry."""

import ale_py
import gymnasium

_ENTRY_POINT = "ale_py.env:AtariEnv"


def skipped_frames(spec: "gymnasium.envs.registration.EnvSpec | None") -> int | tuple[int, int]:
    """Returns for how many frames an environment itself holds an action; 1 where it is no game."""
    if spec is None or spec.entry_point != _ENTRY_POINT:
        return 1
    return spec.kwargs.get("frameskip", 4)


def shows_every_frame(env_id: str) -> bool:
    """Returns whether an environment is a game that skips no frame, "...NoFrameskip-v4"."""
    gymnasium.register_envs(ale_py)
    spec = gymnasium.registry.get(env_id)
    is_game = spec is not None and spec.entry_point == _ENTRY_POINT
    return is_game and skipped_frames(spec) == 1
