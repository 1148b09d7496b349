"""Real command lines of `python -m baseline.MODULE`, many of them for one import of SB3.

A process imports what is slow and forks for every command; the child runs the module as Python
would, and its exit code and output are noted.
"""

import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 60


class Result(NamedTuple):
    """What a command came to; minus the signal's number where one ended it."""

    code: int
    out: str
    err: str
    seconds: float

    def error(self, name):
        """Returns the one line on stderr with which a command says that the user is wrong."""
        lines = self.err.splitlines()
        assert self.code == 1, self
        assert len(lines) == 1 and lines[0].startswith(f"{name}: error: "), self
        assert len(lines[0]) < 600, self
        return lines[0].removeprefix(f"{name}: error: ")


class Server:
    """The process that forks for commands."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.baseline.commands"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def __call__(self, module, commands, **environment):
        """Runs commands, each a list of arguments; returns their results."""
        results = []
        for command in commands:
            job = [module, [str(argument) for argument in command], environment]
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            results.append(Result(*json.loads(self._process.stdout.readline())))
        return results

    def end(self):
        """Ends the process."""
        self._process.stdin.close()
        self._process.wait(20)


def _serve():
    from actorQ import cli
    from actorQ import lean_imports

    cli.quiet_tensorflow()
    with lean_imports.without("tensorboard"):
        from baseline import agents
        from baseline import environments
        from baseline import hub  # noqa: F401
        from baseline import measuring  # noqa: F401
    agents.set_threads()
    environments.register()
    for line in sys.stdin:
        print(json.dumps(_run(*json.loads(line))), flush=True)


def _run(module, arguments, environment):
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                signal.alarm(LIMIT_S)
                os.environ.update(environment)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.argv = [str(ROOT / "baseline" / f"{module}.py"), *arguments]
                runpy.run_module(f"baseline.{module}", run_name="__main__", alter_sys=True)
                code = 0
            except SystemExit as exit:
                code = exit.code or 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return os.waitstatus_to_exitcode(status), *texts, time.monotonic() - started


if __name__ == "__main__":
    _serve()
