"""Flags become requests."""

import contextlib

from absl import flags
import pytest

from actorQ.core import cli
from actorQ.core import errors
from baseline.agents import calibration
from baseline.agents import post_training
from baseline.quantization import schemes
from baseline.study import measuring_flags


@contextlib.contextmanager
def given(*arguments):
    """Defines and sets the flags, for a while."""
    before = set(flags.FLAGS)
    measuring_flags.define()
    try:
        flags.FLAGS(cli.underscored(["ptq", *arguments]))
        yield
    finally:
        for name in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, name)


def test_defaults():
    with given():
        (request,) = measuring_flags.requests([("ppo", "CartPole-v1")], ["8"])
    assert (request.algo, request.env, request.scheme) == (
        "ppo", "CartPole-v1", schemes.Scheme("8")
    )
    assert (request.folder, request.out, request.seeds) == ("logs/zoo", "quantized", (0, 2, 4))
    assert (request.episodes, request.note) == (10, "")
    assert request.calibration_episodes == calibration.EPISODES
    assert request.calibration_states == post_training.STATES


def test_everything_is_passed_on():
    with given(
        "--folder=f", "--out=o", "--episodes=3", "--seeds=5,1", "--scheme=weights+activations",
        "--granularity=channel", "--rounding=floor", "--calibration-episodes=2", "--note=n",
    ):
        requests = measuring_flags.requests(
            [("ppo2", "A-v1"), ("dqn", "gym,B-v1"), ("ppo", "A-v1")], ["8", "int8", "fp16", "fp32"]
        )
    # Every pair and width once.
    assert [(r.algo, r.env, r.scheme.bits) for r in requests] == [
        (algo, env, bits)
        for algo, env in (("ppo", "A-v1"), ("dqn", "gym,B-v1")) for bits in ("8", "fp16", "fp32")
    ]
    first = requests[0]
    assert first.scheme == schemes.Scheme("8", "weights+activations", "channel", "floor")
    assert (first.folder, first.out, first.seeds, first.episodes) == ("f", "o", (5, 1), 3)
    assert (first.calibration_episodes, first.note) == (2, "n")
    # There is one full precision.
    assert requests[2].scheme == schemes.Scheme("fp32")
    assert requests[2].full_precision == requests[2]


def test_mistakes():
    with given("--seeds=x"), pytest.raises(errors.UserError, match="--seeds='x'"):
        measuring_flags.requests([("ppo", "A-v1")], ["8"])
    with given(), pytest.raises(errors.UserError, match="to '1' bits"):
        measuring_flags.requests([("ppo", "A-v1")], ["8", "1"])
    for flag in ("--episodes=0", "--calibration_episodes=0", "--scheme=x", "--granularity=x"):
        with pytest.raises(flags.Error), given(flag):
            pass


@pytest.mark.parametrize("tool", ["deploy", "deploy_benchmark", "integer_benchmark"])
def test_help_names_the_flags_that_are_shared(run_commands, tool):
    (answer,) = run_commands(tool, [["--help"]])
    assert answer.code == 0, answer
    assert all(f"--{flag}" in answer.out for flag in ("granularity", "calibration_episodes"))
