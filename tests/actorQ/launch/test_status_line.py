"""The launcher's messages to people."""

import contextlib
import os
import sys

import pytest

from actorQ.core import config as config_lib
from actorQ.launch import status_line


def test_status_line_nobody_can_read_does_not_end_the_run(tmp_path, monkeypatch):
    line = status_line.StatusLine(config_lib.RunConfig(logpath=str(tmp_path)))
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(OSError, match="No space left"):
            print("x", flush=True)
        for live in (False, True):
            line._live, line._next = live, 0.0
            monkeypatch.setattr(os, "get_terminal_size", lambda: os.terminal_size((80, 24)))
            line.update()
            line.say("text")
            line.end()
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()
