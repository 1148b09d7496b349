"""Draws pictures of `navigation` with numpy."""

from collections.abc import Sequence
import math

import numpy as np

PIXELS = 400  # Height and width.
_GROUND, _PILLAR, _GOAL, _TRAIL, _ROBOT = (
    np.array(colour, np.uint8)
    for colour in ((245, 245, 240), (90, 90, 100), (80, 180, 90), (150, 180, 230), (200, 50, 50))
)


def draw(
    side: float,
    centres: np.ndarray,
    radii: np.ndarray,
    goal: np.ndarray,
    goal_radius: float,
    trail: Sequence[np.ndarray],
    robot_radius: float,
    heading: float,
) -> np.ndarray:
    """Returns the arena from above, uint8 [PIXELS, PIXELS, 3], y upwards.

    Args:
      side: Side of the arena, m.
      centres: Centres of the pillars, [N, 2], m.
      radii: Radii of the pillars, [N], m.
      goal: Centre of the goal, [2], m.
      goal_radius: Radius of the goal, m.
      trail: Positions of the robot so far, each [2], m. The last one is the present one.
      robot_radius: Radius of the robot, m.
      heading: Heading of the robot, in radians from the x axis to the left.
    """
    middles = (np.arange(PIXELS) + 0.5) * (side / PIXELS)
    x, y = middles[None, :], middles[::-1, None]
    picture = np.empty((PIXELS, PIXELS, 3), np.uint8)
    picture[:] = _GROUND

    def disc(centre: np.ndarray, radius: float, colour: np.ndarray) -> None:
        picture[(x - centre[0]) ** 2 + (y - centre[1]) ** 2 <= radius**2] = colour

    for centre, radius in zip(centres, radii, strict=True):
        disc(centre, radius, _PILLAR)
    disc(goal, goal_radius, _GOAL)
    pixel = side / PIXELS
    for point in trail[:-1]:
        disc(point, 2 * pixel, _TRAIL)
    robot = np.asarray(trail[-1])
    disc(robot, robot_radius + pixel, _ROBOT)
    # A small disc ahead shows the heading.
    ahead = np.array([math.cos(heading), math.sin(heading)])
    disc(robot + 1.5 * robot_radius * ahead, 2 * pixel, _ROBOT)
    return picture
