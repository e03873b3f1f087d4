"""The client for threads: the asyncio client, whose loop runs in the thread that calls it."""
from __future__ import annotations

import asyncio
import signal
import threading
import time
from typing import Any, Callable, Coroutine, Dict, Iterable, List, Optional, Tuple, TypeVar, Union

from . import aio
from .errors import Usage

T = TypeVar("T")
IDLE_SECONDS = 0.5
Handler = TypeVar("Handler", bound=Callable[..., Any])


class Millrace:
    """A client for any thread. Options and meaning as of millrace.AsyncMillrace; `with` closes it.

        m = Millrace("millrace://127.0.0.1:7411")
        m.push("mail", {"to": "ann"}, key="ann")

        @m.worker("mail")
        def send(job):
            return {"ok": True}
        m.run()
    """

    def __init__(self, url: Optional[str] = None, **options: Any) -> None:
        self._client = aio.AsyncMillrace(url, **options)
        self._lock = threading.Lock()  # guards what follows
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._has_thread = False  # that runs the loop; until then the calling thread does
        self._shared = False  # the loop needs that thread
        self._led = False  # a calling thread runs the loop …
        self._others = 0  # … and so many threads rely on it
        self._used = 0.0
        self._handlers: List[Tuple[Any, Callable[..., Any], Dict[str, Any]]] = []
        self._runs = False
        self._stop = threading.Event()

    def __enter__(self) -> "Millrace":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _do(self, make: Callable[[], Coroutine[Any, Any, T]], background: bool = False) -> T:
        """Runs a coroutine in the calling thread, as long as one thread at a time uses the client;
        from the first time on that two do, or with `background`, in a thread of its own."""
        parent, idle = aio.trace.get(), time.monotonic() - self._used > IDLE_SECONDS

        async def run() -> T:
            aio.trace.set(parent)
            if idle:
                await asyncio.sleep(0)  # to notice that the server has closed the connection
            return await make()
        with self._lock:
            loop = self._loop = self._loop or asyncio.new_event_loop()
            self._shared |= background or asyncio._get_running_loop() is not None
            if self._shared and not self._led:
                self._start_thread()
            leads = not self._led and not self._has_thread
            if leads:
                self._led = True
            else:
                self._others += 1
        try:
            return self._lead(loop, run()) if leads else self._follow(loop, run())
        finally:
            self._used = time.monotonic()
            with self._lock:
                if leads:
                    self._led = False
                    if self._others or self._shared:
                        self._start_thread()
                else:
                    self._others -= 1

    def _start_thread(self) -> None:
        if not self._has_thread:
            assert self._loop
            self._has_thread = True
            threading.Thread(target=self._loop.run_forever, name="millrace", daemon=True).start()

    @staticmethod
    def _lead(loop: asyncio.AbstractEventLoop, run: Coroutine[Any, Any, T]) -> T:
        task = loop.create_task(run)
        try:
            return loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # Ctrl-C
                task.cancel()
                loop.run_until_complete(asyncio.wait([task], timeout=1))
            raise

    @staticmethod
    def _follow(loop: asyncio.AbstractEventLoop, run: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(run, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def push(self, stage: str, body: Any = b"", **options: Any) -> str:
        return self._do(lambda: self._client.push(stage, body, **options))

    def push_many(self, stage: str, items: Iterable[Any], **options: Any) -> List[str]:
        return self._do(lambda: self._client.push_many(stage, items, **options))

    def call(self, stage: str, body: Any = b"", *, timeout: float = 30, **options: Any) -> Any:
        return self._do(lambda: self._client.call(stage, body, timeout=timeout, **options))

    def wait(self, job: str, *, timeout: float = 30) -> Any:
        return self._do(lambda: self._client.wait(job, timeout=timeout))

    await_ = wait

    def cancel(self, *jobs: str) -> int:
        return self._do(lambda: self._client.cancel(*jobs))

    def job(self, job: str) -> Dict[str, Any]:
        return self._do(lambda: self._client.job(job))

    def command(self, *words: Any) -> Any:
        return self._do(lambda: self._client.command(*words))

    def epic(self, stage: str, name: str) -> "Epic":
        return Epic(self, self._client.epic(stage, name))

    def worker(self, stages: Union[str, List[str]],
               **options: Any) -> Callable[[Handler], Handler]:
        """Registers a handler for run(); see millrace.worker.Worker for the options."""
        def register(handler: Handler) -> Handler:
            self._handlers.append((stages, handler, options))
            return handler
        return register

    def run(self, *, signals: bool = True) -> None:
        """Works until SIGTERM, Ctrl-C or stop(): then what runs is finished, and nothing new is
        taken. Raises what ended a worker before that, such as a wrong token."""
        if not self._handlers:
            raise Usage("there is no handler: write @m.worker(\"stage\") above a function")
        if self._runs:
            raise Usage("run() is working already: stop() makes it return")
        self._runs = True
        before = {}
        if signals and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, lambda *_: self._stop.set())
        self._stop.clear()

        async def start() -> List[Any]:
            workers = [self._client.work(s, h, **o) for s, h, o in self._handlers]
            for worker in workers:
                worker.task.add_done_callback(lambda _: self._stop.set())
            return workers
        try:
            workers = self._do(start, background=True)
            while not self._stop.wait(1):
                pass  # in pieces, so that signals are handled
            for worker in workers:
                self._do(worker.close)
            for worker in workers:
                worker.task.result()
        finally:
            self._runs = False
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self) -> None:
        """Makes run() finish, from any thread: from now on nothing is taken."""
        async def stop_taking() -> None:
            for worker in self._client.workers:
                worker.stop()
        self._do(stop_taking)
        self._stop.set()

    def close(self) -> None:
        if self._loop:
            self._do(self._client.close)
            if self._has_thread:
                self._loop.call_soon_threadsafe(self._loop.stop)
            else:
                self._loop.close()
                self._loop = None


class Epic:
    """See millrace.aio.Epic: the same, for threads."""

    def __init__(self, client: Millrace, epic: aio.Epic) -> None:
        self._client, self._epic = client, epic

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._epic, name)
        return lambda *a, **o: self._client._do(lambda: method(*a, **o))
