"""Runs that are compared: in which settings they may differ."""

from actorQ.core import config as config_lib
from actorQ.core import curves
from actorQ.core import settings


def run(**given):
    return curves.Run("run", config_lib.RunConfig(**given), "dqn", {})


def test_run_that_was_restarted_and_resumed_does_not_differ_from_one_that_was_not():
    runs = [run(seed=1), run(seed=2, quantize=32, restarts=1, resume=True)]
    assert curves.differing_settings(runs) == []


def test_settings_that_decide_what_is_learned_differ():
    assert curves.differing_settings([run(), run(n_step=1)]) == ["n_step (5, 1)"]


def test_whatever_the_launcher_sets_may_change_when_a_run_is_resumed():
    launched = config_lib.names_of(settings.Kind.LAUNCHED)
    assert {"restarts", "resume", "logpath", "port"} < launched
    assert launched < config_lib.names_of(settings.Kind.CHANGEABLE)
    assert config_lib.names_of(settings.Kind.NOT_KEPT) < launched
