import pathlib
import subprocess
import sys

import pytest

from actorQ import errors
from baseline import integer_benchmark

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("argv", [["x", "ppo"], ["x", "ppo", "CartPole-v1", "8"]])
def test_main_wrong_number_of_arguments_is_told(argv):
    with pytest.raises(errors.UserError, match="takes two arguments, ALGO ENV .*, or none"):
        integer_benchmark.main(argv)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--folder={}"], "There are no agents in {}"),
        (["ppo", "CartPole-v1", "--folder={}"], "There is no agent ppo CartPole-v1 in {}"),
    ],
)
def test_command_without_agents_says_so_in_one_line(tmp_path, arguments, message):
    # A process of its own: the benchmark keeps to one core.
    result = subprocess.run(
        [sys.executable, "-m", "baseline.integer_benchmark",
         *(argument.format(tmp_path) for argument in arguments)],
        capture_output=True, text=True, timeout=120, cwd=ROOT,
    )
    assert result.returncode == 1
    line, = result.stderr.splitlines()
    assert message.format(tmp_path) in line
