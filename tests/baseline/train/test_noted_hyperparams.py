"""Hyper-parameters that a run's folder may note: none may run code of its author."""

import pathlib

import pytest
import yaml

from actorQ.core import errors
from baseline.quantization import names
from baseline.train import experiment
from baseline.train import noted_hyperparams
from baseline.train import state

# The zoo names wrappers for them, and for MiniGrid, of packages or releases that are not here.
WITHOUT_WRAPPERS = ("sac", "CarRacing-v3"), ("sac", "donkey-generated-track-v0")
ATTACK = "__import__('os').system('true')"


@pytest.mark.parametrize("algo", names.ALGOS)
def test_the_zoo_s_own_hyper_parameters_are_harmless(algo):
    checked = 0
    for config in (
        pathlib.Path(experiment.exp_manager.__file__).parent / "hyperparams" / f"{algo}.yml",
        pathlib.Path(experiment.exp_manager.__file__).parents[1] / "hyperparams" / f"{algo}.yml",
        experiment.HYPERPARAMS / f"{algo}.yml",
    ):
        for name, tuned in (yaml.safe_load(config.read_text()) if config.exists() else {}).items():
            if not (name.startswith("MiniGrid") or (algo, name) in WITHOUT_WRAPPERS):
                noted_hyperparams.check(tuned, name)
                checked += 1
    assert checked > 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy_kwargs", ATTACK),
        ("policy_kwargs", f"dict(net_arch={ATTACK})"),
        ("policy_kwargs", f"dict(net_arch=[64, {ATTACK}])"),
        ("policy_kwargs", f"dict(**{ATTACK})"),
        ("policy_kwargs", "dict(activation_fn=nn.modules.utils.os.system)"),
        ("policy_kwargs", "dict(activation_fn=nn.init)"),
        ("policy_kwargs", "[exit() for _ in range(1)]"),
        ("policy_kwargs", "(lambda: 1)()"),
        ("policy_kwargs", "dict(a=1"),
        ("policy_kwargs", "f'{exit()}'"),
        ("replay_buffer_kwargs", ATTACK),
        ("replay_buffer_class", "pathlib.Path"),
        ("replay_buffer_class", "exit"),
        ("normalize", ATTACK),
        ("monitor_kwargs", ATTACK),
        ("policy", "stranger.Policy"),
        ("vec_env_wrapper", [{"stranger.Wrapper": {"n": 1}}]),
        ("callback", ["stranger.Callback"]),
        ("callback", [{"stable_baselines3.common.save_util.load_from_pkl": {"path": "x.pkl"}}]),
        ("policy_kwargs", "dict(activation_fn=nn" + ".a" * 5000 + ")"),
    ],
)
def test_what_would_run_code_is_refused(name, value):
    message = f"RUN notes {name}: .* is more than plain values, so it is not evaluated. If it"
    with pytest.raises(errors.UserError, match=message):
        noted_hyperparams.check({"n_steps": 16, name: value}, "RUN")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("stranger.Wrapper", "is not of a library that is trusted here"),
        (["gymnasium.wrappers.FlattenObservation", {"stranger.Wrapper": {}}], "stranger.Wrapper,"),
        ([{"stable_baselines3.common.monitor.Monitor": {"filename": "x"}}], "which writes files"),
        ("gymnasium.wrappers.FlattenObservatoin", "FlattenObservatoin: there is none"),
        ([ATTACK, 5], "Cannot read env_wrapper 5"),
    ],
)
def test_a_wrapper_that_is_refused_is_told_for_what_it_is(value, message):
    with pytest.raises(errors.UserError, match=message) as raised:
        noted_hyperparams.check({"env_wrapper": value}, "RUN")
    assert str(raised.value).startswith("RUN notes env_wrapper: ")
    assert "repeat --hyperparams" not in str(raised.value)  # They are refused there as well.
    assert "plain values" not in str(raised.value)


@pytest.mark.parametrize("value", [None, 5, "policy_kwargs", [ATTACK]])
def test_no_names_with_values_are_refused(value):
    with pytest.raises(errors.UserError, match="RUN notes hyperparams"):
        noted_hyperparams.check(value, "RUN")


def test_going_on_asks_for_what_would_run_code_once_more(monkeypatch):
    noted = {"policy_kwargs": ATTACK}
    run = state.Run(
        pathlib.Path("RUN"), {"program": "baseline.train", "hyperparams": noted}, finished=False
    )
    monkeypatch.setattr(state, "runs", lambda *names: iter([run]))

    def unfinished(asked):
        return state.unfinished("zoo", "ppo", "CartPole-v1", "baseline.train", asked)

    with pytest.raises(errors.UserError, match="repeat --hyperparams"):
        unfinished({"hyperparams": {}})
    assert unfinished({"hyperparams": noted})[1]["hyperparams"] == noted
