"""The client for asyncio."""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import time
from typing import Any, Callable, List, Optional, Set, Union

from .client import GREETING_SECONDS, Client, Epic, OnPush
from .errors import MillraceError
from .wire import CHECK_SECONDS, Wire
from .worker import IDLE_SECONDS, LEVEL_MOST, TICK_SECONDS, BaseWorker, Job


class AsyncWire(Wire, asyncio.Protocol):
    """A connection of an event loop, in whose thread everything runs."""

    def __init__(self, on_push: OnPush = None) -> None:
        super().__init__(on_push)
        self._loop = asyncio.get_running_loop()
        self._out: List[bytes] = []
        self._transport: Optional[asyncio.Transport] = None

    def future(self) -> "asyncio.Future[Any]":
        return self._loop.create_future()

    def data_received(self, data: bytes) -> None:
        self.feed(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._check()

    def connection_lost(self, error: Optional[Exception]) -> None:
        self.close(str(error or "the server closed the connection"))

    def write(self, data: bytes) -> None:
        """Commands of one turn of the loop leave together."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport and self.is_open:
            self._transport.write(b"".join(out))

    def _check(self) -> None:
        self.check_silence()
        if self.is_open:
            self._loop.call_later(CHECK_SECONDS, self._check)

    def shut(self) -> None:
        if self._transport:
            self._transport.abort()


class AsyncMillrace(Client):
    """A client. It connects when it is first used; `async with` closes it."""

    def __init__(self, url: Optional[str] = None, **options: Any) -> None:
        super().__init__(url, **options)
        self.workers: Set["Worker"] = set()

    async def connect(self, host: str, port: int, on_push: OnPush) -> Wire:
        loop, tls = asyncio.get_running_loop(), self.address.tls
        make = lambda: AsyncWire(on_push)  # noqa: E731
        try:
            _, wire = await asyncio.wait_for(
                loop.create_connection(make, host, port, ssl=tls,
                                       server_hostname=host if tls else None)
                if port else loop.create_unix_connection(make, host), GREETING_SECONDS)
        except asyncio.TimeoutError:
            raise OSError("no answer") from None
        return wire

    def lock(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait_until(self, future: Any, until: float) -> None:
        await asyncio.wait([future], timeout=max(0, until - time.monotonic()))

    async def __aenter__(self) -> "AsyncMillrace":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def close(self) -> None:
        for worker in list(self.workers):
            await worker.close()
        self.main.close()

    await_ = Client.wait

    def epic(self, stage: str, name: str) -> Epic:
        """A numbered stream of pushes that can be continued after any crash."""
        return Epic(self, stage, name)

    def work(self, stages: Union[str, List[str]], handler: Callable[..., Any],
             **options: Any) -> "Worker":
        """Starts a worker. Options: concurrency, lease, grace."""
        worker = Worker(self, stages, handler, **options)
        self.workers.add(worker)
        worker.task.add_done_callback(lambda _: self.workers.discard(worker))
        return worker


class Worker(BaseWorker):
    """Runs handlers that are coroutine functions as tasks, others in threads."""

    def __init__(self, client: AsyncMillrace, stages: Union[str, List[str]],
                 handler: Callable[..., Any], **options: Any) -> None:
        super().__init__(client, stages, handler, **options)
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._flushing: Optional["asyncio.Task[None]"] = None
        self._pool = None if inspect.iscoroutinefunction(handler) else \
            concurrent.futures.ThreadPoolExecutor(LEVEL_MOST, f"millrace {self.stages[0]}")
        self.task = self._loop.create_task(self._run())

    def stop(self) -> None:
        """Takes no more; what runs goes on."""
        if not self.stopping:
            self.stopping = True
            self._wake.set()
            self._loop.create_task(self.keep())

    async def close(self) -> None:
        """Stops taking, waits for what runs for the grace, and gives the rest back."""
        self.stop()
        await asyncio.wait([self.task])

    def more(self) -> None:
        self._wake.set()

    async def _run(self) -> None:
        keeping = self._loop.create_task(self._keep_all())
        try:
            while not self.stopping:
                if self.free > 0:
                    await self.take()
                else:
                    self._wake.clear()
                    await self._wake.wait()
        finally:
            await self.drain()
            keeping.cancel()
            self.close_links()
            if self._pool:
                self._pool.shutdown(wait=False)

    async def _keep_all(self) -> None:
        while True:
            await self.keep()
            await asyncio.sleep(TICK_SECONDS if self.running else IDLE_SECONDS)

    def begin(self, job: Job) -> None:
        self._loop.create_task(self._handle(job))

    async def _handle(self, job: Job) -> None:
        try:
            self.enter(job)
            if self._pool:
                result = await self._loop.run_in_executor(
                    self._pool, contextvars.copy_context().run, self._handler, job)
            else:
                job.on_stop = getattr(asyncio.current_task(), "cancel")
                result = await self._handler(job)
            words = job.done(result)
        except BaseException as error:  # noqa: B036 - a handler may raise anything
            words = job.raised(error)
        job.on_stop = None  # a cancellation that comes now is too late
        self.ended(job, words)
        self._wake.set()
        if self._takes or not self.free:
            self._flushing = self._flushing or self._loop.create_task(self._flush_all())

    async def _flush_all(self) -> None:
        try:
            while self.answers:
                await self.flush()
        except MillraceError as error:
            self.logger.info("%s; trying again", error)
        finally:
            self._flushing = None
