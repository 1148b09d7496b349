"""Passes TCP connections on with a delay each way, for links that are not only slow but long.

    python -m tests.faults.delay_proxy LISTEN_PORT HOST:PORT DELAY_MS

It stands in for netem, which some kernels lack. Bytes are handed on after the delay. Nothing limits
how much is under way, as on a long line.
"""

import asyncio
from collections.abc import Sequence
import sys
import time

_BLOCK_BYTES = 1 << 16
_MOST_UNDER_WAY = 1024  # Blocks, which are 64 MiB each way.


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float
) -> None:
    """Reads from one side and writes to the other, each block `delay_s` after it came."""
    line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_UNDER_WAY)

    async def hand_over() -> None:
        while True:
            due, block = await line.get()
            wait_s = due - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if not block:
                break
            writer.write(block)
            await writer.drain()
        writer.write_eof()  # The other direction may still have bytes to send.

    async def take_in() -> None:
        while True:
            block = await reader.read(_BLOCK_BYTES)
            await line.put((time.monotonic() + delay_s, block))
            if not block:
                break

    task = asyncio.ensure_future(hand_over())
    reading = asyncio.ensure_future(take_in())
    try:
        # Whichever side fails ends the other.
        done, _ = await asyncio.wait({task, reading}, return_when=asyncio.FIRST_EXCEPTION)
        for finished in done:
            finished.result()
    except OSError:
        writer.close()
    finally:
        task.cancel()
        reading.cancel()


async def serve(port: int, host: str, target_port: int, delay_s: float) -> None:
    """Serves until it is cancelled.

    Args:
      port: Port to listen at, on this host alone.
      host: Host to connect to.
      target_port: Port to connect to.
      delay_s: Delay each way, seconds.
    """

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, target_port)
        except OSError:
            writer.close()  # The client sees a port at which nobody listens.
            return
        await asyncio.gather(
            _pass_on(reader, far_writer, delay_s), _pass_on(far_reader, writer, delay_s),
            return_exceptions=True,
        )
        for end in (writer, far_writer):
            end.close()

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


def main(argv: Sequence[str]) -> None:
    """Serves until the process ends."""
    if len(argv) != 3:
        raise SystemExit("usage: delay_proxy LISTEN_PORT HOST:PORT DELAY_MS")
    host, _, target_port = argv[1].rpartition(":")
    asyncio.run(serve(int(argv[0]), host, int(target_port), float(argv[2]) / 1e3))


if __name__ == "__main__":
    main(sys.argv[1:])
