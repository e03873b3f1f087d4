"""The client for asyncio. `millrace.Millrace` is the same for threads.

A push is numbered by a source that no other push uses meanwhile, so that the server recognises one
that is sent again after its reply was lost. A number is used up when its push is accepted.
"""
from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import random
import secrets
import ssl
import time
from typing import (Any, Awaitable, Callable, Dict, Iterable, List, Optional, Set,
                    Tuple, TypeVar, Union)

from .codec import Meta, from_bytes, milliseconds, readable, to_bytes
from .errors import (Cancelled, Dead, Expired, Full, Gap, Gone, MillraceError, Stopped, Timeout,
                     Unreachable)
from .wire import Address, Push, Wire, Word, address_of, dial

T = TypeVar("T")
REPEAT_SECONDS = 25.0  # a server remembers the numbers of a source for a minute at least
SLACK_SECONDS = 5.0
WAIT_SECONDS = 10.0    # of one command that waits
SOURCES_KEPT = 64      # free ones, of all stages
MANY, MANY_BYTES = 256, 1 << 20  # pushes of push_many in one command, and their bytes, about
PAUSE_LEAST, PAUSE_MOST = 0.05, 2.0

# The trace that the running handler belongs to; pushes and emits carry it on.
trace: "contextvars.ContextVar[Optional[str]]" = contextvars.ContextVar("trace", default=None)


def push_words(key: Optional[str] = None, once: Optional[str] = None, last: bool = False,
               delay: float = 0, deadline: float = 0, attempts: int = 0, meta: Meta = None,
               room: float = 0) -> List[Word]:
    """The options of a push, in seconds, as words of the protocol."""
    words: List[Word] = []
    parent = trace.get()
    if meta is None and parent:
        meta = {"traceparent": parent}
    for word, value in (("KEY", key), ("ONCE", once)):
        if value:
            words += word, value
    if last:
        words.append("LAST")
    for word, seconds in (("DELAY", delay), ("DEADLINE", deadline), ("ROOM", room)):
        if seconds:
            words += word, milliseconds(seconds)
    if attempts:
        words += "ATTEMPTS", attempts
    if meta is not None:
        words += "META", to_bytes(meta, "metadata")
    return words


class Link:
    """A connection that comes back, to any of the nodes."""

    def __init__(self, address: Address, name: str, logger: logging.Logger,
                 on_push: Optional[Callable[[Push], None]] = None) -> None:
        self.address, self.name, self._logger, self._on_push = address, name, logger, on_push
        self.wire: Optional[Wire] = None
        self.closed = False
        self._node = random.randrange(len(address.nodes))
        self._lock = asyncio.Lock()

    async def get(self) -> Wire:
        """A connection that is up. Tries each node once; raises the last one's error."""
        async with self._lock:
            for left in range(len(self.address.nodes), 0, -1):
                if self.wire and not self.wire.closed.done():
                    return self.wire
                if self.closed:
                    raise _lasting("the client was closed")
                node = self.address.nodes[self._node % len(self.address.nodes)]
                try:
                    self.wire = await dial(self.address, node, self.name, self._on_push)
                except (Unreachable, Stopped):
                    self.wire = None
                    self._node += 1
                    if left == 1:
                        raise
                else:
                    self._logger.debug("connected to %s:%d", *node)
        assert self.wire
        return self.wire

    async def ask(self, *words: Word) -> Any:
        return await (await self.get()).ask(*words)

    async def repeat(self, command: Callable[[Wire], Awaitable[T]],
                     seconds: float = REPEAT_SECONDS) -> T:
        """Runs a command that may be sent twice, again after each loss of the connection."""
        until, pause = time.monotonic() + min(seconds, REPEAT_SECONDS), PAUSE_LEAST
        while True:
            try:
                return await command(await self.get())
            except (Unreachable, Stopped) as error:
                if error.lasting or time.monotonic() + pause > until:
                    raise
                self._logger.info("%s; trying again", error)
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, PAUSE_MOST)

    def renew(self) -> None:
        """The next command has a new connection; this one is closed when all replies have come."""
        wire, self.wire = self.wire, None
        if wire:
            wire.retire()

    def close(self) -> None:
        self.closed = True
        if self.wire:
            self.wire.close()


def _lasting(why: str) -> Unreachable:
    error = Unreachable(why)
    error.lasting = True
    return error


class _Source:
    """A series of numbers for pushes to one stage."""

    def __init__(self, stage: str) -> None:
        self.stage, self.name, self.number = stage, "python-" + secrets.token_hex(16), 0


class AsyncMillrace:
    """A client. It connects when it is first used; `async with` closes it."""

    def __init__(self, url: Optional[str] = None, *, token: Optional[str] = None,
                 context: Optional[ssl.SSLContext] = None, name: Optional[str] = None,
                 logger: Optional[logging.Logger] = None) -> None:
        url = url or os.environ.get("MILLRACE_URL") or "millrace://127.0.0.1:7411"
        self.address = address_of(url, token or os.environ.get("MILLRACE_TOKEN"), context)
        self.name = name or f"python-{os.getpid()}-{secrets.token_hex(4)}"
        self.logger = logger or logging.getLogger("millrace")
        self._main: Optional[Link] = None
        self._sources: Dict[str, List[_Source]] = {}
        self._calls: Dict[bytes, Set["asyncio.Future[Any]"]] = {}  # two may have one name
        self._early: Dict[bytes, Any] = {}  # ends of calls whose id is not known yet
        self._calling = 0
        self.workers: Set[Any] = set()

    async def __aenter__(self) -> "AsyncMillrace":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def close(self) -> None:
        for worker in list(self.workers):
            await worker.close()
        if self._main:
            self._main.close()

    @property
    def main(self) -> Link:
        if not self._main:
            self._main = self.link(self._pushed)
        return self._main

    def link(self, on_push: Optional[Callable[[Push], None]] = None) -> Link:
        return Link(self.address, self.name, self.logger, on_push)

    # ---- Pushing -------------------------------------------------------------------------------

    async def push(self, stage: str, body: Any = b"", **options: Any) -> str:
        """Pushes a job and returns its id. Options: key, once, last, delay, deadline, attempts,
        meta, room; times are in seconds."""
        words = ("PUSH", stage, to_bytes(body), *push_words(**options))
        room = options.get("room", 0)
        return _id(await self._numbered(
            stage, room, lambda wire, number: wire.ask(*words, *number, wait=_patience(room))))

    async def push_many(self, stage: str, items: Iterable[Any], **options: Any) -> List[str]:
        """Pushes bodies, or pairs of key and body, in order; returns their ids. All are pushed, or
        the error of the first one that is refused is raised with `ids`, those before it."""
        ids: List[str] = []
        room = options.get("room", 0)
        pairs = [item if isinstance(item, tuple) else ("", item) for item in items]
        head = ("PUSHMANY", stage, *push_words(**options))
        while len(ids) < len(pairs):
            words, size = [], 0  # type: ignore[var-annotated]
            for key, body in pairs[len(ids):len(ids) + MANY]:
                words += key or "", to_bytes(body)
                size += len(words[-1])
                if size > MANY_BYTES:
                    break
            try:
                ids += map(_id, await self._numbered(
                    stage, room, lambda wire, n: wire.ask(
                        *head, *n, "ITEMS", *words, wait=_patience(room))))
            except MillraceError as error:
                error.ids = ids  # type: ignore[attr-defined]
                raise
        return ids

    async def _numbered(self, stage: str, room: float,
                        send: Callable[[Wire, Tuple[Word, ...]], Awaitable[T]]) -> T:
        """Sends a push with the next number of a source. One that waits for room has a connection
        of its own, so that others do not wait with it."""
        link = self.link() if room else self.main
        try:
            for again in (True, False):
                source = self._source(stage)
                try:
                    reply = await self._send(link, source, send)
                except Gap:  # the server does not know the source any more: it was idle for long
                    if not again:
                        raise
                except Full as error:
                    if not again or not error.reason.endswith("connect again"):
                        raise
                    link.renew()  # this one has too many refused sources
                else:
                    source.number += len(reply) if isinstance(reply, list) else 1
                    self._give_back(source)
                    return reply
        finally:
            if room:
                link.close()
        raise AssertionError

    def _source(self, stage: str) -> _Source:
        free = self._sources.get(stage)
        return free.pop() if free else _Source(stage)

    def _give_back(self, source: _Source) -> None:
        self._sources.setdefault(source.stage, []).append(source)
        while sum(map(len, self._sources.values())) > SOURCES_KEPT:
            oldest = next(iter(self._sources))  # a stage that was first used long ago
            del self._sources[oldest]

    async def _send(self, link: Link, source: _Source,
                    send: Callable[[Wire, Tuple[Word, ...]], Awaitable[T]]) -> T:
        unknown = False  # whether the number was used

        async def attempt(wire: Wire) -> T:
            nonlocal unknown
            try:
                return await send(wire, ("SOURCE", source.name, source.number + 1))
            except (Unreachable, Stopped, asyncio.CancelledError):
                unknown = True
                raise
        try:
            return await link.repeat(attempt)
        except Gap:
            raise
        except MillraceError:
            if not unknown:  # the next push has the number
                self._give_back(source)
            raise

    # ---- Results -------------------------------------------------------------------------------

    async def call(self, stage: str, body: Any = b"", *, timeout: float = 30,
                   **options: Any) -> Any:
        """Pushes a job, waits for its result and returns it. The job is cancelled when its caller
        gives up: by the timeout, by cancellation or by going away."""
        options.setdefault("once", secrets.token_hex(16))  # so that it can be sent again
        until = time.monotonic() + timeout
        slack = 0 if "deadline" in options else SLACK_SECONDS  # the server says that it has expired
        while True:
            left = max(0.001, until - time.monotonic())
            words = ("CALL", stage, to_bytes(body), *push_words(**{"deadline": left, **options}),
                     "LATER")
            self._calling += 1
            try:
                call = await self.main.repeat(lambda wire: wire.ask(*words), left)
            finally:
                self._calling -= 1
            end = asyncio.get_running_loop().create_future()
            self._calls.setdefault(call, set()).add(end)
            if call in self._early:
                end.set_result(self._early.pop(call))
            if not self._calling:
                self._early.clear()
            assert self.main.wire
            lost = self.main.wire.closed
            try:
                await asyncio.wait([end, lost], timeout=max(0, until + slack - time.monotonic()),
                                   return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                await self._withdraw(call, end)
                raise
            finally:
                self._forget(call, end)
            if end.done():
                return _result(call, end.result())
            if not lost.done():
                await self._withdraw(call, end)
                raise Timeout(f"{stage} has not answered within {timeout} s")

    def _forget(self, call: bytes, end: "asyncio.Future[Any]") -> None:
        ends = self._calls.get(call, set())
        ends.discard(end)
        if not ends:
            self._calls.pop(call, None)

    async def _withdraw(self, call: bytes, end: "asyncio.Future[Any]") -> None:
        self._forget(call, end)
        if call in self._calls:  # another one waits for it
            return
        try:
            await self.main.ask("CANCEL", call)
        except MillraceError as error:
            self.logger.debug("cancelling %s: %s", _id(call), error)

    def _pushed(self, message: Push) -> None:
        if message[0] not in (b"ended", "ended"):
            return
        call, end = message[1], message[2] if len(message) > 2 else None
        for future in self._calls.get(call, ()):
            if not future.done():
                future.set_result(end)
        if self._calling:
            self._early[call] = end

    async def wait(self, job: str, *, timeout: float = 30) -> Any:
        """Waits for a job that was pushed and returns its result."""
        until = time.monotonic() + timeout
        lane = self.link()
        try:
            reply = None
            while reply is None:
                left = until - time.monotonic()
                if left <= 0:
                    raise Timeout(f"job {job} has not ended within {timeout} s")
                wait = min(left, WAIT_SECONDS)
                reply = await lane.repeat(lambda wire: wire.ask(
                    "AWAIT", job, "WAIT", milliseconds(wait), wait=wait), left)
            return from_bytes(reply)
        except (Cancelled, Dead, Expired) as error:
            error.job = job
            raise
        finally:
            lane.close()

    async def cancel(self, *jobs: str) -> int:
        """Cancels jobs: those that wait do not start, those that run are told to stop."""
        return int(await self.main.repeat(lambda wire: wire.ask("CANCEL", *jobs)))

    # ---- Everything else -----------------------------------------------------------------------

    async def command(self, *words: Word) -> Any:
        """Any command of the protocol, sent once: replies are str, bytes, int, list, dict, None."""
        return await self.main.ask(*words)

    async def job(self, job: str) -> Dict[str, Any]:
        """What the server knows of a job."""
        return dict(readable(await self.main.repeat(lambda wire: wire.ask("JOB", job))))

    def epic(self, stage: str, name: str) -> "Epic":
        """A numbered stream of pushes that can be continued after any crash."""
        return Epic(self, stage, name)

    def work(self, stages: Union[str, List[str]], handler: Callable[..., Any],
             **options: Any) -> Any:
        """Starts a worker; see millrace.worker.Worker."""
        from .worker import Worker
        worker = Worker(self, stages, handler, **options)
        self.workers.add(worker)
        worker.start()
        worker.task.add_done_callback(lambda _: self.workers.discard(worker))
        return worker


class Epic:
    """Pushes that are numbered from 1, each made once however often it is said."""

    def __init__(self, client: AsyncMillrace, stage: str, name: str) -> None:
        self._client, self.stage, self.name = client, stage, name

    async def _ask(self, *words: Word) -> Any:
        return await self._client.main.repeat(
            lambda wire: wire.ask("EPIC", self.stage, self.name, *words))

    async def push(self, number: int, body: Any = b"", **options: Any) -> Optional[str]:
        """Pushes number `number`; None: it was pushed long ago, and its id is forgotten."""
        words = ("PUSH", self.stage, to_bytes(body), *push_words(**options),
                 "EPIC", self.name, number)
        reply = await self._client.main.repeat(lambda wire: wire.ask(*words))
        return None if reply is None else _id(reply)

    async def look(self) -> Dict[str, Any]:
        """Its progress; `resume` is the first number that was not pushed, 1 for a new one."""
        try:
            return dict(readable(await self._ask()))
        except Gone:
            return {"resume": 1, "total": -1, "accepted": 0}

    async def end(self, last: int) -> None:
        """Says that number `last` is the last one."""
        await self._ask("END", last)

    async def wait(self, *, timeout: float = -1) -> Dict[str, Any]:
        """Waits until all its jobs have ended; returns its progress."""
        lane, until = self._client.link(), time.monotonic() + _patience(timeout)
        try:
            while True:
                wait = max(0, min(until - time.monotonic(), WAIT_SECONDS))
                progress = dict(readable(await lane.repeat(lambda wire: wire.ask(
                    "EPIC", self.stage, self.name, "WAIT", milliseconds(wait), wait=wait))))
                left = progress["total"] < 0 or progress["waiting"] + progress["running"]
                if not left or time.monotonic() >= until:
                    return progress
        finally:
            lane.close()

    async def then(self, stage: str, body: Any = b"", *, key: str = "") -> None:
        """A job that is pushed in the commit that ends the epic."""
        await self._ask("THEN", stage, key, to_bytes(body))

    async def cancel(self) -> None:
        await self._ask("CANCEL")

    async def drop(self) -> None:
        await self._ask("DROP")


def _id(reply: Any) -> str:
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def _patience(seconds: float) -> float:
    return 365 * 86400.0 if seconds < 0 else seconds


def _result(call: bytes, end: Any) -> Any:
    if isinstance(end, MillraceError):
        end.job = _id(call)
        raise end
    return from_bytes(end)
