"""Published experiments: energy, shared seeds, smoke runs."""

import dataclasses

import pytest

from actorQ.core import errors
from actorQ.experiments import kinds
from actorQ.experiments import results
from actorQ.experiments.run_logs import times
from baseline.report import case_claims
from baseline.report import claims
from baseline.report import experiments
from baseline.report import page as report_page


def energy_result(name, task="dm_control,cartpole_balance", bits=32, **values):
    rewards = results.Rewards([90.0], [1.0], [1.0], [5.0], [0.5])
    missed = values.get("time_to_target_s") is None
    measured = results.Measured(**{
        **dict(
            outcome="missed" if missed else "reached", target=941.22, time_to_target_s=None,
            evaluation_to_target_s=None, censored_at_s=90.0 if missed else None,
            final_returns=[1.0], rewards=rewards, evaluation_s=1.0, learner_steps=1.0,
            actor_steps=1.0, learner_steps_per_s=None, actor_steps_per_s=None, data_used=None,
            staleness_steps=None, message_bytes=None, fp32_bytes=None, energy=None,
        ),
        **values,
    })
    return results.Result(
        "time_to_reward", "laptop", False, name, kinds.TRAINING, task, bits,
        int(name[-1]), None, {}, f"python -m actorQ.launcher --seed={name[-1]}", "c" * 40,
        {"processor": "Fast CPU", "cores": 2}, "2026-11-21 10:00:00 +0000", 1, 1.0, None, measured,
    )


def energy(kwh, grams):
    return results.Energy(9.0, 9.0, kwh / 1e3, grams / 1e3)


def publish(folder, *found, experiment="time_to_reward"):
    for result in found:
        run = folder / experiment / "runs" / result.name
        run.mkdir(parents=True)
        results.write(result, str(run))


def test_energy_is_the_median_with_censored_seeds_as_bounds(tmp_path):
    publish(
        tmp_path,
        energy_result(
            "fp32-s0", time_to_target_s=80.0,
            energy=dataclasses.replace(energy(40, 10), cpu_measured=True, country="DEU"),
        ),
        energy_result("fp32-s1", energy=energy(60, 20)),
        energy_result("fp32-s2", energy=energy(50, 12)),
        *(
            energy_result(f"int8-s{seed}", bits=8, energy=energy(wh, 5), time_to_target_s=20.0)
            for seed, wh in enumerate((10, 20, 30))
        ),
        energy_result("other-s0", task="gym,Acrobot-v1", time_to_target_s=1.0),  # fp32 alone.
    )
    (row,) = experiments.compared(str(tmp_path))
    assert (row.seeds, row.reached) == (3, "fp32 1 of 3, int8 3 of 3")
    # The median is the second of three seeds. That seed missed the reward: it is a bound.
    assert row.watt_hours == (times.Reach(50, 0, False), times.Reach(20, 0, True))
    assert experiments.energy_table([row]).rows == [[
        "time_to_reward", "cartpole_balance", "941.22", "fp32 1 of 3, int8 3 of 3",
        "> 50", "20", "> 2.50", "> 12", "5", "> 2.40", "measured and modelled",
        "1000 g/kWh, 1000 g/kWh (DEU)",
    ]]
    (claim,) = case_claims.energy([row])
    assert (claim.published, claim.ours) == ("1.9x to 3.76x", "> 2.40x (measured and modelled)")
    assert (claim.verdict, claim.reason) == (claims.REACHED, "")
    assert experiments.energy_table([row._replace(grams=None)]).rows == []
    page = report_page.build(str(tmp_path / "none"), str(tmp_path), "command")
    # The experiment's own files note the machine.
    assert "Where the table says modelled" in page and "Fast CPU, 2 cores" in page


def test_only_seeds_that_both_sides_have_are_compared(tmp_path):
    """A third seed of fp32, and of int8, are left out, as in the experiment's own tables."""
    publish(
        tmp_path,
        *(
            energy_result(f"fp32-s{seed}", energy=energy(wh, wh), time_to_target_s=seconds)
            for seed, wh, seconds in ((0, 30, 60.0), (1, 40, 80.0), (2, 90, 90.0))
        ),
        energy_result("int8-s0", bits=8, energy=energy(10, 10), time_to_target_s=20.0),
        energy_result("int8-s1", bits=8, time_to_target_s=40.0),  # Without energy.
        energy_result("int8-s3", bits=8, energy=energy(1, 1), time_to_target_s=1.0),
        # No seed is shared.
        energy_result("fp32-s4", task="gym,Acrobot-v1", time_to_target_s=1.0),
        energy_result("int8-s5", task="gym,Acrobot-v1", bits=8, time_to_target_s=1.0),
    )
    (row,) = experiments.compared(str(tmp_path))
    assert row.task == "dm_control,cartpole_balance"
    assert [reach.seconds for reach in row.seconds] == [70, 30]
    assert (row.seeds, row.reached) == (2, "fp32 2 of 2, int8 2 of 2")
    assert [reach.seconds for reach in row.watt_hours] == pytest.approx([30, 10])
    assert [reach.seconds for reach in row.grams] == pytest.approx([30, 10])


def test_smoke_runs_and_damaged_results_do_not_count(tmp_path):
    smoke = energy_result("int8-s0", bits=8, time_to_target_s=1.0)
    publish(tmp_path, smoke, energy_result("fp32-s0", time_to_target_s=2.0))
    path = tmp_path / "time_to_reward" / "runs" / "int8-s0" / "result.json"
    path.write_text(path.read_text().replace('"smoke": false', '"smoke": true'))
    assert experiments.compared(str(tmp_path)) == []
    path.write_text("{")
    with pytest.raises(errors.UserError, match="result.json is damaged"):
        experiments.compared(str(tmp_path))


def test_of_several_settings_of_the_main_experiment_most_seeds_are_judged(tmp_path):
    publish(tmp_path, *(
        dataclasses.replace(
            energy_result(f"{name}-{value}-s{seed}", bits=bits, time_to_target_s=seconds),
            varied=value,
        )
        for name, bits, seconds in (("fp32", 32, 60.0), ("int8", 8, 30.0))
        for value, seeds in ((1, 1), (2, 2)) for seed in range(seeds)
    ))
    rows = experiments.compared(str(tmp_path))
    assert [(row.name, row.seeds) for row in rows] == [
        ("time_to_reward, 1", 1), ("time_to_reward, 2", 2),
    ]
    assert experiments.main(rows) == rows[1:] and experiments.variations(rows) == rows[:1]
