"""Programs refuse files that hide the modules they need."""

import os
import pathlib
import subprocess
import sys

import pytest

from actorQ.core import console

ROOT = pathlib.Path(__file__).resolve().parents[3]


def write_module(folder, name, content=""):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


@pytest.fixture(autouse=True)
def _nothing_imported(monkeypatch):
    """Takes out modules of this process, which programs have not imported yet."""
    for name in ("numpy", "yaml", "random", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize("name", ["numpy.py", "torch/__init__.py", "yaml.py", "random.py"])
def test_file_that_hides_a_module_is_named_with_the_module_and_the_remedy(
    tmp_path, monkeypatch, name
):
    theirs = write_module(tmp_path / "theirs", name)
    ours = write_module(tmp_path / "ours", name)
    first, later = [str(theirs.parents[name.count("/")])], [str(tmp_path / "ours")]
    said = console.find_hiding_file(first, later)
    assert said.startswith(f"{theirs} hides {ours}, ")
    assert said.endswith("start in another folder.")
    monkeypatch.setenv("PYTHONPATH", first[0])
    assert console.find_hiding_file(first, later).endswith(f"take {first[0]} out of PYTHONPATH.")


@pytest.mark.parametrize(
    "names",
    [
        ["numpy/readme.txt"],  # A folder of data.
        ["my_tasks.py"],
        ["numpy/__init__.py", "numpy-1.26.4.dist-info/METADATA"],
    ],
)
def test_file_that_hides_nothing_else_is_no_matter(tmp_path, names):
    metadata = "Name: numpy\nVersion: 1.26.4\n"
    for name in names:
        write_module(tmp_path / "theirs", name, metadata)
    write_module(tmp_path / "ours", "numpy/__init__.py")
    write_module(tmp_path / "ours", "numpy-1.26.4.dist-info/METADATA", metadata)
    assert not console.find_hiding_file([str(tmp_path / "theirs")], [str(tmp_path / "ours")])


def test_package_of_another_version_hides_ours(tmp_path):
    for side, version in (("theirs", "1.21.5"), ("ours", "1.26.4")):
        write_module(tmp_path / side, "numpy/__init__.py")
        write_module(
            tmp_path / side, f"numpy-{version}.dist-info/METADATA",
            f"Name: numpy\nVersion: {version}\n",
        )
    assert console.find_hiding_file([str(tmp_path / "theirs")], [str(tmp_path / "ours")])


@pytest.mark.parametrize("module", ["actorQ.launcher", "baseline.ptq"])
def test_program_beside_a_foreign_numpy_ends_with_one_line(tmp_path, module):
    foreign = write_module(tmp_path, "numpy.py", "raise SystemExit(9)")
    result = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=tmp_path, capture_output=True, text=True,
        timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert result.returncode == 1
    assert result.stderr.startswith(f"actorQ: error: {foreign} hides ")
    assert result.stderr.count("\n") == 1 and not result.stdout
