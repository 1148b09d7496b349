import numpy as np
import pytest
from scipy import stats

from baseline.study import width_relation
from baseline.study.width_relation import ALGORITHMS
from baseline.study.width_relation import ENVIRONMENTS


def _points(algo, widths, errors):
    return [
        width_relation.Point(algo, f"env{index}", width, error, error - 0.01, error + 0.01)
        for index, (width, error) in enumerate(zip(widths, errors, strict=True))
    ]


def test_spearman_is_scipys_with_and_without_ties():
    generator = np.random.default_rng(0)
    for _ in range(20):
        first = generator.integers(5, size=9).astype(float)
        second = generator.normal(size=9)
        expected = stats.spearmanr(first, second).statistic
        assert width_relation.spearman(first, second) == pytest.approx(expected)
    assert width_relation.spearman(np.ones(4), np.arange(4.0)) is None
    assert width_relation.spearman(np.arange(2.0), np.arange(2.0)) is None


def test_p_of_one_group_is_the_exact_one():
    # One of the 4! orders of four errors agrees fully.
    found = width_relation.relation(
        _points("dqn", [1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4]), ENVIRONMENTS
    )
    assert (found.agreeing, found.opposing) == (6, 0)
    assert found.groups[0].correlation == pytest.approx(1.0)
    assert found.p_wider == pytest.approx(1 / 24, abs=0.006)
    assert found.p_narrower == pytest.approx(1.0)


def test_relation_that_holds_within_every_group():
    # Across groups it is the opposite: the wider algorithm loses less.
    points = _points("a2c", [10, 11, 12, 13], [0.1, 0.2, 0.3, 0.4])
    points += _points("ppo", [1, 2, 3, 4], [1.1, 1.2, 1.3, 1.4])
    found = width_relation.relation(points, ENVIRONMENTS)
    assert [group.name for group in found.groups] == ["a2c", "ppo"]
    assert found.agents == 8
    assert found.p_wider < 0.01
    assert found.verdict().startswith("Holds: of 12 pairs")
    opposite = width_relation.relation(points, ALGORITHMS)
    assert [len(group.points) for group in opposite.groups] == [2, 2, 2, 2]
    assert opposite.opposing == 4
    assert opposite.p_narrower == pytest.approx(1 / 16, abs=0.01)
    assert opposite.verdict().startswith("Not confirmed")


def test_opposite_relation_is_said():
    points = _points("a2c", [1, 2, 3, 4, 5], [0.5, 0.4, 0.3, 0.2, 0.1])
    verdict = width_relation.relation(points, ENVIRONMENTS).verdict()
    assert verdict.startswith("Does not hold, the opposite does")


def test_no_relation_is_not_confirmed():
    points = _points("a2c", [1, 2, 3, 4, 5], [0.3, 0.1, 0.2, 0.4, 0.1])
    verdict = width_relation.relation(points, ENVIRONMENTS).verdict()
    assert verdict.startswith("Not confirmed: of 9 pairs")
    assert "chance explains" in verdict


def test_equal_errors_are_no_evidence():
    found = width_relation.relation(_points("a2c", [1, 2, 3], [0.0, 0.0, 0.0]), ENVIRONMENTS)
    assert (found.agreeing, found.opposing) == (0, 0)
    assert found.p_wider == found.p_narrower == 1.0
    assert found.groups[0].correlation is None
    assert found.groups[0].described() == "all equal"
    assert "no two agents of a group have different errors" in found.verdict()


def test_too_few_agents_are_not_tested():
    found = width_relation.relation(_points("a2c", [1, 2], [0.1, 0.2]), ENVIRONMENTS)
    assert found.groups == ()
    assert found.verdict() == "Not tested: no agents that differ only in their environments."


def test_relation_is_deterministic():
    points = _points("a2c", np.arange(8), np.random.default_rng(0).normal(size=8))
    first, second = (width_relation.relation(points, ENVIRONMENTS) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("low", "high", "certain"),
    [(0.01, 0.2, True), (-0.2, -0.1, True), (-0.1, 0.1, False), (0.0, 0.0, False)],
)
def test_certain_leaves_zero_out(low, high, certain):
    assert width_relation.Point("a2c", "e", 1.0, (low + high) / 2, low, high).certain is certain
