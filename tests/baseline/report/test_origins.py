"""Origins of results, as their files note them."""

import json

import pytest

from actorQ.core import errors
from baseline.report import blocks
from baseline.report import origins
from baseline.report import result_files


def test_origins_are_of_the_files_own_notes(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(
        {"command": "one", "git_commit": "a" * 40 + "+changes", "date": "2026-01-02",
         "machine": {"processor": "CPU", "cores": 2}}
    ))
    (tmp_path / "b.csv").write_text(f"x,commit\n1,{'b' * 40}\n2,{'b' * 40}\n")
    (tmp_path / "c.md").write_text(
        f"text\n\n`two --flag` on CPU, commit {'c' * 12}, 2026-01-01 10:00:00 +0000.\n"
    )
    (tmp_path / "d.json").write_text("[1]")
    found = origins.of_folders([str(tmp_path)])
    assert found.commands == ("one", "two --flag") and found.machines == ("CPU, 2 cores",)
    assert found.commits == ("a" * 12 + "+changes", "b" * 12, "c" * 12)
    assert found.period == ["2026-01-01 10:00:00 +0000", "2026-01-02"]
    assert blocks.Origin().period == []
    (tmp_path / "e.json").write_text("{")
    with pytest.raises(errors.UserError, match="e.json is damaged"):
        origins.of_folders([str(tmp_path)])
    with pytest.raises(errors.UserError, match="cells"):
        (tmp_path / "f.csv").write_text("a,b\n1\n")
        result_files.read_csv(str(tmp_path / "f.csv"))
