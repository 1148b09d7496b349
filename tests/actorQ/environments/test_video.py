"""Tests `actorQ.environments.video` by reading back what it writes."""

import errno
import os

import imageio.v2 as imageio
import numpy as np
from PIL import Image
import pytest

from actorQ.core import errors
from actorQ.environments import video


def grey_frames(count, height=48, width=64):
    """Returns frames whose brightness rises by ten from one to the next."""
    return [np.full((height, width, 3), 10 * index, np.uint8) for index in range(count)]


def write_video(path, frames, fps):
    with video.film(str(path), fps) as add:
        for frame in frames:
            add(frame)


def test_write_video_mp4_keeps_frames_order_and_speed(tmp_path):
    path = tmp_path / "new" / "folder" / "episode.mp4"
    write_video(path, iter(grey_frames(20)), fps=25)
    reader = imageio.get_reader(path)
    frames = [np.asarray(frame) for frame in reader]
    assert reader.get_meta_data()["fps"] == 25
    reader.close()
    assert len(frames) == 20
    assert frames[0].shape == (48, 64, 3)
    # H.264 is lossy, brightness of an even picture hardly so.
    for index, frame in enumerate(frames):
        assert abs(float(frame.mean()) - 10 * index) < 4


def test_write_video_mp4_odd_sides_are_padded_by_one(tmp_path):
    path = tmp_path / "odd.mp4"
    write_video(path, grey_frames(3, 51, 33), fps=10)
    with imageio.get_reader(path) as reader:
        assert reader.get_data(0).shape == (52, 34, 3)


def test_write_video_mp4_streams_its_frames(tmp_path):
    alive = []

    class Frame(np.ndarray):
        def __del__(self):
            alive.remove(id(self))

    def frames():
        for _ in range(30):
            frame = np.zeros((32, 32, 3), np.uint8).view(Frame)
            alive.append(id(frame))
            most.append(len(alive))
            yield frame
            del frame

    most = []
    write_video(tmp_path / "long.mp4", frames(), fps=30)
    assert len(most) == 30
    assert max(most) <= 4


def test_write_video_gif_keeps_frames_and_speed(tmp_path):
    path = tmp_path / "episode.GIF"
    write_video(path, grey_frames(5), fps=20)
    with Image.open(path) as image:
        assert image.n_frames == 5
        assert image.info["duration"] == 50  # Milliseconds.
        assert image.info["loop"] == 0
        image.seek(4)
        assert np.asarray(image.convert("RGB")).mean() == 40


def test_write_video_gif_fast_leaves_out_frames(tmp_path):
    path = tmp_path / "fast.gif"
    write_video(path, grey_frames(20), fps=100)
    with Image.open(path) as image:
        assert image.n_frames == 10
        assert image.info["duration"] == 20


@pytest.mark.parametrize("name", ["episode.avi", "episode"])
def test_write_video_other_extension_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"\.mp4 or \.gif"):
        write_video(tmp_path / name, grey_frames(1), fps=10)


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([], "no frames"),
        ([np.zeros((8, 8, 3))], "float64"),
        ([np.zeros((8, 8), np.uint8)], r"\[8, 8\]"),
        ([np.zeros((8, 8, 3), np.uint8), np.zeros((8, 9, 3), np.uint8)], "frame 1"),
    ],
)
@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_write_video_frames_of_the_wrong_kind_are_refused(tmp_path, frames, message, suffix):
    with pytest.raises(ValueError, match=message):
        write_video(tmp_path / f"episode{suffix}", frames, fps=10)


@pytest.mark.parametrize("fps", [0, -1, float("nan"), float("inf")])
def test_write_video_fps_must_be_positive(tmp_path, fps):
    with pytest.raises(ValueError, match="fps"):
        write_video(tmp_path / "episode.mp4", grey_frames(1), fps)


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_film_holds_the_frames_that_were_added(tmp_path, suffix):
    path = tmp_path / f"film{suffix}"
    with video.film(str(path), 20.0) as add:
        for frame in grey_frames(5):
            add(frame)
    with imageio.get_reader(path) as reader:
        assert sum(1 for _ in reader) == 5


def test_film_that_gets_no_frame_ends_with_the_reason(tmp_path):
    with pytest.raises(ValueError, match="no frames"):
        with video.film(str(tmp_path / "film.mp4"), 30.0):
            pass


def test_film_that_cannot_be_written_says_so_before_anything_is_drawn(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.WriteError, match="Cannot write .*x.gif"):
        with video.film(str(tmp_path / "file" / "x.gif"), 10.0):
            pytest.fail("It was begun.")


def test_film_that_the_disk_does_not_take_says_so(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(errors.WriteError, match="x.gif: No space left on device"):
        with video.film(str(tmp_path / "x.gif"), 10.0) as add:
            add(np.zeros((4, 4, 3), np.uint8))


def test_film_passes_on_the_error_of_who_draws(tmp_path):
    with pytest.raises(RuntimeError, match="no picture"):
        with video.film(str(tmp_path / "film.mp4"), 30.0):
            raise RuntimeError("no picture")
