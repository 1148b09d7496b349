"""The resources that a machine lets this process use."""

import os

import pytest

from actorQ.core import provenance

CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("limits", "cores"),
    [
        ({}, CORES),
        ({"cpu.max": "max 100000\n"}, CORES),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": f"{CORES * 100_000 - 1} 100000\n"}, CORES),
        ({"cpu.max": "6400000 100000\n"}, min(CORES, 64)),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, CORES),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu.max": "damaged"}, CORES),
    ],
)
def test_usable_cores_are_no_more_than_a_container_s_quota(tmp_path, monkeypatch, limits, cores):
    for name, text in limits.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(provenance, "CGROUPS", str(tmp_path))
    assert provenance.usable_cores() == cores


@pytest.mark.parametrize(
    ("groups", "limits", "cores"),
    [
        # A job of Slurm or systemd sees its own groups below the root, and each of them limits it.
        ("0::/job/step\n", {"job/cpu.max": "200000 100000", "job/step/cpu.max": "max 100000"}, 2),
        ("0::/job/step\n", {"job/cpu.max": "800000 100000", "job/step/cpu.max": "50000 100000"}, 1),
        ("4:cpu,cpuacct:/job\n0::/\n",
         {"cpu/job/cpu.cfs_quota_us": "300000", "cpu/job/cpu.cfs_period_us": "100000"}, 3),
        ("0::/job\n", {"other/cpu.max": "100000 100000"}, 64),
        ("0::/docker/not/seen/here\n", {"cpu.max": "200000 100000"}, 2),
        ("damaged", {}, 64),
    ],
)
def test_usable_cores_are_no_more_than_any_control_group_gives(
    tmp_path, monkeypatch, groups, limits, cores
):
    for name, text in limits.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(groups)
    monkeypatch.setattr(provenance, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(provenance, "OWN_CGROUPS", str(tmp_path / "own"))
    monkeypatch.setattr(provenance.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(provenance.os, "sched_getaffinity", lambda _: set(range(64)))
    assert provenance.usable_cores() == cores


@pytest.mark.parametrize(("quota", "cores"), [(None, 64), (8, 8), (100, 64)])
def test_machine_cores_are_also_those_that_this_process_does_not_get(
    tmp_path, monkeypatch, quota, cores
):
    if quota:
        (tmp_path / "cpu.max").write_text(f"{quota * 100_000} 100000\n")
    monkeypatch.setattr(provenance, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(provenance.os, "cpu_count", lambda: 64)
    monkeypatch.setattr(provenance.os, "sched_getaffinity", lambda _: {5})
    assert (provenance.machine_cores(), provenance.usable_cores()) == (cores, 1)


@pytest.mark.parametrize("quota", [None, "max\n", "1000000\n"])
def test_memory_is_the_machine_s_or_the_quota(tmp_path, monkeypatch, quota):
    monkeypatch.setattr(provenance, "CGROUPS", str(tmp_path))
    if quota:
        (tmp_path / "memory.max").write_text(quota)
    memory = provenance.memory_bytes()
    assert memory == 1_000_000 if quota == "1000000\n" else memory > 2**28


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("AMD EPYC", "AMD EPYC (family 25, model 17)"),
        ("Intel(R) Xeon(R) Processor @ 2.90GHz",
         "Intel(R) Xeon(R) Processor @ 2.90GHz (family 25, model 17)"),
        ("AMD EPYC 9654 96-Core Processor", "AMD EPYC 9654 96-Core Processor"),
    ],
)
def test_processors_of_a_masked_name_are_told_apart(tmp_path, monkeypatch, name, shown):
    one = f"cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: {name}\n\n"
    (tmp_path / "cpuinfo").write_text(one + one.replace("17", "99"))
    monkeypatch.setattr(provenance, "CPU_FACTS", str(tmp_path / "cpuinfo"))
    assert provenance.machine()["processor"] == shown


def test_a_processor_without_a_list_of_facts_has_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "CPU_FACTS", str(tmp_path / "none"))
    assert provenance.machine()["processor"]


def test_gpus_have_their_names_where_the_driver_says(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "GPU_FACTS", str(tmp_path / "*/information"))
    assert provenance.machine()["gpu_models"] == ""
    for number, name in enumerate(("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", "Tesla T4")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "information").write_text(f"Model: \t\t {name}\nIRQ: \t 7\n")
    assert provenance.machine()["gpu_models"] == "NVIDIA H100 80GB HBM3 + Tesla T4"
