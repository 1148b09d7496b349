"""The broadcaster's conversion on a real server: what each flag makes of the message."""

import dataclasses
import threading
import time

import numpy as np
import pytest

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import ports
from actorQ.core import telemetry
from actorQ.policy import forms
from actorQ.policy import model_update
from actorQ.wire import broadcaster as broadcaster_lib
from actorQ.wire import connection as wire
from actorQ.wire import messages
from actorQ.wire import replay
from actorQ.wire import server as serving
from tests.actorQ import harness

SIZE = 256


@pytest.fixture(scope="module")
def server():
    config = config_lib.RunConfig(port=0)
    layout = replay.Layout((3,), False, 2, False)
    server = serving.start_server(config, serving.make_tables(config, layout, prioritized=False))
    yield f"localhost:{server.port}"
    server.stop()


def convert(server, tmp_path, weights=None, scheme=forms.LEARNER_SCHEME, **settings):
    """Sends Sonnet weights through one broadcaster; returns the message and its log row."""
    config = config_lib.RunConfig(
        server_address=server, logpath=str(tmp_path), **settings
    )
    if weights is None:
        rng = np.random.default_rng(0)
        weights = {
            "linear_0/w": rng.standard_normal((SIZE, 2 * SIZE)).astype(np.float32),
            "linear_0/b": rng.standard_normal(2 * SIZE).astype(np.float32),
        }
    connection = wire.Connection(config)
    update = model_update.ModelUpdate(17, scheme, weights)
    connection.publish(config.broadcaster_table_name, messages.encode(update))
    broadcaster = broadcaster_lib.Broadcaster(config)
    broadcaster._serve_one(connection)
    received = messages.decode(*connection.fetch(config.model_table_name))
    row = telemetry.last_row(str(tmp_path / "broadcaster" / telemetry.UPDATES_CSV))
    return weights, received, row


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({"quantize": 32}, 1.0),
        ({"quantize": 16}, 0.5),
        ({"quantize": 8}, 0.25),
        ({"quantize": 8, "quantize_communication": 4}, 0.125),
        ({"quantize": 32, "quantize_communication": 8}, 0.25),
        ({"quantize": 16, "quantize_communication": 4}, 0.125),
        ({"quantize": 32, "quantize_communication": 2}, 0.0625),
        ({"quantize": 32, "weight_compress": 1}, 0.25),
        ({"quantize": 16, "weight_compress": 1}, 0.25),
        ({"quantize": 8, "weight_compress": 1}, 0.25),
    ],
)
def test_message_bytes_follow_the_flags(server, tmp_path, settings, share):
    weights, received, row = convert(server, tmp_path, **settings)
    assert row["fp32_bytes"] == 4 * (2 * SIZE * SIZE + 2 * SIZE)
    # Biases and header add little to the share of the matrices.
    assert row["message_bytes"] / row["fp32_bytes"] == pytest.approx(share, abs=0.015)
    assert received.version == row["model_version"] == 17
    arrived = forms.expand(received)
    error = np.abs(model_update.to_float32(arrived["linear_0.weight"]) - weights["linear_0/w"].T)
    bits = min(
        settings["quantize"], settings.get("quantize_communication", 32),
        8 if settings.get("weight_compress") else 32,
    )
    # Half a step within the range, and one step more where the top is clamped.
    step = np.ptp(weights["linear_0/w"]) / 2 ** min(bits, 11)
    assert error.max() <= 1.5 * step * (1 + 1e-5)


def test_compress_shrinks_without_loss(server, tmp_path):
    weights = {"linear_0/w": np.zeros((SIZE, SIZE), np.float32)}
    _, plain, row = convert(server, tmp_path / "a", weights, quantize=32)
    _, packed, smaller = convert(server, tmp_path / "b", weights, quantize=32, compress=1)
    assert smaller["message_bytes"] < 0.1 * row["message_bytes"]
    np.testing.assert_array_equal(
        plain.tensors["linear_0.weight"], packed.tensors["linear_0.weight"]
    )


def test_weights_of_another_scheme_are_refused(server, tmp_path):
    with pytest.raises(errors.MessageError, match="mixed up"):
        convert(server, tmp_path, scheme="int8")


def test_bad_message_after_a_good_one_is_refused_and_counted(server, tmp_path):
    config = config_lib.RunConfig(server_address=server, logpath=str(tmp_path), quantize=32)
    connection = wire.Connection(config)
    broadcaster = broadcaster_lib.Broadcaster(config)
    weights = {"linear_0/w": np.ones((2, 3), np.float32)}

    def send(version, damage=False, scheme=forms.LEARNER_SCHEME):
        header, blob = messages.encode(model_update.ModelUpdate(version, scheme, weights))
        message = (header, blob[:-1] if damage else blob)
        connection.publish(config.broadcaster_table_name, message)
        broadcaster._serve_one(connection)
        return messages.decode(*connection.fetch(config.model_table_name)).version

    assert send(1) == 1
    assert send(2, damage=True) == 1
    assert send(3, scheme="int8") == 1
    assert send(4) == 4
    row = telemetry.last_row(str(tmp_path / "broadcaster" / telemetry.UPDATES_CSV))
    assert (row["model_version"], row["refused"]) == (4, 2)


def test_broadcaster_takes_nothing_from_a_learner_that_has_not_said_who_it_is(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(broadcaster_lib.cli, "on_stop_signals", lambda *_: None)
    monkeypatch.setattr(wire, "_OLD_CARD_S", 0.3)
    config = config_lib.RunConfig(
        port=ports.free_port(), logpath=str(tmp_path), quantize=32, launch_id=5
    )
    layout = replay.Layout((3,), False, 2, False)
    server = serving.start_server(config, serving.make_tables(config, layout, prioritized=False))
    others = wire.Connection(dataclasses.replace(config, launch_id=6))
    update = model_update.ModelUpdate(
        3, forms.LEARNER_SCHEME, {"linear_0/w": np.ones((2, 2), np.float32)}
    )
    others.publish(config.broadcaster_table_name, messages.encode(update))
    broadcaster = broadcaster_lib.Broadcaster(config)
    failures = []

    def run():
        try:
            broadcaster.run()
        except errors.UserError as error:
            failures.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.5)
    assert others.status().pushes_waiting == 1
    others.publish_card(77, 1, 0)
    thread.join(20)
    assert "another launcher started it" in failures[0]
    assert others.status().pushes_waiting == 1
    server.stop()


def test_broadcaster_must_be_told_the_port(tmp_path, monkeypatch):
    monkeypatch.setattr(broadcaster_lib.cli, "on_stop_signals", lambda *_: None)
    config = config_lib.RunConfig(port=0, logpath=str(tmp_path))
    with pytest.raises(errors.UserError, match="--port=0"):
        broadcaster_lib.Broadcaster(config).run()


def test_broadcaster_without_learner_gives_up_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(broadcaster_lib.cli, "on_stop_signals", lambda *_: None)
    config = config_lib.RunConfig(
        port=ports.free_port(), connect_timeout=1.0, logpath=str(tmp_path)
    )
    started = time.monotonic()
    with pytest.raises(errors.NoLearnerError, match="No learner at localhost:"):
        broadcaster_lib.Broadcaster(config).run()
    assert 1.0 <= time.monotonic() - started < 10.0


def test_broadcaster_counts_on_after_a_restart(tmp_path):
    folder = tmp_path / telemetry.BROADCASTER
    folder.mkdir()
    (folder / telemetry.UPDATES_CSV).write_text(
        "seconds,unix_time,model_version,refused\n1,2,7,3\n"
    )
    again = broadcaster_lib.Broadcaster(
        config_lib.RunConfig(logpath=str(tmp_path), restarts=1)
    )
    assert (again._version, again._refused) == (7, 3)


def test_broadcaster_goes_on_with_a_learner_that_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(broadcaster_lib.cli, "on_stop_signals", lambda *_: None)
    config = config_lib.RunConfig(port=ports.free_port(), logpath=str(tmp_path), quantize=32)
    layout = replay.Layout((3,), False, 2, False)

    def serve():
        return serving.start_server(config, serving.make_tables(config, layout, prioritized=False))

    def push(version):
        update = model_update.ModelUpdate(
            version, forms.LEARNER_SCHEME, {"linear_0/w": np.ones((2, 2), np.float32)}
        )
        connection.publish(config.broadcaster_table_name, messages.encode(update))

    def converted(count):
        harness.poll(lambda: connection.status().models_published == count)
        return messages.decode(*connection.fetch(config.model_table_name)).version

    server = serve()
    connection = wire.Connection(config)
    connection.publish_card(77, 1, 0)
    broadcaster = broadcaster_lib.Broadcaster(config)
    codes = []
    thread = threading.Thread(target=lambda: codes.append(broadcaster.run()))
    thread.start()
    push(5)
    assert converted(1) == 5
    server.stop()
    first = broadcaster.connection
    harness.poll(lambda: broadcaster.connection is not first, what="the loss")
    server = serve()
    # As every process does: the first insert over a connection to the old server may fail.
    connection = wire.Connection(config)
    connection.publish_card(77, 2, 0)
    push(6)
    assert converted(1) == 6
    # Those of an old checkpoint, or pushed again, are not given to actors.
    push(4)
    harness.poll(lambda: not connection.status().pushes_waiting)
    push(9)
    assert converted(2) == 9
    connection.publish(config.shutdown_table_name, np.int32(wire.COMPLETED))
    thread.join(20)
    assert codes == [0]
    server.stop()
