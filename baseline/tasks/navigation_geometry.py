"""Computes distances among points, paths, rays and discs in the plane, for `navigation`.

Positions are in metres, float64. Imports numpy only.
"""

import numpy as np

# Smallest divisor from a direction. A ray along a wall then meets that wall far away.
_LEAST = 1e-9


def segment_distances(start: np.ndarray, end: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Returns how close a straight path comes to each point, [N].

    Args:
      start: Start of the path, [2].
      end: End of the path, [2]; it may equal the start.
      points: Points, [N, 2].
    """
    path = end - start
    relative = points - start
    squared_length = float(path[0] ** 2 + path[1] ** 2)
    if squared_length > 0.0:
        share = np.minimum(np.maximum(relative @ path / squared_length, 0.0), 1.0)
        relative = relative - share[:, None] * path
    return np.hypot(relative[:, 0], relative[:, 1])


def disc_ranges(
    origin: np.ndarray, directions: np.ndarray, centres: np.ndarray, radii: np.ndarray
) -> np.ndarray:
    """Returns the length of each ray until it meets a disc, [R], or infinity if it meets none.

    Let c be a disc's centre, seen from the origin, and p its projection on a ray. The ray meets the
    disc at p - sqrt(r^2 - (|c|^2 - p^2)), if the root is real and p is positive.

    Args:
      origin: Origin of all rays, [2], outside of the discs.
      directions: Unit vectors, [R, 2].
      centres: Centres of the discs, [N, 2].
      radii: Radii of the discs, [N].
    """
    relative = centres - origin
    along = directions @ relative.T
    room = along * along + (radii * radii - (relative * relative).sum(axis=1))
    distances = along - np.sqrt(np.maximum(room, 0.0))
    distances[(room < 0.0) | (along <= 0.0)] = np.inf
    return distances.min(axis=1, initial=np.inf)


def wall_ranges(origin: np.ndarray, directions: np.ndarray, side: float) -> np.ndarray:
    """Returns the length of each ray until it meets a wall of the square [0, side]^2, [R].

    Args:
      origin: Origin of all rays, [2], in the square.
      directions: Unit vectors, [R, 2].
      side: Side of the square.
    """
    steep = np.where(np.abs(directions) < _LEAST, _LEAST, directions)
    return np.maximum(-origin / steep, (side - origin) / steep).min(axis=1)


def wall_distance(point: np.ndarray, side: float) -> float:
    """Returns the distance of a point [2] in the square [0, side]^2 to the nearest wall."""
    x, y = float(point[0]), float(point[1])
    return min(x, y, side - x, side - y)
