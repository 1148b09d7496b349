"""The wheel: it holds all that programs read, and works from a folder of its own."""

import ast
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

from actorQ.core import console

ROOT = pathlib.Path(__file__).resolve().parents[1]
RUN = ROOT / "tests" / "data" / "runs_2e87143" / "dqn"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Returns the folder that a wheel of this checkout was installed into."""
    folder = tmp_path_factory.mktemp("package")
    source = folder / "source"
    source.mkdir()
    # A build leaves folders behind: the checkout stays as it is.
    shutil.copy(ROOT / "pyproject.toml", source)
    ignored = shutil.ignore_patterns("results", "_build", "__pycache__")
    for package in ("actorQ", "baseline"):
        shutil.copytree(ROOT / package, source / package, ignore=ignored)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    offline = ["--no-deps", "--no-index"]
    subprocess.run(
        [*pip, "wheel", *offline, "--no-build-isolation", "-w", str(folder), str(source)],
        check=True, timeout=300,
    )
    (wheel,) = folder.glob("quarl-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    files = [
        path.relative_to(source) for pattern in ("*.yaml", "*.yml", "*.c", "*.h", "*.j2", "*.py")
        for package in ("actorQ", "baseline") for path in (source / package).rglob(pattern)
    ]
    assert {path.as_posix() for path in files} <= set(names)
    assert not [name for name in names if "results/" in name and not name.endswith(".py")]
    target = folder / "site"
    subprocess.run([*pip, "install", *offline, "--target", str(target), str(wheel)],
                   check=True, timeout=300)
    return target


def run(site, tmp_path, *command):
    """Runs a command in a folder outside the checkout; returns what it printed."""
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_package_is_found_in_its_own_folder(site, tmp_path):
    code = "import actorQ.core, baseline.study; print(actorQ.__file__, baseline.__file__)"
    found = run(site, tmp_path, sys.executable, "-c", code).split()
    assert all(name.startswith(str(site)) for name in found)


@pytest.mark.parametrize("command", console.PROGRAMS)
def test_command_prints_its_programs_help(site, tmp_path, command):
    spec = importlib.util.find_spec(console.PROGRAMS[command])
    if spec.submodule_search_locations:  # `python -m` runs a package's __main__.
        spec = importlib.util.find_spec(f"{spec.name}.__main__")
    text = ast.get_docstring(ast.parse(pathlib.Path(spec.origin).read_text(encoding="utf-8")))
    assert text.splitlines()[0] in run(site, tmp_path, str(site / "bin" / command), "--help")


def test_package_evaluates_a_run_with_kernels_that_it_compiles(site, tmp_path):
    run(site, tmp_path, sys.executable, "-m", "actorQ.policy.native.build")
    shown = run(
        site, tmp_path, str(site / "bin" / "quarl-evaluate"), str(RUN), "--episodes=1",
        "--quantize=8", "--inference_mode=native",
    )
    assert "CartPole-v1 at 8 bits: return " in shown


def test_package_finds_its_experiments(site, tmp_path):
    shown = run(
        site, tmp_path, str(site / "bin" / "quarl-experiment"), "time_to_reward", "--dry-run",
        "--tasks=cartpole_balance", "--seeds=0",
    )
    assert "actorQ.launcher" in shown
