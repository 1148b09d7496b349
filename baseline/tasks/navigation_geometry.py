"""Distances among points, paths, rays and discs in the plane, for `navigation`.

Positions are in metres, float64. Imports numpy only.
"""

import numpy as np

# Smallest component of a direction that is divided by: a ray along a wall meets it far away.
_LEAST = 1e-9


def segment_distances(start: np.ndarray, end: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Returns how close a straight path comes to points, [N].

    Args:
      start: [2].
      end: [2]; may be the start.
      points: [N, 2].
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
    """Returns how far rays go until they meet a disc, [R]; infinity where they meet none.

    With p the projection of a disc's centre c (from the origin) on a ray, the ray meets the disc at
    p - sqrt(r^2 - (|c|^2 - p^2)), if the root is real and p is in front.

    Args:
      origin: Of all rays, [2], outside of the discs.
      directions: Unit vectors, [R, 2].
      centres: Of the discs, [N, 2].
      radii: [N].
    """
    relative = centres - origin
    along = directions @ relative.T
    room = along * along + (radii * radii - (relative * relative).sum(axis=1))
    distances = along - np.sqrt(np.maximum(room, 0.0))
    distances[(room < 0.0) | (along <= 0.0)] = np.inf
    return distances.min(axis=1, initial=np.inf)


def wall_ranges(origin: np.ndarray, directions: np.ndarray, side: float) -> np.ndarray:
    """Returns how far rays go until they meet a wall of the square [0, side]^2, [R].

    Args:
      origin: Of all rays, [2], in the square.
      directions: Unit vectors, [R, 2].
      side: Of the square.
    """
    steep = np.where(np.abs(directions) < _LEAST, _LEAST, directions)
    return np.maximum(-origin / steep, (side - origin) / steep).min(axis=1)


def wall_distance(point: np.ndarray, side: float) -> float:
    """Returns how far a point [2] in the square [0, side]^2 is from its nearest wall."""
    x, y = float(point[0]), float(point[1])
    return min(x, y, side - x, side - y)
