"""Tables, CSV files, and the error lines of scripts."""

import errno
import math
import os
import sys

import numpy as np
import pytest

from actorQ.core import errors
from actorQ.core import output
from actorQ.scripts import plot_run


def test_markdown_table_golden():
    assert output.markdown_table(["a", "bcde"], [["x", "1"]]) == (
        "| a   | bcde |\n| --- | ---: |\n| x   |    1 |\n"
    )


def test_what_cannot_be_written_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    output.write_csv(str(path), [{"a": 1}])
    before = path.read_text()

    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(errors.UserError, match="No space left"):
        patched.setattr(os, "replace", full)
        output.write_csv(str(path), [{"a": 2}])
    assert path.read_text() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.csv"]


def test_a_table_may_go_to_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    output.write_text(str(tmp_path / "pipe"), "a table")
    assert os.read(reader, 100) == b"a table"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_write_csv_keeps_all_digits_of_counts_and_six_of_the_rest(tmp_path):
    row = {
        "count": 33628826.0, "numpy": np.float64(1e7), "whole": 12345678, "rate": 1234.56789,
        "none": math.nan, "endless": math.inf, "text": "1.0",
    }
    output.write_csv(str(tmp_path / "a.csv"), [row])
    assert (tmp_path / "a.csv").read_text().splitlines()[1] == (
        "33628826,10000000,12345678,1234.57,,,1.0"
    )


def test_run_script_turns_errors_into_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path)])
    with pytest.raises(SystemExit) as raised:
        output.run_script("plot_run", plot_run.main)
    assert raised.value.code == 1
    line = capsys.readouterr().err
    assert line.startswith("plot_run: error: ") and line.count("\n") == 1
