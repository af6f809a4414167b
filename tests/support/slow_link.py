"""A TCP connection over a distance: bytes arrive some time after they were sent, in their order."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Self


class SlowLink:
    """Forwards connections to an address with a delay each way; use it as a context.

    Its loop has a thread of its own, which is in the network of the thread that enters it.
    """

    def __init__(self, host: str, port: int, delay_s: float) -> None:
        self._target = (host, port)
        self._delay_s = delay_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._accept, "0.0.0.0", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            there_reader, there_writer = await asyncio.open_connection(*self._target)
            try:
                pumps = [self._pump(reader, there_writer), self._pump(there_reader, writer)]
                await asyncio.gather(*pumps)
            finally:
                there_writer.close()
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due_s, data = await waiting.get()
                await asyncio.sleep(max(0.0, due_s - self._loop.time()))
                writer.write(data)
                await writer.drain()

        task = asyncio.create_task(deliver())
        try:
            while data := await reader.read(1 << 16):
                waiting.put_nowait((self._loop.time() + self._delay_s, data))
        finally:
            task.cancel()
            writer.close()
