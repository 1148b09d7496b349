"""Processes of a benchmark, each pinned to a core, that call the functions they are sent.

These functions live in modules that import no framework at the top, so that the pinning comes
before a framework's threads. This module imports no framework.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import multiprocessing
from multiprocessing import connection as connection_lib
import os
import traceback
from typing import Any

from actorQ.core import config as config_lib
from actorQ.core import errors


class Remote:
    """A process on one core that runs functions; their modules keep state between calls."""

    def __init__(self, core: int, gpu: bool = False):
        """Starts the process, which ends with this one.

        Args:
          core: Its core.
          gpu: Whether frameworks may see GPUs in it.
        """
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, core, gpu), daemon=True)
        self._process.start()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function of a module in the process and returns its result.

        Raises:
          errors.UserError: The function raised one.
          RuntimeError: The function failed otherwise; the text holds its traceback.
        """
        self._pipe.send((function, arguments))
        try:
            done, result = self._pipe.recv()
        except EOFError:
            self._process.join(5)
            raise RuntimeError(
                f"A benchmark process ended with code {self._process.exitcode}."
            ) from None
        if not done:
            raise result
        return result

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.join(10)


@contextlib.contextmanager
def remotes(cores: list[int], gpu: bool = False) -> Iterator[list[Remote]]:
    """Starts a process on each core, and ends them all behind the block.

    Args:
      cores: Cores of the processes.
      gpu: Whether frameworks may see GPUs in them.
    """
    started = [Remote(core, gpu) for core in cores]
    try:
        yield started
    finally:
        for process in started:
            process.close()


def _serve(pipe: connection_lib.Connection, core: int, gpu: bool) -> None:
    os.sched_setaffinity(0, {core})
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    if not gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    # Only Reverb's C++ notes go to stderr: failures travel through the pipe.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            pipe.send((True, function(*arguments)))
        except errors.UserError as error:
            pipe.send((False, errors.UserError(str(error))))  # A subclass may not pickle.
        except Exception:
            failure = RuntimeError(f"In a benchmark process:\n{traceback.format_exc()}")
            pipe.send((False, failure))


# --- Called in a process ---

_servers: dict[int, Any] = {}


def start_server(config: config_lib.RunConfig, layout: Any) -> int:
    """Starts a server with the tables of a run; returns its port."""
    from actorQ.wire import server as serving

    return keep_server(
        serving.start_server(config, serving.make_tables(config, layout, prioritized=False))
    )


def keep_server(server: Any) -> int:
    """Keeps a server of this process until `stop_server`; returns its port."""
    _servers[server.port] = server
    return server.port


def stop_server(port: int) -> None:
    """Stops a server that `keep_server` keeps."""
    _servers.pop(port).stop()
