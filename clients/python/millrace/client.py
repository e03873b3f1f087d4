"""What the clients for threads and for asyncio have in common.

It is written as coroutines. Those of AsyncMillrace wait in the event loop; those of Millrace wait
in the calling thread, where everything that they await blocks.

A push is numbered by a source that no other push uses meanwhile, so that the server recognises one
that is sent again after its reply was lost. A number is used up when its push is accepted.
"""
from __future__ import annotations

import contextvars
import logging
import os
import random
import secrets
import ssl
import time
from typing import (Any, AsyncContextManager, Callable, Dict, Iterable, List, Optional, Sequence,
                    Set, Tuple)

from .errors import (Cancelled, Dead, Expired, Full, Gap, Gone, Incompatible, MillraceError,
                     Stopped, Timeout, Unreachable, Usage)
from .wire import (SILENCE_SECONDS, Command, First, Push, Wire, Word, address_of, from_bytes,
                   milliseconds, readable, resolve, to_bytes)

GREETING_SECONDS = 5.0
REPEAT_SECONDS = 25.0  # a server remembers the numbers of a source for a minute at least
SLACK_SECONDS = 5.0
WAIT_SECONDS = 10.0    # of one command that waits
SOURCE_SECONDS = 30.0  # a server forgets a source that is not used for a minute
STAGES_KEPT = 1000     # that have free sources
MANY, MANY_BYTES = 256, 1 << 20  # pushes of push_many in one command, and their bytes, about
PAUSE_LEAST, PAUSE_MOST = 0.05, 2.0

# The trace that the running handler belongs to; pushes and emits carry it on.
trace: "contextvars.ContextVar[Optional[str]]" = contextvars.ContextVar("trace", default=None)
OnPush = Optional[Callable[[Push], None]]

# The options of a push: the word of the protocol, and what turns the value into the next word.
_OPTIONS: Dict[str, Tuple[str, Callable[[Any], Word]]] = {
    "key": ("KEY", str), "once": ("ONCE", str), "last": ("LAST", bool),
    "delay": ("DELAY", milliseconds), "deadline": ("DEADLINE", milliseconds),
    "attempts": ("ATTEMPTS", int), "room": ("ROOM", milliseconds),
    "meta": ("META", lambda meta: to_bytes(meta, "metadata")),
}


def push_words(options: Dict[str, Any]) -> List[Word]:
    """The options of a push, in seconds, as words of the protocol."""
    words: List[Word] = []
    parent = trace.get()
    if parent and options.get("meta") is None:
        options = {**options, "meta": {"traceparent": parent}}
    unknown = options.keys() - _OPTIONS.keys()
    if unknown:
        raise TypeError(f"a push has no option {unknown.pop()!r}, but {', '.join(_OPTIONS)}")
    for name, (word, convert) in _OPTIONS.items():
        value = options.get(name)
        if value or (name == "meta" and value is not None):
            words += (word,) if name == "last" else (word, convert(value))
    return words


class Link:
    """A connection that comes back, to any of the nodes."""

    def __init__(self, client: "Client", on_push: OnPush = None) -> None:
        self.wire: Optional[Wire] = None
        self.closed = False
        self._client, self._on_push = client, on_push
        self._node = random.randrange(len(client.address.nodes))
        self._lock = client.lock()

    @property
    def up(self) -> Optional[Wire]:
        return self.wire if self.wire and self.wire.is_open else None

    async def get(self) -> Wire:
        """A connection that is up. Tries each node once; raises the last one's error."""
        nodes = self._client.address.nodes
        async with self._lock:
            for left in range(len(nodes), 0, -1):
                if self.up:
                    break
                if self.closed:
                    raise Unreachable("the client was closed", lasting=True)
                try:
                    self.wire = await self._dial(*nodes[self._node % len(nodes)])
                except (Unreachable, Stopped):
                    self._node += 1
                    if left == 1:
                        raise
            assert self.wire
            return self.wire

    async def _dial(self, host: str, port: int) -> Wire:
        """Connects to a node and waits until it has read its store."""
        where = f"{host}:{port}" if port else f"unix:{host}"
        try:
            wire = await self._client.connect(host, port, self._on_push)
        except ssl.SSLCertVerificationError as error:
            raise Unreachable(f"the certificate of {where} is refused: {error}; give the authority "
                              "that signed it with context=", lasting=True) from None
        except OSError as error:
            raise Unreachable(f"cannot connect to {where}: {error or 'no answer'}; a server is "
                              f"started with: millrace serve --listen {where}") from None
        try:
            await self._greet(wire)
        except (Usage, Incompatible, TypeError) as error:
            wire.close()
            raise Incompatible(f"{where} does not speak the protocol of this library: {error}; "
                               "connect to a Millrace server of version 0.2 or later") from None
        except BaseException:
            wire.close()
            raise
        self._client.logger.debug("connected to %s", where)
        return wire

    async def _greet(self, wire: Wire) -> None:
        address, until = self._client.address, time.monotonic() + GREETING_SECONDS
        auth = ("AUTH", address.user, address.secret) if address.secret else ()
        hello = await wire.ask("HELLO", 3, *auth, "SETNAME", self._client.name,
                               wait=GREETING_SECONDS - SILENCE_SECONDS)
        if not isinstance(hello, dict) or hello.get("server") != b"millrace":
            raise Incompatible("it is not a Millrace server")
        wire.session = str(hello.get("id", ""))
        await wire.ask("CLIENT", "CANCELS", "ON")
        while b"loading:1" in await wire.ask("INFO", "persistence"):
            if time.monotonic() > until:
                raise Unreachable("the server is still reading its store")
            await self._client.sleep(0.1)

    async def ask(self, *words: Word) -> Any:
        return await (self.up or await self.get()).ask(*words)

    async def repeat(self, *words: Word, wait: float = 0, seconds: float = REPEAT_SECONDS,
                     first: Optional[First] = None) -> Any:
        """Sends a command that may be sent twice, again after each loss of the connection; it may
        wait in the server for so many seconds."""
        until, pause = time.monotonic() + min(seconds, REPEAT_SECONDS), PAUSE_LEAST
        while True:
            try:
                return await (self.up or await self.get()).ask(*words, wait=wait, first=first)
            except (Unreachable, Stopped) as error:
                if error.lasting or time.monotonic() + pause > until:
                    raise
                self._client.logger.info("%s; trying again", error)
            await self._client.sleep(pause * random.uniform(0.5, 1))
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


class _Source:
    """A series of numbers for pushes to one stage."""

    def __init__(self) -> None:
        self.name, self.number, self.used = "python-" + secrets.token_hex(16), 0, 0.0


class Client:
    """It connects when it is first used. Subclasses have sockets, locks and time."""

    def __init__(self, url: Optional[str] = None, *, token: Optional[str] = None,
                 context: Optional[ssl.SSLContext] = None, name: Optional[str] = None,
                 logger: Optional[logging.Logger] = None) -> None:
        url = url or os.environ.get("MILLRACE_URL") or "millrace://127.0.0.1:7411"
        self.address = address_of(url, token or os.environ.get("MILLRACE_TOKEN"), context)
        self.name = name or f"python-{os.getpid()}-{secrets.token_hex(4)}"
        self.logger = logger or logging.getLogger("millrace")
        self._main: Optional[Link] = None
        self._sources: Dict[str, List[_Source]] = {}
        self._calls: Dict[bytes, Set[Any]] = {}  # the ends of calls; two may have one name

    async def connect(self, host: str, port: int, on_push: OnPush) -> Wire:
        raise NotImplementedError

    def lock(self) -> AsyncContextManager[Any]:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError

    async def wait_until(self, future: Any, until: float) -> None:
        """Waits for the future, or until time.monotonic() has this value."""
        raise NotImplementedError

    @property
    def main(self) -> Link:
        if not self._main:
            self._main = Link(self, self._pushed)
        return self._main

    async def _patiently(self, room: float, *words: Word) -> Any:
        """Sends a push. One that waits for room has a connection of its own, so that others do not
        wait with it."""
        link = Link(self) if room else self.main
        try:
            return await link.repeat(*words, wait=_patience(room))
        finally:
            if room:
                link.close()

    # ---- Pushing -------------------------------------------------------------------------------

    async def push(self, stage: str, body: Any = b"", **options: Any) -> str:
        """Pushes a job and returns its id. Options: key, once, last, delay, deadline, attempts,
        meta, room; times are in seconds."""
        head: List[Word] = ["PUSH", stage, to_bytes(body), *push_words(options)]
        return _id(await self._numbered(stage, options.get("room", 0), head))

    async def push_many(self, stage: str, items: Iterable[Any], **options: Any) -> List[str]:
        """Pushes bodies, or pairs of key and body, in order; returns their ids. All are pushed, or
        the error of the first one that is refused is raised with `ids`, those before it."""
        ids: List[str] = []
        pairs = [item if isinstance(item, tuple) else ("", item) for item in items]
        head = ("PUSHMANY", stage, *push_words(options))
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
                error.ids = ids
                raise
        return ids

    async def _numbered(self, stage: str, room: float, head: Sequence[Word],
                        tail: Sequence[Word] = ()) -> Any:
        """Sends a push with the next number of a source."""
        source, again = self._source(stage), True
        while True:
            try:
                reply = await self._patiently(room, *head, "SOURCE", source.name,
                                              source.number + 1, *tail)
            except Gap:  # the server does not know the source any more: it was idle for long
                source = _Source()
                if not again:
                    raise
            except (Unreachable, Stopped):
                raise  # the number may have been used: the source is given up
            except MillraceError as error:
                if not again or not error.reason.endswith("connect again"):
                    self._give_back(stage, source)  # the next push has the number
                    raise
                self.main.renew()  # this one has too many refused sources
            else:
                source.number += len(reply) if isinstance(reply, list) else 1
                self._give_back(stage, source)
                return reply
            again = False

    def _source(self, stage: str) -> _Source:
        free = self._sources.get(stage)
        try:
            source = free.pop() if free else _Source()
        except IndexError:  # another thread has taken it
            return _Source()
        if not source.used or time.monotonic() - source.used < SOURCE_SECONDS:
            return source
        self._sources.pop(stage, None)  # those below were not used for longer
        return _Source()

    def _give_back(self, stage: str, source: _Source) -> None:
        source.used = time.monotonic()
        if len(self._sources) > STAGES_KEPT:
            self._sources = {}
        self._sources.setdefault(stage, []).append(source)

    # ---- Results -------------------------------------------------------------------------------

    async def call(self, stage: str, body: Any = b"", *, timeout: float = 30,
                   **options: Any) -> Any:
        """Pushes a job, waits for its result and returns it. The job is cancelled when its caller
        gives up: by the timeout, by cancellation or by going away."""
        options.setdefault("once", secrets.token_hex(16))  # so that it can be sent again
        until = time.monotonic() + timeout
        slack = 0 if "deadline" in options else SLACK_SECONDS  # the server says that it has expired
        data = to_bytes(body)
        while True:
            left = max(0.001, until - time.monotonic())
            call = _Call(self)
            try:
                await self.main.repeat(
                    "CALL", stage, data, *push_words({"deadline": left, **options}), "LATER",
                    seconds=left, first=call.accepted)
                await self.wait_until(call.end, until + slack)
            except BaseException:
                call.withdraw()
                raise
            if not call.end.done():
                call.withdraw()
                raise Timeout(f"{stage} has not answered within {timeout} s")
            call.forget()
            try:
                return from_bytes(await call.end)
            except Unreachable:
                continue  # the connection was lost: the call is sent again, by its name
            except MillraceError as error:
                error.job = _id(call.job)
                raise

    def _pushed(self, message: Push) -> None:
        if message[0] == "closed":
            ends = [end for calls in list(self._calls.values()) for end in list(calls)]
            value: Any = Unreachable("the connection was lost")
        elif readable(message[0]) == "ended" and len(message) > 2:
            ends, value = list(self._calls.get(message[1], ())), message[2]
        else:
            return
        for end in ends:
            resolve(end, value)

    async def wait(self, job: str, *, timeout: float = 30) -> Any:
        """Waits for a job that was pushed and returns its result."""
        late = f"job {job} has not ended within {timeout} s"
        try:
            return from_bytes(await self.wait_for(
                ("AWAIT", job), timeout, lambda reply: reply is not None, late))
        except (Cancelled, Dead, Expired) as error:
            error.job = job
            raise

    async def wait_for(self, words: Sequence[Word], timeout: float,
                       over: Callable[[Any], bool], late: str) -> Any:
        """Sends a command with WAIT, in pieces and on a connection of its own, until `over` accepts
        its reply."""
        until, lane = time.monotonic() + _patience(timeout), Link(self)
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


class _Call:
    """A call that was sent. Its end is expected before anything behind its acceptance is read."""

    def __init__(self, client: Client) -> None:
        self.client, self.job, self.over = client, b"", False
        self.end: Any = None

    def accepted(self, wire: Wire, reply: Any) -> None:
        if isinstance(reply, MillraceError):
            return
        self.job, self.end = reply, wire.future()
        self.client._calls.setdefault(reply, set()).add(self.end)
        if self.over:
            self.withdraw()

    def forget(self) -> None:
        ends = self.client._calls.get(self.job, set())
        ends.discard(self.end)
        if not ends:
            self.client._calls.pop(self.job, None)

    def withdraw(self) -> None:
        """Cancels the job, unless another call waits for it."""
        self.over = True
        wire = self.client.main.up
        self.forget()
        if self.job and wire and self.job not in self.client._calls:
            wire.send((Command(("CANCEL", self.job)),))


class Epic:
    """Pushes that are numbered from 1, each made once however often it is said."""

    def __init__(self, client: Client, stage: str, name: str) -> None:
        self._client, self.stage, self.name = client, stage, name

    async def _ask(self, *words: Word) -> Any:
        return await self._client.main.repeat("EPIC", self.stage, self.name, *words)

    async def push(self, number: int, body: Any = b"", **options: Any) -> Optional[str]:
        """Pushes number `number`; None: it was pushed long ago, and its id is forgotten."""
        reply = await self._client._patiently(
            options.get("room", 0), "PUSH", self.stage, to_bytes(body), *push_words(options),
            "EPIC", self.name, number)
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
        words: List[Word] = ["EPIC", self.stage, self.name]
        if left is not None:
            words += "LEFT", left
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
