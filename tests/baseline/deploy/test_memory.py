"""Memory of policies in processes of their own."""

import subprocess
import sys

import pytest
from torch import nn

from actorQ.core import errors
from baseline.deploy import memory
from baseline.formats import onnx_policy
from tests.baseline import integer_reference as reference


@pytest.fixture(name="tiny", scope="module")
def fixture_tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.onnx"
    path.write_bytes(onnx_policy.export(reference.dense(), 32).SerializeToString())
    return path


def test_resident_bytes_grow_with_what_is_kept():
    # A process that has run other tests has memory to reuse, so this one is new.
    code = (
        "import numpy as np\n"
        "from baseline.deploy import memory\n"
        "before = memory.resident().own\n"
        "kept = np.ones(4_000_000)\n"
        "print(memory.resident().own - before + 0 * kept[-1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 31e6 < float(done.stdout) < 40e6


def test_pages_of_the_policys_own_file_count_and_those_of_others_do_not(tmp_path):
    (tmp_path / "a file").write_bytes(b"x" * 8_000_000)
    code = (
        "import mmap, sys\n"
        "from baseline.deploy import memory\n"
        "path = sys.argv[1]\n"
        "memory.resident()\n"  # The first reading takes memory of its own.
        "before = [memory.resident(each).own for each in (path, None)]\n"
        "with open(path, 'rb') as file:\n"
        "    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "sum(mapped[::4096])\n"
        "after = [memory.resident(each).own for each in (path, None)]\n"
        "print(*(there - here for here, there in zip(before, after)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a file")], capture_output=True, text=True,
        check=True,
    )
    own, others = map(int, done.stdout.split())
    assert 7_900_000 < own < 8_500_000 and others < 500_000


def test_a_policy_takes_its_weights_once(tmp_path, tiny):
    network = reference.dense(nn.ReLU, (6, 1000, 2000, 1000, 4))
    content = onnx_policy.export(network, 32).SerializeToString()
    (tmp_path / "large.onnx").write_bytes(content)
    found = memory.of_policy(tmp_path / "large.onnx", tiny, turns=1)
    for size in found:
        assert 0.9 * len(content) < size < 1.2 * len(content)


def test_a_file_that_cannot_be_played_is_told(tmp_path, monkeypatch):
    (tmp_path / "broken.onnx").write_bytes(b"x" * 100)
    with pytest.raises(errors.UserError, match="cannot play .*broken.onnx in a process"):
        memory.in_fresh_process(tmp_path / "broken.onnx")
    monkeypatch.setattr(memory, "_LIMIT_S", 0.05)
    with pytest.raises(errors.UserError, match="in a process of its own: over 0 s"):
        memory.in_fresh_process(
            tmp_path / "x", [sys.executable, "-c", "import time; time.sleep(9)"]
        )
