"""Chooses MuJoCo's OpenGL library late: at the first picture instead of at the import.

MuJoCo and dm_control settle on a rendering library when they are imported. In an actor that
costs 60 MB and 0.1 s for pictures nobody looks at, prints a warning where there is no display,
and fails where MUJOCO_GL names a library that is not there.
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
# Backends of mujoco that need no display, and the library that each one loads.
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

    A MUJOCO_GL that the user has set counts when the first picture is taken. MuJoCo's remarks on
    a model (gymnasium's HalfCheetah draws one) go to the log instead of to the terminal and a
    file MUJOCO_LOG.TXT.
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
    """Settles which OpenGL library MuJoCo renders with, and tells child processes.

    Returns:
        MUJOCO_GL where the user has set it, else `egl`, `osmesa` or, with a display, `glfw`.

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
    if sys.platform == "darwin":  # It has no such variables.
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
            model: A `mujoco.MjModel`. Its first fixed camera is used, or a free one if none.
            height: Pixels.
            width: Pixels.

        Raises:
            TaskError: There is no OpenGL to render with.
        """
        backend = choose_backend()
        try:
            import mujoco

            self._context = importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
            self._context.make_current()
            self._resources = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        # PyOpenGL fails in many ways: ImportError, AttributeError on None, RuntimeError.
        except Exception as error:
            raise task_errors.TaskError(
                f"MuJoCo cannot render with MUJOCO_GL={backend} "
                f"({task_errors.one_line(error)}); {INSTALL_HINT}"
            ) from error
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._resources)
        self._mujoco = mujoco
        self._model = model
        self._rectangle = mujoco.MjrRect(0, 0, width, height)
        self._scene = mujoco.MjvScene(model, maxgeom=10_000)
        self._options = mujoco.MjvOption()
        # dm_control hides them too: the rays of range finders fill the picture.
        self._options.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = 0
        self._view = mujoco.MjvCamera()
        if model.ncam > 0:
            self._view.type = mujoco.mjtCamera.mjCAMERA_FIXED
            self._view.fixedcamid = 0
        else:
            mujoco.mjv_defaultFreeCamera(model, self._view)

    def picture(self, data: Any) -> np.ndarray:
        """Renders a state.

        Args:
            data: The `mujoco.MjData` of the model.

        Returns:
            [H, W, 3] uint8.
        """
        mujoco = self._mujoco
        self._context.make_current()
        mujoco.mjv_updateScene(
            self._model,
            data,
            self._options,
            None,
            self._view,
            mujoco.mjtCatBit.mjCAT_ALL.value,
            self._scene,
        )
        mujoco.mjr_render(self._rectangle, self._scene, self._resources)
        pixels = np.empty((self._rectangle.height, self._rectangle.width, 3), np.uint8)
        mujoco.mjr_readPixels(pixels, None, self._rectangle, self._resources)
        return pixels[::-1].copy()  # OpenGL's first row is the lowest.

    def close(self) -> None:
        """Frees the OpenGL context."""
        self._resources.free()
        self._context.free()
