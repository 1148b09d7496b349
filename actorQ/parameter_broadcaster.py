"""The broadcaster's process: turns the learner's weights into the actors' form.

By hand:

    python -m actorQ.parameter_broadcaster --quantize 8 --server_address localhost:8181

It takes the newest weights out of the broadcaster table (which gives each away once), quantizes
them, and puts the message into the model table, so that the learner carries none of that work. It
needs neither an environment nor a policy: weights are converted by name.
"""

import queue
import threading
import time

from absl import flags
from absl import logging

from actorQ import allocator
from actorQ import cli
from actorQ import config as config_lib
from actorQ import config_flags
from actorQ import conversion
from actorQ import energy
from actorQ import errors
from actorQ import messages
from actorQ import telemetry

_HEALTH_PERIOD_S = 0.5


class Broadcaster:
    """Waits for weights on one thread, watches over the run on another."""

    def __init__(self, config: config_lib.RunConfig):
        # Imported late: flags are checked, and --help answers, without seconds of imports.
        from actorQ import wire

        self._wire = wire
        self._config = config
        self._connection = wire.Connection(config)
        self._logger = telemetry.RunLogger(
            config.logpath, telemetry.BROADCASTER, config.run_start_time
        )
        self._version = -1
        self._stop = threading.Event()
        self._failures: queue.SimpleQueue = queue.SimpleQueue()

    def run(self) -> int:
        """Serves until the end of the run is announced; returns the exit code.

        Raises:
          errors.UserError: there is no learner, it went away, or its weights are unusable.
        """
        cli.on_stop_signals(self._stop.set)
        self._wire.require_port(self._config)
        if not self._connection.wait_until_up(self._stop):
            return cli.EXIT_INTERRUPTED
        with energy.track(bool(self._config.track_energy), self._logger.folder):
            threading.Thread(target=self.serve, daemon=True, name="serving").start()
            try:
                return self._watch()
            finally:
                self._logger.close()

    def _watch(self) -> int:
        while True:
            try:
                failure = self._failures.get(timeout=_HEALTH_PERIOD_S)
            except queue.Empty:
                failure = None
            if self._stop.is_set():
                return cli.EXIT_INTERRUPTED
            shutdown = self._connection.status().shutdown
            if failure is not None and not shutdown:
                raise failure
            if shutdown:
                self._connection.acknowledge_shutdown()
                logging.info("The learner announced the end of the run.")
                return 0

    def serve(self) -> None:
        """Converts one model after another, for ever; what goes wrong is raised by `run`."""
        try:
            while not self._stop.is_set():
                self._serve_one()
        except Exception as error:
            # The watching thread tells an announced end from a failure.
            self._failures.put(error)

    def _serve_one(self) -> None:
        config = self._config
        # Blocks until the learner pushes: no polling, and no delay. If the server dies this
        # thread hangs, which the watching thread notices.
        header, blob = self._connection.take(config.broadcaster_table_name)
        arrived = time.perf_counter()
        update = messages.decode(header, blob)
        if update.scheme != conversion.LEARNER_SCHEME:
            raise errors.MessageError(
                f"The broadcaster table holds weights of scheme {update.scheme!r}, expected "
                f"{conversion.LEARNER_SCHEME!r}: are the table names mixed up?"
            )
        if update.version == self._version:
            return  # The first weights, pushed again for a broadcaster that might have died.
        decoded = time.perf_counter()
        try:
            converted = conversion.learner_to_actor_form(
                update.tensors,
                update.version,
                config.quantize,
                config.quantize_communication,
                bool(config.weight_compress),
            )
        except ValueError as error:
            raise errors.MessageError(
                f"The learner's weights of version {update.version} are unusable: {error}"
            ) from None
        done = time.perf_counter()
        self._version = update.version
        message = messages.encode(converted, bool(config.compress))
        encoded = time.perf_counter()
        self._connection.publish(config.model_table_name, message)
        self._logger.write(
            telemetry.UPDATES_CSV,
            update.version,
            model_version=update.version,
            decode_s=decoded - arrived,
            convert_s=done - decoded,
            encode_s=encoded - done,
            insert_s=time.perf_counter() - encoded,
            message_bytes=sum(part.nbytes for part in message),
            fp32_bytes=messages.fp32_bytes(converted),
        )


def main(argv: list[str]) -> int:
    """Runs the broadcaster; see `cli.run` for errors."""
    del argv
    config = config_flags.from_flags()
    cli.quiet_tensorflow()
    allocator.keep_large_blocks()
    return Broadcaster(config).run()


if __name__ == "__main__":
    config_flags.define_flags()
    flags.adopt_module_key_flags(config_flags)
    cli.run(main)
