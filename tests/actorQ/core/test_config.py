"""Tests `actorQ.core.config`: legal values, the flags made of them, and config.json."""

import dataclasses
import functools
import json
import time
import types

from absl import flags
import pytest

from actorQ.core import config as config_lib
from actorQ.core import config_flags
from actorQ.core import errors
from actorQ.core import presets
from actorQ.core import resuming
from actorQ.core import run_logger
from actorQ.core import settings
from actorQ.core import telemetry

# The flags that the issue names; all others are ours.
REQUIRED_FLAGS = """
    taskstr model_str num_episodes n_actors actor_id batch_size replay_table_max_times_sampled
    replay_table_max_replay_size min_replay_size quantize quantize_communication
    actor_update_period weight_compress compress logpath port n_step discount sigma inference_mode
    learner_device_placement actor_device_placement broadcaster_table_name replay_table_name
    model_table_name shutdown_table_name
""".split()

# Every field away from its default, all legal together.
EVERYTHING_ELSE = {
    "taskstr": "gym,CartPole-v1",
    "algorithm": "dqn",
    "preset": "fallback",
    "model_str": "2048,2048,2048",
    "critic_str": "64",
    "num_episodes": 18,
    "stop_return": -12.5,
    "stop_window": 2,
    "stop_smoothing": 10,
    "max_seconds": 1800.0,
    "max_episode_steps": 200,
    "scale_observations": 1,
    "seed": 2**31 - 1,
    "quantize": 16,
    "quantize_communication": 2,
    "weight_compress": 1,
    "compress": 1,
    "inference_mode": "tensorflow",
    "n_actors": 4,
    "actor_id": 4,
    "envs_per_actor": 8,
    "actor_update_period": 1000,
    "noise_exponent": 1.0,
    "sigma": 0.1 + 0.2,  # Needs all 17 digits.
    "epsilon_max": 1.0,
    "epsilon_zeta": 1.5,
    "actor_device_placement": "GPU",
    "actors_yield": 1,
    "batch_size": 32,
    "discount": 0.95,
    "n_step": 1,
    "target_update_period": 7,
    "policy_learning_rate": 3e-5,
    "critic_learning_rate": 1 / 3,
    "learning_rate": 0.0,
    "invert_gradients": 1,
    "average_policy_steps": 300,
    "learner_fake_quantize": 16,
    "learning_rate_decay_steps": 1500,
    "vmin": -1e-3,
    "vmax": 1e6,
    "num_atoms": 2,
    "learner_device_placement": "CPU",
    "learner_precision": "bfloat16",
    "learner_threads": 3,
    "learner_compile": "on",
    "learner_steps_per_call": 2,
    "evaluator_process": "off",
    "replay_table_max_times_sampled": 0,
    "samples_per_insert": 0.25,
    "replay_table_max_replay_size": 1234,
    "min_replay_size": 1234,
    "priority_exponent": 0.0,
    "importance_sampling_exponent": 1.0,
    "port": 0,
    "server_address": "192.168.1.7:8181",
    "connect_timeout": 5.0,
    "transfer_timeout": 5.0,
    "broadcaster_table_name": "a",
    "replay_table_name": "b",
    "model_table_name": "c",
    "shutdown_table_name": "d",
    "push_period_s": 0.0,
    "push_share": 0.5,
    "push_precision": "bfloat16",
    "eval_period_s": 0.0,
    "eval_period_steps": 50,
    "final_eval_episodes": 0,
    "checkpoint_period_s": 1.5,
    "log_period_s": 0.05,
    "meter_period_s": 0.0,
    "logpath": "logs/some where/run",
    "resume": True,
    "track": "wandb",
    "track_energy": 1,
    "action_limit": 2.5, "env_kwargs": "gravity:-5.0,name:'a b'", "listen": "all",
    "launch_id": 2**62,
    "run_start_time": 1.7e9, "restarts": 2, "data_timeout": 33.0, "max_abs_reward": 2.5,
}


@pytest.fixture
def flag_values(monkeypatch):
    """The flags of `define_flags` in a registry of their own: absl's is global."""
    fresh = flags.FlagValues()
    names = (
        "DEFINE", "DEFINE_integer", "DEFINE_float", "DEFINE_enum", "DEFINE_string", "DEFINE_boolean"
    )
    shim = {n: functools.partial(getattr(flags, n), flag_values=fresh) for n in names}
    monkeypatch.setattr(config_flags, "flags", types.SimpleNamespace(**shim))
    config_flags.define_flags()
    return fresh


def parse(flag_values, *arguments):
    """Parses a command line and builds the configuration."""
    rest = flag_values(["program", *arguments])
    assert rest == ["program"]
    return config_flags.from_flags(flag_values)


def test_run_config_defaults_build():
    config = config_lib.RunConfig()
    assert config.model_sizes == (256, 256, 256)
    assert config.critic_sizes == (512, 512, 512)
    assert config.address == "localhost:8181"
    assert config.table_names == (
        "replay_table", "broadcaster_table", "model_table", "shutdown_table",
    )


def test_run_config_server_address_given_replaces_port():
    assert config_lib.RunConfig(server_address="far:1").address == "far:1"


def test_everything_else_covers_every_field_away_from_its_default():
    for field in dataclasses.fields(config_lib.RunConfig):
        assert EVERYTHING_ELSE[field.name] != field.default, field.name


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"quantize": 1}, ["--quantize=1", "32, 16, 8"]),
        ({"quantize": 33}, ["--quantize=33", "32, 16, 8"]),
        ({"quantize": 12}, ["--quantize=12", "32, 16, 8"]),
        ({"quantize": 0}, ["--quantize=0", "32, 16, 8"]),
        ({"quantize_communication": 1}, ["--quantize_communication=1", "from 2 to 32"]),
        ({"quantize_communication": 33}, ["--quantize_communication=33", "from 2 to 32"]),
        ({"weight_compress": 2}, ["--weight_compress=2", "0, 1"]),
        ({"compress": -1}, ["--compress=-1", "0, 1"]),
        ({"track_energy": 2}, ["--track_energy=2", "0, 1"]),
        ({"inference_mode": "jax"}, ["--inference_mode=jax", "pytorch, native, tensorflow"]),
        ({"algorithm": "ppo"}, ["--algorithm=ppo", "auto, d4pg, dqn"]),
        ({"learner_device_placement": "TPU"}, ["--learner_device_placement=TPU", "CPU, GPU"]),
        ({"learner_precision": "float16"},
         ["--learner_precision=float16", "float32, bfloat16"]),
        ({"push_precision": "float16"}, ["--push_precision=float16", "float32, bfloat16"]),
        ({"actor_device_placement": "gpu"}, ["--actor_device_placement=gpu", "CPU, GPU"]),
        ({"actor_device_placement": "GPU", "quantize": 8}, ["--actor_device_placement=GPU",
                                                            "--quantize 32 or 16"]),
        ({"actor_device_placement": "GPU", "quantize": 32, "inference_mode": "native"},
         ["--actor_device_placement=GPU", "--inference_mode=pytorch or tensorflow"]),
        ({"quantize": 4}, ["--quantize=4", "--inference_mode=native"]),
        ({"quantize": 3}, ["--quantize=3", "--inference_mode=native", "no 3-bit operator"]),
        ({"n_actors": 0}, ["--n_actors=0", "from 1 to 10000"]),
        ({"actor_id": 0}, ["--actor_id=0", "at least 1"]),
        ({"actor_id": 5, "n_actors": 4}, ["--actor_id=5", "1 to --n_actors=4"]),
        ({"vmin": 3.0, "vmax": 3.0}, ["--vmin=3.0", "--vmax=3.0"]),
        ({"vmin": 4.0, "vmax": 3.0}, ["--vmin=4.0", "--vmax=3.0"]),
        ({"vmin": "low"}, ["--vmin=low", "a number or auto"]),
        ({"max_abs_reward": "none"}, ["--max_abs_reward=none", "a number or auto"]),
        ({"max_abs_reward": 0.0}, ["--max_abs_reward=0.0", "at least 1e-06"]),
        ({"min_replay_size": 11, "replay_table_max_replay_size": 10, "batch_size": 1},
         ["--min_replay_size=11", "--replay_table_max_replay_size=10"]),
        ({"batch_size": 11, "replay_table_max_replay_size": 10, "min_replay_size": 1},
         ["--batch_size=11", "--replay_table_max_replay_size=10"]),
        ({"batch_size": 0}, ["--batch_size=0", "at least 1"]),
        ({"replay_table_max_times_sampled": -1},
         ["--replay_table_max_times_sampled=-1", "at least 0"]),
        ({"num_episodes": 0}, ["--num_episodes=0", "at least 1"]),
        ({"envs_per_actor": 65}, ["--envs_per_actor=65", "from 1 to 64"]),
        ({"actor_update_period": 0}, ["--actor_update_period=0", "at least 1"]),
        ({"n_step": 0}, ["--n_step=0", "at least 1"]),
        ({"epsilon_zeta": 1.0}, ["--epsilon_zeta=1.0", "at least 1.01, or 0"]),
        ({"epsilon_zeta": -1.0}, ["--epsilon_zeta=-1.0", "at least 0"]),
        ({"discount": 1.01}, ["--discount=1.01", "from 0.0 to 1.0"]),
        ({"discount": -0.01}, ["--discount=-0.01", "from 0.0 to 1.0"]),
        ({"sigma": -0.1}, ["--sigma=-0.1", "at least 0.0"]),
        ({"epsilon_max": 1.5}, ["--epsilon_max=1.5", "from 0.0 to 1.0"]),
        ({"seed": -1}, ["--seed=-1", "from 0 to 2147483647"]),
        ({"seed": 2**31}, ["--seed=2147483648", "from 0 to 2147483647"]),
        ({"port": 65536}, ["--port=65536", "from 0 to 65535"]),
        ({"port": -1}, ["--port=-1", "from 0 to 65535"]),
        ({"num_atoms": 1}, ["--num_atoms=1", "at least 2"]),
        ({"log_period_s": 0.0}, ["--log_period_s=0.0", "at least 0.05"]),
        ({"model_table_name": "replay_table"}, ["table names must differ", "replay_table"]),
        ({"shutdown_table_name": ""}, ["table names must differ and not be empty"]),
    ],
)
def test_run_config_illegal_value_names_flag_and_legal_values(values, parts):
    with pytest.raises(errors.UserError) as caught:
        config_lib.RunConfig(**values)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("flag", ["model_str", "critic_str"])
@pytest.mark.parametrize("text", ["", "256,", "256,x", "0", "256,-1", "256;256", "2.5", "(256,)"])
def test_run_config_layer_sizes_that_do_not_parse_are_named(flag, text):
    with pytest.raises(errors.UserError, match=f"--{flag}=.*for example 256,256,256"):
        config_lib.RunConfig(**{flag: text})


def test_run_config_stop_rule_needs_evaluations():
    with pytest.raises(errors.UserError, match="--stop_return=1 needs evaluations"):
        config_lib.RunConfig(stop_return=1.0, eval_period_s=0.0)
    config_lib.RunConfig(stop_return=1.0, eval_period_s=0.0, eval_period_steps=10)
    config_lib.RunConfig(eval_period_s=0.0)


def test_hidden_sizes_with_spaces_parse():
    assert settings.hidden_sizes("model_str", " 64, 32 ,1") == (64, 32, 1)


@pytest.mark.parametrize(
    "address", ["host", ":8181", "host:", "host:0", "host:65536", "host:http", "host:-1", "host:²"]
)
def test_run_config_bad_server_address_is_named(address):
    with pytest.raises(errors.UserError, match="--server_address=.*HOST:PORT"):
        config_lib.RunConfig(server_address=address)


FLOAT_FIELDS = [
    field.name for field in dataclasses.fields(config_lib.RunConfig) if "float" in str(field.type)
]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", FLOAT_FIELDS)
def test_run_config_number_not_finite_is_refused(name, number):
    with pytest.raises(errors.UserError, match=f"--{name}="):
        config_lib.RunConfig(**{name: number})


def test_define_flags_has_every_required_flag(flag_values):
    assert [name for name in REQUIRED_FLAGS if name not in flag_values] == []


def test_define_flags_every_field_has_a_flag_with_help(flag_values):
    for field in dataclasses.fields(config_lib.RunConfig):
        flag = flag_values[field.name]
        assert len(flag.help) > 10
        assert flag.default == presets.defaults()[field.name]


def test_define_flags_ranges_are_in_the_help(flag_values):
    assert "(>= 2, <= 32)" in flag_values["quantize_communication"].help
    assert "32, 16, 8, 4 or 3" in flag_values["quantize"].help
    assert "16, 8, 4 or 3" in flag_values["learner_fake_quantize"].help


def test_from_flags_without_arguments_gives_the_preset_of_the_task(flag_values):
    settled = presets.resolve("auto", config_lib.RunConfig.taskstr)
    assert parse(flag_values) == config_lib.RunConfig(preset="auto", **settled)


def test_from_flags_a_flag_is_stronger_than_the_preset(flag_values):
    config = parse(flag_values, "--taskstr=gym,Unknown-v0", "--batch_size=7")
    fallback = presets.resolve("fallback", "")
    assert config == config_lib.RunConfig(
        taskstr="gym,Unknown-v0", preset="auto", **{**fallback, "batch_size": 7}
    )


def test_from_flags_without_a_preset_gives_the_code_s_defaults(flag_values):
    assert parse(flag_values, "--preset=none") == config_lib.RunConfig()


def test_from_flags_unknown_preset_is_a_user_error(flag_values):
    with pytest.raises(errors.UserError, match="--preset=best is not possible: choose one of auto"):
        parse(flag_values, "--preset=best")


@pytest.mark.parametrize("flag", ["weight_compress", "compress", "track_energy"])
def test_from_flags_switch_with_a_space_is_an_integer(flag_values, flag):
    # An absl boolean would read "--compress 0" as true and leave "0" over.
    assert getattr(parse(flag_values, f"--{flag}", "1"), flag) == 1
    zero = getattr(parse(flag_values, f"--{flag}", "0"), flag)
    assert zero == 0
    assert type(zero) is int


def test_from_flags_country_is_checked_before_a_run_whose_energy_is_logged(
    flag_values, monkeypatch
):
    monkeypatch.setenv("ACTORQ_COUNTRY", "DE")
    assert parse(flag_values, "--track_energy=0").track_energy == 0
    with pytest.raises(errors.UserError, match="ACTORQ_COUNTRY=DE cannot be used: say DEU"):
        parse(flag_values, "--track_energy=1")


def test_from_flags_value_out_of_range_is_a_user_error(flag_values):
    with pytest.raises(errors.UserError, match="--quantize=12"):
        parse(flag_values, "--quantize=12")


@pytest.mark.parametrize("name", ["vmin", "vmax", "max_abs_reward"])
def test_from_flags_takes_a_number_or_auto(flag_values, name, tmp_path):
    config = parse(flag_values, "--preset=none", f"--{name}=auto")
    assert getattr(config, name) == "auto"
    assert config_flags.to_flags(config) == ["--preset=none", f"--{name}=auto"]
    config.save(str(tmp_path))
    assert config_lib.RunConfig.load(str(tmp_path)) == config
    assert getattr(parse(flag_values, f"--{name}=2"), name) == 2.0
    with pytest.raises(flags.IllegalFlagValueError, match=f"--{name}=some.*a number or auto"):
        flag_values(["program", f"--{name}=some"])


@pytest.mark.parametrize(
    ("taskstr", "suite"), [("Pendulum-v1", "gym"), ("atari, Pong", "atari"), ("gym,a:B-v0", "gym")]
)
def test_run_config_knows_the_suite_of_its_task(taskstr, suite):
    assert config_lib.RunConfig(taskstr=taskstr).suite == suite


def test_a_resumed_run_keeps_auto():
    config = config_lib.RunConfig(vmin="auto")
    resuming.check_resumed(config, dataclasses.asdict(config))
    with pytest.raises(errors.UserError, match="--vmin was auto, not -150.0"):
        resuming.check_resumed(config_lib.RunConfig(), dataclasses.asdict(config))


def test_facts_that_are_found_later_join_the_record(tmp_path):
    config = config_lib.RunConfig(logpath=str(tmp_path))
    config.save(str(tmp_path), learner_device="CPU")
    resuming.note_facts(config, found={"vmin": -1.0})
    record = config_lib.load_record(str(tmp_path))
    assert (record["found"], record["learner_device"]) == ({"vmin": -1.0}, "CPU")
    assert config_lib.RunConfig.load(str(tmp_path)) == config


def test_to_flags_of_defaults_is_empty():
    assert config_flags.to_flags(config_lib.RunConfig()) == ["--preset=none"]


@pytest.mark.parametrize("preset", ["auto", "fallback", "paper", "none"])
def test_to_flags_leaves_out_what_the_preset_says(flag_values, preset):
    config = parse(flag_values, f"--preset={preset}", "--taskstr=dm_control,cheetah_run")
    assert set(config_flags.to_flags(config)) <= {
        f"--preset={preset}", "--taskstr=dm_control,cheetah_run"
    }
    assert parse(flag_values, *config_flags.to_flags(config)) == config
    changed = dataclasses.replace(config, batch_size=7, vmin=-2.0)
    assert {"--batch_size=7", "--vmin=-2.0"} <= set(config_flags.to_flags(changed))
    assert parse(flag_values, *config_flags.to_flags(changed)) == changed


def test_a_number_that_a_preset_sets_can_be_switched_off(flag_values):
    task = "--taskstr=dm_control,cartpole_balance"
    assert parse(flag_values, task).stop_return is not None
    config = parse(flag_values, task, "--stop_return=none")
    assert config.stop_return is None
    assert "--stop_return=none" in config_flags.to_flags(config)
    assert parse(flag_values, *config_flags.to_flags(config)) == config


def test_a_preset_s_stop_rule_gives_way_to_a_run_without_evaluations(flag_values):
    task = "--taskstr=dm_control,cartpole_balance"
    assert parse(flag_values, task, "--eval_period_s=0").stop_return is None
    with_steps = parse(flag_values, task, "--eval_period_s=0", "--eval_period_steps=50")
    assert with_steps.stop_return == 985.0
    with pytest.raises(errors.UserError, match="--stop_return=5 needs evaluations"):
        parse(flag_values, "--eval_period_s=0", "--eval_period_steps=0", "--stop_return=5")


def test_to_flags_of_another_value_than_the_preset_s_is_there_even_if_it_is_a_default(flag_values):
    config = config_lib.RunConfig(preset="auto", taskstr="gym,Unknown-v0")
    assert f"--model_str={config_lib.RunConfig.model_str}" in config_flags.to_flags(config)
    assert parse(flag_values, *config_flags.to_flags(config)) == config


def test_to_flags_of_a_launched_run_do_not_depend_on_the_file_of_presets(flag_values, monkeypatch):
    launched = parse(flag_values, "--launch_id=5")
    arguments = config_flags.to_flags(launched)
    monkeypatch.setattr(presets, "_read", lambda: {
        "fallback": {"batch_size": 7, "n_step": 2}, "paper": {}, "tasks": {},
    })
    assert parse(flag_values, *arguments) == launched


def test_to_flags_every_field_changed_round_trips(flag_values):
    config = config_lib.RunConfig(**EVERYTHING_ELSE)
    arguments = config_flags.to_flags(config)
    assert len(arguments) == len(dataclasses.fields(config_lib.RunConfig))
    assert parse(flag_values, *arguments) == config


def test_save_then_load_gives_an_equal_config(tmp_path):
    config = config_lib.RunConfig(**EVERYTHING_ELSE)
    config.save(str(tmp_path), git_commit="abc", machine={"cores": 2})
    assert config_lib.RunConfig.load(str(tmp_path)) == config
    record = config_lib.load_record(str(tmp_path))
    assert record["git_commit"] == "abc"
    assert record["machine"] == {"cores": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_load_ignores_settings_it_does_not_know_and_fills_in_new_ones(tmp_path):
    record = {"config": {"taskstr": "gym,X-v0", "retired_flag": 3}}
    (tmp_path / "config.json").write_text(json.dumps(record))
    assert config_lib.RunConfig.load(str(tmp_path)) == config_lib.RunConfig(taskstr="gym,X-v0")


def test_load_without_a_file_names_the_folder(tmp_path):
    with pytest.raises(errors.UserError, match=f"{tmp_path} is not a run folder"):
        config_lib.RunConfig.load(str(tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"config": 3}',
        b'{"config": {}}',
        b"\xff\xfe\x00broken",
        b'{"config": {"taskstr": "gym,X-v0", "n_actors": "many"}}',
        b'{"config": {"taskstr": "gym,X-v0", "model_str": 256}}',
    ],
)
def test_load_damaged_file_is_a_user_error(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(errors.UserError, match="config.json is damaged"):
        config_lib.RunConfig.load(str(tmp_path))


def test_load_illegal_value_in_the_file_names_the_flag(tmp_path):
    (tmp_path / "config.json").write_text('{"config": {"taskstr": "a,b", "quantize": 12}}')
    with pytest.raises(errors.UserError, match="--quantize=12"):
        config_lib.RunConfig.load(str(tmp_path))


def test_load_record_of_a_plain_file_is_a_user_error(tmp_path):
    (tmp_path / "run.out").write_text("not a folder")
    with pytest.raises(errors.UserError, match="is not a run folder"):
        config_lib.load_record(str(tmp_path / "run.out"))


def test_from_flags_of_a_resumed_run_takes_its_settings_and_what_is_given(flag_values, tmp_path):
    run = config_lib.RunConfig(
        logpath="where it was", n_step=2, num_episodes=10, seed=4, stop_return=3.0, restarts=1,
        run_start_time=5.0,
    )
    run.save(str(tmp_path))
    arguments = ["program", "--resume", f"--logpath={tmp_path}", "--num_episodes=6000"]
    assert flag_values(arguments) == ["program"]
    config = config_flags.from_flags(flag_values, resumable=True)
    assert config == dataclasses.replace(
        run, logpath=str(tmp_path), resume=True, num_episodes=6000, restarts=0, run_start_time=0.0
    )
    # Also what is a default, which otherwise would be taken from the run.
    assert "--num_episodes=6000" in config_flags.to_flags(config)


@pytest.mark.parametrize(
    ("flag", "resumes"),
    [("--resume", True), ("--resume=true", True), ("--resume=1", True), ("--noresume", False),
     ("--resume=false", False), ("--resume=auto", False)],
)
def test_from_flags_resume_is_a_switch_or_auto(flag_values, tmp_path, flag, resumes):
    config = parse(flag_values, flag, f"--logpath={tmp_path}")
    assert config.resume is resumes


def test_from_flags_resume_takes_no_other_word(flag_values):
    with pytest.raises(flags.IllegalFlagValueError, match="--resume=perhaps"):
        flag_values(["program", "--resume=perhaps"])


def test_from_flags_resume_auto_goes_on_where_there_is_a_checkpoint(flag_values, tmp_path):
    config_lib.RunConfig(logpath=str(tmp_path), n_step=2).save(str(tmp_path))
    arguments = ["program", "--resume=auto", f"--logpath={tmp_path}", "--seed=3"]
    flag_values(arguments)
    config = config_flags.from_flags(flag_values, resumable=True)
    assert (config.resume, config.n_step) == (False, 5)  # An earlier start came to nothing.
    (tmp_path / "checkpoint" / "resume" / "000001").mkdir(parents=True)
    config = config_flags.from_flags(flag_values, resumable=True)
    assert (config.resume, config.n_step, config.seed) == (True, 2, 3)


def test_from_flags_resume_auto_of_actors_goes_on_in_their_logs(flag_values, tmp_path):
    flag_values(["program", "--resume=auto", f"--logpath={tmp_path}"])
    assert not config_flags.from_flags(flag_values).resume
    logger = run_logger.RunLogger(str(tmp_path), "actor_1", time.time() - 5.0)
    logger.write(telemetry.PHASES_CSV, 1, actor_steps=1)
    logger.close()
    assert config_flags.from_flags(flag_values).resume


def test_from_flags_resume_without_a_run_names_the_folder(flag_values, tmp_path):
    flag_values(["program", "--resume", f"--logpath={tmp_path}"])
    with pytest.raises(errors.UserError, match="is not a run folder"):
        config_flags.from_flags(flag_values, resumable=True)
    assert config_flags.from_flags(flag_values).resume
