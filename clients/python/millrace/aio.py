"""The client for asyncio."""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import types
from typing import Any, Callable, Coroutine, Generator

from . import worker as workers
from .client import GREETING_SECONDS, Commands, Epic
from .wire import CHECK_SECONDS, OnPush, Wire


class LoopWire(Wire, asyncio.Protocol):
    """A connection of an event loop, in whose thread everything runs."""

    def __init__(self, on_push: OnPush) -> None:
        super().__init__(on_push)
        loop = asyncio.get_running_loop()
        self.future, self._call_soon, self._call_later = (
            loop.create_future, loop.call_soon, loop.call_later)
        self._out: list[bytes] = []

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.shut = transport.abort
        self._timer = self._call_later(CHECK_SECONDS, self._check)

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self.close(str(error or "the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self.feed(data)

    def write(self, data: bytes, alone: bool) -> None:
        """Commands leave together with others of the same turn of the loop."""
        if not self._out and not alone:
            self._call_soon(self._flush)
        self._out.append(data)
        if alone:
            self._flush()

    def _flush(self) -> None:
        out, self._out = self._out, []
        if not self.why:
            self._transport.write(b"".join(out))

    def watch(self, seconds: float) -> None:
        self._timer.cancel()
        self._timer = self._call_later(seconds, self._check)

    def _check(self) -> None:
        self.check_silence()
        if not self.why:
            self.watch(min(self.seconds_left(), CHECK_SECONDS))


class LoopBell:
    def __init__(self) -> None:
        self._loop, self._rung = asyncio.get_running_loop(), asyncio.Event()

    def ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> None:
        """Not with wait_for, which forgets a cancellation that comes together with a ring."""
        timer = self._loop.call_later(seconds, self._rung.set)
        try:
            await self._rung.wait()
        finally:
            timer.cancel()
        self._rung.clear()


@types.coroutine
def in_context(coroutine: Coroutine[Any, Any, Any], context: contextvars.Context,
               on_wait: Callable[[], None]) -> Generator[Any, Any, Any]:
    """Runs a coroutine in another context than that of the task, in which nothing is left of the
    jobs before it. Calls `on_wait` whenever it waits."""
    step, value = coroutine.send, None
    while True:
        try:
            future = context.run(step, value)
        except StopIteration as end:
            return end.value
        on_wait()
        try:
            step, value = coroutine.send, (yield future)
        except BaseException as error:
            step, value = coroutine.throw, error


class AsyncMillrace(Commands):
    """A client. It connects when it is first used; `async with` closes it."""

    def __init__(self, url: str | None = None, **options: Any) -> None:
        super().__init__(url, **options)
        self._bell, self._sleep = LoopBell, asyncio.sleep
        self.workers: set[Worker] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._context = contextvars.copy_context()  # of each job before its handler changes it
        self._dialling: asyncio.Lock | None = None
        self._threads = concurrent.futures.ThreadPoolExecutor(workers.LEVEL_MOST, "millrace")

    async def _connect(self, host: str, port: int, on_push: OnPush) -> Wire:
        loop, tls = asyncio.get_running_loop(), self._address.tls
        made: Any = (loop.create_connection(lambda: LoopWire(on_push), host, port, ssl=tls)
                     if port else loop.create_unix_connection(lambda: LoopWire(on_push), host))
        try:
            _, wire = await asyncio.wait_for(made, GREETING_SECONDS)
        except asyncio.TimeoutError:
            raise OSError("no answer") from None
        return wire  # type: ignore[no-any-return]

    async def _connected(self) -> Wire:
        self._dialling = self._dialling or asyncio.Lock()
        async with self._dialling:
            return await self._reconnect()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task: asyncio.Task[None] = self._context.run(asyncio.create_task, coroutine)  # type: ignore
        self._tasks.add(task)  # the loop does not keep it
        task.add_done_callback(self._tasks.discard)

    async def _invoke(self, handler: Callable[..., Any], job: workers.Job) -> Any:
        """A coroutine function runs in the task of its slot, another one in a thread."""
        context = contextvars.copy_context()
        if not job._worker.is_async:
            job._worker.more()
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, context.run, handler, job)
        job.on_stop = getattr(asyncio.current_task(), "cancel")
        try:
            return await in_context(handler(job), context, job._worker.more)
        finally:
            job.on_stop = None  # a cancellation that comes now is too late

    def epic(self, stage: str, name: str) -> Epic:
        """A numbered stream of pushes that can be continued after any crash."""
        return Epic(self, stage, name)

    def work(self, stages: str | list[str], handler: Callable[..., Any], **options: Any) -> Worker:
        """Starts a worker. Options: concurrency, lease, grace."""
        return Worker(self, stages, handler, **options)

    await_ = Commands.wait

    async def close(self) -> None:
        for worker in list(self.workers):
            await worker.close()
        self._threads.shutdown(wait=False)
        self._close()

    async def __aenter__(self) -> AsyncMillrace:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()


class Worker(workers.Worker):
    """A worker that was started by AsyncMillrace.work(); its task raises what has ended it."""

    def __init__(self, client: AsyncMillrace, *args: Any, **options: Any) -> None:
        super().__init__(client, *args, **options)
        client.workers.add(self)
        self.task = asyncio.get_running_loop().create_task(self.run())
        self.task.add_done_callback(lambda _: client.workers.discard(self))

    async def close(self) -> None:
        """Stops taking, waits for what runs for the grace, and gives the rest back."""
        self.stop()
        await asyncio.wait([self.task])
