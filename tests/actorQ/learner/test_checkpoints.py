"""Snapshots of a learner and its tables, on a real server."""

import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from actorQ.actor import transition_writer
from actorQ.core import errors
from actorQ.core import snapshots
from actorQ.learner import checkpoints as checkpoints_lib
from actorQ.policy import model_update
from actorQ.wire import connection as connection_lib
from actorQ.wire import messages
from actorQ.wire import replay
from actorQ.wire import server as server_lib
from tests.actorQ import harness

LAYOUT = harness.small_layout()


def model_message(version):
    tensors = {"w": np.ones(3, np.float32)}
    return messages.encode(model_update.ModelUpdate(version, "float32", tensors))


def test_checkpoint_on_a_full_disk_leaves_nothing_of_itself(tmp_path):
    class Full:
        def write(self, prefix):
            pathlib.Path(f"{prefix}.data-00000-of-00001").write_bytes(b"a part")
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    store = snapshots.Store(str(tmp_path))
    store.prepare(fresh=True)
    checkpoints = checkpoints_lib.Checkpoints(store, None, {})
    checkpoints._tensors = Full()
    checkpoints.save(lambda: None, wait=True)
    assert os.listdir(store.folder) == ["reverb"]
    assert not checkpoints.writing


def test_checkpoint_keeps_transitions_counters_and_models(config, tmp_path):
    store = snapshots.Store(str(tmp_path))
    store.prepare(fresh=True)
    tables = server_lib.make_tables(config, LAYOUT, prioritized=True)
    server = server_lib.start_server(config, tables, checkpoints_lib.checkpointer(store, None))
    connection = connection_lib.Connection(config, f"localhost:{server.port}")
    writer = transition_writer.TransitionWriter(connection.client, "r", LAYOUT)
    for number in range(320):
        writer.write(replay.Transition(np.full(3, number), np.zeros(2), 1.0, 1.0, np.zeros(3)))
    writer.close()
    list(connection.client.sample("r", 40))
    connection.publish("m", model_message(4))
    connection.publish_card(77, 1, 0)
    before = connection.status()
    variable = tf.Variable([1.0, 2.0])
    checkpoints = checkpoints_lib.Checkpoints(store, connection.client, {"weights": variable})
    state = snapshots.State(
        run_id=77, settings={}, learner_steps=5, versions_skipped=0, returns=[], best_return=None,
        evaluation_s=0.0, checkpoint_s=0.0, pushes=0, log_bytes={},
    )
    checkpoints.save(lambda: state, wait=True)
    variable.assign([3.0, 4.0])
    server.stop()

    snapshot = store.newest()
    store.prepare(fresh=False)
    # The tables have the settings of the checkpoint.
    tables = server_lib.make_tables(config, LAYOUT, prioritized=True)
    server = server_lib.start_server(config, tables, checkpoints_lib.checkpointer(store, snapshot))
    connection = connection_lib.Connection(config, f"localhost:{server.port}")
    assert connection.status() == before
    assert messages.decode(*connection.fetch("m")).version == 4
    checkpoints = checkpoints_lib.Checkpoints(store, connection.client, {"weights": variable})
    checkpoints.restore(snapshot)
    np.testing.assert_array_equal(variable.numpy(), [1.0, 2.0])
    samples = connection.client.sample("r", 300, emit_timesteps=False)
    rows = np.stack([np.asarray(sample.data[0]).reshape(-1) for sample in samples])
    assert rows.shape == (300, LAYOUT.vector_size)
    # The items are whole, and of many different steps.
    np.testing.assert_array_equal(rows[:, 0], rows[:, 1])
    np.testing.assert_array_equal(rows[:, 0], rows[:, 2])
    assert set(rows[:, 0]) <= set(range(320)) and len(set(rows[:, 0])) > 50
    other = checkpoints_lib.Checkpoints(
        store, connection.client, {"weights": tf.Variable([1.0, 2.0, 3.0])}
    )
    with pytest.raises(errors.UserError, match="of other networks"):
        other.restore(snapshot)
    server.stop()
