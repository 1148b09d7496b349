"""Medians with censored seeds, reports from results alone, and the smallest helpers."""

import dataclasses
import json
import math

import pytest

from actorQ.core import plotting
from actorQ.experiments import command_line
from actorQ.experiments import loading
from actorQ.experiments import plans
from actorQ.experiments import results
from actorQ.experiments import specification
from actorQ.experiments.reports import catalogue
from actorQ.experiments.reports import reaching
from actorQ.experiments.reports import reporting
from actorQ.experiments.reports import time_to_reward
from actorQ.experiments.run_logs import times

COMMON = loading.load_common()


def reaches(*values):
    """Numbers were reached, texts like '>5' not."""
    return [
        times.Reach(float(str(value).strip(">")), 1.0, not str(value).startswith(">"))
        for value in values
    ]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((3, 1, 2), "2.0"),
        ((1, 2), "1.5"),
        ((1, 2, ">9"), "2.0"),  # One that missed does not decide.
        ((1, ">9", ">9"), "> 9.0"),
        ((">9",), "> 9.0"),
        ((1, ">9"), "> 5.0"),
        ((1, 6, ">5"), "> 5.0"),  # The third might have taken 5.5: less than 6.
        ((1, 4, ">5"), "4.0"),
    ],
)
def test_median_reach_censored_seeds_count_as_more(values, text):
    assert reaching.median_reach(reaches(*values)).text() == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(40, "40 s"), (89, "89 s"), (600, "10 min"), (7500, "2 h 05 min"), (604800, "168 h 00 min")],
)
def test_duration_in_words(seconds, text):
    assert plans.duration(seconds) == text


def test_task_names_put_commas_together_again():
    tasks = ["dm_control,cartpole_balance", "gym,CartPole-v0"]
    assert command_line.task_names("gym,CartPole-v0,cartpole_balance".split(","), tasks) == [
        "gym,CartPole-v0", "cartpole_balance",
    ]
    assert command_line.task_names([], tasks) == []


def measured(**values):
    rewards = results.Rewards([1.0], [1.0], [1.0], [5.0], [0.5])
    defaults = dict(
        outcome="reached", target=5.0, time_to_target_s=10.0, evaluation_to_target_s=1.0,
        censored_at_s=None, final_returns=[4.0, 6.0], rewards=rewards, evaluation_s=1.0,
        learner_steps=1.0, actor_steps=1.0, learner_steps_per_s=None, actor_steps_per_s=None,
        data_used=None, staleness_steps=None, message_bytes=None, fp32_bytes=None, energy=None,
    )
    return results.Measured(**{**defaults, **values})


def result(planned, wall_s=100.0, **values):
    return results.Result(
        "e", "laptop", False, planned.name, planned.kind, planned.task, planned.precision,
        planned.seed, planned.varied, planned.settings, "command", "c", {}, "date", 1, wall_s,
        None, measured(**values),
    )


def test_result_written_is_read_again_as_it_was(tmp_path):
    experiment = loading.load("time_to_reward", COMMON)
    planned = specification.expand(experiment, COMMON, "laptop")[0]
    whole = result(planned, energy=results.Energy(1.0, 2.0, None, None))
    results.write(whole, str(tmp_path))
    assert results.read(str(tmp_path)) == whole
    assert plans.changes(planned, results.read(str(tmp_path))) == []
    assert results.read(str(tmp_path / "nothing")) is None


def test_result_of_an_older_version_is_read_without_what_it_lacks(tmp_path):
    experiment = loading.load("time_to_reward", COMMON)
    planned = specification.expand(experiment, COMMON, "laptop")[0]
    results.write(result(planned, phases_us={"pull": 1.0}, step_us=2.0), str(tmp_path))
    path = tmp_path / results.RESULT_FILENAME
    content = json.loads(path.read_text())
    for name in ("phases_us", "step_us", "steps_per_load"):
        del content["measured"][name]
    path.write_text(json.dumps(content))
    old = results.read(str(tmp_path))
    assert (old.measured.phases_us, old.measured.step_us) == (None, None)
    assert plans.changes(planned, old) == []
    row = results.csv_row(old)
    assert (row["inference_us"], row["steps_per_load"]) == ("", "")


def test_result_says_whether_energy_was_measured_and_by_which_grid_co2_counts():
    experiment = loading.load("time_to_reward", COMMON)
    planned = specification.expand(experiment, COMMON, "laptop")[0]
    found = [
        result(planned, energy=results.Energy(2.0, 0.762, 1.0, 0.381, 0.0, True, "DEU")),
        result(planned, energy=results.Energy(2.0, 0.95, 1.0, 0.475, 0.0, False, "")),
        result(planned),  # Energy was not logged.
    ]
    rows = [results.csv_row(one) for one in found]
    assert [(row["cpu_energy"], row["grid"]) for row in rows] == [
        ("measured", "381 g/kWh (DEU)"), ("modelled", "475 g/kWh (world)"), ("", ""),
    ]
    assert results.energy_origins(found) == (
        "measured and modelled", "381 g/kWh (DEU), 475 g/kWh (world)"
    )


def test_final_reward_is_of_the_last_policy_else_of_the_last_evaluations():
    assert measured().final_reward == 5
    rewards = results.Rewards([1] * 3, [1] * 3, [1] * 3, [0, 2, 4], [1] * 3)
    assert measured(final_returns=[], rewards=rewards, window=2).final_reward == 3
    none = results.Rewards([], [], [], [], [])
    assert measured(final_returns=[], rewards=none).final_reward is None
    assert measured(outcome=results.DIVERGED).final_reward is None


def test_smoke_runs_that_made_too_few_steps_are_named():
    experiment = loading.load("time_to_reward", COMMON)
    (planned,) = specification.expand(
        experiment, COMMON, "laptop", [0], ["CartPole-v0"], [8], smoke=True, peers=None
    )
    lines = {
        steps: catalogue.too_short([result(planned, learner_steps=steps)])
        for steps in (0, 99, 100)
    }
    assert lines[100] == [] and "made only 99 of 100" in lines[99][0] and lines[0]


def test_notes_name_learners_and_machines_that_are_not_the_profiles():
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(
        experiment, COMMON, "paper", [0], ["cartpole_balance"], [32, 8], peers=["acme"]
    )

    def notes(cores, ours, theirs):
        done = {
            planned.name: dataclasses.replace(
                result(planned, learner_device=ours if planned.kind == "training" else theirs),
                machine={"processor": "a", "usable_cores": cores},
            )
            for planned in runs
        }
        material = reporting.Material(experiment, "paper", runs, done, {}, "")
        return "\n".join(reporting.notes(material))

    as_planned = notes(8, "GPU", "GPU")
    assert "; learner on GPU; " in as_planned and "Warning" not in as_planned
    fell_back = notes(4, "CPU", "GPU")
    assert "learners: fp32 on CPU, int8 on CPU, Acme D4PG on GPU; " in fell_back
    assert "to be on a GPU and were not: cartpole_balance-fp32-s0, cartpole_balance-int8-s0." in (
        fell_back
    )
    assert "runs with fewer cores" in fell_back  # Four actors and a learner on four.
    assert "Warning" not in notes(8, None, None)


def test_notes_name_runs_whose_evaluation_had_a_process():
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(
        experiment, COMMON, "laptop", [0], ["cartpole_balance"], [32, 8], peers=None
    )

    def notes(*beside):
        done = {
            run.name: result(run, evaluation_process=one)
            for run, one in zip(runs, beside, strict=True)
        }
        material = reporting.Material(experiment, "laptop", runs, done, {}, "")
        return "\n".join(reporting.notes(material))

    assert "Evaluation had" not in notes(False, None)
    assert "beside the learner. Its seconds" in notes(True, True)
    assert "beside the learner in cartpole_balance-int8-s0. Its" in notes(False, True)


def test_notes_of_a_profile_that_needs_no_gpu_warn_only_where_others_had_one():
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(
        experiment, COMMON, "workstation", [0], ["cartpole_balance"], [8], peers=["sb3"]
    )

    def notes(ours, optional, gpus=0):
        devices = {"training": ours, "sb3": "CPU"}
        done = {
            one.name: dataclasses.replace(
                result(one, learner_device=devices[one.kind]), machine={"gpus": gpus}
            )
            for one in runs
        }
        material = reporting.Material(experiment, "workstation", runs, done, {}, "", optional)
        return "\n".join(reporting.notes(material))

    to_be_on_gpu = "to be on a GPU and were not: cartpole_balance-int8-s0, cartpole_balance-sb3-s0."
    assert to_be_on_gpu in notes("CPU", optional=False)
    assert "Warning" not in notes("CPU", optional=True)
    assert to_be_on_gpu in notes("CPU", optional=True, gpus=1)  # TensorFlow's CPU build?
    # torch's CPU build beside TensorFlow's for GPUs.
    assert "were not: cartpole_balance-sb3-s0." in notes("GPU", optional=True)


def test_final_reward_of_some_runs_says_of_how_many():
    assert reporting.of_all([1.0, 3.0], 2) == "2.0 ± 1.4"
    assert reporting.of_all([1.0, 3.0], 3) == "2.0 ± 1.4 (2 of 3)"
    assert reporting.of_all([], 3) == reporting.NOTHING


def test_expectation_from_experience_else_from_limits(tmp_path):
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(
        experiment, COMMON, "laptop", [0, 1], ["cartpole_balance", "CartPole-v0"], [32, 8],
        peers=None,
    )
    plan = plans.Plan("e", "laptop", False, str(tmp_path), runs)
    limit_s = {run.task: run.settings["max_seconds"] + 30 for run in runs}  # With start and end.
    total_s = 4 * sum(limit_s.values())
    assert plans.time_left(plan.runs, {}) == f"at most {plans.duration(total_s)}"
    half = f"at most {plans.duration(total_s / 2)}"
    assert plans.time_left(plan.runs, {}, parallel=2) == half
    one = plans.time_left(plan.runs[:1], {}, parallel=4)
    assert one == f"at most {plans.duration(limit_s[plan.runs[0].task])}"
    times = {32: 500.0, 8: 200.0}
    done = {
        r.name: result(r, times[r.precision]) for r in runs
        if r.seed == 0 and r.task == "dm_control,cartpole_balance"
    }
    # cartpole_balance as before; of CartPole-v0 nothing is known.
    assert plans.expected_s(runs[4], done) == (200.0, False)
    rest_s = 700 + 4 * limit_s["gym,CartPole-v0"]
    assert plans.time_left(plan.runs, done) == f"at most {plans.duration(rest_s)}"
    # Of another precision's time nothing follows.
    fast = {name: one for name, one in done.items() if one.precision == 8}
    assert plans.expected_s(runs[0], fast) == (limit_s[runs[0].task], True)
    # A peer takes a time of its own.
    (peer,) = specification.expand(
        experiment, COMMON, "laptop", [1], ["cartpole_balance"], None, False, ["sb3"]
    )
    assert plans.expected_s(peer, done) == (limit_s[peer.task], True)
    done = {r.name: result(r, times[r.precision]) for r in runs if r.seed == 0}
    assert plans.time_left(plan.runs, done) == f"about {plans.duration(1400)}"
    under_way = {plan.runs[4].name: 700}
    assert plans.time_left(plan.runs, done, spent_s=under_way) == "about 20 min"
    assert plans.time_left(plan.runs, {r.name: result(r) for r in runs}) == "nothing is left to do"


def test_speedup_bounds():
    (fast, slow, never) = reaches(10, 40, ">100")
    assert times.speedup_between(slow, fast).text() == "4.00"
    assert times.speedup_between(never, fast).text() == "> 10.00"
    assert times.speedup_between(slow, never).text() == "< 0.40"
    assert times.speedup_between(never, never).text() == "n/a"
    assert math.isclose(times.speedup_between(slow, fast).value, 4)


def test_speedups_compare_the_seeds_that_both_sides_have():
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(
        experiment, COMMON, "laptop", [0, 1, 2], ["cartpole_balance"], [32, 8], peers=["acme"]
    )
    seconds = {"fp32": [40.0, 60.0, 50.0], "int8": [20.0, 5.0, 10.0], "acme": [80.0]}
    done = {}
    for one in runs:
        _, side, seed = one.name.split("-")
        if int(seed[1:]) < len(seconds[side]):
            done[one.name] = result(one, time_to_target_s=seconds[side][int(seed[1:])])
    material = reporting.Material(experiment, "laptop", runs, done, {}, "")
    (rows,) = reaching.rows_by_task(material).values()
    acme = next(side for side in rows if side.is_peer)
    assert reaching.speedup(rows, reaching.INT8).text() == "5.00"  # 50 over 10.
    assert reaching.speedup(rows, reaching.INT8, acme).text() == "4.00"  # Seed 0: 80 over 20.
    assert [row.text(3) for row in rows.values()] == ["50.0", "10.0", "80.0 (1 seed)"]
    assert reaching.speedup_text(rows, reaching.INT8) == "5.00"
    assert reaching.speedup_text(rows, reaching.INT8, acme) == "4.00 (1 seed)"
    assert reaching.speedup_text(rows, reaching.FP32) == ""
    other_seeds = dataclasses.replace(rows[acme], results=rows[reaching.FP32].results[1:2])
    assert reaching.speedup({**rows, acme: other_seeds}, acme).text() == "0.75"
    assert reaching.ratio_of_medians(rows[acme].by_seed, other_seeds.by_seed) is None


def test_sides_that_ran_in_other_hours_are_named(tmp_path):
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(
        experiment, COMMON, "laptop", [0, 1, 2], ["cartpole_balance"], [32, 8, 4], peers=None
    )
    hours = {32: 10, 8: 11, 4: 22}
    done = {
        one.name: dataclasses.replace(
            result(one), date=f"2026-11-2{one.seed} {hours[one.precision]}:00:00 +0000"
        )
        for one in runs if (one.precision, one.seed) != (4, 2)
    }
    material = reporting.Material(experiment, "laptop", runs, done, {}, str(tmp_path))
    lines = time_to_reward.write(material).splitlines()
    (line,) = (line for line in lines if "hours from fp32's" in line)
    assert "int4's runs were launched 12 hours from fp32's (median of the seeds)" in line
    energy = results.Energy(1.0, 2.0, 1.0, 2.0)
    for name, one in done.items():
        done[name] = dataclasses.replace(one, measured=measured(energy=energy))
    lines = time_to_reward.write(material).splitlines()
    cells = [line.split("|") for line in lines if line.startswith("| cartpole_balance |")]
    assert [row[3].strip() for row in cells[-3:]] == ["1e+03", "1e+03", "1e+03 (2 seeds)"]
    assert {tuple(cell.strip() for cell in row[-3:-1]) for row in cells[-3:]} == {
        ("modelled", "2000 g/kWh")
    }
    measured_part = "The energy of GPUs is in it"
    assert measured_part not in "\n".join(lines)
    for name, one in done.items():
        with_gpu = dataclasses.replace(energy, gpu_kwh=0.5)
        done[name] = dataclasses.replace(one, measured=measured(energy=with_gpu))
    assert measured_part in time_to_reward.write(material)


def test_a_report_leaves_no_figures_of_an_earlier_one(tmp_path):
    experiment = loading.load("time_to_reward", COMMON)

    def write(*bits):
        runs = specification.expand(
            experiment, COMMON, "laptop", [0], ["cartpole_balance"], bits, peers=None
        )
        done = {one.name: result(one) for one in runs}
        catalogue.write(
            reporting.Material(experiment, "laptop", runs, done, {}, str(tmp_path)), False
        )
        return {path.name for path in tmp_path.iterdir()}

    (tmp_path / "mine.txt").touch()
    assert {"speedup.png", "mine.txt", "time_to_reward.md"} <= write(32, 8)
    assert "speedup.png" not in write(8) and (tmp_path / "mine.txt").exists()


def test_a_task_without_a_reward_to_reach_has_no_rows(tmp_path):
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(
        experiment, COMMON, "laptop", [0], ["cartpole_balance"], [32, 8], peers=None
    )
    nothing = dict(target=None, time_to_target_s=None, censored_at_s=None, energy=None)
    done = {one.name: result(one, **nothing) for one in runs}
    material = reporting.Material(experiment, "laptop", runs, done, {}, str(tmp_path))
    assert "cartpole_balance |" not in time_to_reward.write(material)


def test_ratios_without_evaluation_are_said_where_both_sides_reached_the_reward(tmp_path):
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(
        experiment, COMMON, "laptop", [0], ["cartpole_balance"], [32, 8], peers=["acme", "sb3"]
    )
    spent = {"fp32": (783.6, 154.6), "int8": (464.2, 80.0), "acme": (760.2, 202.3)}
    missed = dict(
        outcome="missed", time_to_target_s=None, evaluation_to_target_s=None, censored_at_s=900.0
    )
    done = {}
    for one in runs:
        took = spent.get(one.name.split("-")[1])
        values = dict(time_to_target_s=took[0], evaluation_to_target_s=took[1]) if took else missed
        done[one.name] = result(one, **values)
    text = time_to_reward.write(
        reporting.Material(experiment, "laptop", runs, done, {}, str(tmp_path))
    )
    (line,) = (line for line in text.splitlines() if "without what evaluation took" in line)
    assert line.endswith(
        ": int8 over fp32 1.64 (with it 1.69), over Acme D4PG 1.45 (with it 1.64)."
    )


def test_ratios_of_rates_are_of_the_seeds_that_both_sides_have(tmp_path):
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(
        experiment, COMMON, "laptop", [0, 1], ["cartpole_balance"], [32, 8], peers=None
    )
    rates = {"fp32": [10.0, 1.0], "int8": [40.0]}  # fp32's seed 1 had a busy machine.
    done = {}
    for one in runs:
        _, side, seed = one.name.split("-")
        if int(seed[1:]) < len(rates[side]):
            rate = rates[side][int(seed[1:])]
            done[one.name] = result(one, actor_steps_per_s=rate, learner_steps_per_s=rate / 10)
    material = reporting.Material(experiment, "laptop", runs, done, {}, str(tmp_path))
    (rows,) = reaching.rows_by_task(material).values()
    assert reaching.learner_gain(rows, reaching.INT8) == pytest.approx(4)
    text = time_to_reward.write(material)
    (row,) = (line for line in text.splitlines() if line.startswith("| cartpole_balance |   int8"))
    assert [cell.strip() for cell in row.split("|")][7:9] == ["40", "4.00"]


def test_notes_name_machines_where_peers_had_others():
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(
        experiment, COMMON, "laptop", [0], ["cartpole_balance"], [32, 8], peers=["acme"]
    )

    def notes(theirs):
        done = {
            one.name: dataclasses.replace(result(one), machine={
                "processor": "a", "usable_cores": theirs if one.kind == "acme" else 2
            })
            for one in runs
        }
        material = reporting.Material(experiment, "laptop", runs, done, {}, "")
        return "\n".join(reporting.notes(material))

    assert "Warning" not in notes(2)
    assert "several machines (fp32 and int8: a, 2 cores; Acme D4PG: a, 8 cores)" in notes(8)


def test_final_reward_below_fp32s_mean_less_its_deviation_is_said():
    fp32 = [990.0, 1000.0, 995.0]  # 995 - 5.
    others = {"fp16": [990.1, 990.1], "int8": [989.0, 990.0], "int4": []}
    (line,) = reporting.below_fp32("a,b", fp32, others)
    assert "a,b: final reward of int8 (989.50; 2 seeds) is below" in line
    assert "(990.00; 3 seeds)" in line
    assert reporting.below_fp32("a,b", fp32[:1], others) == []


@pytest.mark.parametrize(("gain", "height"), [(1.5, 2.0), (2.0, 2.0), (2.1, 2.1), (4.0, 2.0)])
def test_bars_figure_stands_on_its_bar_unless_the_learners_line_crosses_it(
    tmp_path, monkeypatch, gain, height
):
    drawn = []
    monkeypatch.setattr(plotting, "save_figure", lambda figure, path: drawn.append(figure))
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(
        experiment, COMMON, "laptop", [0], ["cartpole_balance"], [32, 8], peers=None
    )
    values = {
        32: {"time_to_target_s": 10.0, "learner_steps_per_s": 1.0},
        8: {"time_to_target_s": 5.0, "learner_steps_per_s": gain},
    }
    done = {one.name: result(one, **values[one.precision]) for one in runs}
    material = reporting.Material(experiment, "laptop", runs, done, {}, str(tmp_path))
    time_to_reward.write(material)
    (text,) = (text for text in drawn[-1].axes[0].texts if text.get_text() == "2.00")
    assert text.xy[1] == height
