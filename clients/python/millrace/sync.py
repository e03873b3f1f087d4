"""The client for threads, on blocking sockets.

The coroutines that it shares with the asyncio client never suspend here: what they await blocks the
thread. One of the threads that wait for replies of a connection reads for all of them.
"""
from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import queue
import select
import signal
import socket
import ssl
import struct
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Coroutine, Generator, TypeVar

from .aio import AsyncMillrace
from .client import GREETING_SECONDS, Client, Commands, Epic, EpicBase
from .errors import Usage
from .wire import CHECK_SECONDS, SILENCE_SECONDS, OnPush, Wire
from .worker import Job, Worker, check_options

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec
    P = ParamSpec("P")

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


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
             ) -> Callable[Concatenate[Any, P], T]:
    """The same method for threads."""
    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        return finish(method(self, *args, **options))
    return call


class Future:
    """A reply that is to come. Awaiting it blocks the thread."""

    def __init__(self, wire: ThreadWire) -> None:
        self._wire, self._done, self._value = wire, False, None

    def done(self) -> bool:
        return self._done

    def set_result(self, value: Any) -> None:
        self._value, self._done = value, True

    def __await__(self) -> Generator[Any, None, Any]:
        self._wire.wait(self)
        return self._value
        yield


class ThreadWire(Wire):
    """A connection of any number of threads."""

    def __init__(self, sock: socket.socket, on_push: OnPush) -> None:
        super().__init__(on_push)
        self._socket, self._used = sock, time.monotonic()
        self._reading = threading.Lock()  # guards the next one, and who receives
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        # A TLS connection must not be written while it is read.
        self._receiving: Any = (self._sending if isinstance(sock, ssl.SSLSocket)
                                else contextlib.nullcontext())
        # Half of a TLS record can be read only with the other half, however long that takes to come.
        sock.settimeout(SILENCE_SECONDS if isinstance(sock, ssl.SSLSocket) else None)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO,
                        struct.pack("ll", int(SILENCE_SECONDS), 0))

    def __del__(self) -> None:  # not before: another thread may be about to use its number
        self._socket.close()

    def future(self) -> Future:
        return Future(self)

    def is_open(self) -> bool:
        now = time.monotonic()
        if now - self._used > STALE_SECONDS:
            self.poll()
        self._used = now
        return not self.why

    def write(self, data: bytes, alone: bool) -> None:
        self._socket.sendall(data)

    def shut(self) -> None:
        with contextlib.suppress(OSError):  # the server or another thread was faster
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # TLS stays for other threads

    def wait(self, future: Future) -> None:
        with self._reading:
            while not future.done():
                if self._has_come(self.seconds_left()):
                    self._read()
                self.check_silence()

    def poll(self) -> None:
        if self._reading.acquire(blocking=False):
            try:
                while not self.why and self._has_come(0):
                    self._read()
            finally:
                self._reading.release()

    def _has_come(self, seconds: float) -> bool:
        return bool(self._poll.poll(1000 * max(0, min(seconds, CHECK_SECONDS))))

    def _read(self) -> None:
        try:
            with self._receiving:
                data = self._socket.recv(65536)
            if data:
                self.feed(data)
            else:
                self.close("the server closed the connection")
        except ssl.SSLWantReadError:
            pass
        except BaseException as error:
            self.broke(error)


class ThreadBell:
    def __init__(self) -> None:
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.ring = functools.partial(self._rings.put, None)

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(queue.Empty):
            self._rings.get(timeout=seconds)


class BlockingEpic(EpicBase):
    """See millrace.client.Epic: the same, for threads."""

    push, look, end = blocking(Epic.push), blocking(Epic.look), blocking(Epic.end)
    skip, wait, then = blocking(Epic.skip), blocking(Epic.wait), blocking(Epic.then)
    cancel, forget, drop = blocking(Epic.cancel), blocking(Epic.forget), blocking(Epic.drop)


class Millrace(Client):
    """A client for any thread. Options and meaning as of millrace.AsyncMillrace; `with` closes it.

        m = Millrace("millrace://127.0.0.1:7411")
        m.push("mail", {"to": "ann"}, key="ann")

        @m.worker("mail")
        def send(job):
            return {"ok": True}
        m.run()
    """

    push, push_many = blocking(Commands.push), blocking(Commands.push_many)
    call, wait, cancel = blocking(Commands.call), blocking(Commands.wait), blocking(Commands.cancel)
    job, command = blocking(Commands.job), blocking(Commands.command)
    await_ = wait

    def __init__(self, url: str | None = None, **options: Any) -> None:
        super().__init__(url, **options)
        self._bell = ThreadBell
        self._options: dict[str, Any] = {"url": url, **options}
        self._dialling = threading.Lock()
        self._handlers: list[tuple[Any, Callable[..., Any], dict[str, Any]]] = []
        self._workers: list[Worker] = []
        self._running = self._stopping = False
        self._resting = threading.Semaphore(0)  # threads, each of which gets one of the coroutines
        self._coroutines: queue.SimpleQueue[Coroutine[Any, Any, None]] = queue.SimpleQueue()

    def epic(self, stage: str, name: str) -> BlockingEpic:
        """A numbered stream of pushes that can be continued after any crash."""
        return BlockingEpic(self, stage, name)

    def worker(self, stages: str | list[str], **options: Any) -> Callable[[Handler], Handler]:
        """Registers a handler for run(). Options: concurrency, lease, grace."""
        check_options(**options)

        def register(handler: Handler) -> Handler:
            self._handlers.append((stages, handler, options))
            return handler
        return register

    def run(self, *, signals: bool = True) -> None:
        """Works until SIGTERM, Ctrl-C or stop(): then what runs is finished, and nothing new is
        taken; a second signal ends the program. Raises what ended a worker before that, such as
        a wrong token."""
        if not self._handlers:
            raise Usage("there is no handler: write @m.worker(\"stage\") above a function")
        if self._running:
            raise Usage("run() is working already: stop() makes it return")
        self._running, self._stopping = True, False
        before: dict[int, Any] = {}

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def interrupt(*_: Any) -> None:
            restore()
            self._logger.warning("taking no more; what runs may finish (again to end it)")
            self.stop()
        if signals and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                before[number] = signal.signal(number, interrupt)
        try:
            ends: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
            for handler in self._handlers:
                self._spawn(self._live(ends, *handler))
            try:
                errors = [ends.get()]
            finally:
                self.stop()
            errors += [ends.get() for _ in self._handlers[1:]]
            for error in filter(None, errors):
                raise error
        finally:
            self._running, self._workers = False, []
            restore()

    def stop(self) -> None:
        """Makes run() finish, from any thread: from now on nothing is taken."""
        self._stopping = True
        for worker in self._workers:
            worker.stop()

    close = Client._close

    def __enter__(self) -> Millrace:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    async def _live(self, ends: queue.SimpleQueue[Exception | None], stages: Any,
                    handler: Callable[..., Any], options: dict[str, Any]) -> None:
        """The life of one worker. A handler that is a coroutine function has an event loop."""
        async def work(client: Client) -> None:
            worker = Worker(client, stages, handler, **options)
            self._workers.append(worker)
            if self._stopping:
                worker.stop()
            await worker.run()

        async def work_in_loop() -> None:
            async with AsyncMillrace(**self._options) as client:
                await work(client)
        try:
            if inspect.iscoroutinefunction(handler):
                asyncio.run(work_in_loop())
            else:
                await work(self)
            ends.put(None)
        except Exception as error:
            ends.put(error)

    # ---- What the coroutines await: it blocks -------------------------------------------------

    async def _connect(self, host: str, port: int, on_push: OnPush) -> Wire:
        if port:
            sock = socket.create_connection((host, port), GREETING_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(GREETING_SECONDS)
            sock.connect(host)
        if self._address.tls:
            sock = self._address.tls.wrap_socket(sock, server_hostname=host)
        return ThreadWire(sock, on_push)

    async def _connected(self) -> Wire:
        with self._dialling:
            return await self._reconnect()

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def _invoke(self, handler: Callable[..., Any], job: Job) -> Any:
        job._worker.more()  # before it blocks
        return contextvars.copy_context().run(handler, job)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs it in a thread that rests, or in a new one."""
        if self._resting.acquire(blocking=False):
            self._coroutines.put(coroutine)
        else:
            threading.Thread(target=self._serve, args=(coroutine,), daemon=True).start()

    def _serve(self, coroutine: Coroutine[Any, Any, None]) -> None:
        while True:
            finish(coroutine)
            self._resting.release()
            coroutine = self._coroutines.get()
