"""Runs setup_ubuntu.sh with a stand-in for Python, so that nothing is installed."""

import configparser
import functools
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from packaging import requirements
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
BASH = shutil.which("bash")

# The stand-in answers as Python 3.11 does and logs each pip command. It fails for commands with the
# text $PIP_FAILS. With $INTERRUPTED it ends as pip does on Ctrl-C, which bash gets as well. Code in
# its arguments (-S -c) is run by a real Python.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
  "-m venv"*)
    mkdir -p .venv/bin .venv/lib/python3.11/site-packages
    cp "$0" .venv/bin/python
    echo venv >>"$FAKE_LOG" ;;
  "-m pip --disable-pip-version-check --version") echo "pip" ;;
  "-m pip"*)
    echo "$*" >>"$FAKE_LOG"
    env >"$FAKE_LOG.environment"
    case "$*" in *"${PIP_FAILS:-nothing}"*)
      if [ -n "$INTERRUPTED" ]; then kill -INT $PPID; fi
      echo "ERROR: ${PIP_SAYS:-No matching distribution found}" >&2
      exit 1 ;;
    esac ;;
  *--version) echo "Python 3.11.0" ;;
  "-S -c "*) exec "$REAL_PYTHON" "$@" ;;
  *" - "*) cat >/dev/null; [ -z "$IMPORTS_FAIL" ] || exit 1; echo "Imports work" ;;
esac
"""


class Checkout:
    """A folder with the files that the set-up reads, and the log of the stand-in for Python."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder / "checkout"
        self.folder.mkdir()
        for name in ("setup_ubuntu.sh", "requirements.txt", "constraints.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, self.folder)
        self.log = folder / "log"
        self.python = folder / "python3.11"
        self.python.write_text(FAKE_PYTHON)
        self.python.chmod(0o755)

    def run(self, *arguments: str, **environment: str | None) -> subprocess.CompletedProcess:
        """Runs the set-up with the stand-in, and with `environment` on top; None: not set."""
        self.log.write_text("")
        variables = {
            **os.environ,
            "UNAME": "Linux",
            "MACHINE": "x86_64",
            "PYTHON": str(self.python),
            "FAKE_LOG": str(self.log),
            "REAL_PYTHON": sys.executable,
            **environment,
        }
        return subprocess.run(
            [BASH, str(self.folder / "setup_ubuntu.sh"), *arguments],
            env={name: value for name, value in variables.items() if value is not None},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            # Tests in the background ignore Ctrl-C, and so would the processes that they start.
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )

    def launch(self) -> subprocess.CompletedProcess:
        """Starts a training; the stand-in for Python does nothing."""
        script = self.folder / "run_multiprocess.sh"
        shutil.copy(ROOT / script.name, script)
        return subprocess.run([BASH, str(script)], capture_output=True, text=True, timeout=60)

    def installs(self) -> list[str]:
        """Returns the installed packages of the last run: the last word of each `pip install`."""
        lines = self.log.read_text().splitlines()
        return [line.split()[-1] for line in lines if " install " in line]


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def test_setup_unknown_option_says_so_in_one_line(checkout):
    result = checkout.run("--quick")
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "unknown option --quick" in result.stderr


@pytest.mark.parametrize("arguments", [("--torch", "rocm"), ("--torch=",), ("--torch",)])
def test_setup_unknown_torch_build_is_refused(checkout, arguments):
    result = checkout.run(*arguments)
    assert result.returncode == 2
    assert "--torch is cpu or cuda" in result.stderr


def test_setup_help_names_every_option(checkout):
    result = checkout.run("--help")
    assert result.returncode == 0
    for option in ("--gpu", "--torch", "--print-requirements", "PYTHON="):
        assert option in result.stdout


def test_setup_without_python_311_says_how_to_get_one(checkout, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("dirname", "uname", "cat", "cksum", "grep", "sed", "find"):
        (tools / tool).symlink_to(shutil.which(tool))
    result = checkout.run(PATH=str(tools), HOME=str(tmp_path), PYTHON="")
    assert result.returncode == 1
    assert "No Python 3.11 found" in result.stderr
    nowhere = checkout.run(PATH=str(tools), HOME=None, PYTHON="")  # Services have no home.
    assert nowhere.stderr == result.stderr
    for way in ("apt-get", "pyenv", "uv", "conda"):
        assert way in result.stderr


def test_setup_python_override_of_another_version_is_refused(checkout):
    result = checkout.run(PYTHON="/bin/false")
    assert result.returncode == 1
    assert "No Python 3.11 found at PYTHON=/bin/false" in result.stderr


def test_setup_python_without_venv_names_the_system_package(checkout):
    script = FAKE_PYTHON.replace('case "$*" in\n', 'case "$*" in\n  *ensurepip*) exit 1 ;;\n', 1)
    checkout.python.write_text(script)
    result = checkout.run()
    assert result.returncode == 1
    assert "python3.11-venv" in result.stderr


@pytest.mark.parametrize("system", [{"UNAME": "Darwin"}, {"MACHINE": "aarch64"}])
def test_setup_on_macos_and_on_arm_leaves_out_what_needs_reverb(checkout, system):
    result = checkout.run("--print-requirements", **system)
    names = {requirements.Requirement(line).name for line in result.stdout.splitlines()}
    assert {"torch", "stable-baselines3", "gymnasium"} <= names
    assert not names & {"dm-reverb", "tensorflow-cpu", "dm-acme", "dm-sonnet", "trfl", "jaxlib"}


def test_setup_on_arm_leaves_out_what_has_no_built_package(checkout):
    result = checkout.run("--print-requirements", MACHINE="aarch64")
    pins = [requirements.Requirement(line) for line in result.stdout.splitlines()]
    taken = [
        pin for pin in pins
        if pin.marker is None or pin.marker.evaluate({"platform_machine": "aarch64"})
    ]
    assert {str(pin).partition("==")[0] for pin in taken} >= {"gymnasium", "torch", "mujoco"}
    # PyPI has neither a wheel of Box2D for ARM nor its sources, and of PyBullet sources alone.
    assert not {"pybullet", "pybullet_envs_gymnasium"} & {pin.name for pin in taken}
    assert not any("box2d" in pin.extras for pin in taken)


def test_setup_on_arm_says_which_tasks_it_leaves_out(checkout):
    assert "Box2D's and PyBullet's tasks are left out" in checkout.run(MACHINE="aarch64").stdout
    assert "left out" not in checkout.run(UNAME="Darwin").stdout


def test_setup_for_a_gpu_on_arm_is_refused(checkout):
    result = checkout.run("--gpu", MACHINE="aarch64")
    assert result.returncode == 2
    assert "Without --gpu, Linux on aarch64" in result.stderr


def test_setup_on_macos_selects_what_pip_itself_would_select_there(checkout):
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line]
    pins = [requirements.Requirement(line) for line in lines if not line.startswith("#")]
    on_macos = {
        pin.name
        for pin in pins
        if pin.marker is None or pin.marker.evaluate({"sys_platform": "darwin"})
    }
    result = checkout.run("--print-requirements", UNAME="Darwin")
    assert {requirements.Requirement(x).name for x in result.stdout.splitlines()} == on_macos


def test_setup_for_gpu_exchanges_tensorflow(checkout):
    result = checkout.run("--gpu", "--print-requirements")
    assert "tensorflow[and-cuda]==2.15.1" in result.stdout
    assert "tensorflow-cpu" not in result.stdout


def test_setup_torch_for_cuda_is_no_cpu_build(checkout):
    printed = checkout.run("--torch=cuda", "--print-requirements").stdout.splitlines()
    assert "torch===2.13.0" in printed  # 2.13.0+cpu would be equal by "==".


@pytest.mark.parametrize("tensorflow", ["cpu", "gpu"])
def test_setup_torch_gets_its_own_nccl_where_tensorflow_brings_another(checkout, tensorflow):
    options = ["--torch=cuda", *(["--gpu"] if tensorflow == "gpu" else [])]
    checkout.run(*options)
    site_packages = checkout.folder / ".venv/lib/python3.11/site-packages"
    package = site_packages / "nvidia_nccl_cu13-2.29.7.dist-info"
    package.mkdir()
    (package / "RECORD").touch()
    (checkout.folder / ".venv/quarl-stamp").unlink()
    assert checkout.run(*options).returncode == 0
    again = ["nvidia-nccl-cu13==2.29.7"] if tensorflow == "gpu" else []
    assert checkout.installs() == [".venv/requirements.txt", *again, "."]


def test_setup_second_run_installs_nothing(checkout):
    first = checkout.run()
    assert first.returncode == 0, first.stderr
    assert checkout.installs() == ["torch==2.13.0+cpu", ".venv/requirements.txt", "."]

    second = checkout.run()
    assert second.returncode == 0, second.stderr
    assert checkout.log.read_text() == ""
    assert "up to date" in second.stdout
    assert "Imports work" in second.stdout


def test_setup_installs_with_bytecode(checkout):
    checkout.run()
    lines = [line for line in checkout.log.read_text().splitlines() if " install " in line]
    assert lines
    assert all("--compile" in line for line in lines)


@pytest.mark.parametrize("name", ["requirements.txt", "constraints.txt", "pyproject.toml"])
def test_setup_changed_pins_are_installed_into_the_same_environment(checkout, name):
    checkout.run()
    with open(checkout.folder / name, "a") as file:
        file.write("# changed\n")
    checkout.run()
    assert "." in checkout.installs()
    assert "venv" not in checkout.log.read_text().split()


def test_setup_changed_option_removes_the_other_tensorflow(checkout):
    checkout.run()
    checkout.run("--gpu")
    assert "uninstall --yes --quiet tensorflow-cpu\n" in checkout.log.read_text()
    checkout.run("--cpu")
    assert "uninstall --yes --quiet tensorflow\n" in checkout.log.read_text()


def test_setup_again_without_options_keeps_those_of_the_first_time(checkout):
    checkout.run("--gpu", "--torch=cuda")
    again = checkout.run()
    assert again.returncode == 0, again.stderr
    assert "up to date" in again.stdout
    assert checkout.log.read_text() == ""


def test_setup_keeps_options_that_only_the_stamp_has(checkout):
    checkout.run("--gpu", "--torch=cuda")
    (checkout.folder / ".venv/quarl-options").unlink()  # As of older versions of the script.
    again = checkout.run()
    assert again.returncode == 0, again.stderr
    assert "up to date" in again.stdout
    assert checkout.log.read_text() == ""


def test_setup_that_was_interrupted_goes_on_with_its_options(checkout):
    assert checkout.run("--gpu", PIP_FAILS="--requirement").returncode != 0
    assert checkout.run().returncode == 0
    assert "uninstall --yes --quiet tensorflow-cpu\n" in checkout.log.read_text()
    assert "tensorflow=gpu" in (checkout.folder / ".venv/quarl-stamp").read_text()


def test_setup_moved_checkout_gets_a_new_environment(checkout):
    checkout.run()
    program = checkout.folder / ".venv/bin/pip"
    program.write_text(f"#!{checkout.folder}/.venv/bin/python\n")
    stamp = checkout.folder / ".venv/quarl-stamp"
    stamp.write_text(stamp.read_text().replace("folder=", "folder=/elsewhere"))
    checkout.run()
    assert "venv" not in checkout.log.read_text().split()
    program.write_text("#!/elsewhere/.venv/bin/python\n")
    stamp.unlink()
    checkout.run()
    assert "venv" in checkout.log.read_text().split()


def test_setup_packages_that_do_not_import_together_name_the_remedy(checkout):
    result = checkout.run(IMPORTS_FAIL="1")
    assert result.returncode == 1
    assert "rm -rf .venv" in result.stderr


def test_setup_stops_on_ctrl_c_where_pip_answers_it_by_failing(checkout):
    result = checkout.run(PIP_FAILS="+cpu", INTERRUPTED="1")
    assert result.returncode == 130
    assert checkout.log.read_text().count(" install ") == 1


def assert_names_the_set_up(result):
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "setup_ubuntu.sh (again)" in result.stderr


@pytest.mark.parametrize("made", ["nothing", "half", "stamp"])
def test_launching_without_a_whole_environment_names_the_set_up(checkout, made):
    (checkout.folder / ".venv/bin").mkdir(parents=True)
    if made == "stamp":  # Whose Python is gone.
        (checkout.folder / ".venv/quarl-stamp").touch()
    if made == "half":
        python = checkout.folder / ".venv/bin/python"
        python.write_text("#!/bin/sh\nexit 1\n")  # As where the package quarl is not found.
        python.chmod(0o755)
    assert_names_the_set_up(checkout.launch())


def test_launching_after_an_interrupted_change_of_options_names_the_set_up(checkout):
    checkout.run()
    assert checkout.launch().returncode == 0
    interrupted = checkout.run("--gpu", PIP_FAILS="--requirement", INTERRUPTED="1")
    assert interrupted.returncode == 130
    assert_names_the_set_up(checkout.launch())  # Though the package quarl is found.
    checkout.run()
    assert checkout.launch().returncode == 0


def test_launching_from_an_environment_of_other_making(checkout):
    checkout.run()
    for name in ("quarl-stamp", "quarl-options"):
        (checkout.folder / ".venv" / name).unlink()
    assert checkout.launch().returncode == 0


def test_setup_torch_for_cuda_removes_the_cpu_build(checkout):
    checkout.run()
    site_packages = checkout.folder / ".venv/lib/python3.11/site-packages"
    dist_info = site_packages / "torch-2.13.0+cpu.dist-info"
    dist_info.mkdir()
    (dist_info / "RECORD").touch()
    checkout.run("--torch=cuda")
    assert "uninstall --yes --quiet torch\n" in checkout.log.read_text()
    assert checkout.installs() == [".venv/requirements.txt", "."]


def test_setup_interrupted_install_is_repaired(checkout):
    assert checkout.run(PIP_FAILS="--requirement").returncode != 0
    site_packages = checkout.folder / ".venv/lib/python3.11/site-packages"
    (site_packages / "half-1.0.dist-info").mkdir()
    (site_packages / "~old").mkdir()
    (site_packages / "whole-1.0.dist-info").mkdir()
    (site_packages / "whole-1.0.dist-info/RECORD").touch()

    result = checkout.run()
    assert result.returncode == 0, result.stderr
    assert checkout.installs()[-1] == "."
    assert [path.name for path in site_packages.iterdir()] == ["whole-1.0.dist-info"]


def test_setup_environment_without_python_is_made_again(checkout):
    checkout.run()
    (checkout.folder / ".venv/bin/python").unlink()
    assert checkout.run().returncode == 0
    assert "venv" in checkout.log.read_text().split()


def test_setup_without_cpu_build_of_torch_takes_the_plain_pin(checkout):
    result = checkout.run(PIP_FAILS="+cpu")
    assert result.returncode == 0, result.stderr
    log = checkout.log.read_text()
    assert log.count("torch==2.13.0+cpu") == 2
    assert log.count("download.pytorch.org") == 1
    assert "taking the package index's build" in result.stdout
    assert checkout.installs()[-2:] == [".venv/requirements.txt", "."]


def test_setup_names_pip_s_reason_where_it_installs_no_cpu_build(checkout):
    result = checkout.run(PIP_FAILS="+cpu", PIP_SAYS="[Errno 28] No space left on device")
    assert "pip has no CPU build of torch==2.13.0 ([Errno 28] No space left on device): taking" in (
        result.stdout
    )


# What users of a machine set so that pip installs for them alone, or for a container's layer.
ASTRAY = {
    "PIP_USER": "1", "PIP_TARGET": "/elsewhere", "PIP_PREFIX": "/elsewhere", "PIP_ROOT": "/other",
    "PIP_REQUIRE_VIRTUALENV": "1", "PIP_NO_DEPS": "1", "PIP_ONLY_BINARY": ":all:",
    "PYTHONPATH": "/opt/ros/lib", "PYTHONHOME": "/usr",
}


def test_setup_lets_no_variable_put_packages_elsewhere(checkout):
    given = {**ASTRAY, "PIP_INDEX_URL": "https://mirror/simple", "LC_ALL": "C"}
    assert checkout.run(**given).returncode == 0
    lines = pathlib.Path(f"{checkout.log}.environment").read_text().splitlines()
    seen = dict(line.split("=", 1) for line in lines if "=" in line)
    assert not ASTRAY.keys() & seen.keys()
    assert (seen["PIP_INDEX_URL"], seen["LC_ALL"]) == ("https://mirror/simple", "C.UTF-8")


@pytest.mark.parametrize("named", [False, True])
def test_setup_overrules_pip_conf_but_for_its_index(checkout, tmp_path, named):
    # pip lets .venv/pip.conf go before the user's file, and $PIP_CONFIG_FILE before both.
    conf = tmp_path / "pip.conf"
    conf.write_text("[global]\nindex-url = https://mirror\n[install]\nuser = true\ntarget = /x\n")
    result = checkout.run(**({"PIP_CONFIG_FILE": str(conf)} if named else {}))
    assert result.returncode == 0, result.stderr
    environment = pathlib.Path(f"{checkout.log}.environment").read_text()
    written = checkout.folder / ".venv" / ("quarl-pip.conf" if named else "pip.conf")
    assert (f"PIP_CONFIG_FILE={written}\n" in environment) == named
    found = configparser.RawConfigParser()
    found.read(written)
    for section in ("global", "install"):  # pip takes an empty value for none.
        assert {found[section][name] for name in ("user", "target", "no-deps")} == {""}
    assert found["global"].get("index-url") == ("https://mirror" if named else None)


def test_setup_in_a_path_that_is_not_ascii_serves_in_every_locale(tmp_path):
    parent = tmp_path / "pfad \u00fc"
    parent.mkdir()
    checkout = Checkout(parent)
    assert checkout.run().returncode == 0
    site_packages = checkout.folder / ".venv/lib/python3.11/site-packages"
    path_file = site_packages / "__editable__.quarl-0.1.0.pth"
    path_file.write_text(f"{checkout.folder}\n", encoding="utf-8")  # As setuptools does.
    assert checkout.run().returncode == 0
    shown = subprocess.run(
        [sys.executable, "-S", "-c", f"import site; site.addsitedir({str(site_packages)!r}); "
         "import sys; sys.stdout.buffer.write(sys.path[-1].encode())"],
        env={**os.environ, "LC_ALL": "C"}, capture_output=True, timeout=60,
    )
    assert shown.stdout.decode() == str(checkout.folder), shown.stderr
