"""ActorQ's policies go through the same quantization, and back to ActorQ."""

import gymnasium as gym
import numpy as np
import pytest

from actorQ import evaluate
from actorQ.core import errors
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import quantization
from actorQ.policy import saved as checkpoints
from baseline.agents import actorq
from baseline.agents import evaluation
from baseline.quantization import acting_path
from baseline.quantization import schemes
from baseline.study import measuring
from baseline.study import row_agents
from baseline.study import rows as rows_lib
from tests.actorQ import harness

PENDULUM, CARTPOLE, PONG = "gym,Pendulum-v1", "gym,CartPole-v1", "atari,Pong"


def checkpoint(task, shape, outputs, head, hidden=(16, 12), seed=0, **facts):
    discrete = head == architecture_lib.Q_VALUES_HEAD
    return harness.random_checkpoint(
        architecture_lib.PolicyArchitecture(shape, hidden, outputs, head),
        {"taskstr": task, "max_episode_steps": 60, "learner_steps": 5,
         "action_low": None if discrete else [-2.0] * outputs,
         "action_high": None if discrete else [2.0] * outputs, **facts},
        seed,
    )


@pytest.fixture
def runs(tmp_path):
    """Run folders of the three kinds."""
    made = {
        "d4pg": checkpoint(PENDULUM, (3,), 1, "tanh"),
        "dqn": checkpoint(CARTPOLE, (4,), 2, "q_values"),
        "pixels": checkpoint(PONG, (84, 84, 4), 6, "q_values", hidden=(16,)),
    }
    for name, policy in made.items():
        checkpoints.save_policy(str(tmp_path / name / "checkpoint"), policy)
    return tmp_path


CASES = [("d4pg", PENDULUM, "d4pg"), ("dqn", CARTPOLE, "dqn"), ("dqn", PONG, "pixels")]


def observations(policy, count=100, seed=0):
    shape = policy.checkpoint.architecture.observation_shape
    rng = np.random.default_rng(seed)
    if policy.checkpoint.architecture.pixels:
        return rng.integers(0, 256, (12, *shape), np.uint8)
    return rng.normal(0, 2, (count, *shape)).astype(np.float32)


def assert_acts_alike(agent, policy):
    """Compares with ActorQ's own policy."""
    seen = observations(policy)
    as_here = seen.transpose(0, 3, 1, 2) if seen.ndim == 4 else seen
    actions = agent.act(as_here)
    expected = np.stack([policy.scaled(observation) for observation in seen])
    if agent.network.head == "argmax":
        np.testing.assert_array_equal(actions, expected)
        assert [policy(observation) for observation in seen] == list(actions)
    else:
        np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-6)
        native = np.stack([policy(observation) for observation in seen])
        np.testing.assert_allclose(2.0 * actions, native, rtol=1e-5, atol=1e-5)
    assert len(np.unique(actions)) > 1


@pytest.mark.parametrize(("algo", "task", "run"), CASES)
def test_act_is_what_actorq_does(runs, algo, task, run):
    agent = actorq.load(algo, task, runs / run)
    assert (agent.algo, agent.env_id) == (algo, task)
    assert agent.path == runs / run / "checkpoint/policy.safetensors"
    assert agent.network.image == (run == "pixels")
    assert_acts_alike(agent, evaluate.load_policy(str(runs / run)))


# Pendulum's observations are within 1, 1 and 8.
SCALED = {"observation_scale": [[1.0, 1.0, 0.125], [0.0, 0.5, 0.0]]}


def test_policies_trained_with_scaled_observations_take_the_tasks_own(tmp_path):
    saved = checkpoint(PENDULUM, (3,), 1, "tanh", **SCALED)
    checkpoints.save_policy(str(tmp_path), saved)
    agent = actorq.load("d4pg", PENDULUM, tmp_path)
    assert_acts_alike(agent, evaluate.load_policy(str(tmp_path)))
    plain = actorq.load("d4pg", PENDULUM, _saved(tmp_path / "plain"))
    observation, _ = agent.make_env().reset(seed=3)
    np.testing.assert_array_equal(observation, plain.make_env().reset(seed=3)[0])
    scaled = observation * [1, 1, 0.125] + [0, 0.5, 0]
    np.testing.assert_allclose(agent.act(observation[None]), plain.act(scaled[None]), rtol=1e-6)


def test_actions_for_a_device_are_in_the_units_of_the_task(tmp_path):
    bounds = {
        "action_low": [-2.0, 0.5, -1e10, -5.0, 0.0], "action_high": [2.0, 3.0, 1e10, np.inf, 9.0],
    }
    checkpoints.save_policy(str(tmp_path), checkpoint(PENDULUM, (3,), 5, "tanh", **bounds))
    agent = actorq.load("d4pg", PENDULUM, tmp_path)
    native = actorq.native_network(agent)
    assert native.low.tolist() == [-2.0, 0.5, -1.0, -1.0, 0.0]
    assert native.high.tolist() == [2.0, 3.0, 1.0, 1.0, 9.0]
    policy = evaluate.load_policy(str(tmp_path))
    seen = observations(policy)
    found = acting_path.to_actions(native, acting_path.forward(native, seen).numpy())
    np.testing.assert_allclose(found, [policy(each) for each in seen], rtol=1e-5, atol=1e-5)
    # The way back gives the actions that the agent's environments take.
    act = actorq.act_in_task(agent, lambda _: found)
    np.testing.assert_allclose(act(seen), agent.act(seen), rtol=1e-5, atol=1e-5)
    one_sided = {"action_low": [-0.5], "action_high": [np.inf]}
    checkpoints.save_policy(str(tmp_path), checkpoint(PENDULUM, (3,), 1, "tanh", **one_sided))
    with pytest.raises(errors.UserError, match="has a bound on one side only"):
        actorq.native_network(actorq.load("d4pg", PENDULUM, tmp_path))


def _saved(folder):
    checkpoints.save_policy(str(folder), checkpoint(PENDULUM, (3,), 1, "tanh"))
    return folder


def test_images_that_are_not_square(tmp_path):
    made = checkpoint("atari,Pong", (60, 84, 3), 5, "q_values", hidden=(8,))
    checkpoints.save_policy(str(tmp_path), made)
    agent = actorq.load("dqn", "atari,Pong", tmp_path)
    assert_acts_alike(agent, evaluate.load_policy(str(tmp_path)))
    agent.save(tmp_path / "saved")
    again = checkpoints.load_policy(str(tmp_path / "saved/dqn/atari,Pong"))
    for name, array in made.weights.items():
        np.testing.assert_array_equal(again.weights[name], array)


@pytest.mark.parametrize(("algo", "task", "run"), CASES)
@pytest.mark.parametrize("bits", ["4", "fp16"])
def test_quantized_policies_are_read_by_both(runs, tmp_path, algo, task, run, bits):
    agent = actorq.load(algo, task, runs / run)
    scheme = schemes.Scheme(bits)
    schemes.quantize_weights(agent.network, scheme)
    agent.note_quantization(scheme, None)
    path = agent.save(tmp_path / "quantized")
    assert path == tmp_path / "quantized" / algo / task / "policy.safetensors"
    again = actorq.load(algo, task, tmp_path / "quantized")
    assert again.quantization == (scheme, None) and again.path == path
    policy = evaluate.load_policy(str(path))
    for loaded in (agent, again):
        assert_acts_alike(loaded, policy)
    before = checkpoints.load_policy(str(runs / run))
    assert policy.checkpoint.architecture == before.architecture
    assert policy.checkpoint.facts == before.facts
    for name, array in before.weights.items():
        saved = policy.checkpoint.weights[name]
        if name.endswith("bias"):
            np.testing.assert_array_equal(saved, array)
        elif bits == "fp16":
            np.testing.assert_array_equal(saved, array.astype(np.float16))
        else:
            stored = quantization.quantize_affine(array, 4, per_channel=array.ndim == 4)
            np.testing.assert_array_equal(saved, quantization.dequantize(stored))


def test_rows_of_actorqs_policies(runs, tmp_path):
    out = tmp_path / "out"
    rows = {}
    for algo, task, run in CASES[:2]:
        request = measuring.Request(
            algo, task, schemes.Scheme("8", schemes.WEIGHTS_AND_ACTIVATIONS), str(runs / run),
            str(out), (0, 1), 2, 1,
        )
        rows[run] = measuring.measure(request)
        # The saved agent plays as measured.
        agent = row_agents.load_agent(algo, task, str(out / "8-activations"))
        played = [evaluation.evaluate(agent.make_env, agent.act, 2, seed) for seed in (0, 1)]
        returns = [e.episode_return for part in played for e in part]
        assert returns == pytest.approx(rows[run].returns, rel=1e-6)  # Rows are rounded.
    assert rows["dqn"].mean > 1 and rows["d4pg"].mean < -100
    assert {(row.algo, row.env, row.bits) for row in rows_lib.read(request.csv_path)} == {
        ("d4pg", PENDULUM, "fp32"), ("d4pg", PENDULUM, "8"), ("dqn", CARTPOLE, "fp32"),
        ("dqn", CARTPOLE, "8"),
    }
    # Without the checksums, agents are compared by their weights.
    (out / row_agents.AGENTS_FILENAME).unlink()
    row_agents.check_same_agent(request, row_agents.agent_path(algo, task, request.folder))
    assert (out / row_agents.AGENTS_FILENAME).exists()


def test_episodes_are_those_of_the_task(runs):
    agent = actorq.load("d4pg", PENDULUM, runs / "d4pg")
    env = agent.make_env()
    assert isinstance(env, gym.Env) and env.render_mode == "rgb_array"
    first, _ = env.reset(seed=3)
    total, length, over = 0.0, 0, False
    observation = first
    while not over:
        observation, reward, terminated, truncated, info = env.step(agent.act(observation[None])[0])
        total, length, over = total + reward, length + 1, terminated or truncated
        assert ("episode" in info) == over
    # The limit that the policy was trained with cuts the episode, which is no end.
    assert (length, truncated, terminated) == (60, True, False)
    assert info["episode"] == {"r": pytest.approx(total), "l": 60}
    assert env.render().shape[2] == 3 and env.render_fps > 0
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(first, again)
    env.close()
    env.close()
    played = evaluation.evaluate(agent.make_env, agent.act, 3, 1, num_envs=1)
    at_once = evaluation.evaluate(agent.make_env, agent.act, 3, 1, num_envs=3)
    np.testing.assert_allclose(
        [e.episode_return for e in played], [e.episode_return for e in at_once], rtol=1e-4
    )


def test_images_have_their_channels_first(runs):
    agent = actorq.load("dqn", PONG, runs / "pixels")
    env = agent.make_env()
    observation, _ = env.reset(seed=0)
    assert (observation.shape, observation.dtype) == ((4, 84, 84), np.uint8)
    observation, *_ = env.step(agent.act(observation[None])[0])
    assert observation.shape == (4, 84, 84)
    env.close()


def test_file_of_a_run_is_the_last_policy(tmp_path):
    made = checkpoint(PENDULUM, (3,), 1, "tanh")
    checkpoints.save_policy(str(tmp_path / "checkpoint" / "best"), made)
    checkpoints.save_policy(str(tmp_path / "checkpoint"), made)
    expected = tmp_path / "checkpoint/policy.safetensors"
    assert actorq.find("d4pg", PENDULUM, tmp_path) == expected
    assert actorq.find("d4pg", PENDULUM, expected) == expected


def test_task_is_written_as_people_do(runs, tmp_path):
    agent = actorq.load("d4pg", "gym, Pendulum-v1", runs / "d4pg")
    assert agent.save(tmp_path / "q").parent.name == PENDULUM
    assert actorq.load("d4pg", "Pendulum-v1", runs / "d4pg").algo == "d4pg"
    made = checkpoint("atari,ALE/Pong-v5", (84, 84, 4), 6, "q_values", hidden=(8,))
    checkpoints.save_policy(str(tmp_path / "ale"), made)
    agent = actorq.load("dqn", "atari,ALE/Pong-v5", tmp_path / "ale")
    path = agent.save(tmp_path / "q")
    assert path.parent == tmp_path / "q/dqn/atari,ALE-Pong-v5"
    assert actorq.load("dqn", "atari,ALE/Pong-v5", tmp_path / "q").path == path


@pytest.mark.parametrize(
    ("algo", "task", "run", "match"),
    [
        ("dqn", PENDULUM, "d4pg", "holds a policy of d4pg, not of dqn"),
        ("d4pg", CARTPOLE, "dqn", "holds a policy of dqn, not of d4pg"),
        ("ppo", CARTPOLE, "dqn", "holds a policy of dqn, not of ppo"),
        ("d4pg", "gym,Acrobot-v1", "d4pg", "a policy for gym,Pendulum-v1, not for gym,Acrobot-v1"),
        ("d4pg", "nowhere,Acrobot-v1", "d4pg", "nowhere"),
        ("d4pg", PENDULUM, "missing", "There is no folder .*missing: --folder names an ActorQ run"),
        ("d4pg", PENDULUM, ".", "No policy at"),
    ],
)
def test_mistakes_are_one_line(runs, algo, task, run, match):
    with pytest.raises(errors.UserError, match=match) as caught:
        row_agents.load_agent(algo, task, str(runs / run))
    assert len(str(caught.value).splitlines()) == 1


def test_damaged_policies_are_an_error(runs, tmp_path):
    path = runs / "d4pg/checkpoint/policy.safetensors"
    content = path.read_bytes()
    for damaged in (b"", content[:100], b"nonsense" * 50):
        path.write_bytes(damaged)
        with pytest.raises(errors.UserError, match="is damaged"):
            actorq.load("d4pg", PENDULUM, runs / "d4pg")
    made = checkpoint(PENDULUM, (3,), 1, "tanh")
    made.weights["head.bias"][0] = np.nan
    checkpoints.save_policy(str(path.parent), made)
    with pytest.raises(errors.UserError, match="is damaged: head.bias has NaN or infinity"):
        actorq.load("d4pg", PENDULUM, runs / "d4pg")


def test_interrupted_save_leaves_what_was_there(runs, tmp_path, monkeypatch):
    agent = actorq.load("d4pg", PENDULUM, runs / "d4pg")
    path = agent.save(tmp_path / "q")
    before = path.read_bytes()
    schemes.quantize_weights(agent.network, schemes.Scheme("2"))

    def interrupt(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(agent, "write_quantization", interrupt)
    with pytest.raises(KeyboardInterrupt):
        agent.save(tmp_path / "q")
    assert path.read_bytes() == before


def test_window_is_an_error(runs):
    agent = actorq.load("d4pg", PENDULUM, runs / "d4pg")
    with pytest.raises(errors.UserError, match="no window: --video=FILE.mp4 films"):
        agent.make_env("human")


def test_commands_take_actorqs_policies(runs, tmp_path, run_commands):
    base = [f"--folder={runs / 'd4pg'}", f"--out={tmp_path / 'out'}", "--episodes=1", "--seeds=0"]
    ptq, sweep = run_commands("ptq", [["d4pg", PENDULUM, "8", *base]]), run_commands(
        "sweep", [["d4pg", PENDULUM, "--bits=8", *base]]
    )
    assert ptq[0].code == sweep[0].code == 0, (ptq, sweep)
    assert "1 of 1 rows of fp32 are there already." in sweep[0].out
    folder = tmp_path / "out/8"
    (played,) = run_commands("enjoy", [
        ["--algo=d4pg", f"--env={PENDULUM}", f"--folder={folder}", "-n", "60",
         f"--video={tmp_path / 'film.gif'}"],
    ])
    assert played.code == 0, played
    assert "8 bits (weights)" in played.out and "episode 1: return" in played.out
    assert (tmp_path / "film.gif").stat().st_size > 1000
