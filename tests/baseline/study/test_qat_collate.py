"""Tests `baseline.collate --qat`: files, text and what it says of unfit files."""

import os
import subprocess

import pytest

from actorQ.core import errors
from baseline import collate
from baseline.study import qat_collate
from baseline.study import rows as rows_lib
from tests.baseline import sweep_rows
from tests.baseline import trained_rows


def write(path, rows):
    for row in rows:
        rows_lib.append(str(path), row)
    return str(path)


def test_collate_all_writes_every_figure_grids_and_tables(tmp_path):
    rows = trained_rows.make_study(env="ALE/Pong-v5")
    rows += trained_rows.make_study(algo="a2c") + trained_rows.make_study(algo="a2c", env="A-v0")
    rows += trained_rows.make_study(algo="a2c", env="NoControl-v0")[1:8]
    folder = tmp_path / "figures"
    text, paths = qat_collate.collate(rows, None, str(folder), str(tmp_path))
    assert sorted(os.listdir(folder)) == [
        "a2c_A-v0.png", "a2c_CartPole-v1.png", "overview_a2c.png", "overview_ppo.png",
        "ppo_ALE_Pong-v5.png",
    ]
    assert sorted(paths) == sorted(
        [*(str(folder / name) for name in os.listdir(folder)),
         str(tmp_path / "table.md"), str(tmp_path / "table.csv")]
    )
    assert all(os.path.getsize(path) > 1000 for path in paths)
    assert "- For a2c NoControl-v0 there is no control" in text
    assert (tmp_path / "table.md").read_text() == text


def test_collate_of_one_pair_draws_it_and_keeps_the_table_of_all(tmp_path):
    rows = trained_rows.make_study(env="LunarLander-v2") + trained_rows.make_study()
    for name in ("LunarLander-v2", "LunarLander-v3"):
        text, paths = qat_collate.collate(rows, ("ppo", name), str(tmp_path), str(tmp_path))
        assert paths[0] == str(tmp_path / "ppo_LunarLander-v2.png") and len(paths) == 3
        assert "CartPole" not in text and "## ppo LunarLander-v3" in text
        table = (tmp_path / "table.md").read_text()
        assert "## ppo CartPole-v1" in table and "## ppo LunarLander-v3" in table


def test_collate_of_what_cannot_be_compared_says_why(tmp_path):
    full = trained_rows.make_study(env="Full-v0")
    rows = full + trained_rows.make_study(env="NoControl-v0")[1:8]
    rows += trained_rows.make_study(env="NoQat-v0", qat={})
    rows += [row for row in trained_rows.make_study(env="Other-v0") if row.method == "qat"]
    rows.append(trained_rows.make_row("control", "fp32", [1.0] * 6, env="Other-v0", train_steps=7))
    for env, reason in (
        ("Ant-v4", r"Nothing is measured of ppo Ant-v4 \(for ppo there is: Full-v0, .*\)"),
        ("NoControl-v0", "there is no control .* nothing can be compared"),
        ("NoQat-v0", "there is no row of QAT"),
        ("Other-v0", "no control has as many steps"),
    ):
        with pytest.raises(errors.UserError, match=f"{reason}.*qat_benchmark.sh ppo {env}"):
            qat_collate.collate(rows, ("ppo", env), str(tmp_path), str(tmp_path))
    assert os.listdir(tmp_path) == []
    with pytest.raises(errors.UserError, match="no row of QAT"):
        no_qat = [row for row in rows if row.env == "NoQat-v0"]
        qat_collate.collate(no_qat, None, str(tmp_path), str(tmp_path))
    with pytest.raises(errors.UserError, match="There are no rows: baseline/qat_benchmark.sh"):
        qat_collate.collate([], None, str(tmp_path), str(tmp_path))


def test_command_reads_logs_qat_and_writes_beside_it(tmp_path, run_commands):
    folder = tmp_path / "logs" / "qat"
    write(folder / "qat.csv", trained_rows.make_study())
    (done,) = run_commands("collate", [["--qat", "ppo2", "CartPole-v1"]], cwd=tmp_path)
    assert done.code == 0, done
    assert done.out.splitlines()[-3:] == [
        "logs/qat/plots/ppo_CartPole-v1.png", "logs/qat/table.md", "logs/qat/table.csv",
    ]
    assert "| ppo CartPole-v1 |" in done.out
    assert all((tmp_path / path).is_file() for path in done.out.splitlines()[-3:])


def test_command_takes_several_files_and_a_folder(tmp_path, run_commands):
    rows = trained_rows.make_study()
    half = write(tmp_path / "1.csv", rows[:15]), write(tmp_path / "2.csv", rows[15:])
    arguments = ("--qat", "--all", "--results", ",".join(half))
    done, again = run_commands(
        "collate", [[*arguments, "--out=here"], [*arguments, "--out=there"]], cwd=tmp_path
    )
    assert done.code == 0, done
    assert sorted(os.listdir(tmp_path / "here")) == [
        "overview_ppo.png", "ppo_CartPole-v1.png", "table.csv", "table.md",
    ]
    assert again.out == done.out.replace("here/", "there/")


@pytest.mark.parametrize(
    "arguments, message",
    (
        (["--qat", "--all"], "no results in logs/qat/qat.csv: baseline/qat_benchmark.sh ALGO ENV"),
        (["--qat", "--all", "--results=ptq.csv"], "rows as baseline.ptq writes them"),
        (["--all", "--results=qat.csv"], "has rows of trainings: give --qat"),
        (["--qat", "--all", "--results=other.csv"], "has other columns"),
        (
            ["--qat", "--all", "--results=qat.csv", "--granularity=channel"],
            "draws the granularities that the rows have: leave out --granularity channel.",
        ),
        (["--qat", "--results=qat.csv"], "takes an algorithm and an environment"),
        (["--qat", "a2c", "Ant-v4", "--results=qat.csv"], "Nothing is measured of a2c Ant-v4"),
    ),
)
def test_command_mistakes_get_one_line(tmp_path, run_commands, arguments, message):
    write(tmp_path / "ptq.csv", sweep_rows.make_sweep(widths=("8",)))
    write(tmp_path / "qat.csv", trained_rows.make_study(train_seeds=(0,)))
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (done,) = run_commands("collate", [arguments], cwd=tmp_path)
    assert message in done.error("collate")


def test_create_all_pngs_draws_trainings(tmp_path):
    path = write(tmp_path / "qat.csv", trained_rows.make_study(train_seeds=(0,)))
    script = os.path.join(os.path.dirname(collate.__file__), "create_all_pngs.sh")
    done = subprocess.run(
        [script, path, "--qat"], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(tmp_path / "plots")) == ["overview_ppo.png", "ppo_CartPole-v1.png"]

