"""Who may import what in baseline/, by parsing the sources."""

import ast
import functools
import pathlib

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "baseline"
SOURCES = sorted(PACKAGE.rglob("*.py"))
UNPICKLERS = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
# Their --help and flags must be instant: nothing heavy while they are imported.
LIGHT = """
    ptq sweep enjoy train integer_benchmark qat qat_sweep qat_speed qat_integer
    report deploy deploy_benchmark deploy_formats resident_memory aarch64 run_policy navigation
    measuring_flags training_settings results mixed_precision precision
""".split()
# They load TensorFlow, once they are asked to.
TENSORFLOW = {"tflite_graph", "tflite_runner", "weight_readers"}
HEAVY = {"torch", "stable_baselines3", "tensorflow", "rl_zoo3", "matplotlib", "onnxruntime", "onnx"}


@functools.cache  # Most are asked for by many tests.
def imports(path, inside_functions):
    found = set()

    def walk(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}: imports are absolute"
                found.add(child.module)
                found.update(f"{child.module}.{alias.name}" for alias in child.names)
            if inside_functions or not isinstance(child, ast.FunctionDef | ast.Lambda):
                walk(child)

    walk(ast.parse(path.read_text()))
    return frozenset(found)


def loaded_with(module):
    """Roots of what importing a module of ours loads, through modules of ours."""
    seen, waiting = set(), [f"baseline.{module}"]
    while waiting:
        name = waiting.pop()
        path = PACKAGE.parent / (name.replace(".", "/") + ".py")
        if name not in seen:
            seen.add(name)
            if path.is_file():
                waiting += imports(path, inside_functions=False)
    return {name.split(".")[0] for name in seen}


def test_the_parser_sees_what_it_must():
    assert "torch" in imports(PACKAGE / "networks.py", inside_functions=False)
    assert "stable_baselines3" in loaded_with("agents")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_module_can_unpickle(path):
    names = imports(path, inside_functions=True)
    assert not {name.split(".")[0] for name in names - {"pickle"}} & UNPICKLERS
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pickle":
            assert node.attr == "UnpicklingError"  # Which torch's safe loader raises.


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_tensorflow_is_loaded_by_few_and_not_before_it_is_needed(path):
    roots = {name.split(".")[0] for name in imports(path, inside_functions=False)}
    assert not roots & {"tensorflow", "flatbuffers"}
    roots = {name.split(".")[0] for name in imports(path, inside_functions=True)}
    assert path.stem in TENSORFLOW or not roots & {"tensorflow", "flatbuffers"}


@pytest.mark.parametrize("module", LIGHT)
def test_tools_load_no_framework_before_their_flags_are_read(module):
    assert not loaded_with(module) & HEAVY
