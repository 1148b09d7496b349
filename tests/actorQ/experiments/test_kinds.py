"""Runs of somebody else's agents: settings, ratios, commands; in experiments and reports."""

import dataclasses
import re

import pytest

from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.experiments import kinds
from actorQ.experiments import loading
from actorQ.experiments import specification
from actorQ.experiments import training
from actorQ.experiments.reports import reporting
from tests.actorQ.experiments import conftest

COMMON = loading.load_common()
D4PG = {"algorithm": "d4pg", "samples_per_insert": 0.25, "batch_size": 64}
TASK = "dm_control,cartpole_balance"
PEERS = "peers: {acme: {}, sb3: {tasks: [cartpole_balance], settings: {n_step: 1}}}\n"


def settle(kind, given=D4PG, precision=32, smoke=False):
    return kinds.get(kind).settle(given, TASK, precision, 3, smoke)


@pytest.mark.parametrize(
    ("samples", "times", "batch", "expected"),
    [
        (0.25, 0, 64, (256, 1)),
        (16.0, 0, 256, (16, 1)),
        (128.0, 0, 16, (1, 8)),
        (0.3, 0, 128, (427, 1)),  # 1280 / 3: nobody acts for long to learn thrice at once.
        (0.333, 0, 256, (769, 1)),
        (0.45, 0, 256, (569, 1)),
        (100.0, 0, 256, (41, 16)),  # 2.5625 for 2.56.
        (1e9, 0, 256, (1, 10_000)),
        (0.0, 16, 256, (16, 1)),  # The other limit counts where there is none.
        (1.0, 16, 256, (256, 1)),
        (32.0, 16, 256, (16, 1)),  # As our learner: an item leaves after 16.
    ],
)
def test_steps_per_update_is_batch_to_samples(samples, times, batch, expected):
    config = config_lib.RunConfig(
        samples_per_insert=samples, replay_table_max_times_sampled=times, batch_size=batch
    )
    assert kinds.steps_per_update(config) == expected


def test_steps_per_update_without_a_limit_is_refused():
    settings = {**D4PG, "samples_per_insert": 0, "replay_table_max_times_sampled": 0}
    with pytest.raises(errors.UserError, match="needs a ratio: set --samples_per_insert"):
        settle("sb3", settings)


@pytest.mark.parametrize(("copies", "period"), [(100, 2), (25, 2), (9, 1), (1, 2)])
def test_target_average_is_as_old_as_copies_are(copies, period):
    rate = kinds.target_average(config_lib.RunConfig(target_update_period=copies), period)
    assert 0 < rate <= 1
    # Its age by adding up what is left of old weights, on average over the steps in between.
    age = sum(rate * (1 - rate) ** k * period * k for k in range(10_000)) + (period - 1) / 2
    assert age == pytest.approx(max(copies - 1, period - 1) / 2)


def test_target_interval_is_in_environment_steps():
    config = config_lib.RunConfig(
        samples_per_insert=0.25, batch_size=64, target_update_period=50
    )
    assert kinds.target_interval(config) == 50 * 256


def test_settle_keeps_what_a_peer_reads_and_drops_what_distributes():
    settings = settle("sb3", {**D4PG, "push_period_s": 7, "pin_cpus": 1, "n_step": 2})
    assert settings["n_step"] == 2 and settings["quantize"] == 32 and settings["seed"] == 3
    for name in ("push_period_s", "pin_cpus", "inference_mode", "actor_update_period"):
        assert name not in settings and name not in kinds.get("sb3").defaults()
    assert settings.keys() == kinds.get("sb3").defaults().keys()
    # All that is not read is a setting, so that none is misspelt.
    assert kinds._NOT_READ <= training.Training().defaults().keys()


def test_tuned_peer_depends_on_no_setting_of_our_learning():
    given = {**D4PG, "stop_return": 9.0, "stop_smoothing": 10, "max_seconds": 7, "n_step": 2}
    settings = settle("zoo", given)
    assert settings == settle("zoo", {**given, "batch_size": 7, "n_step": 3, "vmin": "auto",
                                      "samples_per_insert": 0, "inference_mode": "native",
                                      "replay_table_max_times_sampled": 0})
    assert settings.keys() == kinds.get("zoo").defaults().keys()
    read = {"taskstr": TASK, "seed": 3, "quantize": 32, "stop_return": 9.0, "max_seconds": 7.0}
    assert settings.items() >= read.items()
    assert "batch_size" not in settings and "--stop_smoothing=10" in kinds.get("zoo").command(
        settings, "folder"
    )
    with pytest.raises(errors.UserError, match="SB3 zoo's agents do not read n_step, pin_cpus"):
        kinds.PEERS["zoo"].check_read({"seed": 1, "n_step": 2, "pin_cpus": 1}, "here")


@pytest.mark.parametrize(
    ("kind", "given", "precision", "message"),
    [
        ("acme", D4PG, 8, "Acme computes in 32 bits only"),
        ("acme", {**D4PG, "algorithm": "dqn"}, 32, "Acme has no agent here for dqn"),
        ("sb3", {**D4PG, "n_stepp": 1}, 32, "no setting 'n_stepp'"),
        ("sb3", {**D4PG, "n_step": 0}, 32, "--n_step=0"),
    ],
)
def test_settle_impossible_settings_are_one_clear_line(kind, given, precision, message):
    with pytest.raises(errors.UserError, match=message):
        settle(kind, given, precision)


def test_command_has_program_folder_and_flags(tmp_path):
    command = kinds.get("acme").command(settle("acme"), str(tmp_path))
    assert command[1:4] == [
        "-m", "actorQ.experiments.peers.acme_agent", f"--logpath={tmp_path}/run"
    ]
    assert "--quantize=32" in command and "--samples_per_insert=0.25" in command
    config = config_lib.RunConfig(**settle("acme"))
    assert command[4:] == config_flags.to_flags(config)


def test_side_names():
    sb3, acme = (reporting.Side(kind, 32) for kind in ("sb3", "acme"))
    assert (sb3.short_name, acme.short_name) == ("SB3", "Acme D4PG")
    assert sb3.name("d4pg") == "SB3 TD3, fp32" and sb3.name("dqn") == "SB3 DQN, fp32"
    assert sb3.name("auto") == "SB3, fp32" and acme.name("auto") == "Acme D4PG, fp32"
    ours = reporting.Side(kinds.TRAINING, 8)
    assert ours.name("d4pg") == ours.short_name == "int8" and not ours.is_peer
    assert len({sb3.colour, acme.colour, ours.colour}) == 3


def load(tmp_path, text=conftest.SMALL + PEERS):
    path = tmp_path / "small.yaml"
    path.write_text(text)
    return loading.load(str(path), COMMON)


def test_expand_peers_take_turns_with_the_precisions(tmp_path):
    runs = specification.expand(load(tmp_path), COMMON, "laptop")
    names = [run.name.removeprefix("cartpole_balance-") for run in runs]
    assert names == [
        "fp32-s0", "int8-s0", "acme-s0", "sb3-s0", "int8-s1", "acme-s1", "sb3-s1", "fp32-s1",
    ]
    by_name = dict(zip(names, runs, strict=True))
    assert (by_name["sb3-s0"].kind, by_name["sb3-s0"].precision) == ("sb3", 32)
    # Its own settings, those of the experiment, those of the machine.
    settings = by_name["sb3-s0"].settings
    assert (settings["n_step"], settings["stop_return"], settings["min_replay_size"]) == (
        1, 100, 20000
    )
    assert by_name["acme-s0"].settings["n_step"] == 5
    # Runs of ours are those of the experiment without kinds.
    alone = specification.expand(load(tmp_path, conftest.SMALL), COMMON, "laptop")
    assert {run.name: run for run in alone}.items() <= {run.name: run for run in runs}.items()


@pytest.mark.parametrize(
    ("precisions", "chosen", "expected"),
    [
        ((), None, ["fp32", "int8"]),
        (None, (), ["acme", "sb3"]),
        (None, ("sb3",), ["sb3"]),
        ([8], ["sb3", "sb3"], ["int8", "sb3"]),
    ],
)
def test_expand_chosen_peers(tmp_path, precisions, chosen, expected):
    runs = specification.expand(
        load(tmp_path), COMMON, "laptop", [0], (), precisions, False, chosen
    )
    assert [run.name.split("-")[1] for run in runs] == expected


def test_expand_peer_with_seeds_of_its_own(tmp_path):
    experiment = load(tmp_path, f"{conftest.SMALL}peers: {{sb3: {{seeds: [1]}}}}\n")

    def peers(*seeds):
        runs = specification.expand(experiment, COMMON, "laptop", seeds)
        return [run.name for run in runs if run.kind == "sb3"]

    assert peers() == peers(0, 1) == ["cartpole_balance-sb3-s1"]
    assert peers(0) == peers(7) == []
    with pytest.raises(errors.UserError, match="No run of small is left: .* seeds of peers"):
        specification.expand(experiment, COMMON, "laptop", [0], precisions=None)


def test_expand_peers_that_are_not_there(tmp_path):
    with pytest.raises(errors.UserError, match="small has no peer 'rllib': it has acme, sb3"):
        specification.expand(load(tmp_path), COMMON, "laptop", peers=["rllib"])
    with pytest.raises(errors.UserError, match="No run of small is left"):
        specification.expand(load(tmp_path), COMMON, "laptop", precisions=None, peers=None)
    staleness = loading.load("staleness", COMMON)
    with pytest.raises(errors.UserError, match="staleness has no peer 'sb3': it has none"):
        specification.expand(staleness, COMMON, "laptop", peers=["sb3"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("peers: {rllib: {}}", "peers has an unknown key 'rllib'"),
        ("peers: {sb3: {task: []}}", "peers: sb3 has an unknown key 'task'"),
        ("peers: {sb3: {tasks: [pong]}}", "peers: sb3 has no task 'pong'"),
        ("peers: {sb3: {tasks: cartpole_balance}}", "must be a list of texts"),
        ("peers: {sb3: {settings: {n_step: 0}}}", "--n_step=0"),
        ("peers: {sb3: {seeds: [7]}}", "peers: sb3: seeds: the experiment has no seed 7"),
        ("peers: {sb3: {seeds: 1}}", "seeds must be a list of whole numbers"),
        ("peers: {sb3: {settings: {learner_precision: bfloat16}}}",
         "sb3: settings: SB3's agents do not read learner_precision"),
        ("peers: {sb3: {settings: {vmin: -10, vmax: 10}}}", "SB3's agents do not read vmin, vmax"),
        ("peers: {acme: {settings: {vmax: auto}}}", "Acme's agents cannot find --vmax"),
        ("peers: {acme: {settings: {epsilon_max: 0.2}}}", "Acme's agents do not read epsilon_max"),
        ("peers: {sb3: {}}\nvary: {n_step: [1, 2]}", "none where a setting varies"),
    ],
)
def test_load_wrong_peers_are_one_clear_line(tmp_path, text, message):
    with pytest.raises(errors.UserError, match=message) as caught:
        load(tmp_path, f"{conftest.SMALL}{text}\n")
    assert "small" in str(caught.value)


def test_time_to_reward_compares_every_task_with_what_there_is():
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(experiment, COMMON, "laptop", [0], precisions=None)
    tasks = {kind: [r.task for r in runs if r.kind == kind] for kind in ("acme", "sb3")}
    assert tasks["sb3"] == experiment.tasks
    assert tasks["acme"] == [task for task in experiment.tasks if task.startswith("dm_control")]


def test_runner_makes_peers_and_reports_them_beside_ours(small):
    small.write(conftest.SMALL + PEERS)
    output = small.run("--seeds=0")
    assert small.made() == [
        f"cartpole_balance-{side}-s0" for side in ("fp32", "int8", "acme", "sb3")
    ]
    # The fake runs take 600 s to the reward in fp32, and 300 s in int8.
    header, _, line = output[output.index("| Task"):].splitlines()[:3]
    pairs = zip(*([c.strip() for c in row.split("|")] for row in (header, line)), strict=True)
    cells = dict(reversed(list(pairs)))  # The paper's columns, of the same names, come last.
    assert cells["int8 speed-up"].startswith(("1.9", "2.0"))
    assert cells["int8 over Acme D4PG"].startswith(("1.9", "2.0"))
    assert cells["SB3 s"].startswith("6") and cells["Acme D4PG s"].startswith("6")
    assert re.search(r"\| cartpole_balance \| +SB3 TD3, fp32 \| +6\d\d", output)
    assert re.search(r"\| +Acme D4PG, fp32 \| [ \d.]+\| [ \d.]+\|", output)  # Energy.
    assert "SB3 TD3, fp32, has settings of its own: n_step 1, ours 5." in output
    assert "Acme D4PG, fp32, has" not in output and "**Warning**" not in output
    report = small.report("time_to_reward.csv").splitlines()
    assert [row.split(",")[2:4] for row in report[1:]] == [  # The task has a comma of its own.
        ["ActorQ", "fp32"], ["ActorQ", "int8"], ["Acme D4PG", "fp32"], ["SB3 TD3", "fp32"],
    ]
    for name in ("speedup.png", "convergence_cartpole_balance.png"):
        assert (small.out / "report" / name).stat().st_size > 1000
    # Without peers, their results are left out.
    assert "SB3" not in small.run("--seeds=0", "--report", "--peers=none")
    alone = small.run("--seeds=0", "--report", "--precisions=none", "--peers=sb3")
    assert "SB3 TD3, fp32" in alone and "int8 over" not in alone


def test_runner_other_precisions_do_not_void_results_of_peers(tmp_path):
    (run,) = specification.expand(
        load(tmp_path), COMMON, "laptop", [0], (), None, False, ["sb3"]
    )
    assert run.differences({**run.settings, "inference_mode": "tensorflow"}) == []
    other = dataclasses.replace(run, settings={**run.settings, "n_step": 2})
    assert other.differences(run.settings) == ["n_step 1 -> 2"]
