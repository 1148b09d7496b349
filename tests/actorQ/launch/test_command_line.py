"""The launchers' flags and positional arguments."""

import functools

from absl import flags
import pytest

from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.launch import command_line


@pytest.fixture(name="flag_values")
def _flag_values(monkeypatch):
    """The launcher's flags in a registry of their own: absl's is global."""
    fresh = flags.FlagValues()
    with monkeypatch.context() as patch:
        for kind in ("", "_boolean", "_enum", "_float", "_integer", "_string"):
            define = getattr(flags, f"DEFINE{kind}")
            patch.setattr(flags, f"DEFINE{kind}", functools.partial(define, flag_values=fresh))
        config_flags.define_flags()
        command_line.define_flags()
    return fresh


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["logs", "gym,CartPole-v1", "2048x2048"], "--model_str='2048x2048'"),
        (["logs", "gym,CartPole-v1", "64", "10", "0"], "--n_actors=0"),
        (["--quantize=12"], "32, 16, 8"),
        (["--quantize_communication=1"], "from 2 to 32"),
        (["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"], "at most 11 arguments"),
        (["logs", "--logdir=here"], "logdir is given twice"),
    ],
)
def test_arguments_that_are_not_legal_are_refused(flag_values, arguments, message):
    left = flag_values(["launcher", *arguments])
    with pytest.raises(errors.UserError) as refused:
        command_line.apply_positionals(left, flag_values)
        config_flags.from_flags(flag_values, resumable=True)
    assert message in str(refused.value)
