"""The comparison of training times."""

from baseline import qat_speed


def test_every_kind_trains_in_turns():
    seconds = qat_speed.measure("a2c", "CartPole-v1", 40, 4, 2)

    assert list(seconds) == list(qat_speed.KINDS)
    assert all(len(turns) == 2 and min(turns) > 0.0 for turns in seconds.values())


def test_lines_compare_turn_by_turn_with_plain_training():
    lines = qat_speed.lines({"plain": [1.0, 2.0, 4.0], "frozen": [1.1, 2.2, 8.0]}, 100)

    assert lines[0].startswith("plain         50 steps/s, 1.00 x")
    assert "45 steps/s, 1.10 x plain's time (quartiles 1.10, 1.55)" in lines[1]
