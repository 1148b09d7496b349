"""Agents are played, shown and filmed."""

import gymnasium as gym
import imageio.v2 as imageio
import numpy as np
import pytest

from actorQ.core import errors
from baseline import enjoy
from baseline.agents import evaluation
from baseline.agents import finding
from baseline.quantization import schemes
from tests.baseline import small_agents


@pytest.fixture(scope="module")
def drawable(tmp_path_factory):
    """Agents of Box2D, PyBullet and MuJoCo, whose pictures come in three ways."""
    folder = tmp_path_factory.mktemp("drawable")
    for saved, name in (
        ("LunarLander-v2", "LunarLander-v3"), ("HopperBulletEnv-v0", "HopperBulletEnv-v0"),
        ("Hopper-v3", "Hopper-v4"),
    ):
        made = small_agents.model("ppo", small_agents.vector(name))
        small_agents.save(folder, "ppo", saved, made)
    return folder


def test_text(zoo, run_commands):
    base = ["--algo=ppo2", "--env=CartPole-v1", f"--folder={zoo.folder}"]
    played, again, other, short = run_commands("enjoy", [
        [*base, "--no-render", "-n", "60"], [*base, "--norender", "--n-timesteps=60"],
        [*base, "--no-render", "-n", "60", "--seed=1"],
        ["--algo=a2c", "--env=Pendulum-v1", f"--folder={zoo.folder}", "--no-render", "-n", "3"],
    ])
    assert [answer.code for answer in (played, again, other, short)] == [0] * 4, played
    path = finding.find("ppo", "CartPole-v1", zoo.folder)
    lines = played.out.splitlines()
    assert lines[0] == f"ppo CartPole-v1, full precision: {path}"
    agent = finding.load("ppo", "CartPole-v1", zoo.folder)
    expected = [
        episode for episode in evaluation.evaluate(agent.make_env, agent.act, 10, 0, num_envs=1)
    ]
    steps = np.cumsum([episode.length for episode in expected])
    count = int((steps <= 60).sum())
    # Evaluations have the same starts.
    assert lines[1:-1] == [
        f"episode {number}: return {episode.episode_return:.2f}, {episode.length} steps"
        for number, episode in enumerate(expected[:count], 1)
    ]
    returns = [episode.episode_return for episode in expected[:count]]
    assert lines[-1] == (
        f"Return {np.mean(returns):.2f} +- {np.std(returns):.2f} over {count} episodes"
    )
    assert again.out == played.out != other.out
    assert played.err == ""
    assert "No episode ended within 3 steps; reward so far -" in short.out


def test_films_of_every_library(drawable, tmp_path, run_commands):
    films = [tmp_path / "new/box2d.mp4", tmp_path / "bullet.gif", tmp_path / "mujoco.gif"]
    names = ["LunarLander-v2", "HopperBulletEnv-v0", "Hopper-v3"]
    answers = run_commands(
        "enjoy",
        [["--algo=ppo", f"--env={name}", f"--folder={drawable}", "-n", "6", f"--video={film}"]
         for name, film in zip(names, films, strict=True)],
        DISPLAY="", WAYLAND_DISPLAY="",
    )
    for film, answer in zip(films, answers, strict=True):
        assert answer.code == 0, answer
        assert f"Film: {film}" in answer.err
        frames = imageio.mimread(film, memtest=False)
        assert 2 <= len(frames) <= 6  # A .gif shows no more than 50 a second.
        picture = np.asarray(frames[0])[..., :3]
        assert picture.shape[0] >= 200 and picture.std() > 5  # Something is to be seen.


def test_quantized_agents_are_played(zoo, tmp_path, run_commands):
    agent = finding.load("a2c", "Pendulum-v1", zoo.folder)
    scheme = schemes.Scheme("2", schemes.WEIGHTS_AND_ACTIVATIONS)
    schemes.quantize_weights(agent.network, scheme)
    ranges = {name: (-1.0, 1.0) for name, _ in agent.network.with_weights()}
    agent.note_quantization(scheme, ranges)
    agent.save(tmp_path)
    (answer,) = run_commands("enjoy", [
        ["--algo=a2c", "--env=Pendulum-v1", f"--folder={tmp_path}", "--no-render", "-n", "200"]
    ])
    assert answer.code == 0, answer
    lines = answer.out.splitlines()
    assert lines[0].startswith("a2c Pendulum-v1, 2 bits (weights+activations): ")
    (episode,) = evaluation.evaluate(agent.make_env, agent.act, 1, 0)
    assert lines[1] == f"episode 1: return {episode.episode_return:.2f}, 200 steps"


def test_mistakes_are_one_line_each(zoo, tmp_path, run_commands):
    good = ["--algo=ppo", "--env=CartPole-v1", f"--folder={zoo.folder}", "-n", "3"]
    (tmp_path / "file").write_text("")
    cases = {
        "There is no display for a window: --no-render plays without a window": good,
        "its name must end in .mp4 or .gif": [*good, f"--video={tmp_path / 'film.avi'}"],
        "Cannot write": [*good, f"--video={tmp_path / 'file' / 'film.mp4'}"],
        "There is no agent ppo Acrobot-v1": [
            "--algo=ppo", "--env=Acrobot-v1", f"--folder={zoo.folder}"
        ],
        "'ars' is not known": ["--algo=ars", "--env=CartPole-v1", f"--folder={zoo.folder}"],
        "does not know what to do with 'more'": [*good, "more"],
        "Cannot fetch huggingface.co/sb3/ppo-Acrobot-v1": [
            "--algo=ppo", "--env=Acrobot-v1", f"--folder={tmp_path}", "--hub"
        ],
    }
    answers = run_commands(
        "enjoy", list(cases.values()), DISPLAY="", WAYLAND_DISPLAY="",
        HF_ENDPOINT="http://127.0.0.1:9",
    )
    for (expected, command), answer in zip(cases.items(), answers, strict=True):
        if "--hub" in command:
            answer = answer._replace(err=answer.err.partition("\n")[2])
        assert expected in answer.error("enjoy"), answer
    for answer in run_commands("enjoy", [["--algo=ppo"], [*good, "-n", "0"], [*good, "--seed=-1"]]):
        assert answer.code == 2
        assert answer.err.startswith("enjoy: error: ") and len(answer.err.splitlines()) == 1


def test_pictures_that_cannot_be_drawn_are_an_error(zoo, tmp_path, monkeypatch):
    agent = finding.load("ppo", "CartPole-v1", zoo.folder)

    def render(self):
        raise gym.error.DependencyNotInstalled("pygame is not installed")

    monkeypatch.setattr(
        "gymnasium.envs.classic_control.cartpole.CartPoleEnv.render", render
    )
    with pytest.raises(errors.UserError, match="Cannot draw CartPole-v1: pygame is not installed"):
        enjoy.play(agent, 3, 0, "rgb_array", str(tmp_path / "film.gif"))
    assert list(tmp_path.iterdir()) == []


def test_losing_a_life_is_no_end_of_an_episode(atari_zoo, capsys):
    agent = finding.load("ppo", "BreakoutNoFrameskip-v4", atari_zoo.folder)
    ends = []
    make_env = agent.make_env

    def noted(mode):
        env = make_env(mode)
        step = env.step

        def counted(action):
            answer = step(action)
            ends.append(answer[2] or answer[3])
            return answer

        env.step = counted
        return env

    agent.make_env = noted
    returns, _ = enjoy.play(agent, 250, 0, None, "")
    assert sum(ends) > len(returns)
    assert capsys.readouterr().out.count("episode ") == len(returns)
