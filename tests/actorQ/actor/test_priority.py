"""An actor that yields its cores gives way to processes of other sessions as well."""

import os
import pathlib
import sys

import pytest

from actorQ.launch import processes

_OURS = max(10, os.getpriority(os.PRIO_PROCESS, 0))  # The tests may run with a low priority.
_CODE = """
import os, threading
from actorQ.actor import priority
priority.yield_cores()
names = []
later = threading.Thread(target=lambda: names.append(os.getpriority(os.PRIO_PROCESS, 0)))
later.start()
later.join()
print(os.getpriority(os.PRIO_PROCESS, 0), *names)
if os.path.exists("/proc/self/autogroup"):
    print(open("/proc/self/autogroup").read())
"""


def test_process_and_its_session_get_a_low_priority(tmp_path):
    log = tmp_path / "child.log"
    child = processes.Child("child", [sys.executable, "-c", _CODE], str(log), None)
    child.start()
    assert child.wait(30) and child.code == 0, log.read_text()
    first, *autogroup = log.read_text().split("\n", 1)
    assert first == f"{_OURS} {_OURS}"
    if pathlib.Path("/proc/self/autogroup").exists():
        assert autogroup[0].strip().endswith(" nice 10")


def test_a_session_that_others_share_keeps_its_priority(tmp_path):
    autogroup = pathlib.Path("/proc/self/autogroup")
    if not autogroup.exists():
        pytest.skip("This kernel has no autogroups.")
    log = tmp_path / "child.log"
    code = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {_CODE!r}], check=True)\n"
        "print(open('/proc/self/autogroup').read())\n"
    )
    child = processes.Child("child", [sys.executable, "-c", code], str(log), None)
    child.start()
    assert child.wait(30) and child.code == 0, log.read_text()
    lines = log.read_text().split("\n")
    assert lines[0] == f"{_OURS} {_OURS}" and lines[1].endswith(" nice 0")


def test_a_lower_priority_that_was_given_stays(tmp_path):
    log = tmp_path / "child.log"
    given = max(15, os.getpriority(os.PRIO_PROCESS, 0))
    code = f"import os\nos.setpriority(os.PRIO_PROCESS, 0, {given})\n{_CODE}"
    child = processes.Child("child", [sys.executable, "-c", code], str(log), None)
    child.start()
    assert child.wait(30) and child.code == 0, log.read_text()
    assert log.read_text().startswith(f"{given} {given}\n")
