"""The cluster that a run connects to, or starts."""

from unittest import mock

import pytest

from actorQ.launch.ray import cluster

ray = pytest.importorskip("ray")


@pytest.mark.parametrize(
    ("address", "wanted", "offered"), [("", 2, 3), ("", 9, 9), ("auto", 2, None)]
)
def test_cluster_of_this_machine_has_the_cores_that_the_process_may_use(
    monkeypatch, address, wanted, offered
):
    # A container or taskset allows fewer cores than the machine has.
    monkeypatch.setattr(cluster.provenance, "usable_cores", lambda: 3)
    monkeypatch.setattr(cluster.os, "cpu_count", lambda: 64)
    init = mock.Mock()
    monkeypatch.setattr(ray, "init", init)
    cluster.connect(address, wanted)
    assert init.call_args.kwargs["num_cpus"] == offered
