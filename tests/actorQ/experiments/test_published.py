"""What `--publish` copies, and that the copy is enough for the report."""

import csv
import json

from actorQ.core import provenance
from tests.actorQ.experiments import conftest


def rows(copy):
    """Precision and seed of every run in the report, in its order."""
    with open(copy / "report/runs.csv", newline="") as file:
        return [(row["precision"], row["seed"]) for row in csv.DictReader(file)]


def test_published_copy_has_results_and_report_and_makes_the_report_again(small, tmp_path):
    copy = tmp_path / "copy"
    output = small.run("--seeds=0", f"--publish={copy}")
    assert f"Published: 2 results in {copy}" in output
    files = sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file())
    assert {name for name in files if name.startswith("runs/")} == {
        "runs/cartpole_balance-fp32-s0/result.json", "runs/cartpole_balance-int8-s0/result.json",
    }
    assert {"report/small.md", "report/runs.csv"} <= set(files)
    result = json.loads((copy / "runs/cartpole_balance-int8-s0/result.json").read_text())
    assert provenance.ROOT not in result["command"]
    before = (copy / "report/small.md").read_text()
    (copy / "report/small.md").unlink()
    small.out = copy
    small.run("--seeds=0", "--report")
    assert (copy / "report/small.md").read_text() == before
    assert small.made() == []
    assert "is the folder of the runs itself" in small.run(
        "--seeds=0", f"--publish={small.out}/.", code=1
    )


def test_published_later_results_join_those_that_are_there(small, tmp_path):
    copy = tmp_path / "copy"
    small.run("--seeds=0", "--precisions=32", f"--publish={copy}")
    small.out = tmp_path / "elsewhere"
    small.run("--seeds=0,1", "--precisions=8", f"--publish={copy}")
    assert rows(copy) == [("fp32", "0"), ("int8", "0"), ("int8", "1")]
    assert "No result" not in (copy / "report/small.md").read_text()
    # What the experiment no longer describes stays, is in no table, and is named.
    small.write(small.file.read_text().replace("batch_size: 128", "batch_size: 64"))
    small.run("--seeds=1", "--precisions=8", f"--publish={copy}")
    assert rows(copy) == [("int8", "1")]
    report = (copy / "report/small.md").read_text()
    gone = "the result that is there is of other settings (batch_size 128 -> 64)"
    for name in ("cartpole_balance-fp32-s0", "cartpole_balance-int8-s0"):
        assert f"**No result**: {name}: {gone}" in report


def test_published_report_says_that_a_run_failed_whose_older_result_it_shows(small, tmp_path):
    copy = tmp_path / "copy"
    small.run("--seeds=0", "--precisions=32", f"--publish={copy}")
    small.out = tmp_path / "elsewhere"
    name = "cartpole_balance-fp32-s0"
    small.orders(fail=[name])
    small.run("--seeds=0", f"--publish={copy}", code=1)
    assert rows(copy) == [("fp32", "0"), ("int8", "0")]
    report = (copy / "report/small.md").read_text()
    assert f"**{name} failed when it was made last**; the result shown is an older one" in report


def test_published_seeds_that_the_experiment_has_not_stay_in_the_report(small, tmp_path):
    copy = tmp_path / "copy"
    small.run("--seeds=7", "--precisions=16", f"--publish={copy}")
    small.out = tmp_path / "elsewhere"
    small.run("--seeds=0", "--precisions=8", f"--publish={copy}")
    assert rows(copy) == [("int8", "0"), ("fp16", "7")]


def test_published_profiles_do_not_mix(small, tmp_path):
    copy = tmp_path / "copy"
    small.run("--seeds=0", "--precisions=8", f"--publish={copy}")
    before = (copy / "report/small.md").read_text()
    small.out = tmp_path / "elsewhere"
    output = small.run(
        "--seeds=0", "--precisions=8", "--profile=workstation", f"--publish={copy}", code=1
    )
    assert "holds results of the profile laptop" in output
    small.out = tmp_path / "third"
    output = small.run("--smoke", "--precisions=8", f"--publish={copy}", code=1)
    assert "publish those of laptop --smoke in another folder" in output
    assert (copy / "report/small.md").read_text() == before


def test_published_experiments_do_not_mix(small, tmp_path):
    copy = tmp_path / "copy"
    small.run("--seeds=0", "--precisions=8", f"--publish={copy}")
    before = (copy / "runs/cartpole_balance-int8-s0/result.json").read_text()
    small.out, small.file = tmp_path / "elsewhere", tmp_path / "other.yaml"
    small.write(conftest.SMALL)
    output = small.run("--seeds=0", "--precisions=8", f"--publish={copy}", code=1)
    assert "holds results of small (cartpole_balance-int8-s0): publish those of other in" in output
    assert not (tmp_path / "elsewhere/runs").exists()  # Told before the runs, not after them.
    assert (copy / "runs/cartpole_balance-int8-s0/result.json").read_text() == before
