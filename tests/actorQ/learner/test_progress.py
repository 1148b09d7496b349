"""The state that the learner's two threads share."""

import threading
import time

import pytest

from actorQ.learner import progress as progress_lib


def test_a_step_counts_and_versions_go_on_above_the_lost_ones():
    progress = progress_lib.Progress(steps=4, versions_skipped=10)
    progress.begin_step()
    assert progress.step_started is not None and progress.steps == 4
    assert progress.end_step()
    assert progress.step_started is None
    assert (progress.steps, progress.version) == (5, 15)


def test_only_a_step_that_takes_too_long_is_overtaken():
    progress = progress_lib.Progress()
    assert not progress.overtake(0.0)  # No step is under way.
    progress.begin_step()
    assert not progress.overtake(60.0)
    progress.step_started = time.monotonic() - 61.0
    assert progress.overtake(60.0)
    assert not progress.end_step()
    assert progress.steps == 0


def test_weights_are_sound_unless_training_failed_for_more_than_a_lack_of_data():
    progress = progress_lib.Progress()
    assert progress.sound
    progress.fail(ValueError("NaN"))
    assert progress.stop.is_set() and not progress.sound
    progress.starved = True
    assert progress.sound


@pytest.mark.parametrize("_", range(50))
def test_a_step_either_counts_or_is_overtaken(_):
    progress = progress_lib.Progress()
    progress.begin_step()
    counted = []
    learning = threading.Thread(target=lambda: counted.append(progress.end_step()))
    learning.start()
    overtaken = progress.overtake(-1.0)
    learning.join()
    assert counted == [not overtaken] and progress.steps == int(not overtaken)
