"""Playing the tasks of the tests in this folder."""

import itertools
import os
import pathlib
import subprocess
import sys
import textwrap

import numpy as np

ROOT = pathlib.Path(__file__).parents[3]


def run_python(program, **variables):
    """Runs a program in a process of its own without a display; returns its result."""
    for name, value in os.environ.items():
        if name not in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
            variables.setdefault(name, value)
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=variables,
        timeout=120,
    )


def some_action(environment, index):
    """Returns the index-th of a fixed sequence of varied actions."""
    if environment.spec.discrete:
        return index % environment.spec.num_actions
    return np.sin(index + np.arange(environment.spec.action_size)).astype(np.float32)


def run_to_end(environment, action=None):
    """Plays one episode and returns its time steps, the first one included."""
    steps = [environment.reset()]
    for index in itertools.count():
        steps.append(
            environment.step(some_action(environment, index) if action is None else action)
        )
        if steps[-1].last():
            return steps
