"""Training: what it leaves, what is refused before it begins, what users get wrong."""

import errno
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import types
from unittest import mock

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common import callbacks
from stable_baselines3.common import monitor
from tensorboard.backend.event_processing import event_accumulator
import torch

from actorQ.core import errors
from baseline.agents import finding
from baseline.agents import zoo_files
from baseline.tasks import environments
from baseline.train import experiment as zoo
from baseline.train import settings
from baseline.train import state
from baseline.train import training
from tests.baseline import small_agents
from tests.baseline import small_trainings as small

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("algo", "env_id", "steps", "hyperparams"),
    [
        ("a2c", small.CARTPOLE, 200, None),
        ("ppo", small.CARTPOLE, 256, None),
        ("dqn", small.CARTPOLE, 300, {"learning_starts": 40, "train_freq": 8, "gradient_steps": 2}),
        ("ddpg", "Pendulum-v1", 250, {"learning_starts": 40, "train_freq": 50}),
        ("td3", "Pendulum-v1", 250, {"learning_starts": 40, "train_freq": 50}),
        ("sac", "Pendulum-v1", 250, {"learning_starts": 40, "train_freq": 50}),
    ],
)
def test_train_leaves_an_agent_in_the_zoo_s_layout(tmp_path, algo, env_id, steps, hyperparams):
    path = training.train(
        small.settings(tmp_path, algo=algo, env=env_id, steps=steps, hyperparams=hyperparams)
    )

    folder = tmp_path / algo / f"{env_id}_1"
    assert path == folder / f"{env_id}.zip"
    for name in ("config.yml", "args.yml", "command.txt"):
        assert (folder / env_id / name).is_file()
    assert list((folder / "tensorboard").glob("events*"))
    assert not list(folder.rglob("*.tmp*"))
    assert small.readable(path)["num_timesteps"] >= steps
    # The loader that runs no pickles.
    agent = finding.load(algo, env_id, tmp_path)
    observation, _ = agent.make_env().reset(seed=0)
    assert len(agent.act(observation[None])) == 1


@pytest.mark.parametrize(
    ("name", "value"), [("mean", [0.0, 0.0, 0.0]), ("var", [[1.0]]), ("count", 10**400)],
    ids=["mean", "var", "count"],
)
def test_statistics_that_are_no_numbers_are_an_error(tmp_path, name, value):
    environment = small_agents.normalized(small_agents.vector("Pendulum-v1"), 20)
    model = types.SimpleNamespace(get_vec_normalize_env=lambda: environment)
    path = tmp_path / "vecnormalize.pkl"
    environment.save(str(path))
    before = environment.obs_rms.mean.copy(), environment.ret_rms.var
    state._restore_statistics(model, path)
    np.testing.assert_array_equal(environment.obs_rms.mean, before[0])
    assert environment.ret_rms.var == before[1]
    setattr(environment.ret_rms, name, value)
    environment.save(str(path))
    with pytest.raises(errors.UserError, match=r"Cannot go on with .*vecnormalize\.pkl: "):
        state._restore_statistics(model, path)


def test_a_name_with_a_slash_is_a_dash_in_files(tmp_path):
    pong = {"algo": "dqn", "env": "ALE/Pong-v5"}
    short = {"buffer_size": 100, "learning_starts": 1000}
    training.train(
        small.settings(tmp_path, steps=40, hyperparams=short, **pong),
        stop_requested=small.stop_after(20),
    )
    path = training.train(
        small.settings(tmp_path, steps=None, hyperparams=None, resume=True, **pong)
    )

    assert path == tmp_path / "dqn/ALE-Pong-v5_1/ALE-Pong-v5.zip"
    assert small.readable(path)["num_timesteps"] >= 40
    assert finding.load("dqn", "ALE/Pong-v5", tmp_path).path == path


def test_pickles_that_lie_in_the_current_folder_are_not_loaded(tmp_path, monkeypatch):
    (tmp_path / small.CARTPOLE).mkdir()
    payload = small_agents.Payload(tmp_path / "executed")
    (tmp_path / small.CARTPOLE / "vecnormalize.pkl").write_bytes(payload.pickled())
    monkeypatch.chdir(tmp_path)
    normalized = {**small.SMALL_PPO, "normalize": True}
    training.train(small.settings(tmp_path / "zoo", steps=64, hyperparams=normalized))

    assert not (tmp_path / "executed").exists()
    assert finding.load("ppo", small.CARTPOLE, tmp_path / "zoo").normalization is not None


def test_a_full_disk_in_training_is_one_line(tmp_path, monkeypatch):
    def full(self, *arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(monitor.ResultsWriter, "write_row", full)
    with pytest.raises(errors.WriteError) as raised:
        training.train(small.settings(tmp_path))

    folder = tmp_path / f"ppo/{small.CARTPOLE}_1"
    assert f"The training in {folder} ended at step" in str(raised.value)
    assert "No space left on device. --resume goes on" in str(raised.value)
    assert "\n" not in str(raised.value) and folder.is_dir()


@pytest.mark.parametrize(("algo", "save_freq"), [("ppo", 40), ("dqn", 40), ("dqn", 0)])
def test_a_training_that_diverges_is_one_line_and_saves_nothing_of_it(tmp_path, algo, save_freq):
    def prepare(model):
        class Diverge(callbacks.BaseCallback):
            def _on_step(self):
                if self.num_timesteps >= 50:
                    next(model.policy.parameters()).data.fill_(float("nan"))
                return True

        return [Diverge()]

    off_policy = {"learning_starts": 40, "train_freq": 8, "gradient_steps": 2}
    folder = tmp_path / f"{algo}/{small.CARTPOLE}_1"
    with pytest.raises(errors.UserError, match="has diverged by step") as raised:
        training.train(
            small.settings(
                tmp_path, algo=algo, steps=200, save_freq=save_freq,
                hyperparams=small.SMALL_PPO if algo == "ppo" else off_policy,
            ),
            prepare,
        )

    assert str(raised.value).startswith(f"The training in {folder} has diverged")
    assert "\n" not in str(raised.value)
    path = folder / f"{small.CARTPOLE}.zip"
    assert path.is_file() == bool(save_freq)
    if save_freq:
        assert small.readable(path)["num_timesteps"] == 40
        assert all(torch.isfinite(tensor).all() for tensor in small.parameters(path).values())


def test_a_value_error_of_another_origin_stays_what_it_is(tmp_path):
    def stumble():
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        training.train(small.settings(tmp_path), stop_requested=stumble)


def test_equal_seeds_train_equal_agents(tmp_path):
    first, second, other = (
        small.parameters(training.train(small.settings(tmp_path, steps=128, seed=seed)))
        for seed in (3, 3, 4)
    )

    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize(
    ("hyperparams", "message"),
    [
        ({"normalize": True, "frame_stack": 2}, "normalize is for vectors that are not stacked"),
        ({"vec_env_wrapper": "stable_baselines3.common.vec_env.VecNormalize"},
         "vec_env_wrapper is not possible here"),
        ({"env_wrapper": "own_tasks.Wrapper"}, "own_tasks.Wrapper, which is not of a library"),
        ({"env_wrapper": [{"gymnasium.wrappers.NormalizeObservation": {"epsilon": 0.1}}]},
         "normalize:true normalizes observations"),
    ],
)
def test_what_the_tools_could_not_load_is_not_trained(tmp_path, hyperparams, message):
    with pytest.raises(errors.UserError, match=message):
        training.train(small.settings(tmp_path, hyperparams={**small.SMALL_PPO, **hyperparams}))
    assert not list(tmp_path.rglob("*_1"))


def test_normalized_rewards_go_with_stacked_observations(tmp_path):
    only_rewards = {**small.SMALL_PPO, "normalize": "dict(norm_obs=False)", "frame_stack": 2}
    training.train(small.settings(tmp_path, steps=64, hyperparams=only_rewards))
    assert finding.load("ppo", small.CARTPOLE, tmp_path).normalization is None


def test_a_start_that_fails_removes_no_folder_of_another_run(tmp_path, monkeypatch):
    other = tmp_path / f"ppo/{small.CARTPOLE}_1"

    def fail(experiment):
        other.mkdir(parents=True)  # Another run takes the number that this one saw free.
        raise ValueError("policy_kwargs")

    monkeypatch.setattr(zoo.Experiment, "setup_experiment", fail)
    with pytest.raises(errors.UserError, match="with these --hyperparams"):
        training.train(small.settings(tmp_path))
    assert other.is_dir()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.WriteError, match="Cannot begin the run .*file"):
        training.train(small.settings(tmp_path / "file"))
    with pytest.raises(errors.WriteError, match="Cannot write .*file"):
        training.train(small.settings(tmp_path, tensorboard=str(tmp_path / "file")))


@pytest.mark.parametrize(
    ("error", "of_files"),
    [
        (OSError(errno.ENOSPC, "a reason"), True),
        (OSError(errno.EACCES, "a reason", "zoo/ppo/CartPole-v1_1/0.monitor.csv"), True),
        (OSError(errno.EACCES, "a reason", "zoo"), True),
        (OSError(errno.ENOENT, "a reason", "zoo/ppo/CartPole-v1_10/mesh.stl"), False),
        (OSError(errno.ECONNREFUSED, "a reason"), False),
        (OSError("a reason"), False),
    ],
)
@pytest.mark.parametrize("resume", [False, True])
def test_an_error_of_the_set_up_is_told_as_what_it_is(
    tmp_path, monkeypatch, error, of_files, resume
):
    monkeypatch.chdir(tmp_path)
    if resume:
        training.train(small.settings("zoo"), stop_requested=small.stop_after(20))

    def fail(experiment):
        raise error

    monkeypatch.setattr(zoo.Experiment, "setup_experiment", fail)
    with pytest.raises(errors.UserError, match="a reason") as raised:
        training.train(small.settings("zoo", resume=resume))

    assert isinstance(raised.value, errors.WriteError) == of_files
    begun = "go on with" if resume else "begin"
    start = f"Cannot {begun} the run zoo/" if of_files else "Cannot train ppo on CartPole-v1 with"
    assert str(raised.value).startswith(start)


def test_a_file_that_hyper_parameters_name_is_none_of_the_run_s(tmp_path):
    hyperparams = {**small.SMALL_PPO, "env_kwargs": {"xml_file": "nope.xml"}}
    with pytest.raises(errors.UserError, match="Ant-v4: File .*nope.xml does not exist"):
        training.train(small.settings(tmp_path, env="Ant-v4", hyperparams=hyperparams))
    assert not list(tmp_path.rglob("*_1"))


def test_a_gpu_that_is_not_there_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(errors.UserError, match="no GPU .*CUDA build.. Choose --device cpu"):
        training.train(small.settings(tmp_path, device="cuda"))
    assert [training.choose_device(device) for device in ("auto", "cpu")] == ["cpu", "cpu"]


def test_a_gpu_that_torch_has_no_kernels_for_is_told_or_left(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    no_kernels = mock.Mock(side_effect=RuntimeError("CUDA error: no kernel image\nDetails"))
    monkeypatch.setattr(torch, "ones", no_kernels)
    with pytest.raises(errors.UserError, match=r"\(CUDA error: no kernel image\)\. Choose --dev"):
        training.choose_device("cuda")
    assert training.choose_device("cpu") == "cpu" and not caplog.messages
    assert training.choose_device("auto") == "cpu"
    (line,) = caplog.messages
    assert line.endswith("no kernel image): the training goes on with the CPU.")
    monkeypatch.setattr(torch, "ones", mock.Mock())
    assert [training.choose_device(device) for device in ("auto", "cuda")] == ["cuda", "cuda"]


def test_hyper_parameters_without_steps_of_an_untuned_environment_are_refused(tmp_path):
    with pytest.raises(errors.UserError, match="the steps among them"):
        zoo.tuned_steps("ppo", "FrozenLake8x8-v1", {"learning_rate": 0.001})
    assert zoo.tuned_steps("ppo", "FrozenLake8x8-v1", {"n_timesteps": 500}) == 500


@pytest.mark.parametrize(
    ("env_id", "skipped"), [("ALE/Pong-v5", "4"), ("Pong-v4", "(2, 5)"), (None, None)]
)
def test_frames_that_are_skipped_twice_are_told(caplog, env_id, skipped):
    training._warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger="absl"):
        for _ in range(2):
            training.check_environment("dqn", env_id or "PongNoFrameskip-v4")
    told = [line for line in caplog.messages if "NoFrameskip" in line]
    assert len(told) == (skipped is not None)
    assert not told or f"{env_id} holds each action for {skipped} frames" in told[0]


def test_environments_without_a_time_limit_are_told(monkeypatch, caplog, own_environment):
    name = "Endless-v0"
    cartpole = gym.registry[own_environment]
    monkeypatch.setitem(
        gym.registry, name, gym.envs.registration.EnvSpec(name, cartpole.entry_point)
    )
    with caplog.at_level(logging.WARNING, logger="absl"):
        for env_id in (name, name, own_environment, "PongNoFrameskip-v4"):
            training.check_environment("dqn", env_id)
    (told,) = [line for line in caplog.messages if "max_episode_steps" in line]
    assert told.startswith(f"{name} has no time limit")

    caplog.clear()
    training._warn_once.cache_clear()
    limit = {"env_wrapper": [{"gymnasium.wrappers.TimeLimit": {"max_episode_steps": 9}}]}
    training.check_environment("dqn", name, limit)
    assert not [line for line in caplog.messages if "time limit" in line]


@pytest.mark.parametrize(
    ("space", "hyperparams", "message"),
    [
        (gym.spaces.Box(-1.0, 1.0, (2, 2)), {}, "Actions of Box.* have no quantized form here"),
        (gym.spaces.Discrete(2), {"policy_kwargs": "dict(activation_fn=nn.PReLU)"},
         "is a PReLU, which has no quantized form here"),
    ],
)
def test_what_no_tool_could_act_with_is_not_trained(
    tmp_path, monkeypatch, space, hyperparams, message
):
    name = "OddActions-v0"
    spec = gym.envs.registration.EnvSpec(
        name, lambda: gym.wrappers.TransformAction(gym.make("CartPole-v1"), lambda _: 0, space),
        max_episode_steps=50,
    )
    monkeypatch.setitem(gym.registry, name, spec)
    with pytest.raises(errors.UserError, match=message):
        training.train(
            small.settings(tmp_path, env=name, hyperparams={**small.SMALL_PPO, **hyperparams})
        )
    assert not list(tmp_path.rglob("*_1"))


def test_what_sb3_writes_into_hyperparams_is_not_noted_as_asked_for(tmp_path):
    asked = {"policy_kwargs": {"net_arch": [8, 8]}}  # A2C's optimizer is put beside it.
    wanted = small.settings(tmp_path, algo="a2c", steps=64, hyperparams=asked)
    path = training.train(wanted)
    assert asked == {"policy_kwargs": {"net_arch": [8, 8]}}
    noted = zoo_files.read_yaml(path.parent / small.CARTPOLE / "args.yml")
    assert noted["hyperparams"] == asked
    finding.load("a2c", small.CARTPOLE, tmp_path)


def test_no_stacking_may_be_asked_for(tmp_path):
    unstacked = {**small.SMALL_PPO, "frame_stack": None}
    training.train(small.settings(tmp_path, steps=64, hyperparams=unstacked))
    assert finding.load("ppo", small.CARTPOLE, tmp_path).make_env().observation_space.shape == (4,)


def test_an_agent_of_one_step_in_several_environments_can_be_loaded(tmp_path):
    one_step = {**small.SMALL_PPO, "n_steps": 1, "batch_size": 4}
    training.train(small.settings(tmp_path, steps=64, num_envs=4, hyperparams=one_step))
    agent = finding.load("ppo", small.CARTPOLE, tmp_path)
    assert agent.act(np.zeros((1, 4), np.float32)).shape == (1,)


def test_what_could_not_be_quantized_is_not_trained(tmp_path, monkeypatch):
    name = "Named-v0"
    spec = gym.envs.registration.EnvSpec(
        name, lambda: gym.wrappers.TransformObservation(
            gym.make("CartPole-v1"), lambda seen: {"seen": seen},
            gym.spaces.Dict({"seen": gym.make("CartPole-v1").observation_space}),
        ),
        max_episode_steps=50,
    )
    monkeypatch.setitem(gym.registry, name, spec)
    with pytest.raises(errors.UserError, match="of a Dict space .*FlattenObservation makes"):
        training.train(small.settings(tmp_path, env=name))
    wrapper = {"env_wrapper": "gymnasium.wrappers.FlattenObservation"}
    training.check_environment("ppo", name, wrapper)
    assert not list(tmp_path.rglob("*_1"))


def test_renamed_environment_trains_as_its_successor(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(environments, "_told", set())  # It is said once in a process.
    with caplog.at_level(logging.INFO, logger="absl"):
        path = training.train(
            small.settings(tmp_path, algo="a2c", env="LunarLander-v2", steps=40, hyperparams=None)
        )

    assert path == tmp_path / "a2c/LunarLander-v3_1/LunarLander-v3.zip"
    assert "LunarLander-v2 does not exist any more" in caplog.text


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (small.CARTPOLE, small.CARTPOLE),
        ("LunarLanderContinuous-v2", "LunarLanderContinuous-v3"),
        ("HalfCheetah-v3", "HalfCheetah-v4"),
        ("BreakoutNoFrameskip-v4", "BreakoutNoFrameskip-v4"),
    ],
)
def test_training_name_is_what_exists_today(asked, expected):
    assert environments.training_name(asked) == expected


def test_hyperparameters_of_a_sibling_version_are_taken(tmp_path):
    path = training.train(
        small.settings(tmp_path, algo="a2c", env="CartPole-v0", steps=40, hyperparams=None)
    )

    config = zoo_files.read_yaml(path.parent / "CartPole-v0/config.yml")
    assert config["n_envs"] == 8
    assert config["n_timesteps"] == 500_000.0


def test_bfloat16_features_are_near_those_of_float32(tmp_path):
    seen = {}

    def compare(model):
        image = torch.randint(0, 256, (4, 4, 84, 84), generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            seen["bfloat16"] = model.policy.extract_features(image)
            for module in model.policy.modules():
                module.__dict__.pop("forward", None)
            seen["float32"] = model.policy.extract_features(image)
        return []

    training.train(
        small.settings(
            tmp_path, algo="a2c", env="BreakoutNoFrameskip-v4", steps=10, num_envs=2,
            hyperparams=None, precision="bf16",
        ),
        compare,
    )

    assert seen["bfloat16"].dtype == torch.float32
    assert not torch.equal(seen["bfloat16"], seen["float32"])
    torch.testing.assert_close(seen["bfloat16"], seen["float32"], rtol=0.03, atol=0.02)
    agent = finding.load("a2c", "BreakoutNoFrameskip-v4", tmp_path)
    assert agent.network.image


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": "NoSuch-v0"}, "no environment NoSuch-v0"),
        ({"env": "Pendulum-v1", "algo": "dqn"}, "a2c, ppo, ddpg, td3, sac can"),
        ({"algo": "ddpg"}, "Box space"),
        ({"env": "CarRacing-v3", "algo": "a2c", "hyperparams": None}, "no tuned"),
        ({"hyperparams": {"nonsense": 1}}, "nonsense"),
        ({"hyperparams": {"policy_kwargs": "dict(net_arch=[64]"}}, "hyperparams: .*never closed"),
        ({"hyperparams": {"policy_kwargs": "dict(activation_fn=nn.Foo)"}}, "hyperparams: .*Foo"),
        ({"env": "Pendulum-v1", "algo": "ddpg", "hyperparams": {"noise_type": "gauss"}},
         "hyperparams: Unknown noise type"),
        ({"precision": "bf16"}, "images"),
        ({"precision": "half"}, "auto, fp32, bf16, fp16"),
        ({"resume": True}, "no unfinished run"),
        ({"steps": 0}, "at least 1"),
        ({"seed": -1}, "at least 0"),
        ({"seed": 2**32}, "at most 4294967295"),
        ({"num_envs": 0}, "at least 1"),
        ({"algo": "tqc"}, "a2c, ppo, dqn, ddpg, td3, sac"),
        ({"device": "tpu"}, "auto, cpu, cuda"),
    ],
)
def test_impossible_settings_are_one_line_and_leave_nothing(tmp_path, changes, message):
    with pytest.raises(errors.UserError, match=message) as raised:
        training.train(small.settings(tmp_path, **changes))

    assert "\n" not in str(raised.value)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_hyperparams_are_read_as_yaml():
    texts = ["learning_rate:1e-3", "n_steps:8", "normalize:true", "clip_range:lin_0.2", "a:b:c"]

    assert settings.parse_hyperparams(texts) == {
        "learning_rate": 0.001, "n_steps": 8, "normalize": True, "clip_range": "lin_0.2",
        "a": "b:c",
    }
    for text in ("n_steps", ":8", "n_steps:", "n_steps:[1"):
        with pytest.raises(errors.UserError, match="name:value"):
            settings.parse_hyperparams([text])


def test_progress_lines_say_how_far_the_run_is(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(training, "PROGRESS_PERIOD_S", 0.0)
    with caplog.at_level(logging.INFO, logger="absl"):
        training.train(small.settings(tmp_path, steps=320))

    lines = [line for line in caplog.messages if re.search(r"of 320 steps \(", line)]
    assert any("(50.0 %)" in line for line in lines)
    assert re.search(r"mean score \d+\.\d\d of the last \d+ episodes", lines[-1])


@pytest.mark.parametrize("asked", [True, False])
def test_progress_is_a_bar_where_one_is_asked_for(tmp_path, monkeypatch, asked):
    shown = []
    for name in ("_on_training_start", "_on_step", "_on_training_end"):
        monkeypatch.setattr(
            callbacks.ProgressBarCallback, name, lambda self: shown.append(self) or True
        )
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    training.train(small.settings(tmp_path, steps=16, progress=asked))
    assert bool(shown) == asked


def test_command_line_saves_on_sigterm_and_goes_on(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "baseline.train", "--algo=ppo", f"--env={small.CARTPOLE}",
         f"--folder={tmp_path}", "-n", "100000000", "--save-freq=500",
         "--hyperparams", "n_envs:4", "n_steps:16", "batch_size:64", "n_epochs:1"],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )
    path = tmp_path / f"ppo/{small.CARTPOLE}_1/{small.CARTPOLE}.zip"
    deadline_s = time.monotonic() + 240
    while not path.exists() and process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.05)
    running = process.poll() is None
    mapped = pathlib.Path(f"/proc/{process.pid}/maps").read_text() if running else ""
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=240)

    assert process.returncode == 130, output
    steps = small.readable(path)["num_timesteps"]
    assert f"The run stopped at step {steps} of 100000000: --resume goes on." in output
    assert "n_envs:4" in (path.parent / small.CARTPOLE / "command.txt").read_text()
    # Curves need no TensorFlow, which would cost seconds and half a gigabyte.
    assert "libtorch" in mapped and "libtensorflow" not in mapped
    events = event_accumulator.EventAccumulator(str(path.parent / "tensorboard")).Reload()
    assert events.Scalars("train/loss")[-1].step <= steps
    seen = small.Recorder()
    training.train(
        small.settings(tmp_path, steps=100_000_000, resume=True), lambda model: [seen],
        small.stop_after(3),
    )
    assert seen.steps[0] == steps + 4


def test_help_names_the_flags_at_once():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "baseline.train", "--help"],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )

    assert done.returncode == 0
    assert all(flag in done.stdout for flag in ("--algo", "-n,--steps", "--[no]resume"))
    assert "torch" not in done.stderr


def test_command_line_tells_user_errors_in_one_line(tmp_path, run_commands):
    (done,) = run_commands("train", [
        ["--algo=ppo", f"--env={small.CARTPOLE}", f"--folder={tmp_path}", "--steps=0"],
    ])

    assert done.error("train") == "steps must be at least 1, not 0."
