"""The wire without its sockets: addresses, values, RESP3, requests and replies."""
from __future__ import annotations

import collections
import json
import ssl
import time
import urllib.parse
from typing import (Any, Callable, Deque, Dict, Iterable, List, NamedTuple, Optional, Sequence,
                    Tuple, Union)

from .errors import BadBody, MillraceError, Unreachable, Usage, error_of

Word = Union[str, bytes, int, float]
SILENCE_SECONDS = 15.0  # of a server that owes a reply
CHECK_SECONDS = 5.0     # how often that is looked at
REPLY_LINE = 64 << 10
REPLY_BULK, REPLY_VALUES, REPLY_DEPTH = 64 << 20, 1 << 20, 16  # what a reply may have at most

# ---- Addresses -----------------------------------------------------------------------------------


class Address(NamedTuple):
    """Where the servers are, and what they want to see. A node is a host and a port, or the path of
    a socket and 0."""

    nodes: Tuple[Tuple[str, int], ...]
    tls: Optional[ssl.SSLContext]
    user: str
    secret: str


def address_of(url: str, token: Optional[str], context: Optional[ssl.SSLContext]) -> Address:
    """Reads millrace://[[user:]secret@]host[:port][,host[:port]…], millraces:// for TLS,
    unix:PATH or unix://[user:]secret@/PATH."""
    scheme, _, rest = url.partition(":")
    if scheme not in ("millrace", "millraces", "unix") or not rest.strip("/") or (
            scheme != "unix" and not rest.startswith("//")):
        raise Usage(f"{url!r} is not a URL of Millrace: write millrace://127.0.0.1:7411, "
                    "millraces://… for TLS, or unix:PATH")
    users, place = "", rest
    if rest.startswith("//"):
        users, _, place = rest[2:].rpartition("@")
    user, _, secret = map(urllib.parse.unquote, users.rpartition(":"))
    nodes = [(place, 0)] if scheme == "unix" else [
        _host_and_port(url, host) for host in place.rstrip("/").split(",")]
    tls = (context or ssl.create_default_context()) if scheme == "millraces" else None
    return Address(tuple(nodes), tls, user or "default", secret or token or "")


def _host_and_port(url: str, host: str) -> Tuple[str, int]:
    part = urllib.parse.urlsplit("//" + host)
    try:
        port = part.port or 7411
    except ValueError:
        raise Usage(f"{url!r} has a port that is no number up to 65535") from None
    if not part.hostname:
        raise Usage(f"{url!r} has a host without a name")
    return part.hostname, port


# ---- Values --------------------------------------------------------------------------------------


def to_bytes(value: Any, what: str = "body") -> bytes:
    """JSON for dicts and lists, text and bytes as they are."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise BadBody(f"the {what} cannot be turned into JSON: {error}; give bytes, a string, or "
                      "what json.dumps takes") from None


def from_bytes(data: Optional[bytes]) -> Any:
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


def milliseconds(seconds: float) -> int:
    return -1 if seconds < 0 else round(seconds * 1000)


# ---- RESP3 ---------------------------------------------------------------------------------------


def encode(words: Sequence[Word]) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class Push(List[Any]):
    """What the server sends unasked."""


class _Incomplete(Exception):
    """More bytes are needed: so many in all, if that is known."""

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self.size = size


def _bounded(line: bytes, most: int) -> int:
    number = int(line)
    if number > most:
        raise ValueError(f"a length of {number}: {most} at most")
    return number


_SIMPLE: Dict[int, Callable[[bytes], Any]] = {
    ord(":"): int, ord(","): float, ord("+"): bytes.decode, ord("_"): lambda line: None,
    ord("#"): lambda line: line == b"t",
    ord("-"): lambda line: error_of(line.decode("utf-8", "replace")),
}


def _parse(data: bytes, at: int, depth: int = 0) -> Tuple[Any, int]:
    """One value and where the next begins. An error reply is a value, too."""
    end = data.find(b"\r\n", at, at + REPLY_LINE)
    if end < 0:
        _bounded(b"%d" % (len(data) - at), REPLY_LINE)
        raise _Incomplete
    kind, line, at = data[at], data[at + 1:end], end + 2
    if kind == 0x24:  # $
        size = _bounded(line, REPLY_BULK)
        if size < 0:
            return None, at
        end = at + size
        if len(data) < end + 2:
            raise _Incomplete(end + 2)
        return data[at:end], end + 2
    if kind in _SIMPLE:
        return _SIMPLE[kind](line), at
    if kind not in b"*>~%":
        raise ValueError(f"{chr(kind)!r} is not RESP3")
    if depth == REPLY_DEPTH:
        raise ValueError("too many levels of lists")
    values: List[Any] = Push() if kind == 0x3e else []
    for _ in range(_bounded(line, REPLY_VALUES) * (2 if kind == 0x25 else 1)):
        value, at = _parse(data, at, depth + 1)
        values.append(value)
    if kind == 0x25:
        return {readable(k): v for k, v in zip(values[::2], values[1::2])}, at
    return values, at


# ---- Connections ---------------------------------------------------------------------------------


First = Callable[["Wire", Any], None]


class Command(NamedTuple):
    """A request, and who gets its reply."""

    words: Sequence[Word]
    #: Is called with the connection and the reply or the error before anything behind it is read.
    first: Optional[First] = None
    #: Gets it after that.
    future: Optional[Any] = None
    #: Seconds that the command may wait in the server.
    wait: float = 0


class Wire:
    """A connection, on which replies come in the order of requests. Subclasses have the socket, and
    futures that fit it."""

    def __init__(self, on_push: Optional[Callable[[Push], None]] = None) -> None:
        self.why = ""  # it was closed
        self.session = ""
        self.waiting: Deque[Tuple[Command, float]] = collections.deque()
        self._on_push = on_push
        self._data = bytearray()
        self._needed = 0  # bytes without which no reply is whole
        self._retired = False

    @property
    def is_open(self) -> bool:
        return not self.why

    def future(self) -> Any:
        """An awaitable with set_result, set_exception and done."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def shut(self) -> None:
        """Ends the socket."""
        raise NotImplementedError

    def send(self, commands: Iterable[Command]) -> None:
        """Sends commands together."""
        if self.why:
            for command in commands:
                self._settle(command, Unreachable(self.why))
            return
        now, data = time.monotonic() + SILENCE_SECONDS, []
        for command in commands:
            self.waiting.append((command, now + command.wait))
            data.append(encode(command.words))
        self.write(b"".join(data))

    def ask(self, *words: Word, wait: float = 0,
            first: Optional[First] = None) -> Any:
        """Sends a command; its reply is awaited with the future that this returns."""
        future = self.future()
        self.send((Command(words, first, future, wait),))
        return future

    def feed(self, data: bytes) -> None:
        """Takes what was received."""
        self._data += data
        if len(self._data) < self._needed:
            return
        data = bytes(self._data)
        at = self._needed = 0
        try:
            while at < len(data) and not self.why:
                value, at = _parse(data, at)
                if not isinstance(value, Push):
                    self._settle(self.waiting.popleft()[0], value)
                elif self._on_push:
                    self._on_push(value)
        except _Incomplete as cut:
            self._needed = cut.size - at
        except (ValueError, IndexError, TypeError) as error:
            self.close(f"the server's reply makes no sense: {error}")
        del self._data[:at]
        if self._retired:
            self.retire()

    def check_silence(self) -> None:
        if self.waiting and self.waiting[0][1] < time.monotonic():
            self.close("the server does not answer")

    def retire(self) -> None:
        """Closes it when all replies have come."""
        self._retired = True
        if not self.waiting:
            self.close()

    def close(self, why: str = "the connection was closed") -> None:
        if self.why:
            return
        self.why = why
        self.shut()
        while self.waiting:
            self._settle(self.waiting.popleft()[0], Unreachable(why))
        if self._on_push:
            self._on_push(Push(["closed"]))

    def _settle(self, command: Command, value: Any) -> None:
        if command.first:
            command.first(self, value)
        if command.future is not None:
            resolve(command.future, value)


def resolve(future: Any, value: Any) -> None:
    """Gives a future its value or error, unless its user has given up."""
    if future.done():
        return
    if isinstance(value, MillraceError):
        future.set_exception(value)
    else:
        future.set_result(value)
