import pytest

from actorQ.core import errors
from baseline import integer_benchmark


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
def test_command_without_agents_says_so_in_one_line(tmp_path, run_commands, arguments, message):
    # It has a process of its own, since the benchmark keeps to one core.
    command = [argument.format(tmp_path) for argument in arguments]
    (result,) = run_commands("integer_benchmark", [command])
    assert message.format(tmp_path) in result.error("integer_benchmark")
