import math

import numpy as np
import pytest

from actorQ.core import errors
from baseline.quantization import weight_statistics


def test_statistics_known_numbers():
    found = weight_statistics.statistics(np.array([[-1.0, 0.5], [0.5, 3.0]], np.float32))
    assert found.minimum == -1.0
    assert found.maximum == 3.0
    assert found.range == 4.0
    assert found.distinct == 3
    assert found.count == 4
    assert found.mean == 0.75
    assert found.std == pytest.approx(math.sqrt((1.75**2 + 2 * 0.25**2 + 2.25**2) / 4))


def test_width_ignores_outliers_that_the_range_does_not():
    # 0, 1, ... 1000: percentiles 0.5 and 99.5 are 5 and 995.
    ramp = np.arange(1001.0)
    assert weight_statistics.statistics(ramp).width == pytest.approx(990.0)
    ramp[-1] = 1e6
    found = weight_statistics.statistics(ramp)
    assert found.width == pytest.approx(990.0)
    assert found.range == 1e6


def test_the_spread_of_a_row_is_that_of_all_figures_without_their_cost(monkeypatch):
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.standard_t(3, (50, 30)).astype(np.float32),
        "b": 1e-3 * rng.standard_normal(700).astype(np.float32),
    }
    all_figures = weight_statistics.statistics(arrays)
    unique, sizes = np.unique, [0]
    # Which percentiles take, too, but of a few numbers.
    monkeypatch.setattr(np, "unique", lambda part: sizes.append(np.size(part)) or unique(part))
    found = weight_statistics.spread(arrays)
    assert max(sizes) < 100
    assert found[:3] == all_figures[:3]
    assert found.width == pytest.approx(all_figures.width, rel=1e-8)
    assert weight_statistics.flatten(arrays, None).dtype == np.float32  # Takes half the memory.


def test_statistics_of_a_mapping_are_those_of_all_together():
    arrays = {"a": np.array([[1.0, 2.0]]), "b": np.array([2.0, -5.0]), "c": np.float32(4.0)}
    together = weight_statistics.statistics(np.array([1.0, 2.0, 2.0, -5.0, 4.0]))
    assert weight_statistics.statistics(arrays) == together


def test_statistics_of_a_constant():
    found = weight_statistics.statistics(np.full(7, 0.25))
    assert (found.range, found.width, found.distinct, found.std) == (0.0, 0.0, 1, 0.0)


def test_statistics_of_huge_float32_are_finite():
    largest = np.finfo(np.float32).max
    found = weight_statistics.statistics(np.array([-largest, largest], np.float32))
    assert found.range == 2 * float(largest)
    assert math.isfinite(found.std)


@pytest.mark.parametrize("arrays", [{}, np.zeros(0), {"a": np.zeros((0, 3))}])
def test_statistics_of_nothing_is_refused(arrays):
    with pytest.raises(errors.UserError, match="no weights"):
        weight_statistics.statistics(arrays)


def test_statistics_of_nan_names_the_tensor():
    with pytest.raises(errors.UserError, match=r"NaN or infinity \(in body.0.weight\)"):
        weight_statistics.statistics({"a": np.ones(2), "body.0.weight": np.array([1.0, np.nan])})


def test_quantization_error_known_numbers():
    found = weight_statistics.quantization_error(np.array([3.0, -4.0]), np.array([3.0, -4.5]))
    assert found.mean_absolute == 0.25
    assert found.max_absolute == 0.5
    assert found.relative_rms == pytest.approx(0.1)
    assert found.sqnr_db == pytest.approx(20.0)


def test_quantization_error_goes_by_name_not_by_order():
    before = {"a": np.array([1.0]), "b": np.array([2.0])}
    after = {"b": np.array([2.0]), "a": np.array([1.0])}
    found = weight_statistics.quantization_error(before, after)
    assert found == (0.0, 0.0, 0.0, math.inf)


def test_quantization_error_of_zeros():
    zeros = np.zeros(3)
    assert weight_statistics.quantization_error(zeros, zeros).relative_rms == 0.0
    assert weight_statistics.quantization_error(zeros, zeros + 1).relative_rms == 1.0
