"""Presets: what presets.yaml says, what a task gets, and where a run's settings come from."""

import dataclasses

import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import presets
from actorQ.core import settings

CONTENT = {
    "fallback": {"batch_size": 128, "sigma": 0.3},
    "paper": {"n_actors": 4},
    "tasks": {
        "atari,*": {"batch_size": 32, "n_step": 3},
        "atari,Pong": {"n_step": 1},
        "gym,CartPole-v1": {"sigma": 0.1},
    },
}


@pytest.fixture(name="content")
def _content(monkeypatch):
    monkeypatch.setattr(presets, "_read", lambda: CONTENT)


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_is_legal(name):
    task = name if "," in name else "gym,Task-v0"
    values = presets.resolve(name, task)
    fields = {field.name: field for field in dataclasses.fields(config_lib.RunConfig)}
    for setting, value in values.items():
        wanted = fields[setting].type
        types = (float, str) if settings.takes_auto(fields[setting]) else (wanted,)
        types = (float, type(None)) if wanted == float | None else types
        assert type(value) in types, setting
    config_lib.RunConfig(taskstr=task, preset=name, **values)


def test_no_preset_has_what_the_launcher_sets():
    private = config_lib.names_of(settings.Kind.LAUNCHED)
    for name in presets.names():
        assert not private & set(presets.resolve(name, name)), name


@pytest.mark.parametrize(
    ("preset", "task", "expected"),
    [
        ("auto", "gym,Task-v0", {"batch_size": 128, "sigma": 0.3}),
        ("auto", "CartPole-v1", {"batch_size": 128, "sigma": 0.1}),
        ("auto", "gym, CartPole-v1", {"batch_size": 128, "sigma": 0.1}),
        ("auto", "atari,Breakout", {"batch_size": 32, "sigma": 0.3, "n_step": 3}),
        ("auto", "atari,Pong", {"batch_size": 32, "sigma": 0.3, "n_step": 1}),
        ("fallback", "atari,Pong", {"batch_size": 128, "sigma": 0.3}),
        ("gym,CartPole-v1", "atari,Pong", {"batch_size": 128, "sigma": 0.1}),
        ("paper", "gym,CartPole-v1", {"n_actors": 4}),
        ("none", "gym,CartPole-v1", {}),
    ],
)
@pytest.mark.usefixtures("content")
def test_resolve_takes_the_layers_of_a_preset(preset, task, expected):
    assert presets.resolve(preset, task) == expected


@pytest.mark.usefixtures("content")
def test_resolve_unknown_preset_names_those_that_are_known():
    with pytest.raises(errors.UserError, match="--preset=x.*auto, fallback, paper, none, atari"):
        presets.resolve("x", "gym,CartPole-v1")


@pytest.mark.usefixtures("content")
def test_origins_names_every_source():
    config = config_lib.RunConfig(
        taskstr="atari,Pong", preset="auto", n_step=1, batch_size=32, sigma=0.5, seed=3,
        logpath="elsewhere", launch_id=7,
    )
    assert presets.origins(config) == {
        "atari,Pong": ["n_step"],
        "atari,*": ["batch_size"],
        "command line": ["taskstr", "seed", "sigma"],
    }
    assert presets.describe(config) == (
        "tuned for atari,Pong and atari,*, with --seed, --sigma as given"
    )


@pytest.mark.parametrize(
    ("preset", "text"),
    [
        ("auto", "the fallback for tasks without tuned ones"),
        ("fallback", "the fallback for tasks without tuned ones"),
        ("paper", "the paper's"),
        ("none", "the defaults of the code"),
        ("atari,Pong", "tuned for atari,Pong"),
    ],
)
@pytest.mark.usefixtures("content")
def test_describe_names_the_preset(preset, text):
    config = config_lib.RunConfig(
        taskstr="gym,Task-v0", preset=preset, **presets.resolve(preset, "gym,Task-v0")
    )
    assert presets.describe(config) == text
