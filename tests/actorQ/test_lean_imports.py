"""An actor's process holds no more frameworks than it needs."""

import json
import subprocess
import sys

import pytest

from actorQ import lean_imports
from tests.actorQ import harness

# What `actor_main` does up to the first look at a server.
ACTOR = """
import json, sys
from actorQ import lean_imports
lean_imports.import_reverb()
from actorQ import acting, config, environments
acting.ActorProcess(config.RunConfig(
    taskstr="dm_control,cartpole_balance", model_str="16", inference_mode=sys.argv[1], port=1,
    logpath=sys.argv[2],
))
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("mode", ["native", "pytorch"])
def test_actor_process_imports_no_acme_nor_jax(tmp_path, mode):
    done = subprocess.run(
        [sys.executable, "-c", ACTOR, mode, str(tmp_path)], cwd=harness.REPOSITORY,
        capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert {"reverb", "tensorflow", "dm_control"} <= loaded
    # torch itself brings SymPy and others in; what it needs is not ours to say.
    assert not loaded & {"acme", "jax", "tensorflow_probability", "sonnet", "matplotlib", "pandas",
                         "keras", "h5py", "gym", "stable_baselines3", "codecarbon"}
    assert ("torch" in loaded) == (mode == "pytorch")


def test_without_hides_what_is_not_there_yet_and_only_for_the_block():
    with lean_imports.without("wave", "json"):
        assert json.loads("1") == 1
        assert sys.modules["json"] is json
        with pytest.raises(ImportError):
            import wave  # noqa: F401
    import wave  # noqa: F401, F811

