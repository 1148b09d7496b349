"""Runs real command lines, many of them for one import of slow libraries.

A process imports the libraries and forks for every command. The child runs the module as Python
would, and the server notes its exit code and output.
"""

import importlib
import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from typing import NamedTuple

import psutil

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT_S = 300


class Result(NamedTuple):
    """The result of a command; its code is minus a signal's number if one ended it."""

    code: int
    out: str
    err: str
    seconds: float

    def error(self, name):
        """Returns the one line on stderr that tells the user's mistake."""
        lines = self.err.splitlines()
        assert self.code == 1, self
        assert len(lines) == 1 and lines[0].startswith(f"{name}: error: "), self
        assert len(lines[0]) < 600, self
        return lines[0].removeprefix(f"{name}: error: ")


class Server:
    """The process that forks for commands."""

    def __init__(self, package, *preloads):
        """Starts the process.

        Args:
          package: Package of the modules that commands run.
          *preloads: Full names of modules to import first; none of them may be a command.
        """
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.commands", package, *preloads],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def __call__(self, module, commands, cwd=ROOT, **environment):
        """Runs commands, each a list of arguments; returns their results."""
        return [
            self.wait(self.start(module, command, cwd, **environment)) for command in commands
        ]

    def start(self, module, command, cwd=ROOT, **environment):
        """Starts a command in a session of its own; returns its process's number."""
        arguments = [str(part) for part in command]
        return self._ask("start", module, arguments, str(cwd), environment)

    def wait(self, pid):
        """Waits for a started command; returns its result."""
        return Result(*self._ask("wait", pid))

    def _ask(self, *question):
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self):
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait(20)


def wait_for(condition, timeout_s=120):
    """Waits until a condition holds, long enough for busy machines."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def ended(process):
    """Returns whether a process (of psutil) is gone."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _serve(package, *preloads):
    for name in preloads:
        importlib.import_module(name)
    started = {}
    for line in sys.stdin:
        verb, *parts = json.loads(line)
        answer = _start(started, package, *parts) if verb == "start" else _wait(started, *parts)
        print(json.dumps(answer), flush=True)


def _start(started, package, module, arguments, cwd, environment):
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            os.setsid()
            signal.alarm(LIMIT_S)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # The tests may run under nohup.
            os.environ.update(environment)
            os.chdir(cwd)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv = [module, *arguments]  # `runpy` puts the file's path first.
            runpy.run_module(f"{package}.{module}", run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as exit:
            code = exit.code or 0
        except BaseException:  # Python would print it, but does not get control again.
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    started[pid] = time.monotonic(), out, err
    return pid


def _wait(started, pid):
    _, status = os.waitpid(pid, 0)
    began, *files = started.pop(pid)
    texts = []
    for file in files:
        with file:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return os.waitstatus_to_exitcode(status), *texts, time.monotonic() - began


if __name__ == "__main__":
    _serve(*sys.argv[1:])
