"""Who may import what: one rule for each sub-package, held against the parsed sources."""

import ast
import functools
import pathlib
import subprocess
import sys
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
TENSORFLOW = frozenset({"tensorflow", "sonnet", "acme", "reverb", "trfl", "keras"})
TORCH = frozenset({"torch", "torchao"})
# A program must answer --help before any of these is loaded.
HEAVY = TENSORFLOW | TORCH | {"jax", "stable_baselines3", "rl_zoo3", "onnxruntime", "onnx"}
PLOTS = frozenset({"matplotlib"})
UNPICKLERS = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


class Rule(NamedTuple):
    """Says what modules may import whose names begin with the key of the rule.

    Attributes:
      ours: sub-packages of ours besides its own.
      never: packages that none of them imports, not even inside a function.
      unloaded: packages that are not loaded when one of them is imported.
    """

    ours: str
    never: frozenset[str] = frozenset()
    unloaded: frozenset[str] = frozenset()


# The rule with the longest key counts. Sub-packages of one package stand in order: each imports
# only those above it.
CORE, ENVIRONMENTS = "actorQ.core", "actorQ.core actorQ.environments"
POLICY = f"{ENVIRONMENTS} actorQ.policy"
WIRE = f"{POLICY} actorQ.wire"
PROCESSES = f"{WIRE} actorQ.learner actorQ.actor actorQ.d4pg actorQ.dqn actorQ.launch"
EXPERIMENTS = f"{PROCESSES} actorQ.experiments"
SHARED = "actorQ.core actorQ.environments actorQ.policy actorQ.experiments"
STUDY = ["tasks", "quantization", "agents", "formats", "study", "train", "qat", "deploy",
         "mixed_precision", "report"]
ALL_STUDY = " ".join(f"baseline.{name}" for name in STUDY)
RULES = {
    "actorQ.core": Rule("", TENSORFLOW - {"reverb", "tensorflow"} | TORCH, HEAVY | PLOTS),
    "actorQ.core.plotting": Rule("", TENSORFLOW | TORCH, HEAVY),
    "actorQ.environments": Rule(CORE, TENSORFLOW | TORCH, HEAVY),
    "actorQ.policy": Rule(ENVIRONMENTS, TENSORFLOW | TORCH, HEAVY),
    "actorQ.policy.sonnet_": Rule(ENVIRONMENTS, TORCH, TORCH),
    "actorQ.policy.tensorflow_": Rule(ENVIRONMENTS, TORCH, TORCH),
    "actorQ.policy.torch_": Rule(ENVIRONMENTS, TENSORFLOW, TENSORFLOW),
    "actorQ.policy.inference": Rule(ENVIRONMENTS, TENSORFLOW, HEAVY),
    "actorQ.wire": Rule(POLICY, TORCH | {"tensorflow"}, TORCH | {"tensorflow"}),
    "actorQ.wire.server": Rule(POLICY, TORCH, TORCH),
    "actorQ.learner": Rule(WIRE, TORCH, TORCH),
    "actorQ.actor": Rule(WIRE, TENSORFLOW - {"reverb"}, HEAVY - {"reverb"}),
    "actorQ.d4pg.learner": Rule(f"{WIRE} actorQ.learner", TORCH, TORCH),
    "actorQ.dqn.learner": Rule(f"{WIRE} actorQ.learner", TORCH, TORCH),
    "actorQ.d4pg.exploration": Rule(CORE, TENSORFLOW | TORCH, HEAVY),
    "actorQ.dqn.exploration": Rule(CORE, TENSORFLOW | TORCH, HEAVY),
    "actorQ.launch": Rule(CORE, TENSORFLOW | TORCH, HEAVY | PLOTS),
    "actorQ.experiments": Rule(PROCESSES, TENSORFLOW | TORCH, HEAVY),
    "actorQ.experiments.peers.acme_training": Rule(PROCESSES, TORCH, TORCH),
    "actorQ.experiments.peers.sb3_reporting": Rule(PROCESSES, TENSORFLOW, TENSORFLOW),
    "actorQ.experiments.peers.sb3_training": Rule(PROCESSES, TENSORFLOW, TENSORFLOW),
    "actorQ.experiments.peers.zoo_training": Rule(PROCESSES, TENSORFLOW, TENSORFLOW),
    "actorQ.benchmarks": Rule(EXPERIMENTS),
    "actorQ.scripts": Rule(EXPERIMENTS, TENSORFLOW | TORCH, HEAVY),
    "actorQ.advise": Rule(f"{EXPERIMENTS} actorQ.benchmarks", TENSORFLOW | TORCH, HEAVY | PLOTS),
    "actorQ": Rule(EXPERIMENTS, TENSORFLOW | TORCH, HEAVY | PLOTS),
    **{
        f"baseline.{name}": Rule(
            " ".join([SHARED, *(f"baseline.{lower}" for lower in STUDY[:number])]),
            TENSORFLOW - {"tensorflow"},
            frozenset({"tensorflow", "flatbuffers"}),
        )
        for number, name in enumerate(STUDY)
    },
    "baseline": Rule(f"{SHARED} {ALL_STUDY}", TENSORFLOW, HEAVY | PLOTS),
    "baseline.collate": Rule(f"{SHARED} {ALL_STUDY}", TENSORFLOW, HEAVY),
    "baseline.findings": Rule(f"{SHARED} {ALL_STUDY}", TENSORFLOW, HEAVY),
    "baseline.visualize": Rule(f"{SHARED} {ALL_STUDY}", TENSORFLOW, HEAVY),
}


def sources():
    """Returns our modules: their files by their names."""
    found = {}
    for package in ("actorQ", "baseline"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


SOURCES = sources()
EACH = pytest.mark.parametrize("name", SOURCES)


def imported_by(nodes):
    """Returns the names of all modules that these statements import."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "Imports are absolute."
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= inner & SOURCES.keys() or {node.module}
    return names


def nodes_of(name, inside_functions):
    """Yields the nodes of a module; those of TYPE_CHECKING are for type checkers alone."""

    def walk(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if inside_functions or not is_function:
                yield child
                yield from walk(child)

    yield from walk(ast.parse(SOURCES[name].read_text(encoding="utf-8")))


@functools.cache
def all_imports(name):
    """Returns what a module imports anywhere, functions included."""
    return imported_by(nodes_of(name, inside_functions=True))


@functools.cache
def imports_at_import(name):
    """Returns what a module imports when it is imported."""
    return imported_by(nodes_of(name, inside_functions=False))


def roots(names):
    return {name.split(".")[0] for name in names}


def loaded_with(name):
    """Returns the roots of all that importing a module loads, through our own modules."""
    seen, waiting = set(), [name]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            if current in SOURCES:
                waiting += imports_at_import(current)
    return roots(seen)


def is_below(name, prefix):
    return name == prefix or name.startswith(f"{prefix}.")


def rule_of(name):
    """Returns the key of the rule that counts for a module, and the rule."""
    keys = [
        key for key in RULES
        if is_below(name, key) or (key.endswith("_") and name.startswith(key))
    ]
    key = max(keys or [name.split(".")[0]], key=len)
    return key, RULES[key]


def is_program(name):
    return "\nif __name__ == " in SOURCES[name].read_text(encoding="utf-8")


def test_the_parser_sees_what_it_must():
    # The rules would hold for ever if the parser saw nothing.
    assert "torch" in imports_at_import("actorQ.policy.torch_policy")
    assert "tensorflow" in imports_at_import("actorQ.policy.sonnet_policy")
    assert "actorQ.policy.torch_policy" in all_imports("actorQ.policy.inference")
    assert "actorQ.policy.torch_policy" not in imports_at_import("actorQ.policy.inference")
    assert {"tensorflow", "reverb", "acme"} <= loaded_with("actorQ.d4pg.learner")
    assert "stable_baselines3" in loaded_with("baseline.agents.finding")
    assert rule_of("actorQ.policy.sonnet_layers")[0] == "actorQ.policy.sonnet_"
    assert is_program("actorQ.launcher") and not is_program("actorQ.launch.processes")


@EACH
def test_module_imports_only_what_its_rule_allows(name):
    key, rule = rule_of(name)
    own = ".".join(name.split(".")[:2])
    allowed = {own, *rule.ours.split()}
    wrong = {
        other for other in all_imports(name) & SOURCES.keys()
        if not any(is_below(other, folder) for folder in allowed)
    }
    assert not wrong, f"{name} may import only {sorted(allowed)} of ours ({key})"
    assert not roots(all_imports(name)) & rule.never
    assert not loaded_with(name) & rule.unloaded


# Users copy these files to a device and run them there by their paths: players and programs in one.
COPIED_WHOLE = {"baseline.deploy.run_policy", "baseline.deploy.run_native"}


@EACH
def test_no_module_imports_a_program(name):
    ours = all_imports(name) & SOURCES.keys() - COPIED_WHOLE
    assert not [other for other in ours if is_program(other)]


def test_no_modules_import_each_other_in_a_circle():
    done = set()

    def visit(name, way):
        assert name not in way, " -> ".join([*way[way.index(name):], name])
        if name not in done:
            for other in sorted(all_imports(name) & SOURCES.keys() - {name}):
                visit(other, [*way, name])
            done.add(name)

    for name in SOURCES:
        visit(name, [])


@EACH
def test_no_module_can_unpickle(name):
    if is_below(name, "actorQ.benchmarks.original"):
        return  # They measure what the original does, pickle included.
    assert not roots(all_imports(name) - {"pickle"}) & UNPICKLERS
    for node in nodes_of(name, inside_functions=True):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pickle":
            assert node.attr == "UnpicklingError"  # torch's safe loader raises it.


def test_packages_hold_captions_and_programs_and_25_modules():
    for name, path in SOURCES.items():
        if path.name == "__init__.py":
            body = ast.parse(path.read_text(encoding="utf-8")).body
            if "." not in name:  # Foreign files are refused before a program imports anything.
                assert ast.unparse(body.pop()) == "console.check_program()"
                body.pop()
            assert len(body) == 1 and ast.get_docstring(ast.Module(body, [])), f"{name}: a caption"
            modules = [module for module in path.parent.glob("*.py") if module != path]
            assert len(modules) <= 25, name
        if name.count(".") == 1 and path.name != "__init__.py":
            assert is_program(name), f"{name} is no program: it belongs in a folder"


def test_only_torch_policy_touches_torchs_quantization():
    using = [
        name for name, path in SOURCES.items()
        if name.startswith("actorQ.") and "torch.ao" in path.read_text(encoding="utf-8")
    ]
    assert [name for name in using if not is_below(name, "actorQ.benchmarks.original")] == [
        "actorQ.policy.torch_policy"
    ]


@pytest.mark.parametrize(
    ("module", "unloaded"),
    [
        ("actorQ.launcher", HEAVY),
        ("actorQ.evaluate", HEAVY),
        ("actorQ.policy.forms", HEAVY),
        ("actorQ.policy.torch_policy", TENSORFLOW),
        ("baseline.ptq", HEAVY),
    ],
)
def test_import_in_a_fresh_process_loads_none_of_these(module, unloaded):
    code = f"import sys, {module}; print([m for m in {sorted(unloaded)} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert result.stdout.strip() == "[]", result.stderr
