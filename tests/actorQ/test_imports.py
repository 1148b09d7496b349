"""Enforces who may import what, by parsing the sources."""

import ast
import functools
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "actorQ"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TENSORFLOW = {"tensorflow", "sonnet", "acme", "reverb", "trfl", "keras"}
TORCH = {"torch", "torchao"}

# These processes must stay free of torch, wherever the import stands.
NO_TORCH = """
    networks layers optimizers learning serving wire learner_process learner_main
    learner_checkpoints learner_device tensorflow_device learner_evaluation snapshots
    d4pg.learner dqn.learner
    messages conversion quantization packing config telemetry replay weights publishing reference
    native.library native.build
    native.convert checksums
    experiments.peer_acme experiments.acme_agent
""".split()
# These must stay free of TensorFlow and its family, wherever the import stands.
NO_TENSORFLOW = """
    policies torch_device messages conversion quantization packing config config_checks telemetry
    cli
    launcher processes ports
    d4pg.policy dqn.policy replay errors seeding architecture algorithms checkpoints evaluation
    provenance energy reference step_sizes native.library native.build
    native.convert checksums
    environment_loop lean_imports benchmarks.remote benchmarks.actor_loop
    experiments.peer_sb3 experiments.sb3_agent
""".split()
# These choose a framework when they are used: importing them must load none.
LIGHT = """
    inference evaluate launcher processes ports cli config config_checks telemetry messages
    conversion quantization
    packing d4pg.policy dqn.policy algorithms checkpoints evaluation architecture replay errors
    seeding provenance energy environments reference native.library native.build
    native.convert checksums
    allocator snapshots resuming run_folders status_line mirroring ray_worker
    ray_member ray_run launch_ray run_logger
    environment_loop lean_imports benchmarks.remote benchmarks.actor_loop benchmarks.actor_sides
    benchmarks.actor_explain benchmarks.parameter_path benchmarks.parameter_sides
    benchmarks.original_parameters
    experiments.run experiments.peers experiments.peer_session experiments.acme_agent
    experiments.sb3_agent experiments.gymnasium_task
    experiments.cluster experiments.cluster_simulation experiments.cluster_rates
    experiments.cluster_report experiments.breakdown experiments.throughput
    benchmarks.live_run benchmarks.network benchmarks.network_figures benchmarks.network_hosts
    benchmarks.delay_proxy
    benchmarks.message_faults
""".split()
# These measure what the original does, pickle included.
ORIGINAL = "actorQ.benchmarks.original_"


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name):
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def parse(name):
    path = ROOT / name.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_by(nodes):
    """Names of the modules that these statements import."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names.add(node.module)
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name for name in inner if is_module(name)}
    return names


@functools.cache
def all_imports(name):
    """What a module imports anywhere, functions included."""
    return imported_by(ast.walk(parse(name)))


@functools.cache
def imports_at_import(name):
    """What a module imports when it is imported: all but the bodies of functions."""

    def outside_functions(node):
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                yield child
                yield from outside_functions(child)

    return imported_by(outside_functions(parse(name)))


def roots(names):
    return {name.split(".")[0] for name in names}


def loaded_with(name):
    """Roots of all that importing one of our modules loads, through our own modules."""
    seen, waiting = set(), [name]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            if current.startswith("actorQ."):
                waiting += imports_at_import(current)
    return roots(seen)


def test_imports_at_import_sees_what_it_must():
    # The rules below would hold for ever if the parser saw nothing.
    assert "torch" in imports_at_import("actorQ.policies")
    assert "tensorflow" in imports_at_import("actorQ.networks")
    assert "torch" in all_imports("actorQ.inference")
    assert "torch" not in imports_at_import("actorQ.inference")
    assert {"tensorflow", "reverb", "acme"} <= loaded_with("actorQ.d4pg.learner")
    assert loaded_with("actorQ.learner_process") >= {"reverb", "numpy", "absl"}


@pytest.mark.parametrize("name", NO_TORCH)
def test_imports_learners_side_never_torch(name):
    assert not roots(all_imports(f"actorQ.{name}")) & TORCH
    assert not loaded_with(f"actorQ.{name}") & TORCH


@pytest.mark.parametrize("name", NO_TENSORFLOW)
def test_imports_actors_side_never_tensorflow(name):
    assert not roots(all_imports(f"actorQ.{name}")) & TENSORFLOW
    assert not loaded_with(f"actorQ.{name}") & TENSORFLOW


@pytest.mark.parametrize("name", LIGHT)
def test_imports_light_modules_load_no_framework(name):
    assert not loaded_with(f"actorQ.{name}") & (TENSORFLOW | TORCH)


@pytest.mark.parametrize("name", [module_name(path) for path in SOURCES])
def test_imports_every_module_no_pickle_and_no_baseline(name):
    forbidden = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
    if not name.startswith(ORIGINAL):
        assert not roots(all_imports(name)) & (forbidden | {"baseline"})


def test_imports_packages_own_init_is_empty():
    # Importing a part must not pull in the rest.
    for folder in ("", "d4pg", "dqn"):
        assert (PACKAGE / folder / "__init__.py").read_text().strip() == ""


def test_imports_only_policies_touches_torchs_quantization():
    using = [
        module_name(path) for path in SOURCES if "torch.ao" in path.read_text(encoding="utf-8")
    ]
    assert [name for name in using if not name.startswith(ORIGINAL)] == ["actorQ.policies"]


def test_imports_in_a_fresh_process_load_no_framework():
    names = ["launcher", "evaluate", "conversion"]
    heavy = sorted((TENSORFLOW | TORCH | {"jax"}) - {"keras"})
    code = "import sys\n" + "".join(
        f"import actorQ.{name}\nprint('{name}', [m for m in {heavy} if m in sys.modules])\n"
        for name in names
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert result.stdout.splitlines() == [f"{name} []" for name in names], result.stderr


def test_import_of_the_torch_policy_loads_no_tensorflow():
    heavy = sorted(TENSORFLOW)
    code = f"import sys, actorQ.policies; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert result.stdout.strip() == "[]", result.stderr
