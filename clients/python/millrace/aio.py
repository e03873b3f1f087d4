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
from typing import (Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple, Union)

from .codec import Meta, from_bytes, milliseconds, readable, to_bytes
from .errors import (Cancelled, Dead, Expired, Full, Gap, Gone, MillraceError, Stopped, Timeout,
                     Unreachable)
from .wire import Address, Push, Wire, Word, address_of, dial

REPEAT_SECONDS = 25.0  # a server remembers the numbers of a source for a minute at least
SLACK_SECONDS = 5.0
WAIT_SECONDS = 10.0    # of one command that waits
SOURCE_SECONDS = 30.0  # a server forgets a source that is not used for a minute
STAGES_KEPT = 1000     # that have free sources
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

    @property
    def up(self) -> Optional[Wire]:
        return self.wire if self.wire and self.wire.is_open else None

    async def get(self) -> Wire:
        """A connection that is up. Tries each node once; raises the last one's error."""
        async with self._lock:
            for left in range(len(self.address.nodes), 0, -1):
                if self.up:
                    break
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
        return await (self.up or await self.get()).ask(*words)

    async def repeat(self, *words: Word, wait: float = 0, seconds: float = REPEAT_SECONDS) -> Any:
        """Sends a command that may be sent twice, again after each loss of the connection; it may
        wait in the server for so many seconds."""
        until, pause = time.monotonic() + min(seconds, REPEAT_SECONDS), PAUSE_LEAST
        while True:
            try:
                return await (self.up or await self.get()).ask(*words, wait=wait)
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

    def __init__(self) -> None:
        self.name, self.number, self.used = "python-" + secrets.token_hex(16), 0, 0.0


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
        head = ("PUSH", stage, to_bytes(body), *push_words(**options))
        return _id(await self._numbered(stage, options.get("room", 0), head))

    async def push_many(self, stage: str, items: Iterable[Any], **options: Any) -> List[str]:
        """Pushes bodies, or pairs of key and body, in order; returns their ids. All are pushed, or
        the error of the first one that is refused is raised with `ids`, those before it."""
        ids: List[str] = []
        pairs = [item if isinstance(item, tuple) else ("", item) for item in items]
        head = ("PUSHMANY", stage, *push_words(**options))
        while len(ids) < len(pairs):
            words: List[Word] = ["ITEMS"]
            size = 0
            for key, body in pairs[len(ids):len(ids) + MANY]:
                data = to_bytes(body)
                words += key or "", data
                size += len(data)
                if size > MANY_BYTES:
                    break
            try:
                ids += map(_id, await self._numbered(stage, options.get("room", 0), head, words))
            except MillraceError as error:
                error.ids = ids  # type: ignore[attr-defined]
                raise
        return ids

    async def _numbered(self, stage: str, room: float, head: Sequence[Word],
                        tail: Sequence[Word] = ()) -> Any:
        """Sends a push with the next number of a source. One that waits for room has a connection
        of its own, so that others do not wait with it."""
        link = self.link() if room else self.main
        source, again = self._source(stage), True
        try:
            while True:
                try:
                    reply = await link.repeat(*head, "SOURCE", source.name, source.number + 1,
                                              *tail, wait=_patience(room))
                except Gap:  # the server does not know the source any more: it was idle for long
                    source = _Source()
                    if not again:
                        raise
                except Full as error:
                    if not again or not error.reason.endswith("connect again"):
                        self._give_back(stage, source)
                        raise
                    link.renew()  # this one has too many refused sources
                except (Unreachable, Stopped):
                    raise  # the number may have been used: the source is given up
                except MillraceError:
                    self._give_back(stage, source)  # the next push has the number
                    raise
                else:
                    source.number += len(reply) if isinstance(reply, list) else 1
                    self._give_back(stage, source)
                    return reply
                again = False
        finally:
            if room:
                link.close()

    def _source(self, stage: str) -> _Source:
        free = self._sources.get(stage)
        if not free:
            return _Source()
        source = free.pop()
        if time.monotonic() - source.used < SOURCE_SECONDS:
            return source
        free.clear()  # those below were not used for longer
        return _Source()

    def _give_back(self, stage: str, source: _Source) -> None:
        source.used = time.monotonic()
        if len(self._sources) > STAGES_KEPT:
            self._sources.clear()
        self._sources.setdefault(stage, []).append(source)

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
            wire, call, end = await self._begin_call(words, left)
            try:
                await asyncio.wait([end, wire.closed],
                                   timeout=max(0, until + slack - time.monotonic()),
                                   return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                await self._withdraw(call, end)
                raise
            finally:
                self._forget(call, end)
            if end.done():
                return _result(call, end.result())
            if wire.is_open:
                await self._withdraw(call, end)
                raise Timeout(f"{stage} has not answered within {timeout} s")

    async def _begin_call(self, words: Sequence[Word],
                          seconds: float) -> Tuple[Wire, bytes, "asyncio.Future[Any]"]:
        """Sends it until it is accepted; its end is awaited before anything else is read."""
        loop = asyncio.get_running_loop()
        until = loop.time() + min(seconds, REPEAT_SECONDS)
        while True:
            try:
                wire = self.main.up or await self.main.get()
                accepted, end = loop.create_future(), loop.create_future()

                def register(reply: Any) -> None:
                    if not isinstance(reply, MillraceError):
                        self._calls.setdefault(reply, set()).add(end)
                    if not accepted.done():
                        accepted.set_result(reply)
                    elif not isinstance(reply, MillraceError):  # the caller has given up
                        loop.create_task(self._withdraw(reply, end))
                wire.send(words, register)
                reply = await accepted
                if isinstance(reply, MillraceError):
                    raise reply
                return wire, reply, end
            except (Unreachable, Stopped) as error:
                if error.lasting or loop.time() + PAUSE_LEAST > until:
                    raise
            await asyncio.sleep(PAUSE_LEAST)

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
        if message[0] in (b"ended", "ended") and len(message) > 2:
            for future in self._calls.get(message[1], ()):
                if not future.done():
                    future.set_result(message[2])

    async def wait(self, job: str, *, timeout: float = 30) -> Any:
        """Waits for a job that was pushed and returns its result."""
        late = f"job {job} has not ended within {timeout} s"
        try:
            return from_bytes(await self.wait_for(
                ("AWAIT", job), timeout, lambda reply: reply is not None, late))
        except (Cancelled, Dead, Expired) as error:
            error.job = job
            raise

    await_ = wait

    async def wait_for(self, words: Sequence[Word], timeout: float,
                       over: Callable[[Any], bool], late: str) -> Any:
        """Sends a command with WAIT, in pieces and on a connection of its own, until `over` accepts
        its reply."""
        until, lane = time.monotonic() + _patience(timeout), self.link()
        try:
            while True:
                wait = max(0, min(until - time.monotonic(), WAIT_SECONDS))
                reply = await lane.repeat(*words, "WAIT", milliseconds(wait), wait=wait)
                if over(reply):
                    return reply
                if time.monotonic() >= until:
                    raise Timeout(late)
        finally:
            lane.close()

    async def cancel(self, *jobs: str) -> int:
        """Cancels jobs: those that wait do not start, those that run are told to stop."""
        return int(await self.main.repeat("CANCEL", *jobs))

    # ---- Everything else -----------------------------------------------------------------------

    async def command(self, *words: Word) -> Any:
        """Any command of the protocol, sent once: replies are str, bytes, int, list, dict, None."""
        return await self.main.ask(*words)

    async def job(self, job: str) -> Dict[str, Any]:
        """What the server knows of a job."""
        return dict(readable(await self.main.repeat("JOB", job)))

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
        return await self._client.main.repeat("EPIC", self.stage, self.name, *words)

    async def push(self, number: int, body: Any = b"", **options: Any) -> Optional[str]:
        """Pushes number `number`; None: it was pushed long ago, and its id is forgotten."""
        room = options.get("room", 0)
        link = self._client.link() if room else self._client.main
        try:
            reply = await link.repeat("PUSH", self.stage, to_bytes(body), *push_words(**options),
                                      "EPIC", self.name, number, wait=_patience(room))
        finally:
            if room:
                link.close()
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

    async def skip(self, number: int) -> None:
        """Says that this number is not pushed."""
        await self._ask("SKIP", number)

    async def wait(self, *, left: Optional[int] = None, timeout: float = -1) -> Dict[str, Any]:
        """Waits until all its jobs have ended, or with `left` until at most so many have not, so
        that a producer stays at most so far ahead; returns its progress."""
        def over(reply: Any) -> bool:
            open_jobs = reply["waiting"] + reply["running"]
            if left is not None:
                return bool(open_jobs <= left)
            whole = 0 <= reply["total"] < reply["resume"] or reply.get("stopped")
            return bool(whole and not open_jobs)
        words = ("EPIC", self.stage, self.name, *(() if left is None else ("LEFT", left)))
        late = f"epic {self.name} of {self.stage} has not ended within {timeout} s"
        return dict(readable(await self._client.wait_for(words, timeout, over, late)))

    async def then(self, stage: str, body: Any = b"", *, key: str = "") -> None:
        """A job that is pushed in the commit that ends the epic."""
        await self._ask("THEN", stage, key, to_bytes(body))

    async def cancel(self) -> None:
        """Cancels its jobs that have not ended, and refuses further numbers."""
        await self._ask("CANCEL")

    async def forget(self, seconds: float) -> None:
        """Drops it so many seconds after its end: at least 1, or 0 to keep it."""
        await self._ask("FORGET", milliseconds(seconds))

    async def drop(self) -> None:
        """Removes the epic; its jobs stay."""
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
