"""What runs experiments come to, and that those of the folder are the paper's."""

import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import presets
from actorQ.experiments import kinds
from actorQ.experiments import loading
from actorQ.experiments import specification
from actorQ.experiments.reports import catalogue
from actorQ.experiments.run_logs import paper
from tests.actorQ.experiments import conftest

COMMON = loading.load_common()
PROFILES = list(COMMON.profiles)


def test_settings_the_more_special_one_wins(tmp_path):
    text = conftest.changed("batch_size: 128", "n_step: 2, discount: 0.9, sigma: 0.1")
    text = text.replace("{stop_return: 100}", "{stop_return: 100, discount: 0.8, sigma: 0.3}")
    text += "profiles: {laptop: {settings: {sigma: 0.4, n_actors: 3}}}\n"
    experiment = conftest.load(tmp_path, text)
    (run, *_) = specification.expand(experiment, COMMON, "laptop")
    machine = COMMON.profile("laptop").layer.of("dm_control,cartpole_balance")
    assert run.settings["vmax"] == 100  # The common file, of the task.
    assert run.settings["min_replay_size"] == machine["min_replay_size"] == 20000  # ... machine.
    assert run.settings["n_step"] == 2  # The experiment, for all tasks,
    assert run.settings["discount"] == 0.8  # for one,
    assert run.settings["sigma"] == 0.4  # and on this machine.
    assert run.settings["n_actors"] == 3
    (other, *_) = specification.expand(experiment, COMMON, "paper")
    assert (other.settings["sigma"], other.settings["n_actors"]) == (0.3, 4)


def test_preset_stands_in_the_place_of_common_settings(tmp_path, monkeypatch):
    asked = []

    def resolve(name, taskstr):
        asked.append((name, taskstr))
        return {"vmin": "auto", "vmax": "auto", "sigma": 0.5, "n_step": 3}

    monkeypatch.setattr(presets, "resolve", resolve)
    text = conftest.changed("batch_size: 128", "preset: auto, n_step: 2")
    experiment = conftest.load(tmp_path, text)
    assert experiment.preset == "auto"
    for profile in PROFILES:
        (run, *_) = specification.expand(experiment, COMMON, profile)
        assert (run.settings["sigma"], run.settings["n_step"]) == (0.5, 2)
        assert run.settings["vmax"] == "auto"  # The common file has 100.
        assert run.settings["model_str"] == "256,256,256"  # The flag's default.
        assert run.settings["preset"] == "auto"
    assert set(asked) == {("auto", "dm_control,cartpole_balance")}


def test_tasks_have_the_tuned_settings_and_one_seed_of_the_peer(monkeypatch):
    monkeypatch.setattr(presets, "resolve", lambda name, task: {"sigma": {"auto": 0.3}[name]})
    common = {"n_actors": 1, "inference_mode": "native", "stop_window": 1, "stop_smoothing": 10,
              "eval_period_s": 4.0, "eval_period_steps": 0, "pin_cpus": 1, "max_seconds": 900.0}
    runs = specification.expand(loading.load("tasks", COMMON), COMMON, "laptop")
    ours = [run for run in runs if run.kind == "training"]
    assert len(ours) == 45
    for run in ours:
        longer = {"max_seconds": 2400.0} if run.task == "mujoco,Hopper-v5" else {}
        assert run.settings.items() >= {**common, **longer, "sigma": 0.3}.items()
    assert [(run.kind, run.seed) for run in runs if run.kind != "training"] == [("zoo", 0)] * 15
    (pong,) = specification.expand(loading.load("tasks_pong", COMMON), COMMON, "laptop")
    assert (pong.task, pong.settings["max_seconds"]) == ("atari,Pong", 7200.0)
    # A thousand steps, as for the other tasks, end before a game can be won by so much.
    assert (pong.settings["stop_return"], pong.settings["max_episode_steps"]) == (18.9, 0)


def test_expand_every_setting_is_there_and_makes_a_configuration(tmp_path):
    (run, *_) = specification.expand(conftest.load(tmp_path, conftest.SMALL), COMMON, "laptop")
    assert run.settings["quantize"] == 32 and run.settings["seed"] == 0
    assert "logpath" not in run.settings and run.settings["pin_cpus"] == 1
    values = {name: value for name, value in run.settings.items() if name != "pin_cpus"}
    assert config_lib.RunConfig(**values).taskstr == "dm_control,cartpole_balance"


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", loading.names())
def test_experiments_of_this_folder_are_whole(name, profile):
    experiment = loading.load(name, COMMON)
    catalogue.check(experiment)
    runs = specification.expand(experiment, COMMON, profile)
    values = experiment.values.get(profile, (experiment.vary or ("", [None]))[1])
    sides = len(experiment.tasks) * len(experiment.precisions) * len(values)
    of_peers = [len(peer.tasks) * len(peer.seeds or experiment.seeds) for peer in experiment.peers]
    assert len(runs) == sides * len(experiment.seeds) + sum(of_peers)
    assert len({run.name for run in runs}) == len(runs)
    assert all(kinds.get(run.kind).limit_s(run.settings) for run in runs)
    smoke = specification.expand(experiment, COMMON, profile, smoke=True)
    assert len(smoke) == sum(run.seed == experiment.seeds[0] for run in runs)
    assert all(run.settings["num_episodes"] == 100 for run in smoke)
    for run, real in zip(smoke, runs, strict=False):
        for setting in ("model_str", "batch_size", "n_actors", "inference_mode"):
            assert run.settings.get(setting) == real.settings.get(setting)


def test_profile_paper_is_the_papers():
    experiment = loading.load("time_to_reward", COMMON)
    for run in specification.expand(experiment, COMMON, "paper"):
        assert run.settings["model_str"] == "2048,2048,2048"
        assert run.settings["batch_size"] == 256
        assert run.settings["replay_table_max_times_sampled"] == 16
        assert run.settings["samples_per_insert"] == 0
        assert run.settings["n_actors"] == 4
        assert run.settings["learner_device_placement"] == "GPU"
        # A censored fp32 run has had three times the paper's time.
        assert run.settings["max_seconds"] >= 3 * paper.SPEEDUPS[run.task].fp32_s


def test_profile_paper_pushes_weights_as_often_as_its_actors_look():
    experiment = loading.load("time_to_reward", COMMON)
    for run in specification.expand(experiment, COMMON, "paper", peers=None):
        assert 0 < run.settings["push_share"] <= 0.1
        # Of the slowest learner that its text is about: within an actor's period.
        assert 310 * run.settings["push_period_s"] <= run.settings["actor_update_period"] == 30


@pytest.mark.parametrize("profile", PROFILES)
def test_final_reward_lets_faster_actors_bring_more_data(profile):
    experiment = loading.load("final_reward", COMMON)
    for run in specification.expand(experiment, COMMON, profile):
        assert run.settings["samples_per_insert"] == 0
        assert run.settings["replay_table_max_times_sampled"] == 16


def test_time_to_reward_has_the_papers_tasks_and_rewards():
    experiment = loading.load("time_to_reward", COMMON)
    targets = {task: settings["stop_return"] for task, settings in experiment.layer.tasks.items()}
    assert targets == {task: row.reward for task, row in paper.SPEEDUPS.items()}


def test_profile_laptop_data_for_int8_actors_does_not_saturate_the_learner():
    # The figures of its text: samples/s that the learner takes, evaluation included, and that
    # actors make available.
    experiment = loading.load("time_to_reward", COMMON)
    for run in specification.expand(experiment, COMMON, "laptop"):
        if run.task == "dm_control,cartpole_balance":
            batch, period = run.settings["batch_size"], run.settings["eval_period_steps"]
            learner = period * batch / (period / {128: 16.3, 256: 10}[batch] + 1.5)
            assert 3970 * run.settings["samples_per_insert"] < learner
        if run.kind == "training":
            assert run.settings["n_actors"] == 1 and run.settings["pin_cpus"] == 1


def test_profile_has_values_of_its_own_of_what_varies(tmp_path):
    text = conftest.changed("time_to_reward", "staleness").replace("{stop_return: 100}", "{}")
    text += "vary: {actor_update_period: [1, 10]}\n"
    text += "profiles: {paper: {vary: {actor_update_period: [5, 50, 500]}}}\n"
    experiment = conftest.load(tmp_path, text)
    values = {
        profile: {run.varied for run in specification.expand(experiment, COMMON, profile)}
        for profile in ("paper", "laptop")
    }
    assert values == {"paper": {5, 50, 500}, "laptop": {1, 10}}
    text = text.replace("paper: {vary: {actor_update_period", "paper: {vary: {n_step")
    with pytest.raises(errors.UserError, match="not vary n_step"):
        conftest.load(tmp_path, text)


@pytest.mark.parametrize("name", ["my_tasks:MyEnv-v0", "my_tasks-MyEnv-v0"])
def test_find_task_takes_a_task_without_its_suite(name):
    tasks = ["gym,CartPole-v0", "gym,my_tasks:MyEnv-v0"]
    assert specification.find_task(name, tasks, "--tasks") == tasks[1]


def test_expand_chosen_tasks_and_precisions():
    experiment = loading.load("time_to_reward", COMMON)
    runs = specification.expand(
        experiment, COMMON, "laptop", [7], ["CartPole-v0", "dm_control,reacher_hard"], [8],
        peers=None,
    )
    assert [run.name for run in runs] == ["CartPole-v0-int8-s7", "reacher_hard-int8-s7"]
    with pytest.raises(errors.UserError, match="no task 'pong': choose from cartpole_balance, "):
        specification.expand(experiment, COMMON, "laptop", tasks=["pong"])
    with pytest.raises(errors.UserError, match="--precisions: 12 is not possible"):
        specification.expand(experiment, COMMON, "laptop", precisions=[12])
    with pytest.raises(errors.UserError, match="--profile=phone.*paper, workstation, laptop"):
        specification.expand(experiment, COMMON, "phone")
