"""An actor's process holds no more frameworks than it needs."""

import json
import subprocess
import sys

import pytest

from actorQ.core import lean_imports
from tests.actorQ import harness

# What `actor_main` does up to the first look at a server; then the same with torch's kernels.
ACTORS = """
import json, os, sys
from actorQ.core import lean_imports
lean_imports.import_reverb_client()
from actorQ.actor import process as acting
from actorQ.core import config
for mode in ("native", "pytorch"):
    acting.ActorProcess(config.RunConfig(
        taskstr="dm_control,cartpole_balance", model_str="16", inference_mode=mode, port=1,
        logpath=os.path.join(sys.argv[1], mode),
    ))
    print(json.dumps(sorted(sys.modules)))
"""

# What a broadcaster does with its logger, then an environment that wants all of TensorFlow.
CLIENT = """
import os, sys
from actorQ.core import cli; from actorQ.core import lean_imports
cli.quiet_tensorflow()
lean_imports.import_reverb_client()
from actorQ.wire import broadcaster; from actorQ.core import run_logger
import reverb
logger = run_logger.RunLogger(sys.argv[1], "broadcaster", purge_step=3)
assert os.listdir(logger.folder), "no file of TensorBoard's"
assert not [name for name in sys.modules if name.partition(".")[0] == "tensorflow"]
maps = open("/proc/self/maps").read()
assert "libtensorflow_framework" in maps and "libtensorflow_cc" not in maps
try:
    from reverb.structured_writer import nested_structure_coder
    nested_structure_coder.encode_structure([1.0])
except NotImplementedError as error:
    assert "import_reverb_client" in str(error)
else:
    raise AssertionError("a stand-in answered")

import tensorflow as tf
assert int(tf.constant(1) + 1) == 2
assert reverb.Client("localhost:1") is not None
"""

# An environment that wants Acme, and so all of Reverb.
ALL = """
from actorQ.core import lean_imports
lean_imports.import_reverb_client()
import reverb
client = reverb.Client
from actorQ.core import config
from actorQ.wire import replay
from actorQ.wire import server as serving
from actorQ.wire import connection as wire
settings = config.RunConfig(port=0, connect_timeout=20.0)
layout = replay.Layout((3,), pixels=False, action_size=2, discrete=False)
server = serving.start_server(settings, serving.make_tables(settings, layout, prioritized=False))
assert wire.Connection(settings, f"localhost:{server.port}").wait_until_up()
info = client(f"localhost:{server.port}").server_info()  # Rebuilds signatures of TensorFlow's.
assert settings.replay_table_name in info
assert reverb.ReplaySample and reverb.SampleInfo.tf_dtypes()[0].name == "uint64"
from actorQ.learner import acme_compat
from acme import wrappers
from acme.adders import reverb as adders
print("all there", flush=True)
import os
os._exit(0)
"""


def test_actor_process_imports_no_acme_nor_jax_and_torch_for_its_own_kernels_only(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ACTORS, str(tmp_path)], cwd=harness.REPOSITORY,
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    native, pytorch = (
        set(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")
    )
    for loaded in (native, pytorch):
        assert {"reverb", "dm_control"} <= loaded
        # torch itself brings SymPy and others in; what it needs is not ours to say.
        assert not loaded & {
            "acme", "jax", "tensorflow", "tensorflow_probability", "sonnet", "matplotlib",
            "pandas", "keras", "h5py", "gym", "stable_baselines3", "codecarbon",
        }
    assert "torch" not in native
    assert "torch" in pytorch


def test_client_has_no_tensorflow_and_it_can_be_imported_later(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(tmp_path)], cwd=harness.REPOSITORY,
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_all_of_reverb_comes_with_the_first_name_that_a_client_has_not(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ALL], cwd=harness.REPOSITORY, capture_output=True, text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "all there", done.stderr


def test_client_is_all_of_reverb_where_tensorflow_is_there_already():
    import reverb
    import tensorflow  # noqa: F401

    lean_imports.import_reverb_client()
    assert sys.modules["reverb"] is reverb and reverb.Server


def test_without_hides_what_is_not_there_yet_and_only_for_the_block():
    with lean_imports.without("wave", "json"):
        assert json.loads("1") == 1
        assert sys.modules["json"] is json
        with pytest.raises(ImportError):
            import wave  # noqa: F401
    import wave  # noqa: F401, F811
