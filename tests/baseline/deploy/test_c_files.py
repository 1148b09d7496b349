"""Agents as C files: from `deploy`'s command line to a program that acts as they do."""

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from actorQ.core import errors
from baseline.agents import agreement
from baseline.agents import calibration
from baseline.agents import finding
from baseline.deploy import c_files
from baseline.deploy import c_player
from baseline.deploy import exporting
from baseline.deploy import loading
from baseline.formats import integer_form
from baseline.formats import names
from baseline.qat import model as qat_model
from baseline.qat import training
from tests.baseline import integer_reference
from tests.baseline.formats import test_c_policy
from tests.baseline.qat import test_training

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="There is no C compiler.")
LIMIT_S = 120


def deploy(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "baseline.deploy", *map(str, arguments)], capture_output=True,
        text=True, timeout=LIMIT_S, check=False,
    )


def states_of(agent, count=100):
    return agreement.visited_states(agent.make_env, agent.act, 2, 1, count)


def test_deploy_writes_files_that_make_builds_and_that_act_as_the_agent(zoo, tmp_path):
    agent = loading.load(zoo.folder / "ppo" / "CartPole-v1_1")
    folder = tmp_path / "a b"
    done = deploy(agent.path.parent, "--format", "c", "--bits", 8, "--out", folder)
    assert done.returncode == 0, done.stderr
    assert "visited states: " in done.stdout and "To try it: make -C" in done.stdout
    assert sorted(path.name for path in folder.iterdir()) == [
        "Makefile", "main.c", "policy.c", "policy.h"
    ]
    (command,) = re.findall(r"To try it: (make .*) < OBSERVATIONS.txt", done.stdout)
    states = states_of(agent, 20)
    text = "\n".join(" ".join(map(repr, state.tolist())) for state in states)
    played = subprocess.run(
        ["bash", "-c", command.replace("&&", ">/dev/null &&")], input=text, capture_output=True,
        text=True, timeout=LIMIT_S, check=True,
    )
    policy = c_player.Policy(folder / "policy.c")
    assert played.stdout.split() == [str(int(policy(state))) for state in states]
    assert not played.stderr  # The compiler does not warn.
    header = (folder / "policy.h").read_text()
    assert "ppo for CartPole-v1" in header and "#define POLICY_OBSERVATION_SIZE 4" in header


def test_integers_alone_act_as_the_agent(zoo, tmp_path):
    folder = tmp_path / "device"
    source = zoo.folder / "ddpg" / "Pendulum-v1_1"
    done = deploy(source, "--format", "c", "--float", "none", "--out", folder)
    assert done.returncode == 0, done.stderr
    share = float(re.search(r"visited states: ([\d.]+) %", done.stdout)[1])
    assert share > 95
    text = re.sub(r"/\*.*?\*/", "", (folder / "policy.c").read_text(), flags=re.S)
    assert not re.search(r"\b(float|double)\b", text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--flash_limit", "100"), r"take \d+ bytes, and --flash_limit is 100: fewer --bits"),
        (("--flash_limit", "much"), "--flash_limit=much: say a number of bytes, such as 256K"),
        (("--float", "none", "--bits", "16"), "--float=none needs calibrated ranges"),
        (("--float", "none", "--scheme", "weights"), "--float=none needs calibrated ranges"),
        (("--bits", "6", "--scheme", "weights"), "Weights alone have 8 or 4 bits here, not 6"),
        (("--format", "onnx", "--float", "none"), "--float is for --format=c, not for --format=o"),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line(zoo, tmp_path, arguments, message):
    folder = tmp_path / "device"
    source = zoo.folder / "ppo" / "CartPole-v1_1"
    done = deploy(source, "--format", "c", "--out", folder, *arguments)
    assert done.returncode != 0
    assert re.search(message, done.stderr) and "Traceback" not in done.stderr
    assert not folder.exists()


@pytest.mark.parametrize("bits", [8, 4, 16])
@pytest.mark.parametrize("calibrated", [True, False])
def test_the_example_is_clean_under_sanitizers(tmp_path, bits, calibrated):
    network = test_c_policy.branched()
    rng = np.random.default_rng(0)
    states = np.concatenate([
        rng.standard_normal((50, 4)) * 1e3, rng.integers(0, 2, (50, 7))
    ], axis=1).astype(np.float32)
    ranges = integer_reference.calibrate(network, states[:10])  # Others lie outside.
    form = integer_form.make(network, bits, ranges if calibrated and bits <= 8 else None)
    content = c_files.export(form, c_files.Options(), ["A test."])
    (tmp_path / "policy.c").write_bytes(content)
    c_files.write(content, tmp_path)
    subprocess.run(
        ["cc", "-std=c99", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
         "main.c", "policy.c", "-lm", "-o", "example"],
        cwd=tmp_path, check=True, timeout=LIMIT_S,
    )
    text = "\n".join(" ".join(map(repr, state.tolist())) for state in states)
    played = subprocess.run(
        [str(tmp_path / "example")], input=text, capture_output=True, text=True, timeout=LIMIT_S,
        check=False,
    )
    assert played.returncode == 0, played.stderr
    expected = integer_form.actions(form, integer_form.outputs(form, states))
    same = np.array(played.stdout.split(), int) == expected
    assert np.mean(same) == 1.0 if bits <= 8 else np.mean(same) > 0.9


def test_sizes_of_flash_are_read():
    assert c_files.parse_bytes("256K") == c_files.parse_bytes("256kB") == 262144
    assert c_files.parse_bytes("1M") == c_files.parse_bytes("1048576")
    for text in ("0", "-1", "K", "1G"):
        with pytest.raises(errors.UserError, match="flash_limit"):
            c_files.parse_bytes(text)


def test_without_a_compiler_files_are_written_and_not_checked(zoo, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    done = deploy(
        zoo.folder / "ppo" / "CartPole-v1_1", "--format", "c", "--out", tmp_path / "device"
    )
    assert done.returncode == 0, done.stderr
    assert "The file was not checked, since there is no C compiler" in done.stdout
    assert (tmp_path / "device" / "policy.c").exists()


@pytest.mark.parametrize("floats", names.FLOATS)
def test_agents_of_quantization_aware_training_keep_their_integers(tmp_path, floats):
    training.train(
        test_training.settings(tmp_path, "a2c", steps=300), qat_model.QatSettings(bits=6, delay=150)
    )
    agent = finding.load("a2c", test_training.CARTPOLE, tmp_path)
    how = exporting.Settings("c", 6, c=c_files.Options(floats))
    content = exporting.export(agent, how)
    found = exporting.compare(agent, content, "c", exporting.visited(agent, 1))
    assert found.alike > 0.98
    with pytest.raises(errors.UserError, match="has 6 bits: .*--format=c --bits=6"):
        exporting.export(agent, exporting.Settings("c", 8))


def test_the_zoos_agents_compute_the_integer_form_bit_for_bit(trained):
    paths = sorted(trained.glob("*/*/*.zip"))
    assert len(paths) == 22
    for path in paths:
        try:
            agent = loading.load(str(path))
        except errors.UserError as error:  # PyBullet may be missing.
            assert "bullet" in str(error).lower(), error
            continue
        states = states_of(agent, 60)
        rng = np.random.default_rng(0)
        spread = states.std(axis=0) + 1
        states = np.concatenate([
            states, (states + rng.normal(size=states.shape) * 3 * spread).astype(states.dtype)
        ])
        ranges = calibration.ranges(agent, 1, 0)
        for bits, chosen in ((8, ranges), (4, ranges), (8, None), (4, None)):
            scheme = names.scheme("c", bits, None if chosen else "weights")
            settings = exporting.Settings("c", bits, scheme)
            content = exporting.export(agent, settings, chosen)
            form = integer_form.make(
                agent.network, bits, chosen, normalization=agent.normalization
            )
            policy = exporting.load_file(content, "c")
            outputs = exporting.one_by_one(policy, "output")(states)
            np.testing.assert_array_equal(outputs, integer_form.outputs(form, states), str(path))

