"""The launchers' flags and positional arguments."""

import functools

from absl import flags
import pytest

from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import presets
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


@pytest.mark.parametrize(
    ("arguments", "preset"),
    [
        ([], "auto"),
        (["logs", "gym,CartPole-v1"], "auto"),
        (["logs", "gym,CartPole-v1", "64"], "paper"),
        (["logs", "gym,CartPole-v1", "64", "--preset=auto"], "auto"),
    ],
)
def test_arguments_that_are_settings_mean_the_paper_s(flag_values, arguments, preset):
    command_line.apply_positionals(flag_values(["launcher", *arguments]), flag_values)
    assert config_flags.from_flags(flag_values).preset == preset


def test_the_original_s_command_line_keeps_its_meaning(flag_values):
    arguments = ["logs", "gym,Task-v0", "64", "10", "2", "32", "8", "16", "32", "30", "0"]
    command_line.apply_positionals(flag_values(["launcher", *arguments]), flag_values)
    config = config_flags.from_flags(flag_values)
    assert config == config_lib.RunConfig(
        preset="paper", **{
            **presets.resolve("paper", ""), "taskstr": "gym,Task-v0", "model_str": "64",
            "num_episodes": 10, "n_actors": 2, "batch_size": 32,
            "replay_table_max_times_sampled": 8, "quantize": 16,
        }
    )
    assert config.samples_per_insert == 0.0
