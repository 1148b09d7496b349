"""Flags, exit codes and one-line errors of every command."""

import os
import signal
import subprocess
import sys

from absl import flags
import pytest

from actorQ.core import cli
from tests.actorQ import harness

PROGRAM = """
from absl import flags
from actorQ.core import cli
from actorQ.core import errors

flags.DEFINE_boolean("show_all", True, "Whether to.")
flags.DEFINE_integer("quant_delay", 1, "Steps.", short_name="q")


def main(argv):
    print(argv[1:], flags.FLAGS.show_all, flags.FLAGS.quant_delay)
    if "wrong" in argv:
        raise errors.UserError("two\\nlines")
    if "bug" in argv:
        raise TypeError("a bug")
    if "stop" in argv:
        raise KeyboardInterrupt
    return 3 if "three" in argv else None


cli.run(main, takes_arguments=True, name="tool")
"""


@pytest.fixture(autouse=True)
def defined():
    """Flags of every kind, for a while."""
    before = set(flags.FLAGS)
    flags.DEFINE_boolean("test_shown", True, "")
    flags.DEFINE_boolean("no_test_film", False, "")
    flags.DEFINE_integer("test_delay", 1, "")
    yield
    for name in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, name)


@pytest.mark.parametrize(
    ("typed", "spelled"),
    [
        ("--test-delay=5", "--test_delay=5"), ("--test_delay=5", "--test_delay=5"),
        ("--test-delay", "--test_delay"), ("--test-delay=a-b=c-d", "--test_delay=a-b=c-d"),
        ("--test-shown", "--test_shown"), ("--no-test-shown", "--notest_shown"),
        ("--no_test_shown", "--notest_shown"), ("--notest-shown", "--notest-shown"),
        # A flag whose name begins so is itself.
        ("--no-test-film", "--no_test_film"), ("--no-no-test-film", "--nono_test_film"),
        # Only booleans can be denied.
        ("--no-test-delay", "--no-test-delay"),
        # Unknown flags stay as they were typed; so do arguments.
        ("--test-dely=5", "--test-dely=5"), ("-n", "-n"), ("-3", "-3"), ("a-b", "a-b"),
        ("CartPole-v1", "CartPole-v1"), ("--", "--"), ("", ""), ("-", "-"),
    ],
)
def test_underscored(typed, spelled):
    assert cli.underscored(["tool", typed]) == ["tool", spelled]


def test_underscored_leaves_alone_what_follows_two_dashes():
    given = ["tool", "--test-delay=1", "--", "--test-delay=2", "--no-test-shown"]
    assert cli.underscored(given) == ["tool", "--test_delay=1", *given[2:]]


def test_underscored_parses():
    flags.FLAGS(cli.underscored(["tool", "--test-delay", "7", "--no-test-shown"]))
    assert (flags.FLAGS.test_delay, flags.FLAGS.test_shown) == (7, False)


def run(*arguments):
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False,
        cwd=harness.REPOSITORY, timeout=60,
    )
    return answer.returncode, answer.stdout, answer.stderr


def test_run():
    assert run("a-b", "--quant-delay=5", "--no-show-all") == (0, "['a-b'] False 5\n", "")
    assert run("three")[0] == 3
    assert run("--", "-3") == (0, "['-3'] True 1\n", "")
    code, _, err = run("wrong")
    assert (code, err) == (1, "tool: error: two lines\n")
    code, _, err = run("stop")
    assert (code, err) == (130, "tool: error: interrupted.\n")
    code, _, err = run("bug")
    assert code == 1 and err.endswith("tool: internal error: TypeError: a bug\n")
    for wrong in ("--quant-dely=1", "--quant-delay=x", "-3"):
        code, _, err = run(wrong)
        assert code == 2 and err.startswith("tool: error: ") and err.count("\n") == 1, err
    code, out, _ = run("--help")
    assert code == 0 and "--quant_delay" in out


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ("", 0), ("three", 3), ("wrong", 1), ("bug", 1), ("stop", 130), ("--help", 0),
        ("--quant-dely=1", 2),
    ],
)
def test_run_exit_code_stands_where_nothing_can_be_printed(argument, code):
    # The output of `main` itself must fail at the end only.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, argument], stdout=full, stderr=full, check=False,
            cwd=harness.REPOSITORY, timeout=60, env=buffered,
        )
    assert done.returncode == code


_SIGNALLED_TWICE = """
import os, signal, sys, threading
from actorQ.core import cli
stop = threading.Event()
cli.on_stop_signals(stop.set, lambda: print("killed", flush=True))
os.kill(os.getpid(), signal.SIGINT)
print(stop.wait(20), flush=True)
cli._ECHO_S = float(sys.argv[1])
os.kill(os.getpid(), signal.SIGTERM)  # Each thread of a parent that dies sends one.
os.kill(os.getpid(), signal.SIGHUP)
print("echoes", flush=True)
os.kill(os.getpid(), signal.SIGINT)
print("not reached")
"""


@pytest.mark.parametrize(
    ("echo_s", "signum", "output"),
    [("60", signal.SIGINT, "True\nechoes\nkilled\n"), ("0", signal.SIGTERM, "True\nkilled\n")],
)
def test_a_second_signal_that_is_no_echo_ends_the_process_at_once(echo_s, signum, output):
    done = subprocess.run(
        [sys.executable, "-c", _SIGNALLED_TWICE, echo_s], capture_output=True, text=True,
        timeout=40, check=False,
    )
    assert done.returncode == 128 + signum
    assert done.stdout == output


def test_signals_undone_do_what_they_did_before():
    seen = []
    before = signal.signal(signal.SIGTERM, lambda signum, frame: seen.append("before"))
    try:
        undo = cli.on_stop_signals(lambda: seen.append("callback"))
        os.kill(os.getpid(), signal.SIGTERM)
        undo()
        assert seen == ["callback"]
        cli.on_stop_signals(lambda: seen.append("nothing came"))()
        os.kill(os.getpid(), signal.SIGTERM)
        assert seen == ["callback", "before"]
    finally:
        signal.signal(signal.SIGTERM, before)


_TOLD_TO_END = """
import os, sys, threading
from actorQ.core import cli
stop = threading.Event()
cli.on_stop_signals(stop.set)
for signum in sys.argv[1:]:
    os.kill(os.getpid(), int(signum))
assert stop.wait(20)
print(cli.interrupted_code())
"""


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ([signal.SIGINT], 130), ([signal.SIGTERM], 130), ([signal.SIGHUP], 130),
        ([signal.SIGUSR1], 75),
        # Slurm's own SIGTERM may follow at once; the first signal says what is wanted.
        ([signal.SIGUSR1, signal.SIGTERM], 75), ([signal.SIGTERM, signal.SIGUSR1], 130),
    ],
)
def test_the_first_signal_decides_the_exit_code(signals, code):
    done = subprocess.run(
        [sys.executable, "-c", _TOLD_TO_END, *(str(int(signum)) for signum in signals)],
        capture_output=True, text=True, timeout=40, check=True, cwd=harness.REPOSITORY,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # Tests may run in nohup.
    )
    assert done.stdout == f"{code}\n"


_SIGNALLED_WHILE_LOCKED = """
import os, signal, threading
from actorQ.core import cli
stop = threading.Event()
cli.on_stop_signals(stop.set)
with stop._cond:  # `stop.wait` and `stop.set` hold it, too.
    os.kill(os.getpid(), signal.SIGTERM)
print(stop.wait(20))
"""


def test_a_signal_may_come_while_the_main_thread_holds_a_lock_that_it_needs():
    done = subprocess.run(
        [sys.executable, "-c", _SIGNALLED_WHILE_LOCKED],
        capture_output=True, text=True, timeout=40, check=True,
    )
    assert done.stdout == "True\n"


@pytest.mark.parametrize(("chosen", "taken"), [(None, "1"), ("0", "0"), ("1", "1")])
def test_onednn_is_taken_unless_the_user_has_chosen(monkeypatch, chosen, taken):
    monkeypatch.setenv(cli.ONEDNN_VARIABLE, chosen or "")
    if chosen is None:
        monkeypatch.delenv(cli.ONEDNN_VARIABLE)
    cli.use_onednn()
    assert os.environ[cli.ONEDNN_VARIABLE] == taken
