"""The kernels of 64-bit ARM against the numpy reference, on emulated processors."""

import pathlib
import subprocess

import numpy as np
import pytest

from actorQ.core import precisions
from actorQ.policy import model_update
from actorQ.policy import reference
from actorQ.policy.native import compiling
from actorQ.policy.native import library
from tests import arm
from tests.actorQ.policy.native import test_kernels

pytestmark = arm.NEEDED
# Processors of qemu, and the sets that they have.
PROCESSORS = {
    "cortex-a72": ("portable", "neon"),
    "neoverse-n1": ("portable", "neon", "dotprod"),
    "max": ("portable", "neon", "dotprod", "i8mm"),
}
BATCH = 5  # A whole tile of every set, and a rest.


@pytest.fixture(name="program", scope="module")
def fixture_program(tmp_path_factory):
    """A program for ARM that computes cases, beside the library that it loads."""
    folder = tmp_path_factory.mktemp("arm")
    path = folder / "libactorq.so"
    compiling.compile_library([arm.COMPILER, "-Wall", "-Wextra", "-Werror"], "aarch64", str(path))
    source = pathlib.Path(__file__).with_name("run_cases.c")
    subprocess.run(
        [arm.COMPILER, source, path, f"-Wl,-rpath,{folder}", "-o", folder / "cases"], check=True
    )
    return folder / "cases"


def pieces(*arrays):
    """Returns arrays as the program reads them, each with its number of bytes before it."""
    content = [b"" if array is None else np.ascontiguousarray(array).tobytes() for array in arrays]
    return b"".join(np.int32(len(each)).tobytes() + each for each in content)


def case(architecture, quantize, tensors, observations):
    """Returns a case for the program."""
    layers = library.layers(architecture, precisions.SCHEMES[quantize])
    facts = [len(layers), architecture.pixels, len(observations), architecture.num_outputs]
    table = b"".join(map(bytes, layers.values()))
    content = pieces(np.array(facts, np.int32), np.frombuffer(table, np.uint8))
    for name, layer in layers.items():
        kind = tuple(library.TYPES)[layer.type]
        values, scale = library.values_and_scale(tensors[f"{name}.weight"], kind)
        if layer.kernel:
            values = values.transpose(0, 2, 3, 1)
        content += pieces(values, scale, model_update.to_float32(tensors[f"{name}.bias"]))
    return content + pieces(observations)


@pytest.mark.parametrize("processor", PROCESSORS)
def test_kernels_compute_the_reference_on_every_processor(program, tmp_path, processor):
    content, expected = b"", []
    for architecture in test_kernels.ARCHITECTURES.values():
        for quantize, scheme in precisions.SCHEMES.items():
            tensors = test_kernels.expanded(architecture, quantize)
            observations = test_kernels.make_observations(architecture, BATCH)
            content += case(architecture, quantize, tensors, observations)
            expected.append((scheme, reference.forward(architecture, tensors, observations)))
    # The largest weights and inputs, of both signs.
    architecture, quantize, extremes, observations = test_kernels.extreme_case()
    content += case(architecture, quantize, extremes, observations)
    expected.append(("int8", reference.forward(architecture, extremes, observations)))
    (tmp_path / "cases").write_bytes(content)

    arm.run(processor, program, tmp_path / "cases", tmp_path / "results")

    results = (tmp_path / "results").read_bytes()
    for isa in PROCESSORS[processor]:
        for scheme, outputs in expected:
            assert library.ISAS[np.frombuffer(results, np.int32, 1)[0]] == isa
            found = np.frombuffer(results, np.float32, outputs.size, 4).reshape(outputs.shape)
            if scheme in test_kernels.EXACT:
                np.testing.assert_array_equal(found, outputs)
            else:
                np.testing.assert_allclose(found, outputs, atol=3e-6)
            results = results[4 + found.nbytes :]
    assert not results, "The processor has sets that are not named here."
