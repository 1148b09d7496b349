"""Slow networks: hosts in namespaces, the delay proxy, and figures from logs."""

import argparse
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from actorQ.core import errors
from actorQ.core import ports
from actorQ.core import telemetry
from tests.faults import network_figures
from tests.faults import network_hosts
from tests.faults.test_campaign import write_log


@pytest.fixture
def needs_hosts():
    """Skips where hosts, or limits of their links, cannot be made."""
    name = f"actorq_probe{os.getpid()}"
    limit = "tbf rate 20mbit burst 64kb latency 50ms"
    try:
        network_hosts.require()
        network_hosts._ip("netns", "add", name)
        try:
            network_hosts._tc("-n", name, "qdisc", "add", "dev", "lo", "root", *limit.split())
        finally:
            network_hosts._ip("netns", "del", name)
    except errors.UserError as error:
        pytest.skip(f"no hosts here: {error}")


def test_hosts_without_root_is_one_clear_line(monkeypatch):
    monkeypatch.setattr(network_hosts.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(network_hosts.shutil, "which", lambda tool: tool)
    with pytest.raises(errors.UserError, match="need root"), network_hosts.hosts(2):
        pass


def test_hosts_links_are_as_slow_as_told_and_all_is_removed(needs_hosts, tmp_path, monkeypatch):
    monkeypatch.setattr(network_hosts.tempfile, "gettempdir", lambda: str(tmp_path))
    receive = (
        "import socket,time\n"
        "c,_=socket.create_server(('0.0.0.0',9000)).accept()\n"
        "n=0;t=time.time()\n"
        "while (b:=c.recv(1<<16)): n+=len(b)\n"
        "print(8*n/1e6/(time.time()-t))"
    )
    send = (
        "import socket,sys,time\n"
        "for _ in range(50):\n"
        "  try: c=socket.create_connection((sys.argv[1],9000));break\n"
        "  except OSError: time.sleep(.1)\n"
        "c.sendall(bytes(2_000_000))"
    )
    number = os.getpid() % 256
    with network_hosts.hosts(2, number) as hosts:
        hosts.limit(20)
        receiver = subprocess.Popen(
            hosts.command(0, [sys.executable, "-c", receive]), stdout=subprocess.PIPE, text=True
        )
        try:
            command = hosts.command(1, [sys.executable, "-c", send, hosts.address(0)])
            subprocess.run(command, check=True, timeout=30)
            mbit_s = float(receiver.communicate(timeout=30)[0])
        finally:
            receiver.kill()
        names = [hosts.name(0), hosts.name(1)]
    assert 2 < mbit_s < 30  # A busy machine may be slower, but not faster.
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    assert not any(name in left for name in names)


def test_delay_proxy_passes_all_on_and_late():
    listener = socket.create_server(("127.0.0.1", 0))
    port, proxy_port = listener.getsockname()[1], ports.free_port()
    proxy = subprocess.Popen([
        sys.executable, "-m", "tests.faults.delay_proxy", str(proxy_port),
        f"127.0.0.1:{port}", "100",
    ])
    received = bytearray()

    def echo():
        connection, _ = listener.accept()
        while block := connection.recv(1 << 16):
            received.extend(block)
            connection.sendall(block[:1])
        connection.close()

    thread = threading.Thread(target=echo, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                client = socket.create_connection(("127.0.0.1", proxy_port))
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        started = time.monotonic()
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        # Once each way; more than the delay only where the machine is busy.
        assert time.monotonic() - started >= 0.2
        content = os.urandom(3_000_000)
        sender = threading.Thread(target=client.sendall, args=(content,))
        sender.start()
        sender.join(20)
        client.shutdown(socket.SHUT_WR)
        while client.recv(1 << 16):
            pass
        thread.join(20)
        assert bytes(received) == b"x" + content
    finally:
        proxy.kill()
        proxy.wait()
        listener.close()


def test_figures_come_from_the_logs_but_for_the_beginning(tmp_path):
    count = 9
    for actor in (1, 2):
        write_log(
            tmp_path, f"actor_{actor}", telemetry.PHASES_CSV,
            actor_steps=[100 * i for i in range(count)], pulls=list(range(count)),
            transfer_s=[9.0, 9.0, *(9.0 + 0.5 * i for i in range(1, count - 1))],
            model_version=[0, 0, *[8 * i for i in range(2, count)]],
        )
    write_log(tmp_path, "broadcaster", telemetry.UPDATES_CSV, message_bytes=[2e6, 2e6])
    steps = [10 * i for i in range(count)]
    write_log(tmp_path, "learner", telemetry.TRAIN_CSV, learner_steps=steps)
    write_log(tmp_path, "learner", telemetry.EVALUATION_CSV, episode_return=[1, 200, 300, 400])
    cell = network_figures.read(str(tmp_path), network_figures.RATES, 0, 20, "8 bits", 300)
    assert cell.message_mb == 2
    assert cell.pull_s == pytest.approx(0.5)
    assert cell.pulls_per_min == pytest.approx(60)
    assert cell.staleness == pytest.approx(9)  # 20 less 16, ... 70 less 56; then it has ended.
    assert cell.actor_steps_s == pytest.approx(200)
    assert cell.learner_steps_s == pytest.approx(10)  # The time until it started does not count.
    assert (cell.learner_steps, cell.episode_return, cell.reached) == (80, 300, True)


def test_figures_without_an_evaluation_are_nan(tmp_path):
    for actor in (1, 2):
        write_log(
            tmp_path, f"actor_{actor}", telemetry.PHASES_CSV, actor_steps=[0, 9, 18],
            pulls=[0, 1, 1], transfer_s=[0, 1, 1], model_version=[0, 1, 2],
        )
    write_log(tmp_path, "broadcaster", telemetry.UPDATES_CSV, message_bytes=[1, 1])
    write_log(tmp_path, "learner", telemetry.TRAIN_CSV, learner_steps=[1, 7, 9])
    cell = network_figures.read(str(tmp_path), network_figures.REWARD, 0, None, "fp32", 300)
    assert math.isnan(cell.episode_return) and not cell.reached


@pytest.mark.parametrize("parts", [("rates",), ("reward",), ("rates", "reward")])
def test_report_has_a_table_for_each_part(tmp_path, capsys, parts):
    cells = [
        network_figures.Cell(
            part, seed, mbit_s, message, 8.4, 0.5, 60.0, 3.0, 900.0, 5.0, 600 + seed,
            seconds, reached, 998.0,
        )
        for part in parts for mbit_s in (20, 100)
        for seed, (message, seconds, reached) in enumerate([
            ("8 bits", 80.0, True), ("8 bits", 70.0, False), ("8 bits", 120.0, True),
            ("fp32", 120.0, True), ("fp32", 110.0, False), ("fp32", 100.0, False),
        ])
    ]
    options = argparse.Namespace(
        delay_ms=5.0, seconds=240.0, steps=6000, stop_return=900.0, out=str(tmp_path)
    )
    network_figures.report(cells, options)
    lines = (tmp_path / "network.md").read_text().splitlines()
    rows = [line.replace(" ", "") for line in lines if "8.40" in line]
    begins = ["|100|fp32|", "|100|8bits|", "|20|fp32|", "|20|8bits|"] * len(parts)
    assert [row[: len(begin)] for row, begin in zip(rows, begins, strict=True)] == begins
    if "rates" in parts:
        assert rows[0].endswith("|900|5.00|")
    if "reward" in parts:
        # Two runs that did not hold the return count as longer than one that did.
        assert rows[-4].endswith("|5|>605|>100.0|120.0,>110.0,>100.0|")
        assert rows[-3].endswith("|5|602|120.0|80.0,>70.0,120.0|")
    kept = json.loads((tmp_path / "network.json").read_text())["cells"]
    assert len(kept) == len(cells) and kept[0]["episode_return"] == 998.0
    assert "5 ms between hosts each way" in capsys.readouterr().out
