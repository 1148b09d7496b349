"""Native files: ActorQ's arithmetic bit for bit, on this processor and on emulated ARM ones."""

import ctypes
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from actorQ.core import errors
from actorQ.core import precisions
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import quantization
from actorQ.policy import reference as actorq_reference
from actorQ.policy.native import device
from actorQ.policy.native import library
from baseline.agents import actorq
from baseline.agents import zoo_files
from baseline.deploy import exporting
from baseline.deploy import loading
from baseline.deploy import players
from baseline.deploy import run_native
from baseline.formats import native_policy
from baseline.quantization import acting_layers
from baseline.quantization import acting_path
from tests import arm
from tests import trained_agents
from tests.actorQ import harness
from tests.actorQ.policy.native import test_kernels
from tests.baseline import integer_reference as reference

ACTIVATIONS = [
    nn.Tanh, nn.ReLU, nn.LeakyReLU, lambda: nn.LeakyReLU(0.2), nn.ELU, lambda: nn.ELU(0.5), nn.SELU,
    nn.SiLU, nn.Mish, nn.GELU, lambda: nn.GELU("tanh"), nn.Sigmoid, nn.Softplus,
    lambda: nn.Softplus(2.0, 3.0), nn.Hardtanh, nn.ReLU6,
]
BITS = (32, 16, 8, 4, 3)


def play(content, observations, name="output"):
    """Returns what a file's policy computes for observations [N, ...]."""
    return exporting.one_by_one(exporting.load_file(content, "native"), name)(observations)


def computed(network, bits, observations):
    """Returns the outputs of a network of ReLU or tanh in numpy, as ActorQ's actors compute."""
    x, nonnegative = observations, False
    last = network.with_weights()[-1][0]
    for name, module in network.layers:
        if isinstance(module, nn.Linear):
            weight = module.weight.detach().numpy()
            if bits < 8 and name != last:
                quantized = quantization.quantize_int4_groups(weight, bits)
            else:
                quantized = quantization.quantize_int8_channels(weight)
            x = actorq_reference._linear(
                x, quantized, module.bias.detach().numpy(), nonnegative,
                actorq_reference.Activations.SYMMETRIC, len(x),
            )
        elif isinstance(module, nn.Tanh):
            x = actorq_reference.tanh(x)
        elif isinstance(module, nn.ReLU):
            x = np.maximum(x, 0)
        nonnegative = isinstance(module, nn.ReLU)
    return x


@pytest.mark.parametrize("bits", [8, 4, 3])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 17, 33, 3), (70, 130, 64, 16)])
def test_integers_are_bit_for_bit_those_of_the_reference(bits, activation, sizes):
    network = reference.dense(activation, sizes)
    observations = reference.observations(network, 30)
    observations[0] = 0
    found = play(native_policy.export(network, bits), observations)
    np.testing.assert_array_equal(found, computed(network, bits, observations))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", test_kernels.ARCHITECTURES)
def test_policies_of_actorq_compute_as_their_actors_do(name, bits):
    architecture = test_kernels.ARCHITECTURES[name]
    discrete = architecture.head == architecture_lib.Q_VALUES_HEAD
    bounds = None if discrete else [1.0] * architecture.num_outputs
    checkpoint = harness.random_checkpoint(
        architecture, {"taskstr": "gym,Pendulum-v1", "action_low": bounds, "action_high": bounds}
    )
    network = actorq._network(checkpoint)
    observations = test_kernels.make_observations(architecture, 9)
    size = architecture.observation_shape[:2] if architecture.pixels else None
    content = native_policy.export(network, bits, image_size=size)
    seen = observations.transpose(0, 3, 1, 2) if architecture.pixels else observations
    tensors = forms.expand(forms.to_actor_form(dict(checkpoint.weights), 0, bits))
    expected = actorq_reference.forward(architecture, tensors, observations)
    if bits > 8:
        np.testing.assert_allclose(play(content, seen), expected, atol=2e-4)
    else:
        np.testing.assert_array_equal(play(content, seen), expected)


@pytest.mark.skipif(not library.available(), reason="the kernels are not built")
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", ["odd", "humanoid", "pixels"])
def test_weights_lie_as_the_kernels_pack_them(name, bits):
    architecture, scheme = test_kernels.ARCHITECTURES[name], precisions.SCHEMES[bits]
    tensors = test_kernels.expanded(architecture, bits)
    network = library.Network(architecture, scheme)
    weights = network.pack(tensors)
    memory = ctypes.cast(weights.pointer, ctypes.POINTER(ctypes.c_void_p))[0]
    parts = [
        device._aligned(np.ascontiguousarray(part).tobytes())
        for layer, kind in network.types.items()
        for part in device.packed(
            tensors[f"{layer}.weight"], np.asarray(tensors[f"{layer}.bias"]), kind
        )
    ]
    assert b"".join(parts) == ctypes.string_at(memory, weights.nbytes)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_floats_act_as_the_policy_with_every_activation(activation):
    network = reference.dense(activation)
    observations = 5 * reference.observations(network)
    expected = acting_path.forward(network, observations).numpy()
    for bits, tolerance in ((32, 3e-6), (16, 4e-3), (8, 0.08)):
        found = play(native_policy.export(network, bits), observations)
        np.testing.assert_allclose(found, expected, atol=tolerance * np.ptp(expected))


def test_activations_hold_far_from_zero():
    numbers = np.array([-1e4, -90, -88, -20, -1e-4, 0, 1e-4, 20, 88, 90, 1e4], np.float32)
    for make in ACTIVATIONS:
        linear = nn.Linear(1, 1)
        nn.init.ones_(linear.weight)
        nn.init.zeros_(linear.bias)
        module = make()
        network = acting_path.PolicyNetwork((("layer", linear), ("activation", module)), "argmax")
        found = play(native_policy.export(network, 32), numbers[:, None])[:, 0]
        expected = module(torch.from_numpy(numbers)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=str(module))


def test_every_activation_has_a_name():
    for kind in acting_layers.ACTIVATIONS:
        assert native_policy.activation(kind())[0] in library.ACTIVATIONS


@pytest.mark.parametrize("head", ["argmax", "argmaxes", "positive", "clip", "scale"])
def test_actions_follow_from_outputs_for_every_head(head):
    bounded = head in ("clip", "scale")
    network = reference.dense(sizes=(6, 16, 7), head=head if bounded else "argmax")
    if head == "argmaxes":
        network = network._replace(head=head, sizes=(2, 4, 1))
    network = network._replace(head=head)
    observations = reference.observations(network)
    content = native_policy.export(network, 8)
    expected = acting_path.to_actions(network, play(content, observations))
    found = play(content, observations, "action")
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


def test_observations_are_normalized_as_in_training():
    network = reference.dense()
    rng = np.random.default_rng(0)
    normalization = zoo_files.Normalization(
        rng.normal(size=6), rng.uniform(0.1, 4, 6), 100.0, 1.5, 1e-8
    )
    observations = 3 * reference.observations(network)
    expected = acting_path.forward(network, normalization(observations)).numpy()
    found = play(native_policy.export(network, 32, normalization), observations)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(acting_path.forward(network, observations).numpy() - expected).max() > 0.1


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_an_observation_that_is_not_finite_gives_nan(number):
    network = reference.dense()
    policy = exporting.load_file(native_policy.export(network, 8), "native")
    observation = np.full(6, number, np.float32)
    assert np.isnan(policy(observation, "output")).all() and policy(observation) == 0
    assert np.isfinite(policy(np.ones(6), "output")).all()


def test_images_of_any_number_of_filters_act_as_the_policy_does():
    network = reference.images()  # 8 and 6 filters.
    observations = reference.observations(network, 50)
    expected = acting_path.forward(network, observations).numpy()
    for bits, tolerance in ((32, 1e-5), (16, 4e-3), (8, 0.05), (4, 0.4)):
        content = native_policy.export(network, bits, image_size=(20, 20))
        found = play(content, observations)
        np.testing.assert_allclose(found, expected, atol=tolerance * np.ptp(expected))
    policy = exporting.load_file(content, "native")
    assert policy.dtype == np.uint8 and tuple(policy.shape) == (3, 20, 20)
    with pytest.raises(TypeError, match="images are uint8"):
        policy(observations[0] / np.float32(255))


def test_images_without_convolutions_are_divided_by_255():
    network = reference.dense(sizes=(12, 16, 3))._replace(image=True)
    rng = np.random.default_rng(0)
    observations = rng.integers(0, 256, (20, 12)).astype(np.uint8)
    expected = acting_path.forward(network, observations).numpy()
    found = play(native_policy.export(network, 32), observations)
    np.testing.assert_allclose(found, expected, atol=1e-5)


REFUSED = {
    "LayerNorm": (nn.LayerNorm(6), "layer_1, a LayerNorm, has no .*: --format=onnx has one"),
    "Softsign": (nn.Softsign(), "layer_1, a Softsign, has no native form[.]"),
    "Scaled": (acting_layers.Scaled(2.0), "layer_1, a Scaled, has no .*: --format=onnx has one"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_layers_without_a_form_are_named_with_the_format_that_has_one(name):
    module, message = REFUSED[name]
    layers = (("layer_0", nn.Linear(4, 6)), ("layer_1", module), ("layer_2", nn.Linear(6, 2)))
    with pytest.raises(errors.UserError, match=message):
        native_policy.export(acting_path.PolicyNetwork(layers, "argmax"), 8)


@pytest.mark.parametrize("changes", [{"padding": 1}, {"dilation": 2}, {"stride": (1, 2)}])
def test_convolutions_that_the_kernels_lack_are_refused(changes):
    layers = (
        ("conv", nn.Conv2d(3, 8, 3, **changes)), ("relu", nn.ReLU()), ("flat", nn.Flatten()),
        ("head", nn.LazyLinear(2)),
    )
    network = acting_path.PolicyNetwork(layers, "argmax", image=True)
    with pytest.raises(errors.UserError, match=r"Layer conv, a Conv2d \(.*--format=onnx has one"):
        native_policy.export(network, 8, image_size=(20, 20))


def test_what_else_has_no_form_is_told():
    tail = reference.images(tail=nn.Tanh)
    with pytest.raises(errors.UserError, match="relu_1, a Tanh .*behind a convolution"):
        native_policy.export(tail, 8, image_size=(20, 20))
    network = reference.dense()
    with pytest.raises(errors.UserError, match="no native file of 7 bits"):
        native_policy.export(network, 7)
    with torch.no_grad():
        network.with_weights()[1][1].weight[0, 0] = torch.nan
    with pytest.raises(errors.UserError, match="Weights of layer_1 hold NaN or infinity"):
        native_policy.export(network, 8)


@pytest.mark.skipif(not trained_agents.FOLDER.is_dir(), reason="the trained agents are not here")
@pytest.mark.parametrize("path", sorted(trained_agents.FOLDER.glob("*/*_1")), ids=lambda path: (
    f"{path.parent.name} {path.name}"
))
def test_trained_agents_compute_as_the_reference(path):
    agent = loading.load(str(path))
    observations = reference.observations(agent.network, 50)
    outputs = acting_path.forward(agent.network, observations).numpy()
    found = play(native_policy.export(agent.network, 32), observations)
    np.testing.assert_allclose(found, outputs, rtol=1e-4, atol=1e-4)
    kinds = nn.Linear | nn.Tanh | nn.ReLU | nn.Flatten
    assert all(isinstance(module, kinds) for _, module in agent.network.layers)
    for bits in (8, 4, 3):
        content = native_policy.export(agent.network, bits)
        expected = computed(agent.network, bits, observations)
        np.testing.assert_array_equal(play(content, observations), expected)
        actions = acting_path.to_actions(agent.network, expected)
        np.testing.assert_array_equal(play(content, observations, "action"), actions)


def test_files_tell_what_they_hold():
    content = native_policy.export(reference.dense(), 4)
    length = int.from_bytes(content[40:44], "little")
    facts = json.loads(content[44 : 44 + length])
    assert facts["bits"] == 4 and facts["activations"] == "dynamic" and facts["shape"] == [6]
    assert facts["quarl_policy"] == "1" and facts["head"] == "argmax"
    assert len(content) % 64 == 0
    sizes = [len(native_policy.export(reference.dense(sizes=(64, 512, 512, 8)), b)) for b in BITS]
    ratios = [sizes[0] / size for size in sizes]
    assert ratios[1] > 1.95 and ratios[2] > 3.8 and ratios[3] > 6.8
    assert sizes[4] == sizes[3]  # The kernels compute 3 bits as 4.


def test_damaged_files_are_refused(tmp_path):
    content = native_policy.export(reference.dense(), 8)
    path = tmp_path / "policy.native"
    damaged = [content[:-1], content + b"\0", content[: len(content) // 2], bytes(len(content))]
    for position in range(0, len(content), 97):
        changed = bytearray(content)
        changed[position] ^= 1
        damaged.append(bytes(changed))
    for each in damaged:
        path.write_bytes(each)
        with pytest.raises(ValueError, match="is damaged, or baseline.deploy did not write it"):
            players.load(path)


def test_files_whose_parts_do_not_fit_are_refused(tmp_path):
    # Someone may have changed a file and its checksum.
    content = native_policy.export(reference.dense(), 8)
    start = -(-(44 + int.from_bytes(content[40:44], "little")) // 64) * 64
    path = tmp_path / "policy.native"
    for number, value in (
        (0, 0), (0, 65), (0, 3000), (1, 5), (3, 7), (4, 5), (5, 10**6), (16, 9), (18, 7),
    ):
        changed = bytearray(content)
        changed[start + 4 * number : start + 4 * number + 4] = value.to_bytes(4, "little")
        changed[8:40] = hashlib.sha256(changed[40:]).digest()
        path.write_bytes(changed)
        with pytest.raises(ValueError, match="does not fit policy_native.c"):
            players.load(path)


def test_observations_of_another_shape_are_refused_and_results_stay():
    policy = exporting.load_file(native_policy.export(reference.dense(), 8), "native")
    for shape in ((5,), (7,), (2, 4), (1,), ()):
        with pytest.raises(ValueError, match="reshape"):
            policy(np.zeros(shape, np.float32))
    first, second = reference.observations(reference.dense(), 2)
    found = policy(first, "output")
    kept = found.copy()
    assert np.any(policy(second, "output") != kept)
    np.testing.assert_array_equal(found, kept)
    np.testing.assert_array_equal(policy(first.astype(np.float64).reshape(2, 3), "output"), kept)
    images = exporting.load_file(
        native_policy.export(reference.images(), 8, image_size=(20, 20)), "native"
    )
    with pytest.raises(TypeError, match=r"images are uint8 \(3, 20, 20\)"):
        images(np.zeros((20, 20, 3), np.uint8))


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    """Returns what `deploy` writes for a device."""
    content = native_policy.export(reference.dense(), 8)
    return exporting.write(content, "native", str(tmp_path / "device")).parent


def run(folder, *arguments, **variables):
    """Runs the player in its folder, with nothing of this project on the path."""
    return subprocess.run(
        [sys.executable, "run_native.py", *arguments], cwd=folder, capture_output=True, text=True,
        timeout=arm.LIMIT_S, check=False, env={"PATH": "/usr/bin:/bin", **variables},
    )


def test_a_device_compiles_the_player_once_and_plays(folder):
    assert {path.name for path in folder.iterdir()} == {
        "build_native.sh", "policy.native", "policy_native.c", "run_native.py"
    }
    observations = reference.observations(reference.dense(), 5)
    np.save(folder / "observations.npy", observations)
    first = run(folder, "policy.native", "observations.npy", "--print=output")
    assert first.returncode == 0, first.stderr
    found = [np.fromstring(line.strip("[]"), sep=" ") for line in first.stdout.splitlines()]
    expected = computed(reference.dense(), 8, observations)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    (built,) = folder.glob("policy_native-*.so")
    before = built.stat().st_mtime_ns
    assert run(folder, "policy.native", CC="/no/compiler").stdout.strip() in "0123"
    assert built.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("compiler", "message"),
    [("no_such_cc -O1", "there is no C compiler no_such_cc: install gcc, or set CC"),
     ("false", "false fails")],
)
def test_a_device_without_a_working_compiler_is_told_in_a_line(folder, compiler, message):
    done = run(folder, "policy.native", CC=compiler)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("run_native: error: ") and message in line


def test_here_too_a_missing_compiler_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "no_such_cc")
    monkeypatch.setattr(players.compiling, "BUILD_FOLDER", str(tmp_path / "new"))
    players._compiled.cache_clear()
    with pytest.raises(errors.UserError, match="cannot be played here: there is no C compiler no"):
        exporting.load_file(native_policy.export(reference.dense(), 8), "native")
    players._compiled.cache_clear()


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_source_compiles_without_warnings(folder, compiler):
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    (flags,) = re.findall('flags="(.+)"', (folder / "build_native.sh").read_text())
    subprocess.run(
        [compiler, *flags.split(), "-O1", "-Wall", "-Wextra", "-Werror", "-march=native",
         folder / "policy_native.c", "-lm", "-o", folder / "library.so"], check=True,
    )


_MAIN = """
#include <stdio.h>
int main(int argc, char **argv) {
  static _Alignas(64) char file[1 << 20];
  static float output[1 << 10];
  static int64_t action[1 << 10];
  static char observation[1 << 16];
  if (argc != 5) return 2;
  FILE *from = fopen(argv[1], "rb"), *inputs = fopen(argv[2], "rb"), *to = fopen(argv[3], "wb");
  const size_t size = fread(file, 1, sizeof file, from), taken = strtoul(argv[4], NULL, 10);
  void *policy = policy_open(file, size, observation, output, action);
  if (!policy) return 3;
  while (fread(observation, 1, taken, inputs) == taken) {
    policy_act(policy);
    fwrite(output, 4, ((const Header *)(void *)file)->num_outputs, to);
    fwrite(action, 8, 1, to);
  }
  policy_close(policy);
  return fclose(to);
}
"""


@arm.NEEDED
@pytest.mark.parametrize(
    ("processor", "flags"),
    [("cortex-a72", "-mcpu=cortex-a72"), ("neoverse-n1", "-mcpu=neoverse-n1"),
     ("max", "-march=armv8.2-a+dotprod+i8mm")],
)
def test_boards_compute_what_this_machine_does(tmp_path, processor, flags):
    source = tmp_path / "program.c"
    source.write_text(device.source() + _MAIN)
    subprocess.run(
        [arm.COMPILER, "-std=gnu11", "-O2", "-ffp-contract=off", flags, "-Wall", "-Wextra",
         "-Werror", "-Wno-psabi", source, "-lm", "-o", tmp_path / "program"], check=True,
    )
    cases = [
        (reference.dense(), None), (reference.dense(nn.ReLU, (70, 130, 64, 16)), None),
        (reference.images(), (20, 20)),
    ]
    for network, size in cases:
        observations = reference.observations(network, 12)
        for bits in BITS:
            content = native_policy.export(network, bits, image_size=size)
            start = -(-(44 + int.from_bytes(content[40:44], "little")) // 64) * 64
            (tmp_path / "policy").write_bytes(content[start:])
            (tmp_path / "inputs").write_bytes(observations.tobytes())
            arm.run(
                processor, tmp_path / "program", tmp_path / "policy", tmp_path / "inputs",
                tmp_path / "results", str(observations[0].nbytes),
            )
            kinds = np.dtype([("output", np.float32, network.num_outputs), ("action", np.int64)])
            found = np.frombuffer((tmp_path / "results").read_bytes(), kinds)
            expected = play(content, observations)
            if bits > 8:
                np.testing.assert_allclose(found["output"], expected, atol=1e-5)
            else:
                np.testing.assert_array_equal(found["output"], expected)
            np.testing.assert_array_equal(found["action"], found["output"].argmax(axis=1))


def test_the_player_is_small_and_imports_nothing_of_ours():
    source = pathlib.Path(run_native.__file__).read_text(encoding="utf-8")
    code = "".join(source.split('"""')[::2])
    lines = sum(not re.fullmatch(r"\s*(#.*)?", line) for line in code.splitlines())
    root = pathlib.Path(__file__).parents[3]
    guide = (root / "docs" / "guide" / "deploy-to-a-device.md").read_text(encoding="utf-8")
    assert lines <= 60 and f"`run_native.py` ({lines} lines of code)" in guide
    assert "import numpy as np" in source and "baseline import" not in source
