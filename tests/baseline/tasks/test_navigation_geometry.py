"""Distances in the plane, against brute force."""

import numpy as np
import pytest

from baseline.tasks import navigation_geometry as geometry


@pytest.fixture(name="rng")
def fixture_rng():
    return np.random.default_rng(0)


def directions(rng, count):
    angles = rng.uniform(-np.pi, np.pi, count)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def marched(origin, direction, inside, far=30.0, step=1e-3):
    """How far a ray goes until it is inside of something, by walking."""
    walked = np.arange(0.0, far, step)
    hits = inside(origin + walked[:, None] * direction)
    return walked[hits.argmax()] if hits.any() else np.inf


def test_rays_meet_discs_where_walking_meets_them(rng):
    centres, radii = rng.uniform(0, 10, (6, 2)), rng.uniform(0.3, 1.0, 6)
    origin = next(
        point for point in rng.uniform(0, 10, (50, 2))
        if (np.linalg.norm(centres - point, axis=1) > radii).all()
    )
    rays = directions(rng, 60)

    found = geometry.disc_ranges(origin, rays, centres, radii)

    def inside(points):
        return (np.linalg.norm(points[:, None] - centres, axis=2) <= radii).any(axis=1)

    expected = np.array([marched(origin, ray, inside) for ray in rays])
    assert np.isinf(expected).any() and np.isfinite(expected).any()
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
    # A ray that grazes a disc meets it somewhat earlier than steps of a millimetre tell.
    finite = np.isfinite(found)
    errors = np.abs(found[finite] - expected[finite])
    assert errors.max() < 0.05 and np.median(errors) < 2e-3


def test_rays_meet_walls_where_walking_meets_them(rng):
    origin, rays = rng.uniform(0, 8, 2), directions(rng, 40)

    found = geometry.wall_ranges(origin, rays, 8.0)

    def outside(points):
        return ((points < 0) | (points > 8.0)).any(axis=1)

    expected = [marched(origin, ray, outside) for ray in rays]
    np.testing.assert_allclose(found, expected, atol=2e-3)


@pytest.mark.parametrize(
    ("direction", "distance"), [((1, 0), 5), ((0, 1), 6), ((-1, 0), 3), ((0, -1), 2)]
)
def test_rays_along_axes_meet_the_wall_ahead(direction, distance):
    found = geometry.wall_ranges(np.array([3.0, 2.0]), np.array([direction], float), 8.0)
    assert found == pytest.approx([distance])


def test_rays_see_nothing_behind_and_nothing_where_nothing_is():
    ahead = np.array([[1.0, 0.0]])
    behind = np.array([[-5.0, 0.0]])
    assert geometry.disc_ranges(np.zeros(2), ahead, behind, np.ones(1)) == np.inf
    assert geometry.disc_ranges(np.zeros(2), ahead, np.zeros((0, 2)), np.zeros(0)) == np.inf


def test_a_ray_sees_the_nearest_disc():
    centres = np.array([[9.0, 0.0], [5.0, 0.0]])
    found = geometry.disc_ranges(
        np.zeros(2), np.array([[1.0, 0.0]]), centres, np.array([1.0, 2.0])
    )
    assert found == pytest.approx([3.0])


def test_paths_come_as_close_to_points_as_sampling_them_tells(rng):
    points = rng.uniform(-2, 2, (30, 2))
    for start, end in rng.uniform(-2, 2, (10, 2, 2)):
        way = start + np.linspace(0, 1, 4001)[:, None] * (end - start)
        expected = np.linalg.norm(way[:, None] - points, axis=2).min(axis=0)
        np.testing.assert_allclose(
            geometry.segment_distances(start, end, points), expected, atol=2e-3
        )


def test_a_path_of_no_length_is_a_point():
    found = geometry.segment_distances(np.ones(2), np.ones(2), np.array([[4.0, 5.0]]))
    assert found == pytest.approx([5.0])


def test_distance_to_the_nearest_wall():
    assert geometry.wall_distance(np.array([1.0, 4.0]), 10.0) == 1.0
    assert geometry.wall_distance(np.array([6.0, 9.5]), 10.0) == 0.5
    assert geometry.wall_distance(np.array([6.0, 10.5]), 10.0) == -0.5
