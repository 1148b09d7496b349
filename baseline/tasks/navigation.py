"""Point-to-point navigation among random obstacles, as in QuaRL's deployment case study.

The paper flies an aerial robot in Air Learning, whose simulator (Unreal Engine) is not a Python
package. Existing packages do not fit: PyFlyt's quadrotor meets no obstacles, and
gymnasium-robotics' mazes have fixed walls that the agent does not see. In this small task, a robot
of constant height flies to a goal in a square arena, past pillars that move between episodes.

- Action: one of 25 pairs of speed and yaw rate, `SPEEDS[action // 5]` and `YAW_RATES[action % 5]`.
  The robot reaches both with a lag, like a drone.
- Observation, float32 [21]:
  - the distance to the goal as a share of the arena's diagonal;
  - cosine and sine of the goal's bearing, seen from the robot;
  - speed and yaw rate as shares of the largest;
  - 16 range sensors all around, from ahead to the left, as shares of their reach.
  Positions of the robot and the pillars are not observed.
- An episode ends at the goal (`info["is_success"]`), at a collision with a pillar or a wall, and
  after `MAX_STEPS`.
- Reward: metres gained towards the goal, -0.05 a step, 10 at the goal, -10 for a collision.

Every goal can be reached: gaps between pillars, and between pillars and walls, are wider than the
robot. `register` registers the task with Gymnasium as `DroneNavigation-v0`.
"""

import math
from typing import Any
from typing import NamedTuple

import gymnasium as gym
import numpy as np

from baseline.tasks import navigation_geometry as geometry

ENV_ID = "DroneNavigation-v0"
MAX_STEPS = 200
SIDE = 20.0  # Side of the arena, m.
ROBOT_RADIUS = 0.3  # m.
GOAL_RADIUS = 0.5  # Largest distance of the robot's centre at the goal, m.
STEP_S = 0.25
LAG_S = 0.5  # Time constant of speed and yaw rate.
SPEEDS = (0.0, 0.75, 1.5, 2.25, 3.0)  # m/s.
YAW_RATES = tuple(math.radians(degrees) for degrees in (-90, -45, 0, 45, 90))  # 1/s.
NUM_RANGES = 16
REACH = 5.0  # Reach of a range sensor, m.
PILLARS = (16, 32)  # Minimum and maximum; fewer where there is no room.
PILLAR_RADII = (0.3, 1.2)  # m.
GAP = 0.9  # Minimum between pillars, and between pillars and walls, m.
CLEARANCE = 0.9  # Minimum from start and goal to surfaces of pillars and walls, m.
LEAST_WAY = 8.0  # Minimum from start to goal, m.
STEP_COST, SUCCESS_REWARD, COLLISION_REWARD = 0.05, 10.0, -10.0
_DIAGONAL = SIDE * math.sqrt(2.0)
_CANDIDATES = 96  # Places to try for pillars.
_OWN = 5  # Numbers before the ranges in an observation.
_PIXELS = 400  # Height and width of pictures.
_GROUND, _PILLAR, _GOAL = (245, 245, 240), (90, 90, 100), (80, 180, 90)
_TRAIL, _ROBOT = (150, 180, 230), (200, 50, 50)


class World(NamedTuple):
    """The positions in an episode.

    Attributes:
      centres: Centres of the pillars, [N, 2], m.
      radii: Radii of the pillars, [N], m.
      start: Where the robot starts, [2], m.
      heading: Heading at the start, in radians from the x axis to the left.
      goal: Where the goal is, [2], m.
    """

    centres: np.ndarray
    radii: np.ndarray
    start: np.ndarray
    heading: float
    goal: np.ndarray


def sample_world(rng: np.random.Generator) -> World:
    """Returns a random world whose goal can be reached."""
    wanted = int(rng.integers(PILLARS[0], PILLARS[1] + 1))
    centres = rng.uniform(0.0, SIDE, (_CANDIDATES, 2))
    radii = rng.uniform(*PILLAR_RADII, _CANDIDATES)
    x, y = centres.T
    gaps = np.sqrt((x[:, None] - x) ** 2 + (y[:, None] - y) ** 2) - radii - radii[:, None]
    # A candidate becomes a pillar if it keeps the gap to walls and to all earlier pillars.
    free = np.minimum(centres, SIDE - centres).min(axis=1) - radii >= GAP
    chosen: list[int] = []
    while len(chosen) < wanted and free.any():
        chosen.append(int(free.argmax()))
        free &= gaps[chosen[-1]] >= GAP  # This also excludes the new pillar, which overlaps itself.
    centres, radii = centres[chosen], radii[chosen]
    while True:
        start, goal = rng.uniform(CLEARANCE, SIDE - CLEARANCE, (2, 2))
        clear = all(
            (np.hypot(*(centres - point).T) - radii).min(initial=np.inf) >= CLEARANCE
            for point in (start, goal)
        )
        if clear and _norm(goal - start) >= LEAST_WAY:
            return World(centres, radii, start, float(rng.uniform(-math.pi, math.pi)), goal)


class Navigation(gym.Env):
    """The environment; see the module's docstring."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1.0 / STEP_S}

    def __init__(self, render_mode: str | None = None):
        """Makes the environment.

        Args:
          render_mode: None or "rgb_array".

        Raises:
          ValueError: There is no such mode.
        """
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be None or 'rgb_array', not {render_mode!r}.")
        self.render_mode = render_mode
        self.action_space = gym.spaces.Discrete(len(SPEEDS) * len(YAW_RATES))
        low = np.array([0.0, -1.0, -1.0, 0.0, -1.0] + [0.0] * NUM_RANGES, np.float32)
        self.observation_space = gym.spaces.Box(low, np.ones_like(low), dtype=np.float32)
        self._sensors = np.arange(NUM_RANGES) * (2.0 * math.pi / NUM_RANGES)
        self._share = 1.0 - math.exp(-STEP_S / LAG_S)  # Approach to the asked rates in a step.
        self._world: World | None = None
        self._ended = True
        self._places, self._sizes = np.zeros((0, 2)), np.zeros(0)
        self._position = np.zeros(2)
        self._trail: list[np.ndarray] = []
        self._heading = self._speed = self._yaw_rate = self._distance = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode.

        Args:
          seed: Seed of this and the following worlds; None continues the present sequence.
          options: Its entry "world" is a `World` to play in.

        Returns:
          The observation, and `is_success` (False).
        """
        super().reset(seed=seed)
        given = (options or {}).get("world")
        self._world = sample_world(self.np_random) if given is None else given
        self._ended = False
        # The places of the pillars and, last, the goal, and the distances that count as a touch.
        self._places = np.concatenate([self._world.centres, self._world.goal[None]])
        self._sizes = np.append(self._world.radii + ROBOT_RADIUS, GOAL_RADIUS)
        self._position = np.array(self._world.start, np.float64)
        self._heading, self._speed, self._yaw_rate = float(self._world.heading), 0.0, 0.0
        self._distance = _norm(self._world.goal - self._position)
        self._trail = [self._position]
        return self._observation(self._world), {"is_success": False}

    def step(
        self, action: int | np.integer
    ) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Flies for `STEP_S`.

        Args:
          action: 0 to 24.

        Returns:
          Observation, reward, whether the robot is at the goal or has collided, False (Gymnasium
          has the time limit), and `is_success`.

        Raises:
          ValueError: There is no such action.
          gymnasium.error.ResetNeeded: The episode has ended, or none has begun.
        """
        world = self._world
        if self._ended or world is None:
            raise gym.error.ResetNeeded("Call reset before step: there is no episode.")
        action = int(action)
        if not 0 <= action < len(SPEEDS) * len(YAW_RATES):
            raise ValueError(f"Actions are 0 to {len(SPEEDS) * len(YAW_RATES) - 1}, not {action}.")
        faster, turn = divmod(action, len(YAW_RATES))
        self._speed += self._share * (SPEEDS[faster] - self._speed)
        self._yaw_rate += self._share * (YAW_RATES[turn] - self._yaw_rate)
        # The robot flies straight, with the heading in the middle of the step.
        middle = self._heading + 0.5 * STEP_S * self._yaw_rate
        self._heading = math.remainder(self._heading + STEP_S * self._yaw_rate, 2.0 * math.pi)
        way = STEP_S * self._speed
        before = self._position
        self._position = before + (way * math.cos(middle), way * math.sin(middle))
        if self.render_mode is not None:
            self._trail.append(self._position)
        # The whole path of the step counts, so that the robot flies through nothing.
        touched = geometry.segment_distances(before, self._position, self._places) <= self._sizes
        collided = bool(
            touched[:-1].any()
            or geometry.wall_distance(self._position, SIDE) <= ROBOT_RADIUS
        )
        success = not collided and bool(touched[-1])
        distance = _norm(world.goal - self._position)
        reward = self._distance - distance - STEP_COST
        self._distance = distance
        if collided:
            reward += COLLISION_REWARD
        elif success:
            reward += SUCCESS_REWARD
        self._ended = collided or success
        return self._observation(world), reward, self._ended, False, {"is_success": success}

    def render(self) -> np.ndarray | None:
        """Returns the arena from above, uint8 [H, W, 3], or None without a render mode."""
        if self.render_mode is None or self._world is None:
            return None
        from PIL import Image
        from PIL import ImageDraw

        image = Image.new("RGB", (_PIXELS, _PIXELS), _GROUND)
        draw, pixel, world = ImageDraw.Draw(image), SIDE / _PIXELS, self._world

        def disc(centre: np.ndarray, radius: float, colour: tuple[int, int, int]) -> None:
            place = centre[0] / pixel, _PIXELS - centre[1] / pixel
            draw.circle(place, radius / pixel, colour)

        for centre, radius in zip(world.centres, world.radii, strict=True):
            disc(centre, radius, _PILLAR)
        disc(world.goal, GOAL_RADIUS, _GOAL)
        for point in self._trail[:-1]:
            disc(point, 2 * pixel, _TRAIL)
        disc(self._position, ROBOT_RADIUS + pixel, _ROBOT)
        # A small disc ahead shows the heading.
        ahead = np.array([math.cos(self._heading), math.sin(self._heading)])
        disc(self._position + 1.5 * ROBOT_RADIUS * ahead, 2 * pixel, _ROBOT)
        return np.array(image)

    def _observation(self, world: World) -> np.ndarray:
        bearing = self._bearing(world)
        observation = np.empty(_OWN + NUM_RANGES, np.float32)
        observation[:_OWN] = (
            min(self._distance / _DIAGONAL, 1.0), math.cos(bearing), math.sin(bearing),
            self._speed / SPEEDS[-1], self._yaw_rate / YAW_RATES[-1],
        )
        observation[_OWN:] = self._ranges(world)
        return observation

    def _bearing(self, world: World) -> float:
        """Returns the direction of the goal, in radians to the left of ahead."""
        x, y = world.goal - self._position
        return math.atan2(y, x) - self._heading

    def _ranges(self, world: World) -> np.ndarray:
        """Returns the readings of the sensors, 0 to 1, [NUM_RANGES]."""
        angles = self._sensors + self._heading
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        origin = self._position
        if self._ended:  # The robot may be beyond a wall, or in a pillar.
            origin = np.minimum(np.maximum(origin, 0.0), SIDE)
        ranges = np.minimum(
            geometry.disc_ranges(origin, directions, world.centres, world.radii),
            geometry.wall_ranges(origin, directions, SIDE),
        )
        return np.minimum(np.maximum(ranges, 0.0) / REACH, 1.0)


def _norm(vector: np.ndarray) -> float:
    return math.hypot(vector[0], vector[1])


def register() -> None:
    """Registers the environment with Gymnasium, once."""
    if ENV_ID not in gym.registry:
        gym.register(
            ENV_ID, entry_point="baseline.tasks.navigation:Navigation", max_episode_steps=MAX_STEPS
        )
