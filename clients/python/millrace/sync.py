"""The client for threads, on blocking sockets.

The coroutines that it shares with the asyncio client never suspend here: what they await blocks the
thread. One of the threads that wait for replies of a connection reads for all of them.
"""
from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import inspect
import math
import os
import queue
import selectors
import signal
import socket
import ssl
import struct
import threading
import time
from typing import (Any, Callable, Coroutine, Deque, Dict, Generator, Iterable, List,
                    Optional, Tuple, TypeVar, Union)

from .aio import AsyncMillrace
from .client import GREETING_SECONDS, Client, Epic, OnPush
from .errors import MillraceError, Usage
from .wire import CHECK_SECONDS, Command, Wire
from .worker import IDLE_SECONDS, TICK_SECONDS, BaseWorker, Job

T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[..., Any])
STALE_SECONDS = 0.5  # after so long, look whether the server has closed the connection


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("it was suspended")


class Future:
    """A reply that is to come. Awaiting it blocks the thread."""

    def __init__(self, wire: "ThreadWire") -> None:
        self._wire, self._done = wire, False
        self._value: Any = None
        self._error: Optional[BaseException] = None
        self.wake: Optional[threading.Event] = None

    def done(self) -> bool:
        return self._done

    def set_result(self, value: Any) -> None:
        self._value, self._done = value, True
        if self.wake:
            self.wake.set()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self.set_result(None)

    def __await__(self) -> Generator[Any, None, Any]:
        self._wire.wait(self)
        if self._error:
            raise self._error
        return self._value
        yield


class ThreadWire(Wire):
    """A connection of any number of threads."""

    def __init__(self, sock: socket.socket, on_push: OnPush) -> None:
        super().__init__(on_push)
        self._socket, self._used = sock, time.monotonic()
        self._sending = threading.RLock()  # guards the order of requests
        self._reading = threading.Lock()
        self._followers: Dict[Future, None] = {}  # wait while another thread reads
        self._tls = isinstance(sock, ssl.SSLSocket)
        sock.settimeout(None)
        if os.name == "posix":  # else a server that is silent is not given up
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO,
                            struct.pack("ll", int(CHECK_SECONDS), 0))

    def future(self) -> Future:
        return Future(self)

    def send(self, commands: Iterable[Command]) -> None:
        now = time.monotonic()
        if now - self._used > STALE_SECONDS:
            self.poll()
        self._used = now
        with self._sending:
            super().send(commands)

    def write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            self.close(str(error))

    def shut(self) -> None:
        self._socket.close()

    def close(self, why: str = "the connection was closed") -> None:
        if self.is_open:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # ends what other threads do there
        with self._sending:
            super().close(why)

    def wait(self, future: Future, until: float = math.inf) -> None:
        """Waits for the future, or until time.monotonic() has this value."""
        while not future.done() and time.monotonic() < until:
            if self._reading.acquire(blocking=False):
                try:
                    while not future.done() and time.monotonic() < until:
                        self._read(until)
                finally:
                    self._reading.release()
                    self._wake_follower()
                return
            future.wake = future.wake or threading.Event()
            self._followers[future] = None
            if self._reading.locked() and not future.done():
                future.wake.wait(None if until == math.inf else max(0, until - time.monotonic()))
            future.wake.clear()
            self._followers.pop(future, None)

    def _wake_follower(self) -> None:
        """Another thread that waits reads from now on."""
        for future in list(self._followers):
            if not future.done() and future.wake:
                future.wake.set()
                return

    def poll(self) -> None:
        """Reads what has come, unless another thread reads."""
        if self.is_open and self._reading.acquire(blocking=False):
            try:
                if self.has_come(0):
                    self._read(math.inf)
            finally:
                self._reading.release()
                self._wake_follower()

    def has_come(self, seconds: float) -> bool:
        """Whether there is something to read, at most so many seconds from now."""
        with selectors.DefaultSelector() as selector:
            try:
                selector.register(self._socket, selectors.EVENT_READ)
            except ValueError:  # it was closed
                return True
            return bool(selector.select(seconds))

    def _read(self, until: float) -> None:
        try:
            if until < math.inf or self._tls:
                left = min(CHECK_SECONDS, until - time.monotonic())
                if not self.has_come(max(0, left)):
                    self.check_silence()
                    return
            if self._tls:  # a TLS connection must not be written meanwhile
                with self._sending:
                    data = self._socket.recv(65536)
            else:
                data = self._socket.recv(65536)
        except (BlockingIOError, ssl.SSLWantReadError):
            self.check_silence()
        except OSError as error:
            self.close(str(error))
        else:
            if data:
                self.feed(data)
            else:
                self.close("the server closed the connection")


class _Lock:
    """A lock that is held by a coroutine that never suspends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *_: Any) -> None:
        self._lock.release()


class BlockingClient(Client):
    """The client whose coroutines block."""

    def lock(self) -> "_Lock":
        return _Lock()

    async def connect(self, host: str, port: int, on_push: OnPush) -> Wire:
        if port:
            sock = socket.create_connection((host, port), GREETING_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(host)
        if self.address.tls:
            sock = self.address.tls.wrap_socket(sock, server_hostname=host)
        return ThreadWire(sock, on_push)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def wait_until(self, future: Future, until: float) -> None:
        future._wire.wait(future, until)


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
        self._options: Dict[str, Any] = {"url": url, **options}
        self._client = BlockingClient(**self._options)
        self._handlers: List[Tuple[Any, Callable[..., Any], Dict[str, Any]]] = []
        self._workers: List[Any] = []
        self._stop = threading.Event()

    def __enter__(self) -> "Millrace":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def push(self, stage: str, body: Any = b"", **options: Any) -> str:
        return finish(self._client.push(stage, body, **options))

    def push_many(self, stage: str, items: Iterable[Any], **options: Any) -> List[str]:
        return finish(self._client.push_many(stage, items, **options))

    def call(self, stage: str, body: Any = b"", *, timeout: float = 30, **options: Any) -> Any:
        return finish(self._client.call(stage, body, timeout=timeout, **options))

    def wait(self, job: str, *, timeout: float = 30) -> Any:
        return finish(self._client.wait(job, timeout=timeout))

    await_ = wait

    def cancel(self, *jobs: str) -> int:
        return finish(self._client.cancel(*jobs))

    def job(self, job: str) -> Dict[str, Any]:
        return finish(self._client.job(job))

    def command(self, *words: Any) -> Any:
        return finish(self._client.command(*words))

    def epic(self, stage: str, name: str) -> "BlockingEpic":
        return BlockingEpic(Epic(self._client, stage, name))

    def worker(self, stages: Union[str, List[str]],
               **options: Any) -> Callable[[Handler], Handler]:
        """Registers a handler for run(). Options: concurrency, lease, grace."""
        def register(handler: Handler) -> Handler:
            self._handlers.append((stages, handler, options))
            return handler
        return register

    def run(self, *, signals: bool = True) -> None:
        """Works until SIGTERM, Ctrl-C or stop(): then what runs is finished, and nothing new is
        taken. Raises what ended a worker before that, such as a wrong token."""
        if not self._handlers:
            raise Usage("there is no handler: write @m.worker(\"stage\") above a function")
        if self._workers:
            raise Usage("run() is working already: stop() makes it return")
        before = {}
        if signals and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, lambda *_: self._stop.set())
        self._stop.clear()
        try:
            for stages, handler, options in self._handlers:
                kind = LoopWorker if inspect.iscoroutinefunction(handler) else Worker
                self._workers.append(kind(self, stages, handler, options))
            for worker in self._workers:
                worker.start()
            while not self._stop.wait(1):
                pass  # in pieces, so that signals are handled
            self.stop()
            for worker in self._workers:
                worker.close()
            for worker in self._workers:
                if worker.error:
                    raise worker.error
        finally:
            self._workers = []
            for number, old in before.items():
                signal.signal(number, old)

    def stop(self) -> None:
        """Makes run() finish, from any thread: from now on nothing is taken."""
        for worker in self._workers:
            worker.stop()
        self._stop.set()

    def close(self) -> None:
        self._client.main.close()


class BlockingEpic:
    """See millrace.client.Epic: the same, for threads."""

    def __init__(self, epic: Epic) -> None:
        self._epic = epic

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._epic, name)
        return lambda *args, **options: finish(method(*args, **options))


class Worker(BaseWorker):
    """Runs handlers in threads. An idle one of them takes for all, and runs the first of the jobs
    that it gets: so handlers that return at once need no switch between threads. A thread that
    begins a job wakes another one if there is more to do."""

    def __init__(self, owner: Millrace, stages: Union[str, List[str]],
                 handler: Callable[..., Any], options: Dict[str, Any]) -> None:
        super().__init__(owner._client, stages, handler, **options)
        self.error: Optional[MillraceError] = None
        self._on_error = owner._stop.set
        self._wakes: "queue.SimpleQueue[None]" = queue.SimpleQueue()
        self._flushing = threading.Lock()
        self._closed = threading.Event()
        self._lock = threading.Lock()  # guards what follows
        self._jobs: Deque[Job] = collections.deque()
        self._sleeping = 0  # threads, each of which gets one of the wakes
        self._waking = False  # a thread is on its way
        self._led = False  # a thread takes

    def start(self) -> None:
        self._keeper = threading.Thread(target=self._keep_all, name="millrace", daemon=True)
        self._keeper.start()
        self.more()

    def stop(self) -> None:
        """Takes no more; what runs goes on."""
        self.stopping = True

    def close(self) -> None:
        """Stops taking, waits for what runs for the grace, and gives the rest back."""
        finish(self.drain())
        self._closed.set()
        with self._lock:
            for _ in range(self._sleeping):
                self._wakes.put(None)
        self._keeper.join()
        self.close_links()

    def begin(self, job: Job) -> None:
        self._jobs.append(job)

    def more(self) -> None:
        """Wakes a thread if there is something to do that no thread does."""
        with self._lock:
            leader_needed = not self._led and self.free > 0
            if self._waking or not (self._jobs or leader_needed):
                return
            self._waking = True
            if self._sleeping:
                self._sleeping -= 1
                self._wakes.put(None)
                return
        threading.Thread(target=self._work, daemon=True,
                         name=f"millrace {self.stages[0]}").start()

    def _work(self) -> None:
        while not self._closed.is_set():
            if self.answers and (self._led or self._jobs or self.free <= 0):
                self._flush_all()
            with self._lock:
                self._waking = False
                job = self._jobs.popleft() if self._jobs else None
                leads = not job and not self._led and self.free > 0
                self._led |= leads
                sleeps = not job and not leads
                self._sleeping += sleeps
            if job:
                self.more()
                self.ended(job, contextvars.copy_context().run(self._handle, job))
            elif leads:
                self._lead()
            else:
                self._wakes.get()

    def _handle(self, job: Job) -> Tuple[Any, ...]:
        try:
            self.enter(job)
            return job.done(self._handler(job))
        except BaseException as error:  # noqa: B036 - a handler may raise anything
            return job.raised(error)

    def _lead(self) -> None:
        try:
            finish(self.take())
        except MillraceError as error:
            self.error, self.stopping = error, True
            self._on_error()
        finally:
            self._led = False

    def _flush_all(self) -> None:
        """Sends the queue, unless another thread does."""
        while self.answers and self._flushing.acquire(blocking=False):
            try:
                finish(self.flush())
            except MillraceError as error:
                self.logger.info("%s; trying again", error)
                return
            finally:
                self._flushing.release()

    def _keep_all(self) -> None:
        """While a handler runs for long and no thread takes, this thread reads what the server
        says of its job."""
        oldest: Optional[Job] = None
        while not self._closed.is_set():
            finish(self.keep())
            last, oldest = oldest, next(iter(list(self.running.values())), None)
            wire = self._taking.up
            if wire and not self._led and oldest and oldest is last:
                assert isinstance(wire, ThreadWire)
                if wire.has_come(TICK_SECONDS):
                    wire.poll()
            else:
                self._closed.wait(TICK_SECONDS if oldest or last else IDLE_SECONDS)


class LoopWorker:
    """Runs handlers that are coroutine functions, in an event loop that has its own thread."""

    def __init__(self, owner: Millrace, *args: Any) -> None:
        self._owner, (self._stages, self._handler, self._more) = owner, args
        self.error: Optional[BaseException] = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="millrace", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self.error = error
        self._ready.set()
        self._owner._stop.set()

    async def _serve(self) -> None:
        async with AsyncMillrace(**self._owner._options) as client:
            self._loop = asyncio.get_running_loop()
            self._worker = client.work(self._stages, self._handler, **self._more)
            self._ready.set()
            await self._worker.task

    def stop(self) -> None:
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._worker.stop)

    def close(self) -> None:
        self._thread.join()
