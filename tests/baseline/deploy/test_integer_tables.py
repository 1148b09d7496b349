import json
import os
import sys
import types

import pytest

from actorQ.core import errors
from baseline.agents import agreement
from baseline.deploy import integer_tables
from baseline.deploy import measuring


def form(weight_bytes, metadata=None, kernels=None, **figures):
    facts = {"weight_bytes": weight_bytes, "metadata": metadata, "kernels": kernels}
    return measuring.Form(lambda observation: observation, facts=facts, **figures)


MEASURED = {
    "torch fp32": form(weight_bytes=400, seconds=[4e-5, 2e-5, 3e-5], returns=[1.0, 3.0]),
    "ORT int8": form(
        content=b"1234567", weight_bytes=110, metadata={"bits": 8}, kernels={"QGemm": 3},
        agreements={
            "simulated": agreement.Agreement(50, 0.995),
            "full_precision": agreement.Agreement(50, 0.9),
        },
        seconds=[1e-5, 1e-5, 9e-5], returns=[2.0, 2.0],
    ),
}


def agent(algo="a", env="b"):
    return types.SimpleNamespace(algo=algo, env_id=env)


def test_report_prints_and_writes(tmp_path, capsys):
    settings = measuring.Settings(episodes=2)
    out = tmp_path / "new" / "folder"
    integer_tables.report(agent(), settings, MEASURED, str(out))
    printed = capsys.readouterr().out
    cells = [[cell.strip() for cell in line.split("|")] for line in printed.splitlines()]
    rows = {row[1]: row[2:-1] for row in cells if len(row) > 3}
    assert rows["torch fp32"] == ["", "400", "30.0", "1.00", "", "", "2.00", "1.00"]
    assert rows["ORT int8"] == [
        "7", "110", "10.0", "3.00", "99.50 %", "90.00 %", "2.00", "0.00"
    ]
    assert (out / "integer_a_b.md").read_text().startswith(printed)
    record = json.loads((out / "integer_a_b.json").read_text())
    assert record["settings"]["episodes"] == 2 and record["git_commit"]
    form = record["forms"]["ORT int8"]
    assert form["simulated"]["alike"] == 0.995 and form["kernels"] == {"QGemm": 3}
    assert form["file_bytes"] == 7 and form["returns"] == [2.0, 2.0]
    keys = {
        "file_bytes", "weight_bytes", "metadata", "kernels", "simulated", "full_precision",
        "seconds", "p99_s", "returns",
    }
    assert all(set(form) == keys for form in record["forms"].values())
    assert record["forms"]["torch fp32"]["simulated"] is None


def test_report_without_out_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    integer_tables.report(agent(), measuring.Settings(), MEASURED, None)
    assert "ORT int8" in capsys.readouterr().out and not list(tmp_path.iterdir())


def test_a_report_that_cannot_be_printed_is_written(tmp_path, monkeypatch):
    settings = measuring.Settings(episodes=2)
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        integer_tables.report(agent(), settings, MEASURED, str(tmp_path))
        with pytest.raises(OSError, match="No space left"):  # Otherwise the report would be lost.
            integer_tables.report(agent(), settings, MEASURED, None)
        monkeypatch.undo()
        with pytest.raises(OSError):
            full.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "integer_a_b.json", "integer_a_b.md",
    ]


def test_a_report_that_nobody_reads_on_is_no_error(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)  # `| head` has seen enough.
    with open(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        integer_tables.report(agent(), measuring.Settings(), MEASURED, None)
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            pipe.close()


def test_a_report_that_cannot_be_written_is_printed(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UserError, match="Cannot make the folder"):
        integer_tables.report(
            agent(), measuring.Settings(), MEASURED, str(tmp_path / "file" / "x")
        )
    assert "ORT int8" in capsys.readouterr().out


def test_save_models_writes_what_has_a_file(tmp_path):
    integer_tables.save_models(str(tmp_path / "m"), "a_b", MEASURED)
    path, = (tmp_path / "m").iterdir()
    assert path.name == "a_b_ORT_int8.onnx" and path.read_bytes() == b"1234567"


def test_names_with_a_slash_make_no_folders(tmp_path):
    settings = measuring.Settings(episodes=2)
    integer_tables.report(agent("ppo", "ALE/Pong-v5"), settings, MEASURED, str(tmp_path))
    integer_tables.save_models(str(tmp_path), "ppo_ALE/Pong-v5", MEASURED)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "integer_ppo_ALE-Pong-v5.json", "integer_ppo_ALE-Pong-v5.md",
        "ppo_ALE-Pong-v5_ORT_int8.onnx",
    ]


def test_folders_that_cannot_be_written_are_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UserError, match="Cannot make the folder"):
        integer_tables.save_models(str(tmp_path / "file" / "x"), "a", MEASURED)
    (tmp_path / "a_ORT_int8.onnx").mkdir()
    with pytest.raises(errors.UserError, match="Cannot write .*a_ORT_int8.onnx"):
        integer_tables.save_models(str(tmp_path), "a", MEASURED)


def test_summarize_has_a_row_for_every_agent(tmp_path, capsys):
    agents = {("ppo", "A-v0"): MEASURED, ("dqn", "B-v1"): MEASURED}
    integer_tables.summarize(agents, str(tmp_path))
    printed = capsys.readouterr().out
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in printed.splitlines() if line.startswith(("| ppo", "| dqn"))
    ]
    assert rows[0] == ["ppo", "A-v0", "99.50"] and rows[1][:2] == ["dqn", "B-v1"]
    assert rows[2] == ["ppo", "A-v0", "30.0", "10.0"]
    assert rows[4] == ["ppo", "A-v0", "7"] and rows[6] == ["ppo", "A-v0", "2.00", "2.00"]
    assert (tmp_path / "integer.md").read_text().startswith(printed)
