"""Reading experiments strictly."""

import pytest

from actorQ.core import errors
from actorQ.core import yaml_files
from actorQ.experiments import loading
from actorQ.experiments.reports import catalogue
from tests.actorQ.experiments import conftest

COMMON = loading.load_common()
PROFILES = list(COMMON.profiles)
changed = conftest.changed


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
        (changed("[32, 8]", "[32, 12]"), ["precisions: 12 is not possible", "32, 16, 8, 4, 3"]),
        (changed("[32, 8]", "[32, 32]"), ["precisions names a value twice"]),
        (changed("[32, 8]", "[]"), ["precisions must be a list"]),
        (changed("[32, 8]", "[32, 4]"), ["--quantize=4 needs --inference_mode=native"]),
        (changed("[32, 8]", "[32, 3]"), ["--quantize=3 needs --inference_mode=native"]),
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
        (changed("batch_size: 128", "vmin: low"), ["vmin: 'low' is not a number or auto"]),
        (changed("batch_size: 128", "vmin: true"), ["vmin: True is not a number or auto"]),
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
        ("extends: 3", ["extends: 3 is not one of"]),
        ("extends: time_to_reward\nsettings: 3", ["settings must be a mapping"]),
        ("extends: time_to_reward\ntasks: {'a,b': 3}", ["tasks: a,b must be a mapping"]),
    ],
)
def test_load_wrong_file_is_one_clear_line(tmp_path, text, parts):
    with pytest.raises(errors.UserError) as caught:
        catalogue.check(conftest.load(tmp_path, text))
    for part in [*parts, "mine"]:
        assert part in str(caught.value)


def test_load_extending_takes_over_what_is_not_said(tmp_path):
    other = loading.load("time_to_reward", COMMON)
    found = conftest.load(
        tmp_path,
        "extends: time_to_reward\ntitle: Mine\nseeds: [7]\npeers: {}\nsettings: {stop_window: 4}\n"
        "tasks: {'gym,CartPole-v0': {n_step: 2}}",
    )
    assert (found.name, found.title, found.seeds, found.peers) == ("mine", "Mine", [7], [])
    assert (found.report, found.precisions) == (other.report, other.precisions)
    assert found.layer.settings == {**other.layer.settings, "stop_window": 4}
    task = "gym,CartPole-v0"
    assert found.layer.tasks == {task: {**other.layer.tasks[task], "n_step": 2}}
    assert conftest.load(tmp_path, "extends: time_to_reward").layer == other.layer


def test_load_extending_what_extends_is_refused(tmp_path):
    with pytest.raises(errors.UserError, match="breakdown_torch.yaml has an unknown key 'extends'"):
        conftest.load(tmp_path, "extends: breakdown_torch")


@pytest.mark.parametrize("name", ["nothing", "common", "/no/such.yaml"])
def test_load_no_such_experiment_names_those_there_are(name):
    known = ", ".join(loading.names())
    assert (
        "bfloat16_learner, breakdown, breakdown_torch, communication, final_reward, "
        "final_reward_2048, learner_bound, learner_precision, staleness, tasks, tasks_pong, "
    ) in known
    with pytest.raises(errors.UserError, match=known):
        loading.load(name, COMMON)


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


def test_profiles_say_whether_they_need_a_gpu(tmp_path):
    assert [name for name in PROFILES if COMMON.profiles[name].gpu_optional] == ["workstation"]
    path = tmp_path / "common.yaml"
    path.write_text("profiles: {phone: {about: small, gpu_optional: 1}}")
    with pytest.raises(errors.UserError, match="phone: gpu_optional must be true or false, not 1"):
        loading.load_common(str(path))
