"""Tables and ports of a real Reverb server in this process."""

import dataclasses
import socket

import numpy as np
import pytest
import reverb

from actorQ.actor import transition_writer
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.environments import suites
from actorQ.wire import replay
from actorQ.wire import server as server_lib
from tests.actorQ import harness

LAYOUT = harness.small_layout()


def test_tables_have_the_names_and_limits_of_the_flags(connection):
    info = connection.client.server_info(5)
    assert set(info) == {"r", "b", "m", "s", "run", "observations"}
    assert info["r"].max_size == 300
    assert info["r"].max_times_sampled == 7
    assert info["r"].rate_limiter_info.min_size_to_sample == 5
    assert info["r"].sampler_options.prioritized.priority_exponent == pytest.approx(0.6)
    assert info["b"].max_times_sampled == 1
    assert info["m"].max_times_sampled == info["observations"].max_times_sampled == 0


@pytest.mark.parametrize(
    ("task_layout", "asked", "gigabytes", "expected"),
    [
        (LAYOUT, 300, 16, 300),
        (LAYOUT, 0, 16, 1_000_000),
        (LAYOUT, 0, 1, 240_000),
        (replay.Layout((84, 84, 4), True, 1, True), 0, 16, 70_000),
        (replay.Layout((84, 84, 4), True, 1, True), 0, 0.01, 2_000),  # Learning can still start.
    ],
)
def test_replay_without_a_size_takes_a_quarter_of_the_memory_at_most(
    monkeypatch, task_layout, asked, gigabytes, expected
):
    monkeypatch.setattr(server_lib.provenance, "memory_bytes", lambda: gigabytes * 1e9)
    smaller = {"min_replay_size": 9} if asked else {}
    config = config_lib.RunConfig(replay_table_max_replay_size=asked, **smaller)
    assert server_lib.replay_capacity(config, task_layout) == pytest.approx(expected, rel=0.05)


def test_tables_uniform_where_the_algorithm_is_not_prioritized(config):
    for prioritized, exponent in ((False, 0.6), (True, 0.0)):
        changed = config_lib.RunConfig(priority_exponent=exponent)
        table = server_lib.make_tables(changed, LAYOUT, prioritized)[0]
        assert table.info.sampler_options.HasField("uniform")


@pytest.mark.parametrize("ratio", [0.25, 2.0])
def test_samples_per_insert_holds_samples_back_but_never_inserts(config, ratio):
    config = dataclasses.replace(
        config, samples_per_insert=ratio, replay_table_max_times_sampled=0
    )
    tables = server_lib.make_tables(config, LAYOUT, prioritized=False)
    server = server_lib.start_server(config, tables)
    client = reverb.Client(f"localhost:{server.port}")
    try:
        for _ in range(45):
            client.insert(np.zeros(LAYOUT.vector_size, np.float32), {"r": 1.0})
        # 5 of 45 inserts only fill the table. The others allow 40 * ratio samples.
        allowed = int(40 * ratio)
        samples = reverb.TimestepDataset.from_table_signature(
            client.server_address, "r", max_in_flight_samples_per_worker=1,
            rate_limiter_timeout_ms=500,
        )
        assert len(list(samples)) == allowed
        status = client.server_info(5)["r"].rate_limiter_info
        assert status.sample_stats.completed == allowed
        assert status.insert_stats.completed == 45
    finally:
        server.stop()


def test_start_server_port_in_use_says_so():
    with socket.socket() as holder:
        holder.bind(("", 0))
        holder.listen()
        port = holder.getsockname()[1]
        taken = config_lib.RunConfig(port=port)
        with pytest.raises(errors.UserError, match=f"Port {port} is in use"):
            server_lib.start_server(taken, server_lib.make_tables(taken, LAYOUT, prioritized=False))


def test_start_server_fixed_port_is_used():
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    config = config_lib.RunConfig(port=port)
    tables = server_lib.make_tables(config, LAYOUT, prioritized=False)
    server = server_lib.start_server(config, tables)
    assert server.port == port
    # gRPC would let a second server share the port.
    with pytest.raises(errors.UserError, match="in use"):
        server_lib.start_server(config, server_lib.make_tables(config, LAYOUT, prioritized=False))
    server.stop()


def test_pixel_transitions_travel_as_bytes(config):
    spec = suites.make("atari,Pong", 0, 50).spec
    layout = replay.Layout.of(spec)
    assert layout.pixels and layout.vector_size == 3
    tables = server_lib.make_tables(config, layout, prioritized=False)
    server = server_lib.start_server(config, tables)
    client = reverb.Client(f"localhost:{server.port}")
    writer = transition_writer.TransitionWriter(client, "r", layout)
    frames = np.random.default_rng(0).integers(0, 255, (2, 84, 84, 4), dtype=np.uint8)
    for _ in range(5):
        writer.write(replay.Transition(frames[0], 3, 2.0, 0.5, frames[1]))
    writer.close()
    data = next(client.sample("r", emit_timesteps=False)).data
    transition = layout.unpack(tuple(np.asarray(column)[None] for column in data))
    np.testing.assert_array_equal(transition.observation[0], frames[0])
    np.testing.assert_array_equal(transition.next_observation[0], frames[1])
    assert (transition.action[0], transition.reward[0], transition.discount[0]) == (3, 2.0, 0.5)
    server.stop()
