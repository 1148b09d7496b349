"""Rows have the right columns, repeat exactly, and never mix two agents."""

import csv
import dataclasses
import hashlib
import json
import os
import shutil

import numpy as np
import pytest

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.agents import evaluation
from baseline.agents import finding
from baseline.quantization import names
from baseline.quantization import schemes
from baseline.study import measuring
from baseline.study import row_agents
from baseline.study import rows as rows_lib
from tests.baseline import small_agents

ACTIVATIONS = schemes.WEIGHTS_AND_ACTIVATIONS


def request(zoo, out, algo="a2c", env="Pendulum-v1", bits="4", scheme=schemes.WEIGHTS, **kwargs):
    return measuring.Request(
        algo, env, schemes.Scheme(bits, scheme), str(zoo.folder), str(out), (0, 3), 2, 1, **kwargs
    )


def rows_of(out):
    with open(out / "ptq.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_row_says_what_was_measured(zoo, tmp_path):
    row = measuring.measure(request(zoo, tmp_path, note="why"))
    full, quantized = rows_lib.read(str(tmp_path / "ptq.csv"))
    assert names.FP32 == full.bits and full.error is None and full.error_low is None
    assert quantized.key == row.key
    np.testing.assert_allclose(quantized.returns, row.returns, rtol=1e-6)
    assert (row.algo, row.env, row.bits, row.seeds, row.episodes) == (
        "a2c", "Pendulum-v1", "4", "0,3", 4
    )
    # Independently: SB3's model with the weights replaced, one episode after the other.
    agent = finding.load("a2c", "Pendulum-v1", zoo.folder)
    weights = []
    for name, parameter in agent.model.policy.named_parameters():
        if name.startswith(("mlp_extractor.policy_net", "action_net")) and parameter.ndim == 2:
            array = parameter.detach().numpy()
            array[:] = quantization.dequantize(quantization.quantize_affine(array, 4))
            weights.append(array.ravel())
    returns = [_play(agent, seed, number) for seed in (0, 3) for number in (0, 1)]
    np.testing.assert_allclose(row.returns, returns, rtol=1e-3)
    assert row.mean == pytest.approx(np.mean(row.returns))
    assert row.std == pytest.approx(np.std(row.returns, ddof=1))
    assert row.error == pytest.approx((full.mean - row.mean) / abs(full.mean), rel=1e-4)
    assert row.error_low <= row.error <= row.error_high
    everything = np.concatenate(weights)
    assert row.weight_min == pytest.approx(everything.min())
    assert row.weight_max == pytest.approx(everything.max())
    assert row.weight_range == pytest.approx(np.ptp(everything))
    count, biases, layers = 3 * 16 + 16 * 16 + 16, 16 + 16 + 1, 3
    assert (full.bytes, row.bytes) == (4 * (count + biases), count // 2 + 4 * biases + 5 * layers)
    assert row.seconds > 0 and row.note == "why" and len(row.commit) >= 7


def _play(agent, seed, number):
    env = agent.make_env()
    observation, _ = env.reset(seed=evaluation.episode_seed(seed, number))
    total, over = 0.0, False
    while not over:
        normal = agent.normalize(observation[None])
        action = agent.model.predict(normal, deterministic=True)[0][0]
        observation, reward, terminated, truncated, _ = env.step(action)
        total, over = total + reward, terminated or truncated
    return total


@pytest.mark.parametrize("scheme", schemes.SCHEMES)
def test_rows_repeat_to_the_last_digit(zoo, tmp_path, scheme):
    for out in ("one", "two"):
        measuring.measure(request(zoo, tmp_path / out, scheme=scheme))
    one, two = (rows_of(tmp_path / out) for out in ("one", "two"))
    for row in (*one, *two):
        del row["seconds"]
    assert one == two and len(one) == 2
    assert one[0]["returns"] != one[1]["returns"]


def test_full_precision_is_measured_once(zoo, tmp_path, monkeypatch):
    played = []
    evaluate = evaluation.evaluate

    def counted(make_env, act, episodes, seed):
        played.append(seed)
        return evaluate(make_env, act, episodes, seed)

    monkeypatch.setattr(evaluation, "evaluate", counted)
    first = measuring.measure(request(zoo, tmp_path, bits="8"))
    assert played == [0, 3] * 2
    measuring.measure(request(zoo, tmp_path, bits="6"))
    assert played == [0, 3] * 3
    rows = rows_of(tmp_path)
    assert [row["bits"] for row in rows] == ["fp32", "8", "6"]
    # Measured again: the last row counts, and is the same.
    again = measuring.measure(request(zoo, tmp_path, bits="8"))
    assert again.returns == first.returns
    # E too, whether the full precision was measured with it or was there.
    last = rows_of(tmp_path)[-1]
    assert {**last, "seconds": ""} == {**rows[1], "seconds": ""}
    assert len(rows_lib.read(str(tmp_path / "ptq.csv"))) == 3
    # Other seeds need another row to compare with.
    other = dataclasses.replace(request(zoo, tmp_path, bits="8"), seeds=(1,))
    measuring.measure(other)
    assert [row["seeds"] for row in rows_of(tmp_path)][-2:] == ["1", "1"]


def test_saved_agent_plays_as_measured(zoo, tmp_path):
    for algo, env, bits in (("a2c", "Pendulum-v1", "3"), ("dqn", "CartPole-v1", "5")):
        row = measuring.measure(request(zoo, tmp_path, algo, env, bits, ACTIVATIONS))
        folder = tmp_path / f"{bits}-activations"
        agent = finding.load(algo, env, folder)
        played = [evaluation.evaluate(agent.make_env, agent.act, 2, seed) for seed in (0, 3)]
        returns = [episode.episode_return for part in played for episode in part]
        assert row.returns == pytest.approx(returns, rel=1e-6)
        assert agent.quantization[0].bits == bits


def test_another_agent_of_the_name_is_refused(zoo, tmp_path):
    out = tmp_path / "out"
    measuring.measure(request(zoo, out, "ppo", "CartPole-v1", "fp32"))
    other = tmp_path / "other"
    made = small_agents.model("ppo", small_agents.vector("CartPole-v1"), seed=5)
    path = small_agents.save(other, "ppo", "CartPole-v1", made)
    asked = dataclasses.replace(
        request(zoo, out, "ppo", "CartPole-v1", "fp32"), folder=str(other)
    )
    with pytest.raises(errors.UserError, match="holds rows of another agent ppo CartPole-v1"):
        measuring.measure(asked)
    assert len(rows_of(out)) == 1
    # The same file somewhere else is the same agent.
    shutil.copy(finding.find("ppo", "CartPole-v1", zoo.folder), path)
    measuring.measure(asked)
    assert list(json.loads((out / "agents.json").read_text())) == ["ppo CartPole-v1"]


def test_an_agent_without_rows_may_be_replaced(zoo, tmp_path):
    made = small_agents.model("ppo", small_agents.vector("CartPole-v1"), seed=5)
    path = small_agents.save(tmp_path / "other", "ppo", "CartPole-v1", made)
    asked = request(zoo, tmp_path / "out", "ppo", "CartPole-v1", "fp32")
    row_agents.check_same_agent(asked, path)  # A sweep may end before its first row.
    measuring.measure(asked)
    with pytest.raises(errors.UserError, match="holds rows of another agent ppo CartPole-v1"):
        row_agents.check_same_agent(asked, path)


def test_rows_without_their_agents_checksum_are_told_apart_by_weights(zoo, tmp_path):
    asked = request(zoo, tmp_path / "out", "ppo", "CartPole-v1", "8")
    measuring.measure(asked)
    noted = tmp_path / "out" / row_agents.AGENTS_FILENAME
    noted.unlink()  # Somebody copied the rows alone.
    made = small_agents.model("ppo", small_agents.vector("CartPole-v1"), seed=5)
    other = small_agents.save(tmp_path / "other", "ppo", "CartPole-v1", made)
    with pytest.raises(errors.UserError, match="holds rows of another agent ppo CartPole-v1"):
        row_agents.check_same_agent(asked, other)
    assert not noted.exists()
    row_agents.check_same_agent(asked, finding.find("ppo", "CartPole-v1", zoo.folder))
    assert list(json.loads(noted.read_text())) == ["ppo CartPole-v1"]


def test_other_statistics_of_observations_make_another_agent(zoo, tmp_path):
    source = finding.find("a2c", "Pendulum-v1", zoo.folder).parent
    folder = shutil.copytree(source, tmp_path / "zoo/a2c" / source.name)
    path = folder / "Pendulum-v1.zip"
    asked = dataclasses.replace(
        request(zoo, tmp_path, bits="fp32"), folder=str(tmp_path / "zoo")
    )
    measuring.measure(asked)
    row_agents.check_same_agent(asked, path)
    with open(folder / "Pendulum-v1/vecnormalize.pkl", "ab") as file:
        file.write(b"others")
    with pytest.raises(errors.UserError, match="holds rows of another agent a2c Pendulum-v1"):
        row_agents.check_same_agent(asked, path)
    # Versions before noted the zip alone.
    of_zip = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    (tmp_path / "agents.json").write_text(json.dumps({"a2c Pendulum-v1": of_zip}))
    row_agents.check_same_agent(asked, path)


@pytest.mark.parametrize("text", ["{", "[]", "3", '"text"'])
def test_damaged_notes_of_agents_are_an_error(zoo, tmp_path, text):
    (tmp_path / "agents.json").write_text(text)
    with pytest.raises(errors.UserError, match="agents.json is damaged"):
        row_agents.check_same_agent(
            request(zoo, tmp_path), finding.find("a2c", "Pendulum-v1", zoo.folder)
        )
    assert (tmp_path / "agents.json").read_text() == text


def test_notes_of_agents_are_kept_and_ordered(zoo, tmp_path):
    (tmp_path / "agents.json").write_text("")
    for algo, env in (("ppo", "CartPole-v1"), ("a2c", "Pendulum-v1"), ("ppo", "CartPole-v1")):
        path = finding.find(algo, env, zoo.folder)
        row_agents.check_same_agent(request(zoo, tmp_path, algo, env), path)
    noted = json.loads((tmp_path / "agents.json").read_text())
    assert list(noted) == ["a2c Pendulum-v1", "ppo CartPole-v1"]
    assert all(len(checksum) == 16 for checksum in noted.values())
    assert os.listdir(tmp_path) == ["agents.json"]


def test_rows_of_another_calibration_are_refused(zoo, tmp_path):
    asked = request(zoo, tmp_path, "ppo", "CartPole-v1", scheme=ACTIVATIONS, note="why")
    assert measuring.measure(asked).note == "why; calibrated-1"
    rows = rows_lib.read(asked.csv_path)
    assert [row.note for row in rows] == ["why", "why; calibrated-1"]
    unnoted = [dataclasses.replace(row, note="") for row in rows]  # Published rows have no note.
    by_default = dataclasses.replace(asked, calibration_episodes=5)
    measuring.check_same_calibration([asked], rows)
    measuring.check_same_calibration([by_default], unnoted)
    weights = dataclasses.replace(by_default, scheme=schemes.Scheme("4"))
    measuring.check_same_calibration([weights, dataclasses.replace(by_default, env="A")], rows)
    for other, there, message in ((by_default, rows, "from 1 .*not 5"),
                                  (asked, unnoted, "from 5 .*not 1")):
        with pytest.raises(errors.UserError, match=message):
            measuring.check_same_calibration([other], there)


def test_folders_of_quantized_agents():
    def folder(*scheme):
        asked = measuring.Request("ppo", "A", schemes.Scheme(*scheme), "f", "out", (0,), 1)
        return str(measuring.quantized_folder(asked))

    assert folder("8") == "out/8"
    assert folder("fp16") == "out/fp16"
    assert folder("8", ACTIVATIONS) == "out/8-activations"
    assert folder("4", ACTIVATIONS, schemes.CHANNEL, "floor") == "out/4-activations-channel-floor"
    assert folder("4", schemes.WEIGHTS, schemes.PAPER, "floor") == "out/4-floor"


def test_key_and_full_precision(zoo, tmp_path):
    asked = request(zoo, tmp_path, bits="8", scheme=ACTIVATIONS)
    assert asked.key == rows_lib.Key(
        "a2c", "Pendulum-v1", "8", ACTIVATIONS, "paper", "nearest", "0,3", 4
    )
    assert asked.full_precision.key == asked.key._replace(bits="fp32", scheme="weights")


def test_agents_of_actorq_have_a_comma(monkeypatch):
    from baseline.agents import actorq

    monkeypatch.setattr(finding, "load", lambda *arguments: ("zoo", *arguments))
    monkeypatch.setattr(actorq, "load", lambda *arguments: ("actorq", *arguments))
    assert row_agents.load_agent("dqn", "CartPole-v1", "f")[0] == "zoo"
    assert row_agents.load_agent("dqn", "gym,CartPole-v1", "f")[0] == "actorq"
    assert row_agents.load_agent("d4pg", "CartPole-v1", "f")[0] == "actorq"


@pytest.mark.parametrize(
    ("text", "seeds"), [("0,2,4", (0, 2, 4)), ("7", (7,)), (" 1 , 0 ", (1, 0))]
)
def test_parse_seeds(text, seeds):
    assert measuring.parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "0,0", "0,00", "-1", "a", "1,,2", "1.5", "1 2", ","])
def test_seeds_of_no_sense_are_an_error(text):
    with pytest.raises(errors.UserError, match="are not different numbers, 0 or more"):
        measuring.parse_seeds(text)


def test_summary():
    values = dict.fromkeys(["weight_min", "weight_max", "weight_range", "weight_width"], 1.0)
    key = rows_lib.Key("ppo", "CartPole-v1", "fp32", "weights", "paper", "nearest", "0", 2)
    full = rows_lib.measured(key, [10, 20], bytes=5, seconds=1.25, commit="", **values)
    assert measuring.summary(full) == (
        "ppo CartPole-v1 fp32: return 15.00 +- 7.07 over 2 episodes, 5 bytes, 1.2 s"
    )
    row = rows_lib.measured(
        key._replace(bits="8"), [10, 5], [10, 20], bytes=5, seconds=1.0, commit="", **values
    )
    text = measuring.summary(row, full)
    assert "   8: return 7.50 +- 3.54" in text and ", E +50.00 % [" in text
    assert "(fp32 15.00)" in text
    row = dataclasses.replace(row, granularity="channel", rounding="floor")
    assert "ppo CartPole-v1    8 (channel, floor): return 7.50" in measuring.summary(row, full)


def test_measured_rows_of_no_file_are_none(tmp_path):
    assert rows_lib.measured_rows(str(tmp_path / "ptq.csv"), rows_lib.Row) == {}
