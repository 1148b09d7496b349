"""Writes pictures of an episode to a video file.

The evaluator and the tools that show a policy use it; imageio is imported when a video is made.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import errno
import itertools
import math
import os
import pathlib
import queue
import threading

import numpy as np

from actorQ.core import files

# A GIF's delays are whole hundredths of a second, and viewers slow down delays under two.
_GIF_SHORTEST_DELAY_S = 0.02


def write_video(path: str | pathlib.Path, frames: Iterable[np.ndarray], fps: float) -> None:
    """Writes an .mp4 (H.264) or .gif file.

    An .mp4 is encoded while the frames arrive, with one in memory at a time. A .gif keeps all of
    them until its end. Above 50 frames per second, a .gif leaves out frames to keep its speed.

    Args:
      path: File name that ends in .mp4 or .gif. Missing folders are created.
      frames: [H, W, 3] uint8, all of one size, at least one.
      fps: Frames per second.

    Raises:
      ValueError: The extension is another, there are no frames, a frame is of another kind, or
        `fps` is not positive.
    """
    path = pathlib.Path(path)
    suffix = _suffix(path)
    if not (fps > 0 and math.isfinite(fps)):
        raise ValueError(f"a video's fps is {fps}; it must be a number above 0")
    checked = _checked(frames)
    first = next(checked, None)
    if first is None:
        raise ValueError(f"there are no frames to write to {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write = _write_mp4 if suffix == ".mp4" else _write_gif
    write(path, itertools.chain([first], checked), fps)


def _suffix(path: pathlib.Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in (".mp4", ".gif"):
        raise ValueError(f"cannot write a video to {path}: its name must end in .mp4 or .gif")
    return suffix


@contextlib.contextmanager
def film(path: str, fps: float) -> Iterator[Callable[[np.ndarray], None] | None]:
    """Gives a function that adds a frame, uint8 [H, W, 3], to a film; None without a path.

    Raises:
      ValueError: See `write_video`.
      errors.WriteError: The file cannot be written.
    """
    if not path:
        yield None
        return
    _suffix(pathlib.Path(path))  # A wrong name must fail before anything is played.
    with files.writing(path):
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        if not os.access(pathlib.Path(path).parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    # The writer takes an iterable; frames come by callback. The queue is short, so that a film
    # of any length fits into memory.
    frames: queue.Queue = queue.Queue(maxsize=8)
    failure: list[BaseException] = []

    ended = threading.Event()

    def arriving() -> Iterator[np.ndarray]:
        while (frame := frames.get()) is not None:
            yield frame
        ended.set()

    def write() -> None:
        try:
            write_video(path, arriving(), fps)
        except BaseException as error:  # The caller's thread raises it again.
            failure.append(error)
            # Empty the queue until the end, so that the caller never waits for a full one.
            while not ended.is_set() and frames.get() is not None:
                pass

    writer = threading.Thread(target=write, name="film")
    writer.start()
    try:
        yield frames.put
    finally:
        frames.put(None)
        writer.join()
    if failure:
        with files.writing(path):
            raise failure[0]


def _checked(frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yields each frame after a check that it is like the first."""
    shape = None
    for index, frame in enumerate(frames):
        frame = np.asarray(frame)
        shape = frame.shape if shape is None else shape
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            raise ValueError(
                f"frame {index} is {frame.dtype} {list(frame.shape)}; a frame must "
                "be uint8 [H, W, 3]"
            )
        if frame.shape != shape:
            raise ValueError(
                f"frame {index} has shape {list(frame.shape)}, the first frame {list(shape)}"
            )
        yield frame


def _write_mp4(path: pathlib.Path, frames: Iterator[np.ndarray], fps: float) -> None:
    """Encodes frames as they arrive."""
    import imageio.v2 as imageio

    # Without a macro block size of 1, imageio rescales pictures to multiples of 16.
    with imageio.get_writer(
        path,
        format="FFMPEG",
        fps=fps,
        codec="libx264",
        macro_block_size=1,
        ffmpeg_log_level="error",
    ) as writer:
        for frame in frames:
            # Players need colour at half resolution (yuv420p), which needs even sides.
            height, width, _ = frame.shape
            if height % 2 or width % 2:
                frame = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
            writer.append_data(frame)  # type: ignore[attr-defined]  # Stubs hide the class.


def _write_gif(path: pathlib.Path, frames: Iterator[np.ndarray], fps: float) -> None:
    """Writes frames with a delay that viewers respect."""
    from PIL import Image

    stride = max(1, math.ceil(fps * _GIF_SHORTEST_DELAY_S - 1e-9))
    delay_ms = 10 * max(2, round(100 * stride / fps))
    images = (Image.fromarray(frame) for frame in itertools.islice(frames, 0, None, stride))
    next(images).save(
        path, format="GIF", save_all=True, append_images=images, loop=0, duration=delay_ms
    )
