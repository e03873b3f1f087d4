"""The wire without its sockets: addresses, values, RESP3, requests and replies.

A request is a command and a function that gets its reply. Replies come in the order of requests,
and each function is called before anything behind its reply is read.
"""
from __future__ import annotations

import collections
import json
import os
import ssl
import threading
import time
import urllib.parse
from typing import Any, Callable, NamedTuple, Optional, Sequence, Union

from .errors import BadBody, MillraceError, Unreachable, Usage, error_of

SILENCE_SECONDS = 15.0  # of a server that owes a reply
CHECK_SECONDS = 5.0     # how often that is looked at
REPLY_LINE = 64 << 10
REPLY_BULK, REPLY_VALUES, REPLY_DEPTH = 64 << 20, 1 << 20, 16  # what a reply may have at most

Word = Union[str, bytes, int, float]
OnPush = Optional[Callable[["Push"], None]]
OnReply = Callable[[Any], None]  # gets the reply, or the error instead of it
Request = tuple[bytes, OnReply]


class Push(list):  # type: ignore[type-arg]
    """What the server sends unasked; "closed" is the last one, of the connection itself."""


class Address(NamedTuple):
    """Where the servers are, and what they want to see. A node is a host and a port, or the path of
    a socket and 0."""

    nodes: tuple[tuple[str, int], ...]
    tls: ssl.SSLContext | None
    user: str
    secret: str


def address_of(url: str, token: str | None, context: ssl.SSLContext | None) -> Address:
    """Reads millrace://[[user:]secret@]host[:port][,host[:port]…], millraces:// for TLS,
    unix:PATH or unix://[user:]secret@/PATH."""
    scheme, _, rest = url.partition(":")
    users, _, place = rest[2:].rpartition("@") if rest.startswith("//") else ("", "", rest)
    user, _, secret = map(urllib.parse.unquote, users.rpartition(":"))
    try:
        if scheme == "unix":
            nodes = [(place, 0)]
        elif scheme in ("millrace", "millraces") and rest.startswith("//"):
            parts = [urllib.parse.urlsplit("//" + part) for part in place.rstrip("/").split(",")]
            nodes = [(part.hostname or "", part.port or 7411) for part in parts]
        else:
            raise ValueError("its scheme is another one")
        if not all(host for host, _ in nodes):
            raise ValueError("a name is missing")
    except ValueError as error:
        shown = "…@" + url.rpartition("@")[2] if "@" in url else url  # without the secret
        raise Usage(f"{shown!r} is not a URL of Millrace: {error}; write millrace://127.0.0.1:7411, "
                    "millraces://… for TLS, or unix:PATH") from None
    tls = (context or ssl.create_default_context()) if scheme == "millraces" else None
    return Address(tuple(nodes), tls, user or "default",
                   token or secret or os.environ.get("MILLRACE_TOKEN", ""))


# ---- Values --------------------------------------------------------------------------------------


def to_bytes(value: Any, what: str = "body") -> bytes:
    """JSON for dicts and lists, text and bytes as they are."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    try:
        return value.encode() if isinstance(value, str) else json.dumps(
            value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise BadBody(f"the {what} cannot be turned into JSON or UTF-8: {error}; give bytes, a "
                      "string, or what json.dumps takes") from None


def from_bytes(data: bytes | None) -> Any:
    """A JSON object or array, or else text, or else the bytes: what to_bytes was given."""
    if data is None:
        return None
    try:
        text = data.decode()
        return json.loads(text) if text[:1] in ("{", "[") else text
    except UnicodeDecodeError:
        return data
    except ValueError:
        return text


def readable(value: Any) -> Any:
    """A reply with text instead of bytes, at any depth."""
    if isinstance(value, list):
        return [readable(v) for v in value]
    if isinstance(value, dict):
        return {name: readable(v) for name, v in value.items()}
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def milliseconds(seconds: float, what: str) -> int:
    """A time of the protocol. Only a wait for room may be negative: for ever."""
    try:
        rounded = round(1000 * seconds)
    except (TypeError, ValueError, OverflowError):
        raise Usage(f"{what} is a number of seconds, not {seconds!r}") from None
    if seconds < 0 and what != "room":
        raise Usage(f"{what} is a number of seconds from 0 on, not {seconds!r}")
    return -1 if seconds < 0 else rounded


# ---- RESP3 ---------------------------------------------------------------------------------------


def encode(*words: Word) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode("utf-8", "backslashreplace")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class Incomplete(Exception):
    """More bytes are needed: so many in all, if that is known."""


def bounded(line: bytes, most: int) -> int:
    number = int(line)
    if number > most:
        raise ValueError(f"a length of {number}: {most} at most")
    return number


SIMPLE: dict[int, Callable[[bytes], Any]] = {
    ord(":"): int, ord(","): float, ord("+"): bytes.decode, ord("_"): lambda line: None,
    ord("#"): lambda line: line == b"t",
    ord("-"): lambda line: error_of(line.decode("utf-8", "replace")),
}


def parse(data: bytes, at: int, depth: int = 0) -> tuple[Any, int]:
    """One value and where the next begins. An error reply is a value, too."""
    end = data.find(b"\r\n", at, at + REPLY_LINE)
    if end < 0:
        bounded(b"%d" % (len(data) - at), REPLY_LINE)
        raise Incomplete(0)
    kind, line, at = data[at], data[at + 1:end], end + 2
    if kind == 0x24:  # $
        end = at + bounded(line, REPLY_BULK)
        if end < at:
            return None, at
        if len(data) < end + 2:
            raise Incomplete(end + 2)
        return data[at:end], end + 2
    if kind in SIMPLE:
        return SIMPLE[kind](line), at
    if kind not in b"*>~%":
        raise ValueError(f"{chr(kind)!r} is not RESP3")
    if depth == REPLY_DEPTH:
        raise ValueError(f"it has more than {REPLY_DEPTH} levels")
    values = Push() if kind == 0x3e else []
    for _ in range(bounded(line, REPLY_VALUES) * (2 if kind == 0x25 else 1)):
        value, at = parse(data, at, depth + 1)
        values.append(value)
    if kind == 0x25:
        return {readable(k): v for k, v in zip(values[::2], values[1::2])}, at
    return values, at


class Wire:
    """A connection. Subclasses have the socket, and futures that fit it."""

    future: Callable[[], Any]  # what can be awaited, and has done() and set_result()
    write: Callable[[bytes, bool], None]  # True: no reply is awaited before
    shut: Callable[[], None]  # ends the socket

    def __init__(self, on_push: OnPush = None) -> None:
        self.why = ""  # it was closed
        self.session, self.node = "", ("", 0)
        self.waiting: collections.deque[tuple[OnReply, float]] = collections.deque()  # until when
        self._on_push = on_push
        self._sending = threading.RLock()  # guards the order of requests
        self._data = bytearray()
        self._needed = 0  # bytes without which no reply is whole

    def is_open(self) -> bool:
        return not self.why

    def poll(self) -> None:
        """Reads what has come, where no loop does that."""

    def watch(self, seconds: float) -> None:
        """Looks for silence in so many seconds, where no reader does that."""

    def send(self, requests: Sequence[Request], patience: float = SILENCE_SECONDS) -> None:
        """Sends requests together; replies may take so many seconds."""
        until = time.monotonic() + patience
        with self._sending:
            try:
                alone = not self.waiting
                self.waiting.extend([(on_reply, until) for _, on_reply in requests])
                if not self.why:
                    self.write(b"".join([data for data, _ in requests]), alone)
            except BaseException as error:
                self.broke(error)
            if self.why:
                self._fail()

    async def exchange(self, requests: Sequence[Request],
                       patience: float = SILENCE_SECONDS) -> Any:
        """Sends requests together, and waits for the reply to the last: returns or raises it."""
        future, (data, on_reply) = self.future(), requests[-1]

        def last(reply: Any) -> None:
            try:
                on_reply(reply)
            finally:
                if not future.done():  # else its user has given up
                    future.set_result(reply)
        self.send([*requests[:-1], (data, last)], patience)
        reply = await future
        if isinstance(reply, MillraceError):
            if isinstance(reply, Unreachable):  # refused pushes have spoilt it
                self.close(reply.reason)
            raise reply
        return reply

    async def ask(self, *words: Word, patience: float = SILENCE_SECONDS) -> Any:
        return await self.exchange([(encode(*words), lambda _: None)], patience)

    def feed(self, data: bytes) -> None:
        """Takes what was received."""
        self._data += data
        if len(self._data) < self._needed:
            return
        data = bytes(self._data)
        at = self._needed = 0
        try:
            while at < len(data) and not self.why:
                value, at = parse(data, at)
                if not isinstance(value, Push):
                    self.waiting.popleft()[0](value)
                elif self._on_push:
                    self._on_push(value)
        except Incomplete as cut:
            self._needed = cut.args[0] - at
        except (ValueError, IndexError, TypeError) as error:
            self.close(f"the server's reply makes no sense: {error}")
        del self._data[:at]

    def seconds_left(self) -> float:
        """Until the server has been silent for too long."""
        try:
            return self.waiting[0][1] - time.monotonic()
        except IndexError:  # nothing waits, or another thread has closed it
            return CHECK_SECONDS

    def check_silence(self) -> None:
        if self.seconds_left() <= 0:
            self.close("the server does not answer")

    def close(self, why: str = "the connection was closed") -> None:
        self.shut()  # before the lock, since it ends what other threads do there
        with self._sending:
            is_first, self.why = not self.why, self.why or why
            self._fail()
        if is_first and self._on_push:
            self._on_push(Push(["closed"]))

    def broke(self, error: BaseException) -> None:
        """Closes it: a command may be cut, a reply lost. Ctrl-C and the like go on."""
        self.close(str(error) or "a thread was interrupted")
        if not isinstance(error, OSError):
            raise error

    def _fail(self) -> None:
        while self.waiting:
            self.waiting.popleft()[0](Unreachable(self.why))
