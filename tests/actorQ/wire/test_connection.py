"""Connections to a real Reverb server, which runs in this process unless a test says more."""

import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
import threading
import time
from unittest import mock

import numpy as np
import pytest

from actorQ.actor import transition_writer
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import ports
from actorQ.policy import model_update
from actorQ.wire import card
from actorQ.wire import connection as connection_lib
from actorQ.wire import messages
from actorQ.wire import replay
from actorQ.wire import server as server_lib
from tests.actorQ import harness

LAYOUT = harness.small_layout()


def _message(version):
    tensors = {"w": np.ones(3, np.float32)}
    return messages.encode(model_update.ModelUpdate(version, "float32", tensors))


def _version(pair):
    return messages.decode(*pair).version


def test_model_table_keeps_the_newest_and_gives_it_to_many(connection):
    connection.publish("m", _message(1))
    connection.publish("m", _message(2))
    assert [_version(connection.fetch("m")) for _ in range(3)] == [2, 2, 2]
    assert connection.status().models_published == 2


def test_broadcaster_table_newest_wins_and_is_taken_once(connection):
    connection.publish("b", _message(1))
    connection.publish("b", _message(2))
    assert connection.status().pushes_waiting == 1
    assert _version(connection.take("b")) == 2
    assert connection.status().pushes_waiting == 0
    taken = []
    waiting = threading.Thread(target=lambda: taken.append(connection.take("b")), daemon=True)
    waiting.start()
    time.sleep(0.3)  # Somebody else who takes gets nothing
    assert not taken
    connection.publish("b", _message(3))  # until there is a newer item.
    waiting.join(10)
    assert _version(taken[0]) == 3


def test_status_counts_replay(connection):
    writer = transition_writer.TransitionWriter(connection.client, "r", LAYOUT)
    for _ in range(6):
        writer.write(replay.Transition(np.zeros(3), np.zeros(2), 1.0, 1.0, np.zeros(3)))
    writer.close()
    list(connection.client.sample("r", 4))
    status = connection.status()
    assert (status.replay_size, status.transitions_inserted) == (6, 6)
    assert status.transitions_sampled >= 4
    assert not status.shutdown


def test_shutdown_is_seen_and_acknowledged(connection):
    connection.publish("s", np.int32(connection_lib.FAILED))
    assert connection.status().shutdown
    with pytest.raises(errors.UserError, match="failed"):
        connection.acknowledge_shutdown()
    assert connection.status().shutdown_seen == 1


def test_shutdown_whose_learner_has_gone_is_the_end_that_was_announced(config, monkeypatch):
    monkeypatch.setattr(connection_lib, "_STATUS_TIMEOUT_S", 1)
    tables = server_lib.make_tables(config, LAYOUT, prioritized=False)
    server = server_lib.start_server(config, tables)
    connection = connection_lib.Connection(config, f"localhost:{server.port}")
    connection.publish("s", np.int32(connection_lib.COMPLETED))
    assert connection.status().shutdown
    server.stop()  # The learner waits for answers only for some seconds.
    connection.acknowledge_shutdown()


def test_card_counts_starts_and_a_start_after_it_is_noticed(connection):
    client = connection_lib.Connection(connection._config, connection.address)
    assert client.card() == card.NO_CARD
    assert client.status().starts == 0
    connection.publish_card(77, 1, -5)
    # The client knew no card before, so it has lost no learner.
    assert client.status().starts == 1
    assert client.card() == card.Card(77, 1, -5)
    client.status()
    # The learner was started four times. The second and third start left no checkpoint.
    connection.publish_card(77, 4, 6)
    with pytest.raises(errors.LearnerGoneError, match="started again"):
        client.status()
    another = connection_lib.Connection(connection._config, connection.address)
    assert another.card() == card.Card(77, 4, 6)
    assert connection.status().starts == 4


def test_card_of_another_launcher_is_refused(connection, monkeypatch):
    def client(launch_id):
        config = dataclasses.replace(connection._config, launch_id=launch_id)
        return connection_lib.Connection(config, connection.address)

    client(5).publish_card(77, 1, 0)
    assert client(5).card().launch_id == 5
    assert client(0).card().run_id == 77  # A client that was started by hand takes any learner.
    # The card may be that of a resumed learner's checkpoint, but not for long.
    other = client(6)
    assert other.card() == card.NO_CARD
    monkeypatch.setattr(connection_lib, "_OLD_CARD_S", 0.0)
    with pytest.raises(errors.UserError, match="another run's: another launcher started it"):
        other.card()
    late = client(6)
    assert late.card() == card.NO_CARD
    client(6).publish_card(77, 2, 0)
    assert late.card().starts == 2


def test_connection_other_table_names_is_refused(connection):
    other = connection_lib.Connection(config_lib.RunConfig(), connection.address)
    with pytest.raises(errors.UserError, match="same table names"):
        other.status()


def test_connection_nobody_there_gives_up_in_time(config):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    started = time.monotonic()
    with pytest.raises(errors.LearnerGoneError, match="No learner at"):
        connection_lib.Connection(config, address).wait_until_up()
    assert time.monotonic() - started < 10


def test_connection_to_what_no_host_can_be_called_is_one_clear_line(config):
    impatient = dataclasses.replace(config, connect_timeout=0.0)
    with pytest.raises(errors.NoLearnerError, match=r"No learner at \.cluster:8181"):
        connection_lib.Connection(impatient, ".cluster:8181").wait_until_up()


@pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="this machine has no IPv6")
def test_connection_to_an_ipv6_address(connection):
    port = connection.address.rpartition(":")[2]
    assert connection_lib.Connection(connection._config, f"[::1]:{port}").wait_until_up()


def test_connection_server_that_dies_ends_status_and_transfers(config, monkeypatch):
    monkeypatch.setattr(connection_lib, "_STATUS_TRY_S", 1)
    tables = server_lib.make_tables(config, LAYOUT, prioritized=False)
    server = server_lib.start_server(config, tables)
    connection = connection_lib.Connection(config, f"localhost:{server.port}")
    connection.status()
    server.stop()
    with pytest.raises(errors.LearnerGoneError, match="does not answer"):
        connection.status(timeout_s=1)
    with pytest.raises(errors.LearnerGoneError):
        connection.fetch("m", timeout_s=1)
    with pytest.raises(errors.LearnerGoneError):
        connection.publish("m", _message(1), timeout_s=1)


def test_transfer_ends_when_this_process_is_stopped(connection):
    stop = threading.Event()
    assert connection.wait_until_up(stop)
    threading.Timer(0.3, stop.set).start()
    started = time.monotonic()
    with pytest.raises(errors.LearnerGoneError, match="was given up"):
        connection.fetch("m")  # The table is empty.
    assert time.monotonic() - started < 10


def test_transfer_that_raises_a_timeout_itself_ends_at_once(connection, monkeypatch):
    # In Python 3.11 a future that is not done raises the same type.
    status = mock.Mock(wraps=connection.status)
    monkeypatch.setattr(connection, "status", status)

    def call():
        raise TimeoutError("The socket's own limit.")

    started = time.monotonic()
    with pytest.raises(errors.LearnerGoneError, match="broke off a transfer .*socket's own limit"):
        connection.bounded(call, timeout_s=3.0)
    assert time.monotonic() - started < 2 and not status.called


def test_status_asks_again_after_a_pause_of_this_process(connection, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(connection_lib, "time", mock.Mock(monotonic=lambda: now[0]))
    real = connection._info_client
    waits = []

    class Paused:
        def ServerInfo(self, timeout_s):  # noqa: N802 (Reverb's name)
            waits.append(timeout_s)
            if len(waits) == 1:
                now[0] += 3.2  # SIGSTOP and SIGCONT in mid-call have this effect.
                raise RuntimeError("Deadline Exceeded")
            return real.ServerInfo(timeout_s)

    connection._info_client = Paused()
    assert connection.status(timeout_s=3).starts == 0
    assert waits == [2, 2]


def test_learner_waits_for_its_own_server_while_it_writes_a_checkpoint(connection, monkeypatch):
    """A checkpoint of a million transitions kept the server silent for more than ten seconds."""
    now, waits = [100.0], []
    monkeypatch.setattr(connection_lib, "time", mock.Mock(monotonic=lambda: now[0]))

    def asked(patience_s):
        own = connection_lib.Connection(connection._config, connection.address, patience_s)
        real = own._info_client

        class Silent:
            def ServerInfo(self, timeout_s):  # noqa: N802 (Reverb's name)
                waits.append(timeout_s)
                now[0] += timeout_s
                if sum(waits) < 45:
                    raise RuntimeError("Deadline Exceeded")
                return real.ServerInfo(timeout_s)

        own._info_client = Silent()
        return own

    with pytest.raises(errors.LearnerGoneError, match="does not answer"):
        asked(10).status()
    assert waits == [2, 8]
    waits.clear()
    assert asked(600).status().starts == 0
    assert waits == [2, 10, 10, 10, 10, 10]  # Ctrl-C waits for ten seconds at most.


_SERVER = """
import sys, time
from actorQ.core import config as config_lib
from actorQ.wire import replay
from actorQ.wire import server as server_lib
config = config_lib.RunConfig(port=int(sys.argv[1]))
layout = replay.Layout((3,), pixels=False, action_size=2, discrete=False)
server = server_lib.start_server(config, server_lib.make_tables(config, layout, prioritized=False))
print("up", flush=True)
time.sleep(1000)
"""


_TALK = """
import os
from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.wire import replay
from actorQ.wire import server as server_lib
from actorQ.wire import connection as connection_lib
config = config_lib.RunConfig(port=0, connect_timeout=3.0)
layout = replay.Layout((3,), pixels=False, action_size=2, discrete=False)
server = server_lib.start_server(config, server_lib.make_tables(config, layout, prioritized=False))
try:
    print(connection_lib.Connection(config, f"localhost:{server.port}").wait_until_up(), flush=True)
except errors.NoLearnerError:
    print("no learner", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize(("own", "says"), [(False, "True\n"), (True, "no learner\n")])
def test_connection_takes_no_proxy_but_one_of_its_own(own, says):
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    nobody = f"http://127.0.0.1:{ports.free_port()}"
    environment |= {"http_proxy": nobody, "https_proxy": nobody}
    if own:
        environment["grpc_proxy"] = nobody
    done = subprocess.run(
        [sys.executable, "-c", _TALK], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == says, done.stderr
    assert own or "proxy" not in done.stderr


@contextlib.contextmanager
def _server_elsewhere(port):
    """Starts a server in another process, as Reverb uses no gRPC within one."""
    command = [sys.executable, "-c", _SERVER, str(port)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def _slow_link(port, bytes_per_s):
    """Passes connections on. In each, the server's bytes pile up and trickle through."""

    def pour(source, sink, rate):
        with contextlib.suppress(OSError), sink:
            while block := source.recv(1 << 16):
                time.sleep(len(block) / rate)
                sink.sendall(block)

    def accept(listener):
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("localhost", port))
                # The call would give a larger buffer before the connection is made; this will do.
                far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
                for ends in ((near, far, float("inf")), (far, near, bytes_per_s)):
                    threading.Thread(target=pour, args=ends, daemon=True).start()

    with socket.create_server(("localhost", 0)) as listener:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]


def _with_weights(config, port, megabytes=6):
    """Puts weights into the model table; returns a connection through another port."""
    size = megabytes * 250_000
    weights = {"w": np.random.default_rng(0).standard_normal(size).astype(np.float32)}
    direct = connection_lib.Connection(config)
    assert direct.wait_until_up()
    message = messages.encode(model_update.ModelUpdate(1, "float32", weights))
    direct.publish(config.model_table_name, message, timeout_s=60)
    slow = connection_lib.Connection(config, f"localhost:{port}")
    assert slow.wait_until_up()
    return slow


def test_transfer_on_a_slow_link_takes_as_long_as_the_flag_says_and_status_does_not_queue():
    config = config_lib.RunConfig(port=ports.free_port(), transfer_timeout=1.0)
    with _server_elsewhere(config.port), _slow_link(config.port, 1.5e6) as port:
        slow = _with_weights(config, port)
        with pytest.raises(errors.LearnerGoneError, match="within 1 s.*--transfer_timeout"):
            slow.fetch(config.model_table_name)
        patient = connection_lib.Connection(
            dataclasses.replace(config, transfer_timeout=60.0), f"localhost:{port}"
        )
        assert patient.wait_until_up()
        # The transfer that was given up may still fill the link.
        fetched = []
        transfer = threading.Thread(
            target=lambda: fetched.append(patient.fetch(config.model_table_name))
        )
        transfer.start()
        time.sleep(1.0)
        took = []
        while transfer.is_alive():
            started = time.monotonic()
            patient.status()
            took.append(time.monotonic() - started)
            time.sleep(0.2)
        # Behind the weights nearly all answers would be late. On a busy machine some are.
        assert len(took) > 3 and sorted(took)[len(took) // 2] < 1.0
        assert _version(fetched[0]) == 1


def test_server_killed_while_clients_sample_insert_and_wait_ends_all_three():
    config = config_lib.RunConfig(port=ports.free_port())
    with _server_elsewhere(config.port) as server, _slow_link(config.port, 1e6) as port:
        slow = _with_weights(config, port, megabytes=24)  # Buffers hold less.
        inserting, waiting = connection_lib.Connection(config), connection_lib.Connection(config)
        writer = transition_writer.TransitionWriter(
            inserting.client, config.replay_table_name, LAYOUT, check=inserting.status
        )
        zeros = np.zeros(3, np.float32)
        transition = replay.Transition(zeros, np.zeros(2, np.float32), 0.0, 1.0, zeros)
        written, ended = [], {}

        def insert():
            while True:
                writer.write(transition)
                written.append(time.monotonic())
                time.sleep(0.001)

        def end_of(name, call):
            try:
                call()
            except Exception as error:
                ended[name] = error

        calls = {
            "samples": lambda: slow.fetch(config.model_table_name),
            "inserts": insert,
            "waits": lambda: waiting.fetch(config.broadcaster_table_name),  # The table is empty.
        }
        threads = [
            threading.Thread(target=end_of, args=each, daemon=True) for each in calls.items()
        ]
        for thread in threads:
            thread.start()
        harness.poll(lambda: len(written) > 500, what="inserts")
        assert not ended
        server.kill()
        deadline = time.monotonic() + 30
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert set(ended) == set(calls)
        assert isinstance(ended["samples"], errors.LearnerGoneError)
        assert isinstance(ended["waits"], errors.LearnerGoneError)
        with pytest.raises(errors.LearnerGoneError):
            inserting.status()
        writer.abandon()


@pytest.mark.slow
def test_new_connection_after_a_long_outage_does_not_wait_for_calls_that_hang():
    config = config_lib.RunConfig(port=ports.free_port())
    with _server_elsewhere(config.port):
        old = connection_lib.Connection(config)
        assert old.wait_until_up()
        threading.Thread(target=old.take, args=(config.model_table_name,), daemon=True).start()
        time.sleep(1)
    # By then gRPC tries every 10 s for the hanging call, and later every 120 s.
    time.sleep(28)
    with _server_elsewhere(config.port):
        started = time.monotonic()
        assert connection_lib.Connection(config).wait_until_up()
        assert time.monotonic() - started < 2.5
