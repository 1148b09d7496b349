import numpy as np
import pytest

from baseline.formats import onnx_layers


@pytest.mark.parametrize(
    ("zero_points", "count"),
    [
        ([7, 7, 7], 0), ([0], 0), ([255, 255], 0),
        ([120, 130], 1), ([0, 254], 1), ([1, 255], 1), ([0, 1], 1), ([254, 255], 1),
        ([0, 255], 2), ([0, 128, 255], 2),
    ],
)
def test_shared_zero_point_makes_up_for_every_channel(zero_points, count):
    zero_points = np.array(zero_points)
    centre, rests = onnx_layers.shared_zero_point(zero_points)
    assert 0 <= centre <= 255 and len(rests) == count
    for rest in rests:
        assert rest.min() >= 0 and rest.max() <= 255
    # A weight q stands for q - z; the kernels multiply with q - c and every r - c.
    total = sum((rest - centre for rest in rests), start=np.zeros_like(zero_points))
    np.testing.assert_array_equal(total - centre, -zero_points)
