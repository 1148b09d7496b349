"""Reports on an actor's time and on rates, from results made by hand."""

import csv
import dataclasses

import pytest

from actorQ.core import plotting
from actorQ.experiments import loading
from actorQ.experiments import results
from actorQ.experiments import specification
from actorQ.experiments.reports import catalogue
from actorQ.experiments.reports import reporting
from tests.actorQ.experiments.reports import test_reports

COMMON = loading.load_common()
PHASES = dict(
    environment=50.0, inference=100.0, insert=20.0, pull=20.0, deserialize=8.0, load_state_dict=2.0
)


def make(name, folder, measure, **changes):
    """The report of an experiment whose runs have measured what `measure` returns for each."""
    experiment = loading.load(name, COMMON)
    runs = specification.expand(experiment, COMMON, "laptop")
    done = {}
    for planned in runs:
        values = measure(planned)
        if values is not None:
            result = test_reports.result(planned, **values)
            machine = {"usable_cores": 2, "processor": "a"}
            done[planned.name] = dataclasses.replace(result, machine=machine, **changes)
    material = reporting.Material(experiment, "laptop", runs, done, {}, str(folder))
    return catalogue.write(material, smoke=False)


def rows(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cells(text, start):
    """The cells of the first row of a table that begins with these."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return next(line for line in lines if line[: len(start)] == start)


def actor_time(planned):
    """fp32 takes four times int8, period 300 half; the middle seed is the median."""
    scale = planned.precision / 8 * (0.5 if planned.varied == 300 else 1) * (1, 1.5, 0.5)[
        planned.seed
    ]
    phases = {phase: us * scale for phase, us in PHASES.items()}
    return dict(phases_us=phases, step_us=180.0 * scale, steps_per_load=planned.varied * 10.0)


def test_breakdown_medians_shares_and_speedups(tmp_path):
    text = make("breakdown", tmp_path, actor_time)
    assert text.count("dm_control,cartpole_balance, actor_update_period 30") == 2
    # Widest first: fp32 at 4 * 100 us, half of all; the same share everywhere.
    assert cells(text, ["step (inference)"])[1:5] == ["400.0", "50.0 %", "200.0", "50.0 %"]
    assert cells(text, ["load_state_dict"])[1:3] == ["8.0", "1.0 %"]
    assert cells(text, ["the paper's four"])[1:3] == ["520.0", "65.0 %"]
    assert cells(text, ["all phases"])[1:3] == ["800.0", "100.0 %"]
    step = cells(text, ["300", "int8"])
    assert step[2:8] == ["3", "90.0", "90, 135, 45", "4.00", "65.0", "4.00"]
    assert step[10] == "3000"
    late = "fp32 300, fp16 300, int8 300, int4 300"
    assert "at actor_update_period 30 loads less often than that, since newer weights" in text
    assert f"(steps between two loads: {late})" in text
    found = rows(tmp_path / "breakdown.csv")
    assert len(found) == 2 * 4 * 6
    (row,) = (r for r in found if (r["value"], r["precision"], r["phase"]) == (
        "300", "int4", "pull"))
    assert float(row["us_per_step"]) == 5 and float(row["step_speedup"]) == 8
    assert row["us_per_step_by_seed"] == "5.00;7.50;2.50"
    assert (tmp_path / "breakdown_cartpole_balance.png").stat().st_size > 10_000
    assert "inference_us" in (tmp_path / catalogue.RUNS_CSV).read_text()


def test_ratios_are_of_the_seeds_that_both_sides_have(tmp_path):
    def without(seeds, measure):
        return lambda one: (
            None if (one.precision, one.seed) in seeds else measure(one)
        )

    text = make("breakdown", tmp_path, without([(8, 0), (8, 2)], actor_time))
    step = cells(text, ["30", "int8"])
    # fp32's median is of three seeds, and its part in the ratio of int8's: 4 * 1.5 to 1.5.
    assert cells(text, ["30", "fp32"])[3] == "720.0" and step[3] == "270.0"
    assert step[5] == step[7] == step[9] == "4.00"

    def busy(one):
        values = rates(one)
        slow = one.precision == 32 and one.seed == 2
        return {**values, "actor_steps_per_s": 1.0} if slow else values

    text = make("throughput", tmp_path, without([(8, 2)], busy))
    assert cells(text, ["1", "int8"])[4] == "4.02"  # 3,995 to 995.


def test_breakdown_without_fp32_and_with_runs_that_know_no_phases(tmp_path):
    def measure(planned):
        if planned.precision == 32 or planned.seed == 2:
            return None
        return {} if planned.seed == 1 else actor_time(planned)

    text = make("breakdown_torch", tmp_path, measure)
    assert cells(text, ["30", "int8"])[2:6] == ["1", "180.0", "180", "n/a"]
    assert "**No phases**: cartpole_balance-int8-actor_update_period30-s1" in text
    (line,) = (line for line in text.splitlines() if "**No result**" in line)
    assert "cartpole_balance-fp32-actor_update_period30-s0, " in line
    assert line.endswith(" and 6 more: not made yet")


def test_breakdown_with_loads_as_often_as_asked_for_warns_of_nothing(tmp_path):
    def measure(planned):
        return {**actor_time(planned), "steps_per_load": planned.varied * 1.4}

    assert "loads less often" not in make("breakdown", tmp_path, measure)


def test_breakdown_of_no_phases_at_all_says_so(tmp_path):
    text = make("breakdown", tmp_path, lambda planned: {})
    assert text.count("**No phases**") == 24 and "| Phase" not in text


def rates(planned):
    bits, count = planned.precision, planned.varied
    each = {32: 1000.0, 16: 2000.0, 8: 4000.0, 4: 5000.0}[bits]
    return dict(
        actor_steps_per_s=each * (1 + 0.1 * (count - 1)) + 10 * (planned.seed - 1),
        learner_steps_per_s=bits / 2.0, data_used=0.5, step_us=1e6 / each,
        phases_us=PHASES, message_bytes=1e6 * bits / 4,
    )


def test_throughput_means_gains_and_cores(tmp_path):
    text = make("throughput", tmp_path, rates)
    row = cells(text, ["4", "int8"])
    # The model: one core for all actors.
    assert row[2:9] == ["3", "5200 ± 10", "4.00", "1.30", "4000", "4.00 ± 0.00", "50 %"]
    assert "The machine has 2 cores" in text and "beyond 1 actor, actors share cores" in text
    found = rows(tmp_path / "throughput.csv")
    assert len(found) == 12 and {row["cores"] for row in found} == {"2"}
    assert float(found[0]["actor_steps_per_s"]) == 1000
    assert found[0]["actor_steps_per_s_by_seed"] == "990.0;1000.0;1010.0"
    assert (tmp_path / "throughput.png").stat().st_size > 10_000


def test_throughput_figure_of_two_tasks_tells_them_apart_and_shows_its_legend(
    tmp_path, monkeypatch
):
    drawn = []
    save = plotting.save_figure
    monkeypatch.setattr(
        plotting, "save_figure", lambda figure, path: (drawn.append(figure), save(figure, path))[1]
    )
    make("throughput_4096", tmp_path, rates)
    (figure,) = drawn
    shapes = {
        line.get_label().split(", ", 1)[1]: line.get_marker()
        for line in figure.axes[0].lines if not line.get_label().startswith("_")
    }
    assert set(shapes) == {"dm_control,cartpole_balance", "gym,Acrobot-v1"}
    assert len(set(shapes.values())) == 2
    box = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1


def test_throughput_of_runs_too_short_for_rates(tmp_path):
    text = make("throughput", tmp_path, lambda planned: {})
    assert cells(text, ["1", "fp32"])[3:7] == [
        reporting.NOTHING, "n/a", "n/a", reporting.NOTHING
    ]


@pytest.mark.parametrize("name", ["breakdown", "breakdown_torch"])
def test_experiments_on_breakdown_offer_weights_and_wait_for_nothing(name):
    experiment = loading.load(name, COMMON)
    for planned in specification.expand(experiment, COMMON, "laptop"):
        settings = planned.settings
        assert settings["inference_mode"] == ("pytorch" if "torch" in name else "native")
        assert (settings["model_str"], settings["batch_size"]) == ("2048,2048,2048", 64)
        assert settings["push_period_s"] == 0 and settings["samples_per_insert"] == 0
        assert settings["eval_period_s"] == settings["eval_period_steps"] == 0


def test_breakdown_torch_differs_from_breakdown_in_inference_only():
    runs = [
        specification.expand(
            loading.load(name, COMMON), COMMON, "laptop", precisions=[32, 16, 8]
        )
        for name in ("breakdown", "breakdown_torch")
    ]
    for native, torch in zip(*runs, strict=True):
        different = {k for k in native.settings if native.settings[k] != torch.settings[k]}
        assert different == {"inference_mode"}


def test_phases_are_those_of_the_logs():
    assert set(results.PHASES) == set(PHASES)


def test_final_reward_says_which_precision_is_below_fp32(tmp_path):
    def measure(planned):
        reward = {32: 990.0 + 5 * planned.seed, 16: 992.0, 8: 989.0, 4: 995.0}[planned.precision]
        return {"final_returns": [reward], "learner_steps": 8000.0, "actor_steps_per_s": 7.0}

    text = make("final_reward", tmp_path, measure)
    (line,) = [line for line in text.splitlines() if "is below" in line]
    assert "final reward of int8 (989.00; 3 seeds)" in line and "(990.00; 3 seeds)" in line
    table = rows(tmp_path / "final_reward.csv")
    assert [row["precision"] for row in table] == ["fp32", "fp16", "int8", "int4"]
    assert {float(row["actor_steps_per_s"]) for row in table} == {7.0}
