"""Reading experiments strictly, and what runs they come to."""

import pytest

from actorQ import config as config_lib
from actorQ import errors
from actorQ.experiments import kinds
from actorQ.experiments import reports
from actorQ.experiments import specification
from actorQ.experiments import yaml_files
from actorQ.scripts import paper
from tests.actorQ.experiments import conftest

COMMON = specification.load_common()
PROFILES = list(COMMON.profiles)


def load(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return specification.load(str(path), COMMON)


def changed(old, new):
    assert old in conftest.SMALL
    return conftest.SMALL.replace(old, new)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["lacks title"]),
        ("[1, 2]", ["must be a mapping", "[1, 2]"]),
        ("title: [", ["line 1"]),
        ("title: a\ntitle: b", ["line 2", "'title' is there twice"]),
        ("title: {[1]: 2}", ["a key must be a text"]),
        (changed("title: Small", "titel: Small"), ["unknown key 'titel'", "title, kind, report"]),
        (changed("title: Small", "title: ''"), ["title must be a text"]),
        (changed("[32, 8]", "[32, 12]"), ["precisions: 12 is not possible", "32, 16, 8, 4"]),
        (changed("[32, 8]", "[32, 32]"), ["precisions names a value twice"]),
        (changed("[32, 8]", "[]"), ["precisions must be a list"]),
        (changed("[32, 8]", "[32, 4]"), ["--quantize=4 needs --inference_mode=native"]),
        (changed("[0, 1]", "3"), ["seeds must be a list of whole numbers"]),
        (changed("[0, 1]", "[0, -1]"), ["--seed=-1"]),
        (changed("[0, 1]", "[true]"), ["seeds must be a list of whole numbers"]),
        (changed("stop_window: 2", "stop_windov: 2"), ["no setting 'stop_windov'"]),
        (changed("batch_size: 128", "batch_size: 0"), ["--batch_size=0", "at least 1"]),
        (changed("batch_size: 128", "batch_size: many"), ["batch_size: 'many'", "whole number"]),
        (changed("batch_size: 128", "batch_size: 1.5"), ["batch_size: 1.5", "whole number"]),
        (changed("batch_size: 128", "batch_size: true"), ["batch_size: True", "whole number"]),
        (changed("batch_size: 128", "model_str: 256"), ["model_str: 256 is not a text"]),
        (changed("batch_size: 128", "discount: high"), ["discount: 'high' is not a number"]),
        (changed("batch_size: 128", "pin_cpus: 2"), ["pin_cpus: 2", "0 or 1"]),
        (changed("batch_size: 128", "seed: 2"), ["seed cannot be a setting"]),
        (changed("batch_size: 128", "logpath: x"), ["logpath cannot be a setting"]),
        (changed("batch_size: 128", "eval_period_s: 0, eval_period_steps: 0").replace(
            "eval_period_steps: 50,", ""), ["stop_return=100 needs evaluations"]),
        (changed("time_to_reward", "staleness"), ["shows runs that differ in actor_update_period"]),
        (changed("time_to_reward", "poetry"), ["no report 'poetry'", "time_to_reward"]),
        (conftest.SMALL + "kind: magic", ["no kind 'magic'", "training"]),
        (conftest.SMALL + "vary: {}", ["must name one setting, not 0"]),
        (conftest.SMALL + "vary: {n_step: []}", ["vary: n_step must be a list"]),
        (conftest.SMALL + "vary: {n_step: [1, 0]}", ["--n_step=0"]),
        (conftest.SMALL + "vary: {n_step: [1, 2]}", ["cannot show a varied setting"]),
        (
            changed("time_to_reward", "throughput") + "vary: {sigma: [0, 1]}",
            ["runs that differ in n_actors", "not in sigma"],
        ),
        (changed("time_to_reward", "final_reward") + "peers: {sb3: {}}", ["shows no peers"]),
        (conftest.SMALL + "profiles: {paper: {preset: tiny}}", ["no preset 'tiny'", "small"]),
        (conftest.SMALL + "profiles: {paper: {preset: 3}}", ["preset must be a text"]),
        (conftest.SMALL + "vary: {n_stepp: [1]}", ["no setting 'n_stepp'"]),
        (conftest.SMALL + "profiles: {phone: {}}", ["unknown key 'phone'", *PROFILES]),
        (conftest.SMALL + "profiles: {paper: {n_step: 2}}", ["unknown key 'n_step'"]),
        (conftest.SMALL + "profiles: {paper: {settings: {n_step: 0}}}",
         ["profile paper", "--n_step=0"]),
        (conftest.SMALL + "profiles: {paper: {tasks: {'a,b': {}}}}", ["has no task 'a,b'"]),
        (conftest.SMALL + "  other,cartpole_balance: {}", ["two tasks have the same name"]),
        ("extends: nothing", ["extends", "'nothing' is not one of", "time_to_reward"]),
        ("extends: /etc/passwd", ["'/etc/passwd' is not one of"]),
        ("extends: 3", ["extends must be a text"]),
        ("extends: time_to_reward\nsettings: 3", ["settings must be a mapping"]),
        ("extends: time_to_reward\ntasks: {'a,b': 3}", ["tasks: a,b must be a mapping"]),
    ],
)
def test_load_wrong_file_is_one_clear_line(tmp_path, text, parts):
    with pytest.raises(errors.UserError) as caught:
        reports.check(load(tmp_path, text))
    for part in [*parts, "mine"]:
        assert part in str(caught.value)


def test_load_extending_takes_over_what_is_not_said(tmp_path):
    other = specification.load("time_to_reward", COMMON)
    found = load(
        tmp_path,
        "extends: time_to_reward\ntitle: Mine\nseeds: [7]\npeers: {}\nsettings: {stop_window: 4}\n"
        "tasks: {'gym,CartPole-v0': {n_step: 2}}",
    )
    assert (found.name, found.title, found.seeds, found.peers) == ("mine", "Mine", [7], [])
    assert (found.report, found.precisions) == (other.report, other.precisions)
    assert found.layer.settings == {**other.layer.settings, "stop_window": 4}
    task = "gym,CartPole-v0"
    assert found.layer.tasks == {task: {**other.layer.tasks[task], "n_step": 2}}
    assert load(tmp_path, "extends: time_to_reward").layer == other.layer


def test_load_extending_what_extends_is_refused(tmp_path):
    with pytest.raises(errors.UserError, match="breakdown_torch.yaml has an unknown key 'extends'"):
        load(tmp_path, "extends: breakdown_torch")


@pytest.mark.parametrize("name", ["nothing", "common", "/no/such.yaml"])
def test_load_no_such_experiment_names_those_there_are(name):
    known = ", ".join(specification.names())
    assert (
        "bfloat16_learner, breakdown, breakdown_torch, communication, final_reward, "
        "final_reward_2048, learner_bound, learner_precision, staleness, throughput"
    ) in known
    with pytest.raises(errors.UserError, match=known):
        specification.load(name, COMMON)


def test_load_bytes_that_are_no_text(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(errors.UserError, match="x.yaml"):
        yaml_files.read(str(tmp_path / "x.yaml"))
    (tmp_path / "x.yaml").write_text("title: 2024-02-30")
    with pytest.raises(errors.UserError, match="x.yaml: day is out of range"):
        yaml_files.read(str(tmp_path / "x.yaml"))


def test_read_numbers_as_everyone_writes_them(tmp_path):
    (tmp_path / "x.yaml").write_text("{a: 1e-5, b: 2.5e-5, c: -120.62, d: '1e-5', e: 3}")
    assert yaml_files.read(str(tmp_path / "x.yaml")) == {
        "a": 1e-5, "b": 2.5e-5, "c": -120.62, "d": "1e-5", "e": 3
    }


def test_settings_the_more_special_one_wins(tmp_path):
    text = changed("batch_size: 128", "n_step: 2, discount: 0.9, sigma: 0.1")
    text = text.replace("{stop_return: 100}", "{stop_return: 100, discount: 0.8, sigma: 0.3}")
    text += "profiles: {laptop: {settings: {sigma: 0.4, n_actors: 3}}}\n"
    experiment = load(tmp_path, text)
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


def test_expand_every_setting_is_there_and_makes_a_configuration(tmp_path):
    (run, *_) = specification.expand(load(tmp_path, conftest.SMALL), COMMON, "laptop")
    assert run.settings["quantize"] == 32 and run.settings["seed"] == 0
    assert "logpath" not in run.settings and run.settings["pin_cpus"] == 1
    values = {name: value for name, value in run.settings.items() if name != "pin_cpus"}
    assert config_lib.RunConfig(**values).taskstr == "dm_control,cartpole_balance"


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", specification.names())
def test_experiments_of_this_folder_are_whole(name, profile):
    experiment = specification.load(name, COMMON)
    reports.check(experiment)
    runs = specification.expand(experiment, COMMON, profile)
    values = experiment.values.get(profile, (experiment.vary or ("", [None]))[1])
    sides = len(experiment.tasks) * len(experiment.precisions) * len(values)
    sides += sum(len(peer.tasks) for peer in experiment.peers)
    assert len(runs) == sides * len(experiment.seeds)
    assert len({run.name for run in runs}) == len(runs)
    assert all(kinds.get(run.kind).limit_s(run.settings) for run in runs)
    smoke = specification.expand(experiment, COMMON, profile, smoke=True)
    assert len(smoke) == len(runs) / len(experiment.seeds)
    assert all(run.settings["num_episodes"] == 100 for run in smoke)
    for run, real in zip(smoke, runs, strict=False):
        for setting in ("model_str", "batch_size", "n_actors", "inference_mode"):
            assert run.settings.get(setting) == real.settings.get(setting)


def test_profile_paper_is_the_papers():
    experiment = specification.load("time_to_reward", COMMON)
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
    experiment = specification.load("time_to_reward", COMMON)
    for run in specification.expand(experiment, COMMON, "paper", peers=None):
        assert 0 < run.settings["push_share"] <= 0.1
        # Of the slowest learner that its text is about: within an actor's period.
        assert 310 * run.settings["push_period_s"] <= run.settings["actor_update_period"] == 30


@pytest.mark.parametrize("profile", PROFILES)
def test_final_reward_lets_faster_actors_bring_more_data(profile):
    experiment = specification.load("final_reward", COMMON)
    for run in specification.expand(experiment, COMMON, profile):
        assert run.settings["samples_per_insert"] == 0
        assert run.settings["replay_table_max_times_sampled"] == 16


def test_profiles_say_whether_they_need_a_gpu(tmp_path):
    assert [name for name in PROFILES if COMMON.profiles[name].gpu_optional] == ["workstation"]
    path = tmp_path / "common.yaml"
    path.write_text("profiles: {phone: {about: small, gpu_optional: 1}}")
    with pytest.raises(errors.UserError, match="phone: gpu_optional must be true or false, not 1"):
        specification.load_common(str(path))


def test_time_to_reward_has_the_papers_tasks_and_rewards():
    experiment = specification.load("time_to_reward", COMMON)
    targets = {task: settings["stop_return"] for task, settings in experiment.layer.tasks.items()}
    assert targets == {task: row.reward for task, row in paper.SPEEDUPS.items()}


def test_profile_laptop_data_for_int8_actors_does_not_saturate_the_learner():
    # The figures of its text: samples/s that the learner takes, evaluation included, and that
    # actors make available.
    experiment = specification.load("time_to_reward", COMMON)
    for run in specification.expand(experiment, COMMON, "laptop"):
        if run.task == "dm_control,cartpole_balance":
            batch, period = run.settings["batch_size"], run.settings["eval_period_steps"]
            learner = period * batch / (period / {128: 16.3, 256: 10}[batch] + 1.5)
            assert 3970 * run.settings["samples_per_insert"] < learner
        if run.kind == "training":
            assert run.settings["n_actors"] == 1 and run.settings["pin_cpus"] == 1


def test_profile_has_values_of_its_own_of_what_varies(tmp_path):
    text = changed("time_to_reward", "staleness") + "vary: {actor_update_period: [1, 10]}\n"
    text = text.replace("{stop_return: 100}", "{}")
    text += "profiles: {paper: {vary: {actor_update_period: [5, 50, 500]}}}\n"
    experiment = load(tmp_path, text)
    values = {
        profile: {run.varied for run in specification.expand(experiment, COMMON, profile)}
        for profile in ("paper", "laptop")
    }
    assert values == {"paper": {5, 50, 500}, "laptop": {1, 10}}
    with pytest.raises(errors.UserError, match="not vary n_step"):
        load(tmp_path, text.replace("paper: {vary: {actor_update_period", "paper: {vary: {n_step"))


def test_expand_chosen_tasks_and_precisions():
    experiment = specification.load("time_to_reward", COMMON)
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
