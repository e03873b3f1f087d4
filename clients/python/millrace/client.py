"""What the clients for threads and for asyncio have in common.

It is written as coroutines. Those of AsyncMillrace wait in the event loop; those of Millrace never
suspend, since everything that they await blocks the thread.

Commands that do not wait share a connection. One that waits in the server has another for itself;
to give it up is to close that, which withdraws a call. A push is numbered by a source that no other
push uses meanwhile, so that the server recognises one that is sent again after its reply was lost.
"""
from __future__ import annotations

import contextlib
import contextvars
import logging
import os
import random
import secrets
import ssl
import time
from typing import Any, Awaitable, Callable, Coroutine, Iterable, Sequence

from .errors import (Gap, Gone, Incompatible, MillraceError, Stopped, Timeout, Unreachable, Usage)
from .wire import (SILENCE_SECONDS, OnPush, Wire, Word, address_of, from_bytes, milliseconds,
                   readable, to_bytes)

GREETING_SECONDS = 5.0
REPEAT_SECONDS = 25.0  # a server remembers the numbers of a source for a minute at least
SLACK_SECONDS = 5.0    # for the server to say that a call has expired
WAIT_SECONDS = 10.0    # of one command that waits
FOREVER_SECONDS = 365 * 86400.0
STAGES_KEPT = 1000     # that have free sources
IDLE_KEPT = 16         # connections for commands that wait
MANY, MANY_BYTES = 256, 1 << 20  # pushes of push_many in one command, and their bytes, about
PAUSE_LEAST, PAUSE_MOST = 0.05, 2.0

# The trace that the running handler belongs to; pushes and emits carry it on.
trace: contextvars.ContextVar[str | None] = contextvars.ContextVar("trace", default=None)

# The options of a push: the word of the protocol, and what turns the value into the next word.
OPTIONS: dict[str, tuple[str, Callable[[Any, str], Word] | None]] = {
    "key": ("KEY", None), "once": ("ONCE", None), "last": ("LAST", None),
    "delay": ("DELAY", milliseconds), "deadline": ("DEADLINE", milliseconds),
    "attempts": ("ATTEMPTS", None), "room": ("ROOM", milliseconds), "meta": ("META", to_bytes),
}


def push_words(options: dict[str, Any]) -> list[Word]:
    """The options of a push, in seconds, as words of the protocol."""
    words: list[Word] = []
    parent = trace.get()
    if parent and options.get("meta") is None:
        options = {**options, "meta": {"traceparent": parent}}
    for name, value in options.items():
        if name not in OPTIONS:
            raise Usage(f"a push has no option {name}; it has {' '.join(OPTIONS)}")
        word, convert = OPTIONS[name]
        if value or (name == "meta" and value is not None):
            words += (word,) if name == "last" else (
                word, convert(value, name) if convert else value)
    return words


class Client:
    """Connections, and how commands are sent there. Subclasses have sockets, threads or tasks."""

    _connect: Callable[[str, int, OnPush], Awaitable[Wire]]
    _connected: Callable[[], Awaitable[Wire]]  # what _reconnect() returns, for one caller at a time
    _sleep: Callable[[float], Awaitable[None]]
    _bell: Callable[[], Any]  # something with ring(), for any thread, and wait(seconds)
    _spawn: Callable[[Coroutine[Any, Any, None]], None]  # runs it beside the caller
    _invoke: Callable[[Callable[..., Any], Any], Awaitable[Any]]  # a handler in its own context

    def __init__(self, url: str | None = None, *, token: str | None = None,
                 context: ssl.SSLContext | None = None, name: str | None = None,
                 logger: logging.Logger | None = None) -> None:
        url = url or os.environ.get("MILLRACE_URL") or "millrace://127.0.0.1:7411"
        self._address = address_of(url, token, context)
        self._name = name or f"python-{os.getpid()}-{secrets.token_hex(4)}"
        self._logger = logger or logging.getLogger("millrace")
        self._node = random.randrange(len(self._address.nodes))
        self._main: Wire | None = None
        self._idle: list[Wire] = []
        self._closed = False
        self._quiet_until = 0.0  # losses are not logged again before that
        self._sources: dict[str, list[tuple[str, int]]] = {}  # names and numbers that were used

    async def _shared(self) -> Wire:
        wire = self._main
        return wire if wire and wire.is_open() else await self._connected()

    async def _reconnect(self) -> Wire:
        if not self._main or not self._main.is_open():
            self._main = await self._dial()
        return self._main

    async def _dial(self, on_push: OnPush = None) -> Wire:
        """A new connection. Tries each node once; raises the last one's error."""
        last: MillraceError = Unreachable("the client was closed", lasting=True)
        for _ in self._address.nodes if not self._closed else ():
            try:
                return await self._dial_node(*self._address.nodes[self._node], on_push)
            except (Unreachable, Stopped) as error:
                last, self._node = error, (self._node + 1) % len(self._address.nodes)
        raise last

    async def _dial_node(self, host: str, port: int, on_push: OnPush = None) -> Wire:
        where = f"{host}:{port}" if port else f"unix:{host}"
        try:
            wire = await self._connect(host, port, on_push)
        except ssl.SSLCertVerificationError as error:
            raise Unreachable(f"the certificate of {where} is refused: {error}; give the authority "
                              "that signed it with context=", lasting=True) from None
        except OSError as error:
            raise Unreachable(f"cannot connect to {where}: {error or 'no answer'}; a server is "
                              f"started with: millrace serve --listen {where}") from None
        try:
            await self._greet(wire)
        except BaseException as error:
            wire.close()
            if isinstance(error, Unreachable):
                raise Unreachable(f"{where} does not answer as a Millrace server does: {error}; "
                                  "is it the address of --listen?") from None
            if not isinstance(error, (Usage, Incompatible)):
                raise
            raise Incompatible(f"{where} does not speak the protocol of this library: {error}; "
                               "connect to a Millrace server of version 0.2 or later") from None
        wire.node = host, port
        if self._quiet_until:
            self._logger.warning("connected again to %s", where)
            self._quiet_until = 0
        return wire

    def _lost(self, error: Exception) -> None:
        """Logs what is tried again: the first error of an outage."""
        if time.monotonic() > self._quiet_until:
            self._quiet_until = time.monotonic() + REPEAT_SECONDS
            self._logger.warning("%s; trying again", error)

    async def _greet(self, wire: Wire) -> None:
        user, secret = self._address.user, self._address.secret
        hello = await wire.ask("HELLO", 3, *(("AUTH", user, secret) if secret else ()), "SETNAME",
                               self._name, patience=GREETING_SECONDS)
        if not isinstance(hello, dict) or hello.get("server") != b"millrace":
            raise Incompatible("it is not a Millrace server")
        wire.session = str(hello.get("id", ""))
        await wire.ask("CLIENT", "CANCELS", "ON")

    async def _ask(self, *words: Word, patience: float | None = None) -> Any:
        """Sends a command once. With `patience`, the seconds that its reply may take, it has a
        connection for itself."""
        if patience is None:
            return await (await self._shared()).ask(*words)
        wire = None
        with contextlib.suppress(IndexError):  # there is none, or another thread has it
            while not wire or not wire.is_open():
                wire = self._idle.pop()
        if not wire or wire.why:
            wire = await self._dial()
        wire.watch(patience)
        try:
            return await wire.ask(*words, patience=patience)
        finally:
            if wire.why or wire.waiting or self._closed or len(self._idle) >= IDLE_KEPT:
                wire.close()
            else:
                self._idle.append(wire)

    async def _repeat(self, *words: Word, wait: float = 0, until: float = 0) -> Any:
        """Sends a command that may be sent twice, again after each loss of the connection. It may
        wait in the server for so many seconds, or until time.monotonic() has this value."""
        pause, give_up, was_lost = PAUSE_LEAST, time.monotonic() + REPEAT_SECONDS, False
        while True:
            patience = FOREVER_SECONDS if wait < 0 else wait + SILENCE_SECONDS if wait else None
            if until:
                patience = max(0.001, until - time.monotonic())
            try:
                return await self._ask(*words, patience=patience)
            except MillraceError as error:
                is_loss = isinstance(error, (Unreachable, Stopped))
                was_lost = error.was_lost = was_lost or is_loss
                if (not is_loss or error.lasting
                        or time.monotonic() + pause > min(give_up, until or give_up)):
                    raise
                self._lost(error)
            await self._sleep(pause * random.uniform(0.5, 1))
            pause = min(2 * pause, PAUSE_MOST)

    async def _numbered(self, stage: str, room: float, head: Sequence[Word],
                        tail: Sequence[Word] = (), is_first: bool = True) -> Any:
        """Sends a push with the next number of a source."""
        free = self._sources.setdefault(stage, [])
        try:
            name, number = (free if is_first else []).pop()
        except IndexError:
            name, number = "python-" + secrets.token_hex(16), 0
        try:
            reply = await self._repeat(*head, "SOURCE", name, number + 1, *tail, wait=room)
        except MillraceError as error:
            if is_first and isinstance(error, Gap):  # the source is not known, and so no push of it
                return await self._numbered(stage, room, head, tail, is_first=False)
            if not error.was_lost:  # else what was lost may have used the number
                free.append((name, number))
            raise
        if len(self._sources) > STAGES_KEPT:
            self._sources = {}
        free.append((name, number + (len(reply) if tail else 1)))
        return reply

    async def _wait_for(self, words: Sequence[Word], timeout: float,
                        over: Callable[[Any], bool], late: str) -> Any:
        """Sends a command with WAIT, in pieces, until `over` accepts its reply."""
        until = time.monotonic() + (timeout if timeout >= 0 else FOREVER_SECONDS)
        while True:
            wait = max(0, min(until - time.monotonic(), WAIT_SECONDS))
            reply = await self._repeat(*words, "WAIT", round(1000 * wait), wait=wait)
            if over(reply):
                return reply
            if time.monotonic() >= until:
                raise Timeout(late)

    def _close(self) -> None:
        self._closed = True
        for wire in filter(None, (self._main, *self._idle)):
            wire.close()


class Commands(Client):
    """What a user asks of a client."""

    async def push(self, /, stage: str, body: Any = b"", **options: Any) -> str:
        """Pushes a job and returns its id. Options: key, once, last, delay, deadline, attempts,
        meta, room; times are in seconds."""
        words: list[Word] = ["PUSH", stage, to_bytes(body), *push_words(options)]
        return str(readable(await self._numbered(stage, options.get("room", 0), words)))

    async def push_many(self, /, stage: str, items: Iterable[Any], **options: Any) -> list[str]:
        """Pushes bodies, or pairs of key and body, in order; returns their ids. All are pushed, or
        the error of the first one that is refused is raised with `ids`, those before it."""
        ids: list[str] = []
        pairs = [item if isinstance(item, tuple) else ("", item) for item in items]
        head = ["PUSHMANY", stage, *push_words(options)]
        while len(ids) < len(pairs):
            words: list[Word] = ["ITEMS"]
            size = 0
            for key, body in pairs[len(ids):len(ids) + MANY]:
                data = to_bytes(body)
                words += key or "", data
                size += len(data)
                if size > MANY_BYTES:
                    break
            try:
                reply = await self._numbered(stage, options.get("room", 0), head, words)
            except MillraceError as error:
                error.ids = ids
                raise
            ids += readable(reply)
        return ids

    async def call(self, /, stage: str, body: Any = b"", *, timeout: float = 30,
                   **options: Any) -> Any:
        """Pushes a job, waits for its result and returns it. The job is cancelled when its caller
        gives up: by the timeout, by cancellation or by going away."""
        until = time.monotonic() + timeout
        slack = 0 if "deadline" in options else SLACK_SECONDS
        words = push_words({"deadline": timeout, "once": secrets.token_hex(16), **options})
        try:
            return from_bytes(await self._repeat("CALL", stage, to_bytes(body), *words,
                                                 until=until + slack))
        except Unreachable:
            if time.monotonic() < until:
                raise
            raise Timeout(f"{stage} has not answered within {timeout} s") from None

    async def wait(self, job: str, *, timeout: float = 30) -> Any:
        """Waits for a job that was pushed and returns its result."""
        late = f"job {job} has not ended within {timeout} s"
        return from_bytes(await self._wait_for(("AWAIT", job), timeout,
                                               lambda reply: reply is not None, late))

    async def cancel(self, *jobs: str) -> int:
        """Cancels jobs: those that wait do not start, those that run are told to stop."""
        return int(await self._repeat("CANCEL", *jobs))

    async def job(self, job: str) -> dict[str, Any]:
        """What the server knows of a job."""
        return dict(readable(await self._repeat("JOB", job)))

    async def command(self, *words: Word) -> Any:
        """Any command of the protocol, sent once: replies are str, bytes, int, list, dict, None."""
        return await self._ask(*words)


class EpicBase:
    def __init__(self, client: Client, stage: str, name: str) -> None:
        self.stage, self.name, self._client = stage, name, client

    async def _ask(self, *words: Word) -> Any:
        return await self._client._repeat("EPIC", self.stage, self.name, *words)


class Epic(EpicBase):
    """Pushes that are numbered from 1, each made once however often it is said."""

    async def push(self, /, number: int, body: Any = b"", **options: Any) -> str | None:
        """Pushes number `number`; None: it was pushed long ago, and its id is forgotten."""
        return readable(await self._client._repeat(  # type: ignore[no-any-return]
            "PUSH", self.stage, to_bytes(body), *push_words(options), "EPIC", self.name, number,
            wait=options.get("room", 0)))

    async def look(self) -> dict[str, Any]:
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

    async def wait(self, *, left: int | None = None, timeout: float = -1) -> dict[str, Any]:
        """Waits until all its jobs have ended, or with `left` until at most so many have not, so
        that a producer stays at most so far ahead; returns its progress."""
        def over(reply: Any) -> bool:
            whole = 0 <= reply["total"] < reply["resume"] or reply.get("stopped")
            return bool((whole or left is not None)
                        and reply["waiting"] + reply["running"] <= (left or 0))
        words: list[Word] = ["EPIC", self.stage, self.name]
        if left is not None:
            words += "LEFT", left
        late = f"epic {self.name} of {self.stage} has not ended within {timeout} s"
        return dict(readable(await self._client._wait_for(words, timeout, over, late)))

    async def then(self, stage: str, body: Any = b"", *, key: str = "") -> None:
        """A job that is pushed in the commit that ends the epic."""
        await self._ask("THEN", stage, key, to_bytes(body))

    async def cancel(self) -> None:
        """Cancels its jobs that have not ended, and refuses further numbers."""
        await self._ask("CANCEL")

    async def forget(self, seconds: float) -> None:
        """Drops it so many seconds after its end: at least 1, or 0 to keep it."""
        await self._ask("FORGET", milliseconds(seconds, "forget"))

    async def drop(self) -> None:
        """Removes the epic; its jobs stay."""
        await self._ask("DROP")
