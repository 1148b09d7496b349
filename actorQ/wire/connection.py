"""A client's connection to the run's Reverb server; no call waits for ever.

The learner's process hosts the server (`server`); broadcaster and actors are clients. Model
messages are pairs of uint8 arrays, which `messages` encodes. Imports Reverb, no torch. Reverb loads
TensorFlow, unless `core.lean_imports` prevented it before.
"""

from collections.abc import Callable
import concurrent.futures
import itertools
import math
import os
import socket
import threading
import time
from typing import Any
from typing import NamedTuple
from typing import TypeVar

import numpy as np
import reverb
from reverb import pybind
from reverb.cc import schema_pb2

from actorQ.core import config as config_lib
from actorQ.core import errors
from actorQ.core import settings
from actorQ.core import telemetry
from actorQ.wire import card as card_lib

# The state of a run, as it is announced at its end.
COMPLETED = 0
FAILED = 1
INTERRUPTED = 2

_STATUS_TIMEOUT_S = 10  # A healthy server answers in under a millisecond.
_STATUS_TRY_S = 2
_CHECK_PERIOD_S = 2.0  # Time between two health checks during a long transfer.
# Time limit for small messages. It is generous: the server blocks while it lists a checkpoint.
_SMALL_TIMEOUT_S = 60.0
_OLD_CARD_S = 10.0  # How long a learner that is resumed may show the card of its checkpoint.

# Without this, gRPC would reach every learner, also one on localhost, through the proxy of
# http_proxy or https_proxy, and few proxies pass gRPC on. An empty name stands for no proxy. A user
# who sets grpc_proxy means it.
os.environ.setdefault("grpc_proxy", "")

T = TypeVar("T")

_connection_numbers = itertools.count()


class ServerStatus(NamedTuple):
    """The server's counters, which one cheap question gets.

    Attributes:
      models_published: Messages ever put into the model table; it grows when there are new ones.
      pushes_waiting: 1 while the broadcaster has not taken the learner's newest push.
      replay_size: Transitions in replay.
      transitions_inserted: Transitions inserted since the start of the run.
      transitions_sampled: Transitions sampled since the start of the run.
      shutdown: Whether the end of the run was announced.
      shutdown_seen: Processes that have acknowledged the end.
      starts: How often the learner was started in this run; 0: it is not ready yet.
      pushes: Pushes of weights since the learner's last start; 0: it is not ready to learn yet.
      observations: Transitions in the meter's table.
    """

    models_published: int
    pushes_waiting: int
    replay_size: int
    transitions_inserted: int
    transitions_sampled: int
    shutdown: bool
    shutdown_seen: int
    starts: int
    pushes: int
    observations: int


def require_port(config: config_lib.RunConfig) -> None:
    """Checks that a client knows where the learner is.

    Raises:
      errors.UserError: Port 0 leaves the choice of a free port to the learner.
    """
    if not config.server_address and not config.port:
        raise errors.UserError(
            "--port=0 lets the learner choose: tell broadcaster and actors its port with --port or "
            f"--server_address (the learner writes it to RUN/{telemetry.ADDRESS_FILENAME})."
        )


class Connection:
    """A client of the run's server."""

    def __init__(
        self,
        config: config_lib.RunConfig,
        address: str | None = None,
        patience_s: int | None = None,
    ):
        """Makes a client; nothing is sent yet.

        Args:
          config: Table names, address and time limits.
          address: HOST:PORT, by default `config.address`.
          patience_s: Seconds without an answer to `status` after which the learner counts as gone,
            by default ten.
        """
        self._patience_s = patience_s or _STATUS_TIMEOUT_S
        self.address = address or config.address
        self.client = reverb.Client(_own_target(self.address))
        # Downloads and status have TCP connections of their own. On a slow link, confirmations of
        # inserts and answers to status questions would queue behind weights.
        self._downloads = reverb.Client(_own_target(self.address))
        # reverb.Client.server_info takes three times as long, as it also rebuilds all signatures.
        self._info_client = pybind.Client(_own_target(self.address))
        self._config = config
        self._stop: threading.Event | None = None
        self._starts: int | None = None
        # When another launcher's card was first seen, on time.monotonic's clock.
        self._others_since: float | None = None

    def wait_until_up(self, stop: threading.Event | None = None) -> bool:
        """Waits until the server answers, at most `connect_timeout` seconds.

        Args:
          stop: Ends this wait, and later those for transfers.

        Returns:
          Whether the server answers; False only if `stop` was set meanwhile.

        Raises:
          errors.NoLearnerError: No learner is there in time.
        """
        self._starts, self._stop = None, stop
        deadline = time.monotonic() + self._config.connect_timeout
        while stop is None or not stop.is_set():
            if _listens(self.address):
                try:
                    self.status(timeout_s=2)
                    return True
                except errors.LearnerGoneError:
                    pass
            if time.monotonic() >= deadline:
                raise errors.NoLearnerError(
                    f"No learner at {self.address} within {self._config.connect_timeout:g} s: "
                    "start learner_main there first, with --listen=all for other machines (see "
                    "--server_address, --port and --connect_timeout)."
                )
            time.sleep(0.1)
        return False

    def status(self, timeout_s: int | None = None) -> ServerStatus:
        """Asks for the server's counters; this is also the health check.

        Args:
          timeout_s: Time limit, by default the connection's patience.

        Raises:
          errors.LearnerGoneError: No answer came in time, or the learner was started again since
            `card` was called.
          errors.UserError: The server has other tables than this process expects.
        """
        info = self._server_info(timeout_s or self._patience_s)
        config = self._config
        expected = (*config.table_names, settings.RUN_TABLE, settings.OBSERVATION_TABLE)
        missing = [name for name in expected if name not in info]
        if missing:
            raise errors.UserError(
                f"The server at {self.address} has no table {missing[0]!r}, it has "
                f"{', '.join(sorted(info))}: give all processes the same table names."
            )
        replay_info = info[config.replay_table_name]
        shutdown = info[config.shutdown_table_name]
        starts = info[settings.RUN_TABLE].rate_limiter_info.insert_stats.completed
        if self._starts is not None and starts != self._starts:
            raise errors.LearnerGoneError(f"The learner at {self.address} was started again.")
        return ServerStatus(
            info[config.model_table_name].rate_limiter_info.insert_stats.completed,
            info[config.broadcaster_table_name].current_size,
            replay_info.current_size,
            replay_info.rate_limiter_info.insert_stats.completed,
            replay_info.rate_limiter_info.sample_stats.completed,
            shutdown.current_size > 0,
            shutdown.rate_limiter_info.sample_stats.completed,
            starts,
            info[config.broadcaster_table_name].rate_limiter_info.insert_stats.completed,
            info[settings.OBSERVATION_TABLE].current_size,
        )

    def card(self) -> card_lib.Card:
        """Asks who the learner is. From then on, another start of the learner counts as its end.

        Returns:
          The learner's card, or NO_CARD while it shows none. A learner that is resumed shows the
          card of its checkpoint for a moment; with another launcher's id it counts as none.

        Raises:
          errors.LearnerGoneError: No answer came in time.
          errors.UserError: The learner has shown another launcher's id for ten seconds.
        """
        starts = self.status().starts
        card = card_lib.NO_CARD
        if starts:
            numbers = self.fetch(settings.RUN_TABLE, _STATUS_TIMEOUT_S)[0]
            card = card_lib.Card(*map(int, numbers))
        if starts and self._config.launch_id and card.launch_id != self._config.launch_id:
            now = time.monotonic()
            self._others_since = self._others_since or now
            if now - self._others_since > _OLD_CARD_S:
                raise errors.UserError(
                    f"The learner at {self.address} is another run's: another launcher started it."
                )
            starts, card = 0, card_lib.NO_CARD
        self._starts = starts or None
        return card

    def publish_card(self, run_id: int, starts: int, version_offset: int) -> None:
        """Shows clients who the learner is.

        The number of inserts into the run table is the number of starts, which clients see in every
        status. So the card is inserted until the counts agree.

        Args:
          run_id: Random number of the run.
          starts: How often the learner was started, this start included.
          version_offset: See `card.Card`.

        Raises:
          errors.LearnerGoneError: The server does not take the card.
        """
        before = self.status().starts
        launch_id = self._config.launch_id
        card = card_lib.Card(run_id, max(starts, before + 1), version_offset, launch_id)
        for _ in range(before, card.starts):
            self.publish(settings.RUN_TABLE, np.array(card, np.int64), _SMALL_TIMEOUT_S)

    def _server_info(self, timeout_s: int) -> dict[str, schema_pb2.TableInfo]:
        deadline = time.monotonic() + timeout_s
        try_s, again = min(timeout_s, _STATUS_TRY_S), timeout_s > _STATUS_TRY_S
        while True:
            try:
                serialized = self._info_client.ServerInfo(try_s)
                tables = [schema_pb2.TableInfo.FromString(table) for table in serialized]
                return {table.name: table for table in tables}
            except Exception as error:  # Reverb raises several types, RuntimeError among them.
                # A port that nobody listens at gets no second try. A busy server gets others until
                # the time is over, and one in any case: this process itself may have been paused
                # meanwhile. Signals wait for the end of a try.
                if not again or not _listens(self.address):
                    raise errors.LearnerGoneError(
                        f"The learner at {self.address} does not answer ({errors.summary(error)})."
                    ) from None
                left_s = math.ceil(deadline - time.monotonic())
                try_s = max(_STATUS_TRY_S, min(left_s, _STATUS_TIMEOUT_S))
                again = left_s > try_s

    def fetch(self, table: str, timeout_s: float | None = None) -> list[np.ndarray]:
        """Samples the item of a mailbox that is known to have one.

        Args:
          table: Name of the mailbox.
          timeout_s: Time limit, by default --transfer_timeout.

        Raises:
          errors.LearnerGoneError: The item does not come in time: the server went away.
        """
        return self.bounded(lambda: self.take(table), timeout_s)

    def take(self, table: str) -> list[np.ndarray]:
        """Samples the item of a mailbox, and waits for it as long as it takes.

        This may wait for ever if the server dies: only threads that may hang call it.
        """
        data = next(self._downloads.sample(table, emit_timesteps=False)).data
        return [np.asarray(column)[0] for column in data]

    def sample(self, table: str, count: int, timeout_s: float) -> list[list[np.ndarray]]:
        """Samples transitions of a table that is known to have some.

        Args:
          table: Name of the table.
          count: Number of transitions; one may come several times.
          timeout_s: Time limit.

        Returns:
          The columns of each, as `replay.Layout.pack` returns them.

        Raises:
          errors.LearnerGoneError: They do not come in time: the server went away.
        """

        def take() -> list[list[np.ndarray]]:
            samples = self._downloads.sample(table, count, emit_timesteps=False)
            return [[np.asarray(column) for column in sample.data] for sample in samples]

        return self.bounded(take, timeout_s)

    def publish(self, table: str, item: Any, timeout_s: float | None = None) -> None:
        """Puts an item into a mailbox, where it replaces the one before.

        Args:
          table: Name of the mailbox.
          item: Arrays that fit the table's signature.
          timeout_s: Time limit, by default --transfer_timeout.

        Raises:
          errors.LearnerGoneError: The server does not take the item in time.
        """
        self.bounded(lambda: self.client.insert(item, {table: 1.0}), timeout_s)

    def announce_shutdown(self, state: int) -> None:
        """Tells broadcaster and actors that the run has ended.

        Args:
          state: COMPLETED, FAILED or INTERRUPTED.

        Raises:
          errors.LearnerGoneError: The server does not take the announcement in time.
        """
        self.publish(self._config.shutdown_table_name, np.int32(state), _SMALL_TIMEOUT_S)

    def acknowledge_shutdown(self) -> None:
        """Tells the learner that its announcement was seen.

        The learner waits only some seconds for this. A learner that is gone has ended as announced,
        or was killed meanwhile; the launcher then starts it again.

        Raises:
          errors.UserError: The announcement says that the run has failed.
        """
        try:
            state = int(self.fetch(self._config.shutdown_table_name, _STATUS_TIMEOUT_S)[0])
        except errors.LearnerGoneError:
            return
        if state == FAILED:
            raise errors.UserError(
                "The learner announced that the run has failed; its own log says why."
            )

    def bounded(self, call: Callable[[], T], timeout_s: float | None = None) -> T:
        """Runs a call that would hang for ever if the server died, on a thread of its own.

        Args:
          call: The call; it may go on after it was given up.
          timeout_s: Time limit, by default --transfer_timeout.

        Raises:
          errors.LearnerGoneError: The call fails, or does not end in time, or this process is
            stopped.
        """
        hint = ""
        if timeout_s is None:
            timeout_s = self._config.transfer_timeout
            hint = (
                ": is the link too slow? (See --transfer_timeout, and --quantize_communication for "
                "smaller messages.)"
            )
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def work() -> None:
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=work, daemon=True, name="reverb call").start()
        deadline = time.monotonic() + timeout_s
        # The future is asked for its result only when it is done: the call itself may raise a
        # TimeoutError, which is no sign of a call that is still under way.
        while not concurrent.futures.wait([future], min(_CHECK_PERIOD_S, timeout_s)).done:
            if self._stop is not None and self._stop.is_set():
                raise errors.LearnerGoneError(
                    f"A transfer from or to the learner at {self.address} was given up."
                )
            self.status()  # Raises when the server is gone.
            if time.monotonic() >= deadline and not future.done():
                raise errors.LearnerGoneError(
                    f"The learner at {self.address} answers, but a transfer did not end within "
                    f"{timeout_s:g} s{hint or '.'}"
                )
        try:
            return future.result()
        except errors.UserError:
            raise
        except Exception as error:
            raise errors.LearnerGoneError(
                f"The learner at {self.address} broke off a transfer ({errors.summary(error)})."
            ) from None


def _own_target(address: str) -> str:
    """Spells an address as no other connection of this process does.

    gRPC shares TCP connections, and the wait before the next attempt to connect, among clients of
    the same target. A call that hangs on a dead server keeps trying, less and less often. After an
    outage of minutes, a new client would wait up to two minutes for a server that is back.
    """
    return f"dns:///{address}?connection={next(_connection_numbers)}"


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=2):
            return True
    except (OSError, UnicodeError):  # UnicodeError: no host can have this name.
        return False
