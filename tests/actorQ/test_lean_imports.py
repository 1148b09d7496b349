"""An actor's process holds no more frameworks than it needs."""

import json
import subprocess
import sys

import pytest

from actorQ import lean_imports
from tests.actorQ import harness

# What `actor_main` does up to the first look at a server; then the same with torch's kernels.
ACTORS = """
import json, os, sys
from actorQ import lean_imports
lean_imports.import_reverb()
from actorQ import acting, config, environments
for mode in ("native", "pytorch"):
    acting.ActorProcess(config.RunConfig(
        taskstr="dm_control,cartpole_balance", model_str="16", inference_mode=mode, port=1,
        logpath=os.path.join(sys.argv[1], mode),
    ))
    print(json.dumps(sorted(sys.modules)))
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
        assert {"reverb", "tensorflow", "dm_control"} <= loaded
        # torch itself brings SymPy and others in; what it needs is not ours to say.
        assert not loaded & {
            "acme", "jax", "tensorflow_probability", "sonnet", "matplotlib", "pandas", "keras",
            "h5py", "gym", "stable_baselines3", "codecarbon",
        }
    assert "torch" not in native
    assert "torch" in pytorch


def test_without_hides_what_is_not_there_yet_and_only_for_the_block():
    with lean_imports.without("wave", "json"):
        assert json.loads("1") == 1
        assert sys.modules["json"] is json
        with pytest.raises(ImportError):
            import wave  # noqa: F401
    import wave  # noqa: F401, F811
