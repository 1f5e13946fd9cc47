"""A network between two processes on this machine that can be cut, stall and come back."""

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self


class Proxy:
    """Passes connections on to a port of this machine; used as a context.

    up, down: bytes that have passed, from and to those who connect. Faults count from when they are
    asked for, and for all connections together.
    """

    def __init__(self, target: int, delay_s: float = 0.0) -> None:
        """delay_s: how long everything is on its way, in both directions."""
        self.target, self.delay_s = target, delay_s
        self.port = 0
        self.up = self.down = 0
        self._left: dict[str, int | None] = {"up": None, "down": None}
        self._then: Callable[[], None] = self._cut
        self._is_cut = False
        self._delay_s, self._bytes_per_s = 0.0, math.inf
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._ready = threading.Event()
        self.faults = 0
        """How often a fault that was to come after some bytes has come."""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break all connections, and all that are made until `restore`."""
        self._do(self._cut)

    def stall(self) -> None:
        """Nothing passes until `restore`, and nobody is told."""
        self._do(self._flows.clear)

    def restore(self) -> None:
        """From now on everything passes; what broke stays broken."""
        self._do(self._restore)

    def slow(self, delay_s: float = 0.0, bytes_per_s: float = math.inf) -> None:
        """Let everything take longer until `restore`: each piece by a delay, and by its length."""
        self._delay_s, self._bytes_per_s = delay_s, bytes_per_s

    def cut_after(self, way: str, count: int) -> None:
        """Cut after so many bytes more have passed."""
        self._do(lambda: self._arm(way, count, self._cut))

    def stall_after(self, way: str, count: int) -> None:
        """Stall after so many bytes more have passed."""
        self._do(lambda: self._arm(way, count, self._flows.clear))

    def _do(self, what: Callable[[], None]) -> None:
        async def do() -> None:
            what()

        asyncio.run_coroutine_threadsafe(do(), self._loop).result(60)

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._flows, self._end = asyncio.Event(), asyncio.Event()
        self._flows.set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        for listening in server.sockets:
            self._loop.remove_reader(listening.fileno())
        self._cut()
        await self._turns()  # whoever was let in at this moment gets to `_accept`, and out again
        server.close()  # not before: asyncio would leave the socket of such a one open
        for pump in list(self._pumps):
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self._turns()  # sockets are closed a turn after their transports

    @staticmethod
    async def _turns() -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    def _cut(self) -> None:
        self._is_cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def _restore(self) -> None:
        self._is_cut = False
        self._delay_s, self._bytes_per_s = 0.0, math.inf
        self._left = {"up": None, "down": None}
        self._flows.set()

    def _arm(self, way: str, count: int, then: Callable[[], None]) -> None:
        self._left[way], self._then = count, then

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        self._writers.add(writer)
        far, both = None, list[asyncio.Task[None]]()
        try:
            if self._is_cut:
                return
            there, far = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.add(far)
            both = [
                asyncio.create_task(self._pump("up", reader, far)),
                asyncio.create_task(self._pump("down", there, writer)),
            ]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass
        except asyncio.CancelledError:  # by the proxy's end; asyncio would report it as an error
            pass
        finally:
            for pump in both:
                pump.cancel()
            self._pumps.discard(task)
            for one in (writer, far):
                if one is not None:
                    self._writers.discard(one)
                    one.transport.abort()

    async def _pump(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.delay_s:
            await self._pump_late(reader, writer)
            return
        with suppress(OSError):
            while data := await reader.read(1 << 14):
                while data:
                    await self._flows.wait()
                    left = self._left[way]
                    part = data if left is None else data[:left]
                    data = data[len(part) :]
                    if wait_s := self._delay_s + len(part) / self._bytes_per_s:
                        await asyncio.sleep(wait_s)
                    writer.write(part)
                    await writer.drain()
                    setattr(self, way, getattr(self, way) + len(part))
                    if left is not None:
                        self._left[way] = (self._left[way] or len(part)) - len(part) or None
                        if self._left[way] is None:
                            self.faults += 1
                            self._then()
        await self._flows.wait()  # that it has ended is news, too

    async def _pump_late(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass everything on after the delay, however much there is."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                loop.call_later(self.delay_s, writer.write, data)
        await asyncio.sleep(self.delay_s)
