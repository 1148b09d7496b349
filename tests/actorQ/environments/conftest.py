"""A module of tasks that a user might have written."""

import sys
import textwrap

import pytest

USER_MODULE = """
    import gymnasium
    import numpy as np


    class Counter(gymnasium.Env):
        action_space = gymnasium.spaces.Box(
            np.float32([0, -2, -np.inf]), np.float32([10, 4, np.inf])
        )
        observation_space = gymnasium.spaces.Dict(
            {
                "a_count": gymnasium.spaces.Discrete(3),
                "b_action": gymnasium.spaces.Box(-99, 99, (3,)),
            }
        )

        def __init__(self, end="terminated"):
            self.end = end

        def _observe(self, action):
            return {"a_count": min(self.count, 2), "b_action": np.float32(action)}

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            self.count = 0
            return self._observe([0, 0, 0]), {}

        def step(self, action):
            self.count += 1
            over = self.count == 3
            terminated = over and self.end in ("terminated", "both")
            return self._observe(action), 1, terminated, over and self.end != "terminated", {}


    class Many(Counter):
        action_space = gymnasium.spaces.MultiDiscrete([2, 3])


    class Reused(Counter):
        # Returns one and the same array at every step, and numbers its actions from 5.
        action_space = gymnasium.spaces.Discrete(2, start=5)
        observation_space = gymnasium.spaces.Box(-9, 9, (4,))
        shared = np.zeros(4, np.float32)

        def _observe(self, action):
            self.shared[...] = action if np.ndim(action) == 0 else 0
            return self.shared


    class Square(Reused):
        observation_space = gymnasium.spaces.Box(-9, 9, (2, 2))
        shared = np.zeros((2, 2), np.float32)


    class Broken(Reused):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, np.nan if self.count == 2 else 1.0, *rest


    class Failing(Reused):
        def __init__(self, where, render_mode=None):
            super().__init__()
            self.where = where
            self._maybe_fail("constructor")

        def _maybe_fail(self, where):
            1 / (where != self.where)

        def reset(self, seed=None, options=None):
            self._maybe_fail("reset")
            return super().reset(seed=seed)

        def step(self, action):
            self._maybe_fail("step")
            return super().step(action)


    class Unseeded(Counter):
        def reset(self):
            return super().reset()


    class OldReset(Counter):
        def reset(self, seed=None, options=None):
            return super().reset(seed=seed)[0]


    class OldStep(Counter):
        def step(self, action):
            return super().step(action)[:4]


    class Liar(Counter):
        observation_space = gymnasium.spaces.Box(-9, 9, (7,))

        def _observe(self, action):
            return np.zeros(5, np.float32)


    class Wrapped(gymnasium.Wrapper):
        def __init__(self, render_mode=None):
            super().__init__(gymnasium.make("MountainCar-v0", render_mode=render_mode))


    class WrappedUnseen(gymnasium.Wrapper):
        def __init__(self):
            super().__init__(gymnasium.make("MountainCar-v0"))


    gymnasium.register("Wrapped-v0", entry_point=Wrapped, max_episode_steps=500)
    gymnasium.register("WrappedUnseen-v0", entry_point=WrappedUnseen)
    for end in ("terminated", "truncated", "both"):
        gymnasium.register(f"Counter-{end}-v0", entry_point=Counter, kwargs={"end": end})
    gymnasium.register("Many-v0", entry_point=Many)
    gymnasium.register("Reused-v0", entry_point=Reused)
    gymnasium.register("Square-v0", entry_point=Square)
    gymnasium.register("Liar-v0", entry_point=Liar)
    gymnasium.register("Broken-v0", entry_point=Broken)
    gymnasium.register("Failing-v0", entry_point=Failing)
    gymnasium.register("Unseeded-v0", entry_point=Unseeded)
    gymnasium.register("OldReset-v0", entry_point=OldReset)
    gymnasium.register("OldStep-v0", entry_point=OldStep)
"""


@pytest.fixture(scope="session")
def user_module(tmp_path_factory):
    """Puts a module that registers tasks of a user's own on the path, and names it."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "users_own_tasks.py").write_text(textwrap.dedent(USER_MODULE))
    sys.path.insert(0, str(folder))
    yield "users_own_tasks"
    sys.path.remove(str(folder))
