"""The tool that simulates clusters: its rates, answers, files and messages."""

import dataclasses
import json
import math
import os
import re
import shutil
import subprocess
import sys

import pytest

from actorQ.core import errors
from actorQ.experiments import loading
from actorQ.experiments import results
from actorQ.experiments import specification
from actorQ.experiments.cluster import __main__ as cluster
from actorQ.experiments.cluster import command_line
from actorQ.experiments.cluster import rates as cluster_rates
from actorQ.experiments.cluster import report
from actorQ.experiments.cluster import simulation
from docs.generators.reference import flags as flag_tables
from tests.actorQ import harness
from tests.actorQ.experiments.reports import test_rates
from tests.actorQ.experiments.reports import test_reports

COMMON = loading.load_common()


def publish(folder, changes=lambda planned: {}):
    """Results of `throughput` as `test_rate_reports.rates` makes them."""
    experiment = loading.load("throughput", COMMON)
    for planned in specification.expand(experiment, COMMON, "laptop"):
        planned = dataclasses.replace(
            planned, settings={**planned.settings, **changes(planned)}
        )
        target = folder / "runs" / planned.name
        target.mkdir(parents=True)
        done = test_reports.result(planned, **test_rates.rates(planned))
        results.write(done, str(target))
    return folder


def change(folder, **values):
    """Changes parts of a result's file."""
    path = folder / results.RESULT_FILENAME
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, **values}))


def plan(max_actors=64, bandwidths=(math.inf,), speeds=(10.0,), **changes):
    """Actors of 1000 (fp32) and 4000 (int8) steps/s; a learner wants 100 for each of its steps."""

    def make(bits, speed, bandwidth, actors):
        return simulation.Cluster(**{**dict(
            actors=actors, steps_per_s=32_000.0 / bits, message_bytes=bits * 1e6,
            insert_bytes=100.0, learner_steps_per_s=speed, batch_size=100,
            samples_per_insert=1.0, update_period=30, push_period_s=0.5, bandwidth=bandwidth,
        ), **changes})

    return report.Plan(make, [32, 8], speeds, bandwidths, max_actors, 5.0, 0)


def answer(bits, speed, bandwidth=math.inf, **changes):
    return report.Study(plan(**changes)).answer(bits, speed, bandwidth)


def test_answer_without_a_network_is_demand_over_rate():
    # 95 % of 100 L steps/s, at 1000 and 4000 an actor.
    assert [answer(32, speed).needed for speed in (5, 10, 20, 200, 333)] == [1, 1, 2, 19, 32]
    assert [answer(8, speed).needed for speed in (5, 50, 333)] == [1, 2, 8]
    found = answer(32, 20.0)
    assert (found.demand, found.shown, found.reason) == (2000, 2, "")
    assert found.outcome.learner_steps_per_s == pytest.approx(20)
    assert found.outcome.age_s < 0.3


def test_answer_that_takes_too_many_says_so():
    found = answer(32, 1000.0, max_actors=20)
    assert (found.needed, found.shown, found.reason) == (None, 20, "more than 20")
    assert found.outcome.learner_steps_per_s == pytest.approx(200, rel=0.01)


def test_answer_that_the_link_forbids_says_so():
    # Inserts alone: 1e5 bytes/s carry 1000 steps/s.
    found = answer(8, 100.0, 1e5, message_bytes=1.0)
    assert (found.needed, found.reason) == (None, "never: link")
    assert found.outcome.steps_per_s == pytest.approx(1000, rel=0.02)
    # Not the 64 that were tried: one makes as many.
    assert found.shown == 1
    # Downloads: blocking actors starve, others do not.
    assert answer(32, 100.0, 1e7, insert_bytes=0.0).reason == "never: link"
    assert answer(32, 100.0, 1e7, insert_bytes=0.0, blocking=False).needed == 10


def test_narrower_weights_need_fewer_actors_on_a_slow_link():
    study = report.Study(plan(bandwidths=(1e8, 1e9), speeds=(10.0, 20.0)))
    found = study.answers()
    assert [(a.bandwidth, a.learner_speed, a.precision) for a in found[:3]] == [
        (1e8, 10, 32), (1e8, 10, 8), (1e8, 20, 32)
    ]
    needed = {(a.bandwidth, a.learner_speed, a.precision): a.needed for a in found}
    assert needed[1e8, 10.0, 8] == 1 and needed[1e8, 10.0, 32] is None
    assert needed[1e9, 10.0, 32] == 2
    text = report.table(found)
    assert "| 800 Mbit/s |" in text and "never: link" in text


def test_counts_end_with_the_most():
    assert report.counts(1) == [1]
    assert report.counts(10) == [1, 2, 3, 4, 5, 6, 7, 8, 10]
    numbers = report.counts(256)
    assert numbers[-1] == 256 and all(b <= math.ceil(1.25 * a) for a, b in zip(
        numbers[8:], numbers[9:], strict=False))


def test_rates_of_results_are_means_of_runs_with_one_actor(tmp_path):
    rates = cluster_rates.load(str(publish(tmp_path)))
    assert rates.steps_per_s == {32: 1000, 16: 2000, 8: 4000, 4: 5000}
    assert rates.message_bytes == {32: 8e6, 16: 4e6, 8: 2e6, 4: 1e6}
    assert rates.precisions == [32, 16, 8, 4]
    assert (rates.learner_steps_per_s, rates.batch_size) == (16, 128)
    assert "12 runs with one actor" in rates.source and "3 seeds" in rates.source


def test_rates_that_cannot_be_had_are_one_clear_line(tmp_path):
    with pytest.raises(errors.UserError, match="has no result of a training with one actor"):
        cluster_rates.load(str(tmp_path))
    mixed = publish(tmp_path, lambda p: {"model_str": "64"} if p.precision == 8 else {})
    with pytest.raises(errors.UserError, match=r"several kinds: .* model_str \(2048.*64\)"):
        cluster_rates.load(str(mixed))
    shutil.copytree(mixed / "runs", tmp_path / "more" / "runs")
    for name in os.listdir(mixed / "runs"):
        change(tmp_path / "more" / "runs" / name, experiment="another")
    with pytest.raises(errors.UserError, match=r"differ in experiment \(another, e\); model_str"):
        cluster_rates.load(str(tmp_path))


def test_rates_of_other_machines_or_of_shared_cores_are_refused(tmp_path):
    folder = publish(tmp_path)
    runs = sorted((folder / "runs").glob("*n_actors1-*"))
    for index, run in enumerate(runs):
        change(run, machine={"processor": "a", "usable_cores": 8 if index == 3 else 2})
    with pytest.raises(errors.UserError, match=r"differ in usable_cores \(2, 8\)"):
        cluster_rates.load(str(folder))
    for run in runs:
        change(run, machine={"processor": "a", "usable_cores": 1})
    with pytest.raises(errors.UserError, match="runs of one core, which the actor shared"):
        cluster_rates.load(str(folder))


def test_rates_that_come_with_this_code():
    rates = cluster_rates.load("")
    assert rates.precisions == [32, 16, 8, 4]
    assert rates.steps_per_s[8] > 2 * rates.steps_per_s[32] > 1000
    assert rates.message_bytes[32] / rates.message_bytes[8] == pytest.approx(4, rel=0.02)


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "actorQ.experiments.cluster", *arguments], capture_output=True,
        text=True, timeout=120, cwd=harness.REPOSITORY,
    )


def test_tool_prints_and_writes_what_it_found(tmp_path):
    out = tmp_path / "out"
    done = command(
        f"--rates={publish(tmp_path / 'rates')}", "--precisions=fp32,8",
        "--actor-steps-per-s=8:5000",
        "--learner_speeds=10,20", "--bandwidths=none,100M", "--max_actors=8", "--seconds=2",
        "--batch_size=100", f"--out={out}",
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert "This is a simulation" in text and "Assumed of actors: " in text
    assert "fp32 1000 steps/s and 8,000,000 bytes; int8 5000 steps/s" in text
    assert "in place of some of them --actor_steps_per_s" in text
    for words in ("Actors stand still", "Actors go on"):
        assert re.search(rf"{words}[^|]*\| Network ", text)
    rows = test_rates.rows(out / "cluster.csv")
    assert len(rows) == 2 * 2 * 2 * 2
    assert rows[0]["actors_needed"] == "1" and rows[0]["bandwidth_bit_per_s"] == ""
    assert {row["why_none"] for row in rows if not row["actors_needed"]} == {"never: link"}
    assert (out / "cluster.md").read_text().startswith("# Actors that saturate a learner")
    for name in ("blocking", "background"):
        assert (out / f"cluster_{name}.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["more"], "does not know what to do with 'more'"),
        (["--rates=/nowhere"], "--rates=/nowhere has no result"),
        (["--precisions=12"], "'12' is not a precision: choose from 32 (fp32), 16"),
        (["--actor_steps_per_s=8"], "'8' is not BITS:NUMBER"),
        (["--actor_steps_per_s=8:0"], "--actor_steps_per_s: '0' is not a number above 0"),
        (["--message_bytes=8:1,int8:2"], "--message_bytes names 8 bits twice"),
        (["--actor_steps_per_s=4:1", "--message_bytes=4:1", "--precisions=16", "--rates=RATES"],
         "nothing is known of 16 bits"),
        (["--bandwidths=fast"], "'fast' is not a bandwidth: write none, or bit/s as 20M"),
        (["--bandwidths=1.2.3G"], "'1.2.3G' is not a bandwidth"),
        (["--bandwidths=0"], "'0' is not a bandwidth"),
        (["--learner_speeds=10,-1"], "--learner_speeds: '-1' is not a number above 0"),
        (["--learner_speeds="], "--learner_speeds is empty"),
        (["--insert_bytes=-1"], "--insert_bytes: -1.0 is not a number, 0 or more"),
        (["--samples_per_insert=0"], "--samples_per_insert: 0.0 is not a number above 0"),
        (["--latency_ms=nan"], "--latency_ms: nan is not a number"),
        (["--pulls=push"], "--pulls: 'push' is not possible: choose from blocking, background"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, message, monkeypatch, tmp_path):
    values = cluster.flags.FlagValues()
    command_line.define_flags(values)
    monkeypatch.setattr(cluster.flags, "FLAGS", values)
    if "--rates=RATES" in arguments:
        rates = publish(tmp_path / "rates")
        for run in (rates / "runs").glob("*fp16*"):
            shutil.rmtree(run)
        arguments = [*arguments[:-1], f"--rates={rates}"]
    left = values(["cluster", f"--out={tmp_path}", *arguments])
    if len(left) > 1:  # What `cli.run` itself refuses.
        assert message in command(*arguments).stderr
        return
    with pytest.raises(errors.UserError) as caught:
        cluster.main(left)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_flag_errors_and_help():
    done = command("--max_actors=0")
    lines = harness.error_lines(done.stderr, cluster.NAME)
    assert done.returncode != 0 and len(lines) == 1 and "max_actors" in lines[0]
    rows = flag_tables.BLOCKS["cluster"]().splitlines()[2:]
    assert len(rows) == 17
    assert all(re.fullmatch(r"\| `--\w+` \| [^|]+ \| [^|]{20,} \|", row) for row in rows)


def test_rates_without_a_checkout_are_asked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster_rates, "COMMITTED", str(tmp_path / "nothing"))
    with pytest.raises(errors.UserError, match="no checkout here: give --rates"):
        cluster_rates.load("")
