"""The broadcaster: turns the learner's weights into the actors' form.

It takes the newest weights out of the broadcaster table (which gives each version away once),
quantizes them, and puts the message into the model table. So the learner carries none of that
work. A meter then measures what quantization did (`meter`). The broadcaster needs no environment:
weights are converted by name. When the learner goes away, the broadcaster waits for one at the same
address.

Broadcaster's process only. Imports Reverb, neither torch nor TensorFlow.
"""

import contextlib
import os
import queue
import threading
import time

from absl import logging
import numpy as np

from actorQ.core import cli
from actorQ.core import config as config_lib
from actorQ.core import energy
from actorQ.core import errors
from actorQ.core import run_logger
from actorQ.core import telemetry
from actorQ.core import tracking
from actorQ.policy import forms
from actorQ.wire import card
from actorQ.wire import connection as connection_lib
from actorQ.wire import messages
from actorQ.wire import meter as meter_lib

_HEALTH_PERIOD_S = 0.5
_CARD_PERIOD_S = 0.05  # Time between two looks whether the learner shows its card.


class Broadcaster:
    """Waits for weights on one thread, and watches over the run on another.

    Attributes:
      connection: Connection to the newest start of the learner.
    """

    def __init__(self, config: config_lib.RunConfig):
        """Opens the log; nothing is sent yet."""
        self._config = config
        self.connection = connection_lib.Connection(config)
        self._losses = card.Losses()
        self._meter = meter_lib.Meter(config)
        self._logger = run_logger.RunLogger(
            config.logpath,
            telemetry.BROADCASTER,
            telemetry.start_time(config.logpath, config.run_start_time, config.resume),
            again=bool(config.restarts),
        )
        self._logger.tracker = tracking.start(config, self._logger.folder)
        again = config.resume or config.restarts
        self._version = telemetry.last_version(self._logger.folder) if again else -1
        self._refused, self._meter_s_before = 0, 0.0
        if again:  # Counters go on where the log ends.
            before = telemetry.last_row(
                os.path.join(self._logger.folder, telemetry.UPDATES_CSV)
            )
            self._refused = int(before.get("refused", 0))
            self._meter_s_before = before.get("meter_s", 0.0)
        self._converting = threading.Lock()
        self._stop = threading.Event()
        self._failures: queue.SimpleQueue[tuple[connection_lib.Connection, Exception]] = (
            queue.SimpleQueue()
        )

    def run(self) -> int:
        """Serves until the end of the run is announced; returns the exit code.

        Raises:
          errors.UserError: There is no learner, it did not come back, or its weights do not fit.
        """
        cli.on_stop_signals(self._stop.set)
        connection_lib.require_port(self._config)
        with contextlib.closing(self._logger), energy.track(
            bool(self._config.track_energy), self._logger.folder
        ):
            while True:
                try:
                    return self._connect_and_watch()
                except errors.NoLearnerError:
                    raise
                except errors.LearnerGoneError as gone:
                    self._disconnect(gone)

    def _connect_and_watch(self) -> int:
        if not self.connection.wait_until_up(self._stop):
            return cli.interrupted_code()
        return self._watch()

    def _read_card(self) -> bool:
        """Returns whether the learner shows its card; nothing is taken from it before."""
        return bool(self._losses.card(self.connection).starts)

    def _disconnect(self, reason: errors.LearnerGoneError) -> None:
        """Gives up the connection. The thread that uses it may hang in Reverb; it ends later."""
        self._losses.note(reason)
        logging.warning(
            "%s Waiting up to %g s for the learner.", reason, self._config.connect_timeout
        )
        self.connection = connection_lib.Connection(self._config)

    def _watch(self) -> int:
        serving = False
        while True:
            if not serving and self._read_card():
                threading.Thread(
                    target=self.serve, args=(self.connection,), daemon=True, name="serving"
                ).start()
                serving = True
            try:
                failed = self._failures.get(
                    timeout=_HEALTH_PERIOD_S if serving else _CARD_PERIOD_S
                )
            except queue.Empty:
                failed = None
            if self._stop.is_set():
                return cli.interrupted_code()
            if self.connection.status().shutdown:
                self.connection.acknowledge_shutdown()
                logging.info("The learner announced the end of the run.")
                return 0
            if failed is not None:
                connection, failure = failed
                if connection is self.connection:
                    raise failure

    def serve(self, connection: connection_lib.Connection) -> None:
        """Converts one model after another until the connection is given up.

        A failure is raised by `run`, on the other thread.

        Args:
          connection: Connection to take models from.
        """
        try:
            while not self._stop.is_set() and connection is self.connection:
                self._serve_one(connection)
        except Exception as error:
            # The watching thread tells an announced end from a failure.
            self._failures.put((connection, error))

    def _serve_one(self, connection: connection_lib.Connection) -> None:
        # This blocks until the learner pushes: there is no polling and no delay. If the server dies
        # this thread hangs, which the watching thread notices. The call may then reach the server
        # that comes back; its weights are converted all the same, as they are given out only once.
        header, blob = connection.take(self._config.broadcaster_table_name)
        with self._converting:
            try:
                self._convert(header, blob)
            except errors.MessageError as error:
                if self._version < 0:  # No message has ever fitted: flags may not agree.
                    raise
                self._refused += 1
                logging.warning(
                    "%s It is refused; actors stay on version %d.", error, self._version
                )

    def _convert(self, header: np.ndarray, blob: np.ndarray) -> None:
        config = self._config
        arrived = time.perf_counter()
        update = messages.decode(header, blob)
        if update.version <= self._version:
            # These are the first weights, pushed again in case a broadcaster has died, or those in
            # the checkpoint of a learner that was resumed.
            return
        decoded = time.perf_counter()
        converted = forms.for_actors(
            update, config.quantize, config.quantize_communication, bool(config.weight_compress)
        )
        done = time.perf_counter()
        message = messages.encode(converted, bool(config.compress))
        encoded = time.perf_counter()
        self.connection.publish(config.model_table_name, message)
        inserted = time.perf_counter()
        self._version = update.version
        columns = self._meter.weigh(update, converted)
        self._logger.write(
            telemetry.UPDATES_CSV,
            update.version,
            model_version=update.version,
            decode_s=decoded - arrived,
            convert_s=done - decoded,
            encode_s=encoded - done,
            insert_s=inserted - encoded,
            message_bytes=sum(part.nbytes for part in message),
            fp32_bytes=messages.fp32_bytes(converted),
            refused=self._refused,
            meter_s=self._meter_s_before + self._meter.seconds,
            **columns,
        )
        self._losses.clear()
        compared = self._meter.compare(self.connection, update, converted)
        if compared:
            self._logger.write(
                telemetry.METER_CSV, update.version, model_version=update.version, **compared
            )
