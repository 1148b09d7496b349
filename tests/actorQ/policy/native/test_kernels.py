"""The kernels in C against the numpy reference, on every instruction set of this machine."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from actorQ.core import errors
from actorQ.core import precisions
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import inference
from actorQ.policy import quantization
from actorQ.policy import reference
from actorQ.policy.native import compiling
from actorQ.policy.native import library

Q_VALUES, TANH = architecture_lib.Q_VALUES_HEAD, architecture_lib.TANH_HEAD
ARCHITECTURES = {
    # Sizes around the kernels' blocks of 16 outputs, 4 inputs, 64 inputs, and tails of all.
    "tiny": architecture_lib.PolicyArchitecture((1,), (1,), 1, TANH),
    "odd": architecture_lib.PolicyArchitecture((5,), (17, 33), 3, Q_VALUES),
    "even": architecture_lib.PolicyArchitecture((64,), (64, 128), 16, TANH),
    "humanoid": architecture_lib.PolicyArchitecture((67,), (200, 100, 70), 21, TANH),
    "pixels": architecture_lib.PolicyArchitecture((36, 44, 3), (40,), 5, Q_VALUES),
}
EXACT = ("int8", "int4", "int3")
ISAS = (
    library.usable_isas()
    if library.available()
    else [pytest.param("", marks=pytest.mark.skip(reason="the kernels are not built"))]
)


def make_weights(architecture, seed=0):
    rng = np.random.default_rng(seed)
    return {
        name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in architecture.parameter_shapes.items()
    }


def make_observations(architecture, batch, seed=0):
    rng = np.random.default_rng(seed)
    shape = (batch, *architecture.observation_shape)
    if architecture.pixels:
        return rng.integers(0, 256, shape).astype(np.uint8)
    return rng.standard_normal(shape).astype(np.float32)


def expanded(architecture, quantize, seed=0, **options):
    weights = make_weights(architecture, seed)
    return forms.expand(forms.to_actor_form(weights, 0, quantize, **options))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("quantize", precisions.SCHEMES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_network_computes_the_reference(name, quantize, isa):
    architecture, scheme = ARCHITECTURES[name], precisions.SCHEMES[quantize]
    tensors = expanded(architecture, quantize)
    # 11: whole tiles of every instruction set, and a rest.
    observations = make_observations(architecture, 11)
    network = library.Network(architecture, scheme, 11, isa)
    outputs = network(network.pack(tensors), observations)
    expected = reference.forward(architecture, tensors, observations)
    assert outputs.shape == expected.shape
    assert outputs.dtype == expected.dtype == np.float32
    if scheme in EXACT:
        np.testing.assert_array_equal(outputs, expected)
    else:
        np.testing.assert_allclose(outputs, expected, atol=3e-6)


@pytest.mark.parametrize("quantize", [8, 4, 3])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_network_output_does_not_depend_on_the_batch(name, quantize):
    architecture = ARCHITECTURES[name]
    network = library.Network(architecture, precisions.SCHEMES[quantize], 13)
    weights = network.pack(expanded(architecture, quantize))
    observations = make_observations(architecture, 13)
    one_by_one = np.concatenate([network(weights, each[None]) for each in observations])
    np.testing.assert_array_equal(network(weights, observations), one_by_one)


@pytest.mark.parametrize("quantize", precisions.SCHEMES)
def test_observations_without_range_and_with_a_huge_one(quantize):
    architecture = ARCHITECTURES["humanoid"]
    network = library.Network(architecture, precisions.SCHEMES[quantize], 4)
    tensors = expanded(architecture, quantize)
    observations = np.zeros((4, 67), np.float32)
    observations[1] = 1e-35  # Below what a scale expresses.
    observations[2, 3] = 1e6
    observations[3] = -1e6
    outputs = network(network.pack(tensors), observations)
    expected = reference.forward(architecture, tensors, observations)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    np.testing.assert_array_equal(outputs[0], outputs[1])


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("quantize", [8, 4, 3])
def test_an_observation_that_is_not_finite_gives_nan_and_spares_the_others(quantize, number):
    architecture = ARCHITECTURES["humanoid"]
    network = library.Network(architecture, precisions.SCHEMES[quantize], 3)
    weights = network.pack(expanded(architecture, quantize))
    observations = make_observations(architecture, 3)
    expected = network(weights, observations)
    observations[1, 66] = number
    outputs = network(weights, observations)
    assert np.isnan(outputs[1]).all()
    np.testing.assert_array_equal(outputs[[0, 2]], expected[[0, 2]])


def test_tanh_is_close_to_the_exact_one():
    x = np.concatenate([
        np.linspace(-12, 12, 100_001), [0.0, -0.0, 1e-30, 1e-8, -1e-8, 88.0, -88.0, 1e30, np.inf],
    ]).astype(np.float32)
    np.testing.assert_allclose(reference.tanh(x), np.tanh(x.astype(np.float64)), atol=1.5e-7)
    assert np.abs(reference.tanh(x)).max() <= 1


def extreme_case(quantize=8):
    """Returns a policy of the largest weights, and observations of the largest inputs."""
    architecture = architecture_lib.PolicyArchitecture((4096,), (16,), 2, Q_VALUES)
    weights = {
        "linear_0.weight": np.full((16, 4096), -1, np.float32),
        "linear_0.bias": np.zeros(16, np.float32),
        "head.weight": np.ones((2, 16), np.float32),
        "head.bias": np.zeros(2, np.float32),
    }
    tensors = forms.expand(forms.to_actor_form(weights, 0, quantize))
    return architecture, quantize, tensors, np.array([[3], [-3]], np.float32).repeat(4096, 1)


def test_integer_products_do_not_overflow_at_their_extremes():
    for quantize in (8, 4, 3):
        architecture, _, tensors, observations = extreme_case(quantize)
        expected = reference.forward(architecture, tensors, observations)
        for isa in library.usable_isas():
            network = library.Network(architecture, precisions.SCHEMES[quantize], 2, isa)
            np.testing.assert_array_equal(network(network.pack(tensors), observations), expected)
        np.testing.assert_allclose(expected, [[-16, -16], [16, 16]], rtol=5e-3)


def test_weights_of_another_version_leave_the_old_ones_alone():
    architecture = ARCHITECTURES["odd"]
    network = library.Network(architecture, "int8")
    observation = make_observations(architecture, 1)
    old = network.pack(expanded(architecture, 8, seed=1))
    before = network(old, observation)
    new = network.pack(expanded(architecture, 8, seed=2))
    np.testing.assert_array_equal(network(old, observation), before)
    assert (network(new, observation) != before).any()


def test_packed_weights_take_what_their_bits_say():
    architecture = architecture_lib.PolicyArchitecture((64,), (1024, 1024), 16, TANH)
    count = 64 * 1024 + 1024 * 1024 + 1024 * 16
    sizes = {}
    for quantize, scheme in precisions.SCHEMES.items():
        network = library.Network(architecture, scheme)
        sizes[quantize] = 8 * network.pack(expanded(architecture, quantize)).nbytes / count
    assert sizes[32] == pytest.approx(32, rel=0.01)
    assert sizes[16] == pytest.approx(16, rel=0.01)
    assert sizes[8] == pytest.approx(8, rel=0.03)
    assert sizes[4] == pytest.approx(4.25, rel=0.04)
    assert sizes[3] == sizes[4]  # The kernels compute 3 bits as 4.


@pytest.mark.parametrize("bits", [2, 3, 4, 6])
@pytest.mark.parametrize("quantize", [8, 4, 3])
def test_narrow_communication_reaches_the_kernels(quantize, bits):
    architecture = ARCHITECTURES["humanoid"]
    tensors = expanded(architecture, quantize, quantize_communication=bits)
    observations = make_observations(architecture, 2)
    network = library.Network(architecture, precisions.SCHEMES[quantize], 2)
    np.testing.assert_array_equal(
        network(network.pack(tensors), observations),
        reference.forward(architecture, tensors, observations),
    )


@pytest.mark.parametrize("quantize", [4, 3])
def test_backend_lists_the_type_of_every_layer(quantize):
    backend = inference.make_backend(ARCHITECTURES["pixels"], quantize, "native")
    assert backend.types == {
        "conv_0": "int8", "conv_1": "int8", "conv_2": "int8", "linear_0": "int4", "head": "int8",
    }


@pytest.mark.parametrize(("bits", "levels"), [(4, 7), (3, 3)])
def test_int4_groups_stay_within_half_a_step(bits, levels):
    weights = make_weights(ARCHITECTURES["humanoid"])["linear_1.weight"]
    weights[3] = 0
    weights[4, :64] = 1e-39
    quantized = quantization.quantize_int4_groups(weights, bits)
    assert quantized.scale.shape == (100, 4)
    assert quantized.bits == bits and np.abs(quantized.values).max() == levels
    assert (quantized.scale.view(np.uint32) & 0xFFFF == 0).all()  # bfloat16 numbers.
    steps = np.repeat(quantized.scale, 64, axis=1)[:, :200]
    error = np.abs(quantization.dequantize(quantized) - weights)
    # The largest weights lie at 7 or 3 steps, but for the rounding of the step to bfloat16.
    assert (error <= steps * (0.5 + levels / 256)).all()
    with pytest.raises(ValueError, match="NaN"):
        quantization.quantize_int4_groups(np.full((2, 3), np.nan, np.float32), bits)


def test_missing_library_is_one_clear_line(monkeypatch, tmp_path):
    monkeypatch.setattr(compiling, "library_path", lambda: str(tmp_path / "none.so"))
    library.load.cache_clear()
    with pytest.raises(errors.UserError, match="setup_ubuntu.sh"):
        inference.make_backend(ARCHITECTURES["odd"], 8, "native")
    assert not library.available()


def test_damaged_library_is_one_clear_line(monkeypatch, tmp_path):
    path = tmp_path / "damaged.so"
    path.write_bytes(b"not a library")
    monkeypatch.setattr(compiling, "library_path", lambda: str(path))
    library.load.cache_clear()
    with pytest.raises(errors.UserError, match="_build"):
        library.load()


@pytest.fixture(autouse=True)
def fresh_library():
    yield
    library.load.cache_clear()


@pytest.mark.parametrize(
    ("compiler", "said"),
    [("", "No C compiler found"), ("false", "do not compile with false"),
     ("no_such_cc -O2", "no program no_such_cc"), ("gcc '", "is not a command")],
)
def test_build_without_a_working_compiler_says_so(monkeypatch, tmp_path, compiler, said):
    monkeypatch.setattr(compiling, "library_path", lambda: str(tmp_path / "new.so"))
    monkeypatch.setenv("CC", compiler)
    if not compiler:
        monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.UserError, match=said):
        compiling.build()
    assert not os.path.exists(tmp_path / "new.so")


def test_build_takes_a_compiler_with_arguments(monkeypatch):
    monkeypatch.setenv("CC", "sh -e")
    assert compiling.find_compiler() == ["sh", "-e"]


def usable_isas_when_built_with(compiler, script):
    """Builds with a compiler that is a shell script, and returns what a process can then use."""
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    code = (
        "from actorQ.policy.native import compiling, library\n"
        f"compiling.library_path = lambda: {str(compiler.parent / 'lib.so')!r}\n"
        "compiling.build()\n"
        "print(*library.usable_isas())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "CC": str(compiler)},
        capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    "refused",
    [
        'for a; do [ "$a" = -mavxvnni ] && exit 1; done',  # As gcc 10.
        # As clang 14, which compiles for it and cannot ask whether a processor has it.
        'case "$*" in *-DCAN_RUN_avxvnni*|*probe.c*) exit 1;; esac',
    ],
)
def test_kernels_without_optional_instructions_build_and_work(tmp_path, refused):
    # With -O1 at the end: how fast the kernels are is no matter here, and they compile sooner.
    script = f'{refused}\nexec gcc "$@" -O1'
    isas = usable_isas_when_built_with(tmp_path / "old_compiler", script)
    assert "avxvnni" not in isas
    assert "portable" in isas


def test_processor_without_f16c_gets_the_portable_kernels(tmp_path):
    # A virtual machine may hide F16C and show AVX2 and FMA. The other kernels would crash there.
    script = 'exec gcc -DHAS_f16c=0 "$@" -O1'
    assert usable_isas_when_built_with(tmp_path / "compiler", script) == ["portable"]


@pytest.mark.parametrize(
    ("machine", "sets"),
    [
        ("x86_64", {"portable", "avx2", "avxvnni", "avx512"}),
        ("aarch64", {"portable", "neon", "dotprod", "i8mm"}), ("riscv64", {"portable"}),
    ],
)
def test_every_feature_that_kernels_are_compiled_for_is_tested_at_run_time(
    monkeypatch, tmp_path, machine, sets
):
    commands = []
    monkeypatch.setattr(compiling, "run", lambda *command: commands.append(command))
    monkeypatch.setattr(compiling, "_knows", lambda *_: True)
    monkeypatch.setattr(os, "replace", lambda *_: None)
    compiling.compile_library(["cc"], machine, str(tmp_path / "lib.so"))
    *kernels, linking = commands
    found = set()
    for command in kernels:
        (name,) = [word for word in command if word.startswith("-DKERNELS=actorq_")]
        isa = name.removeprefix("-DKERNELS=actorq_")
        found.add(isa)
        compiled = set()
        for word in command:
            if word.startswith("-march="):
                compiled |= set(word.split("+")[1:])
            elif word.startswith("-m") and "=" not in word:
                compiled.add(word[2:])
        (tests,) = [word for word in linking if word.startswith(f"-DCAN_RUN_{isa}=")]
        assert compiled == set(re.findall(r"HAS_(\w+)", tests))
        assert bool(compiled) == (isa not in ("portable", "neon"))
    assert found == sets <= set(library.ISAS)
