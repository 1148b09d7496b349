"""Writes pictures of an episode to a video file.

The evaluator and the tools that show a policy use it; imageio is imported when a video is made.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import errno
import math
import os
import pathlib
from typing import Any

import numpy as np

from actorQ.core import files

# A GIF's delays are whole hundredths of a second, and viewers slow down delays under two.
_GIF_SHORTEST_DELAY_S = 0.02


@contextlib.contextmanager
def film(path: str, fps: float) -> Iterator[Callable[[np.ndarray], None] | None]:
    """Gives a function that adds a frame to an .mp4 (H.264) or .gif film; None without a path.

    An .mp4 is encoded while the frames arrive, with one in memory at a time. A .gif keeps all of
    them until its end. Above 50 frames per second, a .gif leaves out frames to keep its speed.

    Args:
      path: File name that ends in .mp4 or .gif, or "". Missing folders are created.
      fps: Frames per second.

    Yields:
      A function that takes a frame, uint8 [H, W, 3], of the same size as the others.

    Raises:
      ValueError: The extension is another, there are no frames, a frame is of another kind, or
        `fps` is not positive.
      errors.WriteError: The file cannot be written.
    """
    if not path:
        yield None
        return
    suffix, folder = pathlib.Path(path).suffix.lower(), pathlib.Path(path).parent
    if suffix not in (".mp4", ".gif"):
        raise ValueError(f"cannot write a video to {path}: its name must end in .mp4 or .gif")
    if not (fps > 0 and math.isfinite(fps)):
        raise ValueError(f"a video's fps is {fps}; it must be a number above 0")
    with files.writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    from PIL import Image

    shape: tuple[int, ...] = ()
    count = 0
    images: list[Any] = []  # A .gif's.
    stride = max(1, math.ceil(fps * _GIF_SHORTEST_DELAY_S - 1e-9))
    writer = _mp4_writer(path, fps) if suffix == ".mp4" else None

    def add(frame: np.ndarray) -> None:
        nonlocal shape, count
        frame = np.asarray(frame)
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
            raise ValueError(
                f"frame {count} is {frame.dtype} {list(frame.shape)}; a frame must "
                "be uint8 [H, W, 3]"
            )
        if count and frame.shape != shape:
            raise ValueError(
                f"frame {count} has shape {list(frame.shape)}, the first frame {list(shape)}"
            )
        if writer is not None:
            # Players need colour at half resolution (yuv420p), which needs even sides.
            height, width, _ = frame.shape
            even = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
            with files.writing(path):
                writer.append_data(even)
        elif count % stride == 0:
            images.append(Image.fromarray(frame))  # This copies the frame.
        shape, count = frame.shape, count + 1

    try:
        yield add
    finally:
        with files.writing(path):
            if writer is not None:
                writer.close()
            elif images:
                delay_ms = 10 * max(2, round(100 * stride / fps))
                images[0].save(
                    path, format="GIF", save_all=True, append_images=images[1:], loop=0,
                    duration=delay_ms,
                )
    if not count:
        raise ValueError(f"there are no frames to write to {path}")


def _mp4_writer(path: str, fps: float) -> Any:
    import imageio.v2 as imageio

    # Without a macro block size of 1, imageio rescales pictures to multiples of 16.
    return imageio.get_writer(
        path, format="FFMPEG", fps=fps, codec="libx264", macro_block_size=1,
        ffmpeg_log_level="error",
    )
