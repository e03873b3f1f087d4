"""The client for threads: the asyncio client in a thread of its own."""
from __future__ import annotations

import asyncio
import signal
import threading
from typing import Any, Callable, Coroutine, Dict, Iterable, List, Optional, Tuple, TypeVar, Union

from . import aio

T = TypeVar("T")
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
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._lock = threading.Lock()
        self._handlers: List[Tuple[Any, Callable[..., Any], Dict[str, Any]]] = []
        self._stop = threading.Event()

    def __enter__(self) -> "Millrace":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _do(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with self._lock:
            if not self._loop:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="millrace",
                                 daemon=True).start()
        parent = aio.trace.get()

        async def run() -> T:
            aio.trace.set(parent)
            return await make()

        future = asyncio.run_coroutine_threadsafe(run(), self._loop)
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
            raise ValueError("there is no handler: write @m.worker(\"stage\") above a function")
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
            workers = self._do(start)
            while not self._stop.wait(1):
                pass  # in pieces, so that signals are handled
            for worker in workers:
                self._do(worker.close)
            for worker in workers:
                worker.task.result()
        finally:
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
            self._loop.call_soon_threadsafe(self._loop.stop)


class Epic:
    """See millrace.aio.Epic: the same, for threads."""

    def __init__(self, client: Millrace, epic: aio.Epic) -> None:
        self._client, self._epic = client, epic

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._epic, name)
        return lambda *a, **o: self._client._do(lambda: method(*a, **o))
