"""How runs share out the cores of machines that this one need not be."""

import dataclasses

import pytest

from actorQ.experiments import loading
from actorQ.experiments import plans
from actorQ.experiments import specification


@pytest.mark.parametrize(
    ("quota", "parallel", "count"), [(64, 2, 32), (4, 2, 2), (4, 32, 1), (4, 1, 4)]
)
def test_runs_at_once_share_a_container_s_quota(
    tmp_path, monkeypatch, quota, parallel, count
):
    monkeypatch.setattr(plans.processes.os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr(plans.processes, "_SIBLINGS", str(tmp_path / "none{}"))
    monkeypatch.setattr(plans.provenance, "usable_cores", lambda: quota)
    found = plans.cores_of_run(plans.cores_of_slot(0, parallel), parallel)
    assert found == {"usable_cores": count, "physical_cores": count}


@pytest.mark.parametrize(("quota", "at_once"), [(16, 2), (4, 1)])
def test_counts_a_core_with_two_hyperthreads_once(monkeypatch, quota, at_once):
    monkeypatch.setattr(
        plans.processes, "physical_cores", lambda: [{core, core + 8} for core in range(8)]
    )
    monkeypatch.setattr(plans.provenance, "usable_cores", lambda: quota)
    common = loading.load_common()
    runs = [  # A learner and three actors each.
        dataclasses.replace(one, settings={**one.settings, "n_actors": 3})
        for one in specification.expand(loading.load("staleness", common), common, "laptop")
    ]
    assert plans.most_at_once(runs) == at_once
    assert plans.cores_of_run(None, 1) == {"usable_cores": quota, "physical_cores": min(quota, 8)}
    share = plans.cores_of_slot(0, 2)
    assert share == {0, 1, 2, 3, 8, 9, 10, 11}
    assert plans.cores_of_run(share, 2) == {
        "usable_cores": quota // 2, "physical_cores": min(quota // 2, 4)
    }


def test_shares_out_the_hyperthreads_of_a_single_core_and_counts_it_once(monkeypatch):
    monkeypatch.setattr(plans.processes, "physical_cores", lambda: [{0, 8}])
    monkeypatch.setattr(plans.provenance, "usable_cores", lambda: 2)
    assert plans.cores_of_run(None, 1) == {"usable_cores": 2, "physical_cores": 1}
    assert plans.cores_of_slot(1, 2) == {8}
    assert plans.cores_of_run({8}, 2) == {"usable_cores": 1, "physical_cores": 1}
