"""Chooses MuJoCo's OpenGL library late: at the first picture instead of at the import.

MuJoCo and dm_control choose a rendering library when they are imported. In an actor, this costs
60 MB and 0.1 s for pictures that nobody sees. It also prints a warning where there is no display,
and fails where MUJOCO_GL names a library that is missing.
"""

from collections.abc import Iterator
import contextlib
import ctypes
import importlib
import os
import sys
from typing import Any

from absl import logging
import numpy as np

from actorQ.environments import task_errors

_VARIABLE = "MUJOCO_GL"
# Each backend of mujoco that needs no display, with the library that it loads.
_HEADLESS_LIBRARIES = (
    ("egl", "libEGL.so.1"),
    ("osmesa", "libOSMesa.so.8"),
    ("osmesa", "libOSMesa.so"),
)
_BACKENDS = ("egl", "osmesa", "glfw")
INSTALL_HINT = (
    "install an off-screen OpenGL library, either with `apt-get install libegl1 "
    "libgl1-mesa-dri` (MUJOCO_GL=egl) or with `apt-get install libosmesa6` "
    "(MUJOCO_GL=osmesa)"
)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Lets MuJoCo be imported and models be built without OpenGL, quietly.

    A MUJOCO_GL that the user has set takes effect with the first picture. MuJoCo's remarks on a
    model (gymnasium's HalfCheetah causes one) go to the log, and not to the terminal and a file
    MUJOCO_LOG.TXT.
    """
    chosen = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "disabled"
    try:
        mujoco = importlib.import_module("mujoco")
        handler = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(lambda text: logging.info("MuJoCo: %s", text.strip()))
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(handler)
    finally:
        if chosen is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = chosen


def choose_backend() -> str:
    """Chooses the OpenGL library that MuJoCo renders with, also for child processes.

    Returns:
      MUJOCO_GL where the user has set it, otherwise `egl`, `osmesa` or, with a display, `glfw`.

    Raises:
      TaskError: There is no library to render with, or MUJOCO_GL rules it out.
    """
    backend = os.environ.get(_VARIABLE, "").lower()
    if not backend:
        backend = next((name for name, library in _HEADLESS_LIBRARIES if _loads(library)), "")
        if not backend and has_display():
            backend = "glfw"
        if not backend:
            raise task_errors.TaskError(f"MuJoCo cannot render here: {INSTALL_HINT}")
        os.environ[_VARIABLE] = backend
    if backend not in _BACKENDS:
        raise task_errors.TaskError(
            f"MuJoCo cannot render with {_VARIABLE}={backend}: unset it, or set it to one of "
            f"{', '.join(_BACKENDS)}"
        )
    return backend


def has_display() -> bool:
    """Returns whether windows can be opened here."""
    if sys.platform == "darwin":  # macOS has no such variables.
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _loads(library: str) -> bool:
    """Returns whether the dynamic loader finds a library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


class Camera:
    """Takes pictures of one MuJoCo model."""

    def __init__(self, model: Any, height: int, width: int):
        """Opens an OpenGL context.

        Args:
          model: A `mujoco.MjModel`. The camera is its first fixed one, or a free one.
          height: Pixels.
          width: Pixels.

        Raises:
          TaskError: There is no OpenGL to render with.
        """
        backend = choose_backend()
        try:
            import mujoco
            from mujoco.rendering.classic import gl_context

            # The import of mujoco took no library, because `deferred` forbade it.
            gl_context.GLContext = importlib.import_module(f"mujoco.{backend}").GLContext
            self._renderer = mujoco.Renderer(model, height, width)
        # PyOpenGL fails in many ways: ImportError, AttributeError on None, RuntimeError.
        except Exception as error:
            raise task_errors.TaskError(
                f"MuJoCo cannot render with MUJOCO_GL={backend} "
                f"({task_errors.one_line(error)}); {INSTALL_HINT}"
            ) from error
        # The rays of range finders would fill the picture; dm_control hides them too.
        self._options = mujoco.MjvOption()
        self._options.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = 0
        self._camera = 0 if model.ncam > 0 else -1

    def picture(self, data: Any) -> np.ndarray:
        """Renders a state, `mujoco.MjData` of the model: [H, W, 3] uint8."""
        self._renderer.update_scene(data, self._camera, self._options)
        return self._renderer.render()

    def close(self) -> None:
        """Frees the OpenGL context."""
        self._renderer.close()
